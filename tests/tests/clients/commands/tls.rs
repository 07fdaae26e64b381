//! kubectl over TLS, with HTTP/2, which Go's clients use only over TLS.

use tests::{objects::pod, process::Server, tls::Authority};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{COMMAND_WAIT, Kubectl, MANIFEST, SERVER};

#[tokio::test]
async fn what_works_in_the_clear_works_over_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    let files = authority.issue(folder.path());
    let server = Server::start(SERVER, &files.flags()).await;
    let Some(mut kubectl) = Kubectl::new(&server) else { return };
    kubectl.server = format!("https://{}", server.address());
    // Without `--token` kubectl prompts for credentials before it connects over TLS.
    let stranger = kubectl.fail(&["--token", "any", "get", "pods"]).await;
    assert!(stranger.contains("certificate"), "{stranger}");

    let ca = kubectl.file("ca.crt", &authority.pem());
    let flags = ["--token", "any", "--certificate-authority", &ca];
    let run = async |arguments: &[&str]| kubectl.run(&[&flags, arguments].concat()).await;
    let manifest = kubectl.file("team.yaml", MANIFEST);
    let applied = run(&["apply", "-f", &manifest]).await;
    assert_eq!(applied, "namespace/team created\nconfigmap/settings created\ndeployment.apps/web created\n");
    assert_eq!(run(&["get", "-n", "team", "all", "-o", "name"]).await, "deployment.apps/web\n");

    let client = server.client().over_tls(authority.trust());
    client.create(&pod("p")).await;
    let mut child = kubectl
        .command(&[&flags[..], &["get", "pods", "--watch", "-o", "name"]].concat())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("is piped")).lines();
    let mut line = async || {
        let line = tokio::time::timeout(COMMAND_WAIT, lines.next_line()).await.expect("a line is due");
        line.expect("is text").expect("the watch goes on")
    };
    assert_eq!(line().await, "pod/p");
    client.create(&pod("q")).await;
    assert_eq!(line().await, "pod/q");
    child.kill().await.expect("it was running");
}
