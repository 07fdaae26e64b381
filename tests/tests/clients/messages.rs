//! Protobuf answers, decoded by client-go.
//!
//! Goal: an object is the same in protobuf and in JSON. Method: `tests/clients/protobuf` creates random objects of every
//! built-in kind with Kubernetes' own fuzzers, and reads each in both encodings, alone and in a list. It also
//! compares the protobuf of a cache with the protobuf of the kube-apiserver behind it.

use std::{process::Stdio, time::Duration};

use tests::{
    genuine::{ADMIN, CACHE, Genuine, token_of},
    process::Server,
};
use tokio::time::timeout;

use super::{SERVER, programs::Program};

/// Timeout of the program, which takes seconds; the rest is for many objects and busy machines.
const PROGRAM_WAIT: Duration = Duration::from_secs(600);
/// Kinds of which the server accepts random objects: all but those with names or members of their own rules.
const KINDS_MIN: u64 = 45;

/// `FUZZED_OBJECTS` sets the number of objects of each kind, `SEED` the seed.
#[tokio::test(flavor = "multi_thread")]
async fn random_objects_of_every_kind_are_equal_in_protobuf_and_json() {
    let Some(program) = Program::ready("protobuf") else { return };
    let server = Server::start(SERVER, &[]).await;
    let printed = compared(filling(program, &server)).await;
    print!("{printed}");
    assert!(kinds(&printed) >= KINDS_MIN, "{printed}");
}

/// Goal: clients of a cache get the protobuf of kube-apiserver. Method: this server writes random objects into
/// kube-apiserver's etcd, as that would refuse most of them; then the lists of all kinds are read from both.
#[tokio::test(flavor = "multi_thread")]
async fn random_objects_are_those_of_kube_apiserver_in_protobuf() {
    let Some(program) = Program::ready("protobuf") else { return };
    let Some(mut genuine) = Genuine::start("protobuf of kube-apiserver").await else { return };
    genuine.kill();
    let etcd = format!("http://{}", genuine.etcd());
    let writer = Server::start(SERVER, &["--etcd-endpoints", &etcd, "--etcd-allow-writes"]).await;
    print!("{}", compared(filling(program.clone(), &writer)).await);
    for plural in ["flowschemas", "prioritylevelconfigurations"] {
        // kube-apiserver ends with an error of its own where such objects are random.
        writer.client().delete(&format!("/apis/flowcontrol.apiserver.k8s.io/v1/{plural}")).await.with_code(200);
    }
    drop(writer);
    genuine.restart().await;
    let kubeconfig = genuine.kubeconfig(CACHE);
    let cache = Server::start(SERVER, &["--upstream", "--kubeconfig", kubeconfig.to_str().expect("UTF-8")]).await;
    let program = program.argument("compare").argument(&format!("http://{}", cache.address()));
    let program = program.argument(&format!("https://{}", genuine.address())).argument(&token_of(ADMIN));
    let printed = compared(program.argument(genuine.ca_file().to_str().expect("UTF-8"))).await;
    print!("{printed}");
    assert!(kinds(&printed) >= KINDS_MIN, "{printed}");
}

/// The program that creates objects at `server`.
fn filling(program: Program, server: &Server) -> Program {
    let setting = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let program = program.argument(&format!("http://{}", server.address()));
    program.argument(&setting("FUZZED_OBJECTS", "5")).argument(&setting("SEED", "36"))
}

/// Runs the program. Returns its counts.
async fn compared(program: Program) -> String {
    let mut process = program.process();
    let output = process.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let output = timeout(PROGRAM_WAIT, output).await.expect("in time").expect("it runs");
    let (printed, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}{failed:.5000}");
    printed.into_owned()
}

/// The number of kinds that it compared.
fn kinds(printed: &str) -> u64 {
    let kinds = printed.lines().find_map(|line| line.strip_prefix("kinds=")?.split(' ').next()?.parse().ok());
    kinds.unwrap_or_default()
}
