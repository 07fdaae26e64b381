//! The recipes of `deploy/README.md` that move programs to a cache-server.
//!
//! Goal: every library of its table lists and watches with its default configuration, as a user with few rights. Method:
//! the page's own commands write the kubeconfig, with the address of a server with TLS. Programs in a pod have the page's
//! variables, and the files of their account in a mount namespace.

use std::{env, fs, path::Path, process::Command, process::Stdio};

use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::watcher,
};
use serde_json::{Value, json};
use tests::{
    genuine::cluster_role_binding,
    http::Client as Http,
    objects::{configmap, pod},
    process::Server,
    tls::Authority,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    time::timeout,
};

use crate::{
    SERVER,
    libraries::{
        history::{SELECTOR, SENTINEL},
        kube_rs::keep_copy,
    },
    programs::Program,
    running::{Printed, RunningProgram},
    upstream::scene::{PATIENCE, until_within},
};

const PAGE: &str = include_str!("../../../deploy/README.md");
/// Programs of the table's libraries, with their first arguments.
const PROGRAMS: [(&str, &[&str]); 5] = [
    ("client-go", &["typed"]),
    ("java", &["Fabric8", "http"]),
    ("java", &["ClientJava"]),
    ("python", &["0"]),
    ("javascript", &[]),
];
/// A program with `informer`, whose configuration is that of `kube`.
const COMPONENTS: &str = env!("CARGO_BIN_EXE_tests-shared-components");
/// Name of the ConfigMap and the Pod that exist before the programs start.
const FIRST: &str = "first";
const TOKEN: &str = "token-of-program";
/// Puts the files of a pod's account, in the folder `$0`, where libraries read them.
const POD: &str = "mount -t tmpfs tmpfs /var/run && mkdir -p /var/run/secrets/kubernetes.io &&
    ln -s \"$0\" /var/run/secrets/kubernetes.io/serviceaccount && exec \"$@\"";

/// A server with TLS and RBAC, whose user `program` may read ConfigMaps and Pods.
struct Scene {
    server: Server,
    admin: Http,
    /// With `ca.crt`, `token` and `namespace`, as in the folder of a pod's account.
    folder: tempfile::TempDir,
}

/// The block of code of the page with a text.
fn block(text: &str) -> &'static str {
    let block = PAGE.split("```").skip(1).step_by(2).find(|block| block.contains(text));
    block.and_then(|block| block.split_once('\n')).unwrap_or_else(|| panic!("the page has no {text}")).1
}

