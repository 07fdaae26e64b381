//! Protobuf answers, decoded by client-go.
//!
//! Goal: an object is the same in protobuf and in JSON. Method: `tests/clients/protobuf` creates random objects of every
//! built-in kind with Kubernetes' own fuzzers, and reads each in both encodings, alone and in a list.

use std::{process::Stdio, time::Duration};

use tests::process::Server;
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
    let setting = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let program = program.argument(&format!("http://{}", server.address()));
    let program = program.argument(&setting("FUZZED_OBJECTS", "5")).argument(&setting("SEED", "36"));
    let mut process = program.process();
    let output = process.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let output = timeout(PROGRAM_WAIT, output).await.expect("in time").expect("it runs");
    let (told, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{failed:.5000}");
    print!("{told}");
    let kinds = told.lines().find_map(|line| line.strip_prefix("kinds=")?.split(' ').next()?.parse::<u64>().ok());
    assert!(kinds >= Some(KINDS_MIN), "{told}");
}
