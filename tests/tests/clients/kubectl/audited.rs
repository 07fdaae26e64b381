//! The audit log of kubectl's commands.

use std::{collections::BTreeMap, fs, time::Instant};

use serde_json::Value;
use tokio::time::sleep;

use super::{COMMAND_WAIT, scenes_with};
use crate::faults::Plan;

/// Content of the Secrets.
const MARKER: &str = "Tr0ub4dor-and-3";
const CODED: &str = "VHIwdWI0ZG9yLWFuZC0z";

/// Goal: each request of kubectl is recorded, and no command puts the content of a Secret into the log. Method: commands
/// that write and read a Secret, at the highest level; then a search for its content.
#[tokio::test]
async fn commands_are_recorded_without_the_content_of_secrets() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, policy) = (folder.path().join("audit.log"), folder.path().join("policy.json"));
    let rules = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "RequestResponse"}]}"#;
    fs::write(&policy, rules).expect("a file");
    let flags = [("--audit-log", &log), ("--audit-policy-file", &policy)];
    let flags = flags.map(|(flag, path)| format!("{flag}={}", path.display()));
    for scene in scenes_with(&flags.each_ref().map(String::as_str), &Plan::default()).await {
        fs::write(&log, "").expect("a file");
        let manifest =
            format!("kind: Secret\napiVersion: v1\nmetadata: {{name: applied}}\nstringData: {{k: {MARKER}}}\n");
        let file = scene.file("secret.yaml", &manifest);
        scene.run(&format!("create secret generic created --from-literal=k={MARKER}")).await;
        scene.run(&format!("apply -f {file}")).await;
        let changed = scene.file("changed.yaml", &manifest.replace("{k:", "{n:"));
        scene.run(&format!("apply -f {changed}")).await;
        scene.run(&format!("apply --server-side --force-conflicts -f {file}")).await;
        scene.run(&format!("replace -f {file}")).await;
        scene.run(&format!("patch secret created -p {{\"stringData\":{{\"p\":\"{MARKER}\"}}}}")).await;
        scene.run(&format!("annotate secret created note={MARKER}")).await;
        let read = scene.run("get secret created -o yaml").await;
        assert!(read.contains(CODED), "{}: {read}", scene.name);
        scene.run("get secrets -A").await;
        scene.run("describe secret created").await;
        scene.run("delete secret created applied").await;
        let begun = Instant::now();
        let deleted = |line: &&str| line.contains(r#""verb":"delete""#) && line.contains(r#""ResponseComplete""#);
        let text = loop {
            let text = fs::read_to_string(&log).expect("the log");
            if text.lines().filter(deleted).count() == 2 {
                break text;
            }
            assert!(begun.elapsed() < COMMAND_WAIT, "{}: {text}", scene.name);
            sleep(std::time::Duration::from_millis(20)).await;
        };
        let mut open = BTreeMap::<String, i64>::new();
        for line in text.lines() {
            assert!(!line.contains(MARKER) && !line.contains(CODED), "{}: {line}", scene.name);
            let event: Value = serde_json::from_str(line).expect("a record");
            assert!(event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("kubectl")), "{line}");
            let id = event["auditID"].as_str().expect("an identifier").to_owned();
            *open.entry(id).or_default() += match event["stage"].as_str() {
                Some("RequestReceived") => 1,
                Some("ResponseComplete") => -1,
                _ => 0,
            };
        }
        assert!(open.len() > 15 && open.values().all(|open| *open == 0), "{}: {open:?}", scene.name);
    }
}
