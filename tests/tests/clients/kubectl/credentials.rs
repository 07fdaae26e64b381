//! Credentials in a kubeconfig: a client certificate, a token, and wrong ones.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tests::{process::Server, tls::Authority};
use tokio::{process::Command, time::timeout};

use super::{COMMAND_WAIT, SERVER, kubectls};

fn kubeconfig(server: &Server, folder: &Path, user: &Value) -> String {
    let cluster = json!({
        "server": format!("https://{}", server.address()), "certificate-authority": folder.join("ca.crt"),
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    });
    let path = folder.join("kubeconfig");
    fs::write(&path, config.to_string()).expect("a file");
    path.display().to_string()
}

#[tokio::test]
async fn kubectl_proves_who_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let (authority, clients) = (Authority::new(), Authority::new());
    let files = authority.issue(folder.path());
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("ca.crt"), authority.pem()).expect("a file");
    fs::write(at("clients.crt"), clients.pem()).expect("a file");
    fs::write(at("tokens.csv"), "t-alice,alice,u1\n").expect("a file");
    let user = clients.issue_user(folder.path(), "carol", &["dev"]);
    let (ca, tokens) = (at("clients.crt"), at("tokens.csv"));
    let flags = ["--client-ca-file", &ca, "--token-auth-file", &tokens, "--log", "cache_server=debug"];
    for (name, program) in kubectls() {
        let server = Server::start(SERVER, &[&files.flags()[..], &flags].concat()).await;
        for (credentials, logged) in [
            (json!({"client-certificate": user.cert, "client-key": user.key}), Some("carol")),
            (json!({"token": "t-alice"}), Some("alice")),
            (json!({"token": "t-eve"}), None),
        ] {
            let config = kubeconfig(&server, folder.path(), &credentials);
            let mut command: Command = program.process();
            command.args(["--kubeconfig", &config, "get", "namespaces", "-o", "name"]).env("HOME", folder.path());
            let output = timeout(COMMAND_WAIT, command.output()).await.expect("it ends").expect("it runs");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), logged.is_some(), "{name}: {stderr}");
            match logged {
                Some(user) => drop(server.logged(&format!("user=\"{user}\"")).await),
                None => assert!(stderr.contains("Unauthorized"), "{name}: {stderr}"),
            }
        }
    }
}