impl Scene {
    async fn set() -> Self {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("ca.crt", &authority.pem());
        write("token", TOKEN);
        write("namespace", "default");
        write("tokens.csv", &format!("of-admin,admin,1,\"system:masters\"\n{TOKEN},program,2\n"));
        let (files, tokens) = (authority.issue(folder.path()), folder.path().join("tokens.csv"));
        let rights = ["--token-auth-file", tokens.to_str().unwrap(), "--authorization", "rbac"];
        let server = Server::start(SERVER, &[&files.flags()[..], &rights].concat()).await;
        let admin = server.client().over_tls(authority.trust()).with_token("of-admin");
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["list", "watch"]}]);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "program"}, "rules": rules});
        admin.create_manifest(&role).await;
        admin.create_manifest(&cluster_role_binding("program", "program", "User", "program")).await;
        let scene = Self { server, admin, folder };
        scene.create(FIRST).await;
        scene
    }

    async fn create(&self, name: &str) {
        self.admin.create(&pod(name)).await;
        self.admin.create(&configmap(name).namespace("team-0").label("followed", "yes")).await;
    }

    /// Writes the kubeconfig of the page by its commands.
    fn write_kubeconfig(&self, kubectl: &Program) -> String {
        let (commands, address) = (block("kubectl config set-cluster"), "https://127.0.0.1:8001");
        assert!(commands.contains(address), "{commands}");
        let commands = commands.replace(address, &format!("https://{}", self.server.address()));
        let kubectl = Path::new(kubectl.process().as_std().get_program()).to_owned();
        let path = format!("{}:{}", kubectl.parent().unwrap().display(), env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-ec", &commands]).env("TOKEN", TOKEN).env("PATH", path).current_dir(&self.folder);
        assert!(shell.status().unwrap().success(), "{commands}");
        self.folder.path().join("front.conf").display().to_string()
    }

    /// Starts all programs with a configuration, and asserts that each sees one object in its list and one in its watch.
    async fn is_followed(&self, configure: impl Fn(Program) -> Program) {
        let configure = |program| configure(program).environment("HOME", self.folder.path().to_str().unwrap());
        let mut all = Vec::new();
        for (name, arguments) in PROGRAMS {
            let Some(program) = Program::ready(name) else { continue };
            let program = arguments.iter().fold(program, |program, argument| program.argument(argument));
            all.push((format!("{name} {arguments:?}"), RunningProgram::start(&configure(program), "", SELECTOR)));
        }
        let mut components = configure(Program::at(COMPONENTS)).process().stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(components.stdout.take().unwrap()).lines();
        let mut is_reconciled = async |name: &str| {
            let line = format!("reconciled {name}");
            let come = async { while lines.next_line().await.unwrap().expect("it runs") != line {} };
            timeout(PATIENCE, come).await.expect("informer sees a pod");
        };
        is_reconciled(FIRST).await;
        for (_, program) in &all {
            // One that lists nothing is named below.
            until_within(PATIENCE, async || !program.lines().is_empty()).await;
        }
        self.create(SENTINEL).await;
        is_reconciled(SENTINEL).await;
        for (name, mut program) in all {
            let is_success = timeout(PATIENCE, program.ended()).await == Ok(true);
            let copy = program.lines().into_iter().find_map(|line| line.cache).unwrap_or_default();
            let complaints = program.complaints().await;
            assert!(is_success && copy.len() == 2, "{name}: {copy:?}, and it complained:\n{complaints}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubeconfig_moves_every_library() {
    let Some(kubectl) = Program::ready("kubectl") else { return };
    let scene = Scene::set().await;
    let path = scene.write_kubeconfig(&kubectl);
    let (kubeconfig, options) = (Kubeconfig::read_from(&path).unwrap(), KubeConfigOptions::default());
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    let maps = Api::all(Client::try_from(config).unwrap());
    let printed = Printed::default();
    let copied = keep_copy(maps, watcher::Config::default().labels(SELECTOR), &printed);
    let programs = scene.is_followed(|program| program.environment("KUBECONFIG", &path));
    let (copied, ()) = tokio::join!(timeout(2 * PATIENCE, copied), programs);
    assert!(copied.is_ok(), "kube's watcher: {:?}", printed.lock().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_variables_move_every_library_in_a_pod() {
    if Server::run("unshare", &["-rm", "true"]).await.code != Some(0) {
        eprintln!("variables of a pod: skipped, this user cannot make mount namespaces");
        return;
    }
    let scene = Scene::set().await;
    let (address, folder) = (scene.server.address(), scene.folder.path().to_str().unwrap());
    let page: Value = serde_saphyr::from_str(block("KUBERNETES_SERVICE_HOST")).unwrap();
    let values = page["env"].as_array().unwrap().iter().map(|variable| match variable["name"].as_str().unwrap() {
        name @ "KUBERNETES_SERVICE_HOST" => (name, address.ip().to_string()),
        name @ "KUBERNETES_SERVICE_PORT" => (name, address.port().to_string()),
        name => (name, variable["value"].as_str().unwrap().to_owned()),
    });
    let values: Vec<_> = values.collect();
    let in_pod = |program: Program| {
        let program = program.within(&["unshare", "-rm", "sh", "-ec", POD, folder]);
        values.iter().fold(program, |program, (name, value)| program.environment(name, value))
    };
    scene.is_followed(in_pod).await;
}
