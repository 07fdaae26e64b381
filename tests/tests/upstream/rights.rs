//! No caller reads through the cache what the API server would refuse: the cases of `tests::rights`, sent to the API server
//! and through the cache.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use tests::{
    genuine::{ADMIN, Genuine, GenuineSettings, Identity, token_of},
    http::{Answer, Client},
    objects::secret,
    process::Server,
    rights::{
        CHANGE_SECONDS_MAX, CONTINUE, Expected, FLAGS, Manifest, NOW, RightsCaller, RightsCase, RightsChange, cases,
        world,
    },
};

use super::{Sides, cache_of, client_of, until};

const RESOURCES: &str = "pods,nodes,namespaces,configmaps,secrets,widgets.rights.example.com";
/// Longest time that a changed right may stay without effect.
const CHANGED_WITHIN: Duration = Duration::from_secs(CHANGE_SECONDS_MAX);
/// Users of the test about decisions by user; the first half may read.
const USERS: [&str; 6] = ["alice", "bob", "carol", "dave", "erin", "mallory"];

/// An API server with the callers of all cases and the objects that they read, and a cache of it.
struct RightsScene {
    genuine: Genuine,
    server: Server,
    sides: Sides,
    /// Token by `namespace/name` of a ServiceAccount.
    account_tokens: BTreeMap<String, String>,
}

async fn create(admin: &Client, manifest: &Manifest) {
    // The type of a new definition is served a moment later.
    until(&format!("{} is created", manifest.path()), async || {
        let answer = admin.post(&manifest.collection, &manifest.body).await;
        assert!([201, 404, 409].contains(&answer.code.as_u16()), "{}: {}", answer.asked, answer.text());
        answer.code != 404
    })
    .await;
}

async fn scene(test: &str, cases: &[RightsCase]) -> Option<RightsScene> {
    let mut callers: BTreeMap<&str, Vec<&str>> = USERS.iter().map(|name| (*name, Vec::new())).collect();
    for case in cases {
        if let RightsCaller::User { name, groups } = &case.caller {
            callers.insert(name, groups.iter().map(String::as_str).collect());
        }
    }
    let identities = callers.iter().map(|(name, groups)| Identity::new(name, groups)).collect();
    let flags = FLAGS.iter().map(|&flag| flag.to_owned()).collect();
    let genuine =
        Genuine::start_with(test, GenuineSettings { identities, flags, ..GenuineSettings::default() }).await?;
    let admin = genuine.client(ADMIN);
    for manifest in world().iter().chain(cases.iter().flat_map(|case| &case.grants)) {
        create(&admin, manifest).await;
    }
    let mut account_tokens = BTreeMap::new();
    for case in cases {
        if let RightsCaller::ServiceAccount { namespace, name } = &case.caller {
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
            let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
            let answer = admin.post(&path, &request).await.with_code(201).json();
            let token = answer["status"]["token"].as_str().unwrap().to_owned();
            account_tokens.insert(format!("{namespace}/{name}"), token);
        }
    }
    let server = cache_of(&genuine, RESOURCES).await;
    let sides = Sides::new(&genuine, &server);
    Some(RightsScene { genuine, server, sides, account_tokens })
}

impl RightsScene {
    fn token(&self, caller: &RightsCaller) -> Option<String> {
        match caller {
            RightsCaller::User { name, .. } => Some(token_of(name)),
            RightsCaller::ServiceAccount { namespace, name } => {
                Some(self.account_tokens[&format!("{namespace}/{name}")].clone())
            }
            RightsCaller::Anonymous => None,
            RightsCaller::UnknownToken => Some("unknown".to_owned()),
        }
    }

    /// Sends a case's request to the API server, or through the cache. Positions and continue tokens in it are those
    /// that the same side gave to the administrator.
    async fn send(&self, case: &RightsCase, is_cached: bool) -> Answer {
        let (anonymous, admin) = if is_cached {
            (self.server.client(), &self.sides.cached)
        } else {
            (self.genuine.anonymous(), &self.sides.direct)
        };
        let mut path = case.path.to_owned();
        if path.contains(CONTINUE) || path.contains(NOW) {
            let collection = path.split('?').next().unwrap_or_default().to_owned();
            let page = admin.get(&format!("{collection}?limit=1")).await.with_code(200);
            path = path.replace(CONTINUE, &page.token().unwrap_or_default());
            path = path.replace(NOW, &page.resource_version().to_string());
        }
        let client = self.token(&case.caller).map_or(anonymous, |token| anonymous.with_token(&token));
        client.get_with(&path, &case.headers).await
    }

