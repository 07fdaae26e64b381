//! Writes of callers with few rights, beside a stock kube-apiserver with `NodeRestriction`: the table of [`write_cases`].

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde_json::Value;
use tests::{
    genuine::{ADMIN, Identity},
    rights::{outcome, write_cases, write_users, write_world},
};
use tokio::time::sleep;

use super::AuthorizationScene;

/// Time for both authorizers to know the objects of the table.
const KNOWN_WITHIN: Duration = Duration::from_secs(20);

/// A text without what differs between two servers with equal objects, or on purpose.
fn comparable(message: &str) -> String {
    // kube-apiserver also asks for the verbs of constrained impersonation, and names those.
    if message.contains(" cannot impersonate") {
        return "cannot impersonate".to_owned();
    }
    // A dump of both states follows the fields of a claim, and the uid of this server's own node a mismatch.
    let cut = ["status.conditions", " expected other got "].into_iter().filter_map(|end| message.find(end)).min();
    // The file of users has no groups: kube-apiserver reads an empty one.
    message[..cut.unwrap_or(message.len())].replace("groups=[\"\" ", "groups=[")
}

/// Goal: each write of a restricted caller has the code, the reason and the words that a stock kube-apiserver has for it.
/// Method: equal objects, roles and users on both sides; each row is a dry run at both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restricted_writes_are_those_of_kube_apiserver() {
    let identities = write_users().into_iter().map(|(name, groups)| Identity::new(name, groups)).collect();
    let Some(scene) = AuthorizationScene::start("restricted writes", identities).await else { return };
    for manifest in write_world() {
        scene.put(&manifest.collection, &manifest.body).await;
    }
    let admins = scene.clients(ADMIN);
    let (begun, mut faults, mut differences) = (Instant::now(), Vec::new(), BTreeMap::new());
    let cases = write_cases();
    for case in &cases {
        let clients = scene.clients(case.caller);
        let (their_code, ours) = (case.expected, case.ours.map_or(case.expected, |(ours, _)| ours));
        loop {
            let theirs = case.send(&clients[0], &admins[0]).await;
            let own = case.send(&clients[1], &admins[1]).await;
            let is_expected = outcome(&theirs) == (their_code.0, their_code.1.to_owned())
                && outcome(&own) == (ours.0, ours.1.to_owned());
            if !is_expected && begun.elapsed() < KNOWN_WITHIN {
                sleep(Duration::from_millis(50)).await;
                continue;
            }
            if !is_expected {
                let found = [&theirs, &own].map(outcome);
                let row = format!("{} {}: {their_code:?} and {ours:?} expected, {found:?}", case.caller, case.name);
                faults.push(format!("{row}\n  {}\n  {}", theirs.text(), own.text()));
            } else if case.ours.is_none() && !theirs.code.is_success() {
                let [theirs, own] = [theirs, own].map(|answer| {
                    let status: Value = answer.json();
                    comparable(status["message"].as_str().unwrap_or_default())
                });
                if theirs != own {
                    differences.insert(format!("{} {}", case.caller, case.name), (theirs, own));
                }
            }
            break;
        }
    }
    let listed = cases.iter().filter(|case| case.ours.is_some()).count();
    println!("{} rows, {listed} of them with a listed difference; {} faults", cases.len(), faults.len());
    assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), cases.len(), faults.join("\n"));
    if scene.genuine.is_of_our_release("texts of restricted writes").await {
        assert!(differences.is_empty(), "{} texts differ: {differences:#?}", differences.len());
    }
}