    /// The difference between the two sides, or from the expected answer.
    async fn difference(&self, case: &RightsCase, expected: &Expected) -> Option<String> {
        let (theirs, ours) = (self.send(case, false).await, self.send(case, true).await);
        let [their_check, our_check] =
            [&theirs, &ours].map(|answer| expected.check(answer.code.as_u16(), &answer.body));
        let is_equal = ours.code == theirs.code && (ours.code.is_success() || refusal(&ours) == refusal(&theirs));
        let checks = [("API server", their_check), ("cache", our_check)];
        let mut wrong: Vec<String> =
            checks.into_iter().filter_map(|(side, check)| Some(format!("{side}: {}", check.err()?))).collect();
        if !is_equal {
            wrong.push(format!("API server {:?}\n  cache {:?}", refusal(&theirs), refusal(&ours)));
        }
        (!wrong.is_empty()).then(|| format!("{} GET {}\n  {}", case.name, case.path, wrong.join("\n  ")))
    }

    /// Waits until the API server gives the expected answer: its authorizer follows roles through watches of its own.
    async fn settle(&self, case: &RightsCase, expected: &Expected) {
        until(&format!("the API server decides about {:?} as expected: {expected:?}", case.name), async || {
            let answer = self.send(case, false).await;
            expected.check(answer.code.as_u16(), &answer.body).is_ok()
        })
        .await;
    }

    /// Applies a change, and waits until it has effect at the API server, and then in the cache.
    async fn change(&self, case: &RightsCase, change: &RightsChange, expected: &Expected) -> Option<String> {
        match change {
            RightsChange::Delete(path) => drop(self.sides.direct.delete(path).await.with_code(200)),
            RightsChange::Create(manifest) => create(&self.sides.direct, manifest).await,
        }
        let changed = Instant::now();
        self.settle(case, expected).await;
        loop {
            match self.difference(case, expected).await {
                None => return None,
                Some(difference) if changed.elapsed() > CHANGED_WITHIN => return Some(difference),
                Some(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

/// Code, and code, reason and message of the Status.
fn refusal(answer: &Answer) -> (StatusCode, Value, Value, Value) {
    let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.code, status["code"].clone(), status["reason"].clone(), status["message"].clone())
}

/// Goal: the cache widens and narrows no rights. Method: each case's request to the API server and through
/// the cache, which both allow or both refuse with one Status; then again after the case's change.
#[tokio::test]
async fn the_cache_allows_and_refuses_as_the_api_server() {
    let cases = cases();
    let Some(scene) = scene("upstream rights", &cases).await else { return };
    let mut wrong = Vec::new();
    for case in &cases {
        scene.settle(case, &case.expected).await;
        wrong.extend(scene.difference(case, &case.expected).await);
    }
    let changes = cases.iter().filter_map(|case| Some((case, case.then.as_ref()?)));
    let changes = changes.map(|(case, (change, expected))| scene.change(case, change, expected));
    wrong.extend(join_all(changes).await.into_iter().flatten());
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// Goal: a decision about one user is not used for another. Method: users at once, half of whom may read, in turns.
#[tokio::test]
async fn decisions_are_kept_by_user() {
    let Some(scene) = scene("upstream rights of users", &[]).await else { return };
    let admin = &scene.sides.direct;
    admin.create(&secret("shared").data("dg==")).await;
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]);
    admin.create_manifest(&tests::genuine::cluster_role("secrets", &rules)).await;
    let (readers, others) = USERS.split_at(USERS.len() / 2);
    let path = "/api/v1/secrets?resourceVersion=0";
    for reader in readers {
        let binding = tests::genuine::cluster_role_binding(&format!("secrets-{reader}"), "secrets", "User", reader);
        admin.create_manifest(&binding).await;
        until("the right has begun", async || scene.genuine.client(reader).get(path).await.code == 200).await;
    }
    let server = &scene.server;
    for _ in 0..3 {
        let asks = USERS.iter().map(|user| async move { (*user, client_of(server, user).get(path).await.code) });
        for (user, code) in join_all(asks).await {
            assert_eq!(code, if others.contains(&user) { 403 } else { 200 }, "{user}");
        }
    }
}
