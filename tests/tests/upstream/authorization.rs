//! Authorization that this server evaluates itself, beside a stock kube-apiserver with equal objects.

mod bootstrap;
mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use fastrand::Rng;
use serde_json::{Value, json};
use tests::{
    genuine::{ADMIN, Genuine, GenuineSettings, Identity, token_of},
    http::Client,
    objects::secret,
    process::Server,
    rights::{CONTINUE, FLAGS, Manifest, NOW, RightsCaller, RightsCase, RightsChange, WRITE_FLAGS, cases, world},
};
use tokio::process::Command;

use super::{BINARY, namespace, until};

const SCHEDULER: &str = "system:kube-scheduler";
/// Users and their groups, whose rights are compared.
const IDENTITIES: [(&str, &[&str]); 10] = [
    ("alice", &["admins"]),
    ("bob", &["editors"]),
    ("carol", &["viewers"]),
    ("dave", &["developers", "viewers"]),
    ("erin", &["developers"]),
    ("frank", &["developers", "testers"]),
    ("grace", &["testers"]),
    ("mallory", &[]),
    (SCHEDULER, &[]),
    ("system:node:n1", &["system:nodes"]),
];
const GROUPS: [&str; 6] = ["admins", "editors", "viewers", "developers", "testers", "system:authenticated"];
const NAMESPACES: [&str; 2] = ["a", "b"];
const DECISIONS: usize = 200;
/// Longest time until a change of roles acts: a second, and five for a machine that stalls.
const CHANGED_WITHIN: Duration = Duration::from_secs(1 + 5);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A stock cluster, and a server with its own store, its users and its certificate.
struct AuthorizationScene {
    genuine: Genuine,
    server: Server,
}

impl AuthorizationScene {
    async fn start(test: &str, identities: Vec<Identity>) -> Option<Self> {
        let flags = FLAGS.iter().chain(WRITE_FLAGS).map(|&flag| flag.to_owned()).collect();
        let settings = GenuineSettings { identities, flags, ..GenuineSettings::default() };
        let genuine = Genuine::start_with(test, settings).await?;
        let ca = genuine.ca_file();
        let folder = ca.parent().unwrap();
        let at = |name: &str| folder.join(name).display().to_string();
        let flags = [
            ("--tls-cert", at("tls.crt")),
            ("--tls-key", at("tls.key")),
            ("--token-auth-file", at("tokens.csv")),
            ("--authorization", "rbac,node".to_owned()),
        ];
        let flags: Vec<&str> = flags.iter().flat_map(|(flag, value)| [*flag, value.as_str()]).collect();
        let server = Server::start(BINARY, &flags).await;
        Some(Self { genuine, server })
    }

    /// Clients of the stock server and of ours.
    fn clients(&self, user: &str) -> [Client; 2] {
        [self.genuine.client(user), self.genuine.client_of(self.server.address(), user)]
    }

    fn ours(&self) -> Client {
        self.genuine.client_of(self.server.address(), ADMIN)
    }

    /// Creates or replaces an object on both sides.
    async fn put(&self, collection: &str, object: &Value) {
        for client in self.clients(ADMIN) {
            let answer = client.post(collection, object).await;
            assert!([201, 409].contains(&answer.code.as_u16()), "{}: {}", answer.asked, answer.text());
        }
    }
}

/// Collects the rules of aggregated ClusterRoles, as the controller of a cluster does: the stock server has none.
async fn aggregate(client: &Client) {
    let path = format!("{RBAC}/clusterroles");
    // `view` is part of `edit`, and that of `admin`.
    for name in ["view", "edit", "admin"] {
        let list = client.get(&path).await.with_code(200).json();
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
        let items = list["items"].as_array().unwrap();
        let parts = items.iter().filter(|role| role["metadata"]["labels"][&label] == "true");
        let rules: Vec<&Value> = parts.flat_map(|role| role["rules"].as_array().into_iter().flatten()).collect();
        let mut role = client.get(&format!("{path}/{name}")).await.with_code(200).json();
        role["rules"] = json!(rules);
        client.put(&format!("{path}/{name}"), &role).await.with_code(200);
    }
}

fn some(random: &mut Rng, of: &[&str]) -> Vec<String> {
    let count = random.usize(1..=of.len().min(3));
    random.choose_multiple(of.iter(), count).into_iter().map(|text| (*text).to_owned()).collect()
}

fn one<'a>(random: &mut Rng, of: &[&'a str]) -> &'a str {
    of[random.usize(0..of.len())]
}

const VERBS: [&str; 9] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*"];
const RESOURCES: [&str; 9] = [
    "pods",
    "pods/log",
    "pods/status",
    "configmaps",
    "secrets",
    "deployments",
    "deployments/scale",
    "*/status",
    "nodes",
];

fn random_role(random: &mut Rng, name: &str) -> Value {
    let rules: Vec<Value> = (0..random.usize(1..4))
        .map(|_| {
            let names = if random.u8(0..3) == 0 { some(random, &["x", "y"]) } else { Vec::new() };
            json!({
                "verbs": some(random, &VERBS), "apiGroups": some(random, &["", "apps", "*"]),
                "resources": some(random, &RESOURCES), "resourceNames": names,
            })
        })
        .collect();
    json!({"metadata": {"name": name}, "rules": rules})
}

fn random_binding(random: &mut Rng, name: &str, role: &Value) -> Value {
    let api_group = "rbac.authorization.k8s.io";
    let subject = |random: &mut Rng| match random.u8(0..3) {
        0 => json!({"kind": "User", "apiGroup": api_group, "name": IDENTITIES[random.usize(0..IDENTITIES.len())].0}),
        1 => json!({"kind": "ServiceAccount", "name": "bot", "namespace": one(random, &NAMESPACES)}),
        _ => json!({"kind": "Group", "apiGroup": api_group, "name": one(random, &GROUPS[..5])}),
    };
    let subjects: Vec<Value> = (0..random.usize(1..3)).map(|_| subject(random)).collect();
    let mut role = role.clone();
    role["apiGroup"] = json!(api_group);
    json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects})
}

/// Creates random roles and bindings on both sides, and the well-known ones for groups.
async fn create_policies(scene: &AuthorizationScene, random: &mut Rng) {
    for name in NAMESPACES {
        scene.put("/api/v1/namespaces", &namespace(name)).await;
    }
    for number in 0..8 {
        scene.put(&format!("{RBAC}/clusterroles"), &random_role(random, &format!("cluster{number}"))).await;
        for namespace in NAMESPACES {
            let role = random_role(random, &format!("role{number}"));
            scene.put(&format!("{RBAC}/namespaces/{namespace}/roles"), &role).await;
        }
    }
    for number in 0..10 {
        let role = json!({"kind": "ClusterRole", "name": format!("cluster{number}")});
        let global = random_binding(random, &format!("binding{number}"), &role);
        scene.put(&format!("{RBAC}/clusterrolebindings"), &global).await;
        for namespace in NAMESPACES {
            let kind = if random.bool() { "cluster" } else { "role" };
            let kind_name = if kind == "cluster" { "ClusterRole" } else { "Role" };
            let role = json!({"kind": kind_name, "name": format!("{kind}{}", random.usize(0..9))});
            let local = random_binding(random, &format!("binding{number}"), &role);
            scene.put(&format!("{RBAC}/namespaces/{namespace}/rolebindings"), &local).await;
        }
    }
    for (role, group) in [("admin", "admins"), ("edit", "editors"), ("view", "viewers")] {
        let subject = json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group});
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
        let binding = json!({"metadata": {"name": group}, "roleRef": role, "subjects": [subject]});
        scene.put(&format!("{RBAC}/namespaces/a/rolebindings"), &binding).await;
    }
}

/// A random SubjectAccessReview.
fn random_review(random: &mut Rng) -> Value {
    let (user, groups) = match random.usize(0..IDENTITIES.len() + 1) {
        10 => ("system:serviceaccount:a:bot".to_owned(), vec!["system:serviceaccounts", "system:serviceaccounts:a"]),
        number => (IDENTITIES[number].0.to_owned(), IDENTITIES[number].1.to_vec()),
    };
    let groups: Vec<&str> = groups.into_iter().chain(["system:authenticated"]).collect();
    if random.u8(0..10) == 0 {
        let path = one(random, &["/healthz", "/apis/apps", "/metrics", "/logs/x"]);
        let attributes = json!({"verb": one(random, &["get", "post"]), "path": path});
        return json!({"spec": {"user": user, "groups": groups, "nonResourceAttributes": attributes}});
    }
    let (resource, subresource) = {
        let resource = one(random, &RESOURCES);
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        (if resource == "*" { "pods" } else { resource }, subresource)
    };
    let attributes = json!({
        "verb": one(random, &VERBS[..8]), "group": one(random, &["", "", "apps"]), "resource": resource,
        "subresource": subresource, "namespace": one(random, &["a", "a", "b", ""]), "name": one(random, &["", "", "x", "z"]),
    });
    json!({"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}})
}

/// Returns whether a review allows, and its reason if it refuses: of several that allow, either may be named.
async fn reviewed(client: &Client, review: &Value) -> (bool, Value) {
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let mut answer = client.post(path, review).await.with_code(201).json();
    let allowed = answer["status"]["allowed"].as_bool().unwrap();
    let reason = answer["status"]["reason"].take();
    // The order of several missing roles is that of Go's maps.
    let mut words: Vec<&str> = reason.as_str().unwrap_or_default().split([' ', '[', ']', ',']).collect();
    words.sort_unstable();
    (allowed, if allowed { Value::Null } else { json!(words) })
}

/// Runs `kubectl auth can-i --list` with a kubeconfig. `None` where there is no kubectl of a version that the test builds.
async fn can_i(kubeconfig: &Path, namespace: &str) -> Option<String> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/clients/bin/kubectl");
    if !program.is_file() {
        return None;
    }
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.args(["auth", "can-i", "--list", "--namespace", namespace, "--kubeconfig"]).arg(kubeconfig);
    command.env("HOME", home.path()).stdin(Stdio::null());
    let output = command.output().await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{err}");
    // The order of rules is that of Go's maps, and the verbs of a resource have the order of its rules.
    let mut lines: Vec<String> = out.lines().chain(err.lines()).map(with_sorted_verbs).collect();
    lines.sort_unstable();
    Some(lines.join("\n"))
}

fn with_sorted_verbs(line: &str) -> String {
    let Some((rest, verbs)) = line.strip_suffix(']').and_then(|line| line.rsplit_once('[')) else {
        return line.to_owned();
    };
    let mut verbs: Vec<&str> = verbs.split(' ').collect();
    verbs.sort_unstable();
    format!("{rest}[{}]", verbs.join(" "))
}

/// The rules of a user as sets: their order is that of Go's maps.
async fn rules(client: &Client, namespace: &str) -> BTreeSet<String> {
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = client.post(path, &json!({"spec": {"namespace": namespace}})).await.with_code(201).json();
    let status = &answer["status"];
    let lists = ["resourceRules", "nonResourceRules"].map(|name| status[name].as_array().cloned().unwrap_or_default());
    let mut words: Vec<&str> =
        status["evaluationError"].as_str().unwrap_or_default().split([' ', '[', ']', ',']).collect();
    words.sort_unstable();
    let rest = json!({"incomplete": status["incomplete"], "error": words});
    lists.into_iter().flatten().chain([rest]).map(|rule| rule.to_string()).collect()
}

fn identities() -> Vec<Identity> {
    IDENTITIES.iter().map(|(name, groups)| Identity::new(name, groups)).collect()
}

/// Goal: rights are those of a stock kube-apiserver with equal objects. Method: random roles and bindings, the well-known
/// ones, and missing ones on both sides; 200 random reviews, and the rules of ten users in two namespaces, also as kubectl
/// prints them.
#[tokio::test]
async fn decisions_and_rules_are_those_of_kube_apiserver() {
    let Some(scene) = AuthorizationScene::start("authorization", identities()).await else { return };
    let random = &mut Rng::with_seed(7);
    create_policies(&scene, random).await;
    aggregate(&scene.genuine.client(ADMIN)).await;
    let [theirs, ours] = scene.clients(ADMIN);
    // 1.37 names the authorizer in each reason.
    let has_our_texts = scene.genuine.is_of_our_release("reasons of decisions").await;
    let (mut allowed, mut refused) = (0, 0);
    for _ in 0..DECISIONS {
        let review = random_review(random);
        // Both authorizers follow the objects through watches.
        until(&format!("the decisions about {review} are equal"), async || {
            let (theirs, ours) = (reviewed(&theirs, &review).await, reviewed(&ours, &review).await);
            theirs.0 == ours.0 && (!has_our_texts || theirs == ours)
        })
        .await;
        if reviewed(&ours, &review).await.0 { allowed += 1 } else { refused += 1 }
    }
    println!("{DECISIONS} decisions equal: {allowed} allowed, {refused} refused");
    assert!(allowed > DECISIONS / 5 && refused > DECISIONS / 5, "{allowed} {refused}");
    for (user, _) in IDENTITIES {
        let [theirs, ours] = scene.clients(user);
        for namespace in NAMESPACES {
            let (found, expected) = (rules(&ours, namespace).await, rules(&theirs, namespace).await);
            if !has_our_texts && user == SCHEDULER {
                // 1.37 lets it read taints of devices as well.
                assert!(found.is_subset(&expected), "{user} in {namespace}: {found:?} {expected:?}");
                continue;
            }
            assert_eq!(found, expected, "{user} in {namespace}");
            let address = scene.server.address();
            let ours = can_i(&scene.genuine.kubeconfig_at(user, address), namespace).await;
            assert_eq!(ours, can_i(&scene.genuine.kubeconfig(user), namespace).await, "{user} in {namespace}");
        }
    }
}

/// Goal: refusals of escalations and invalid reviews have kube-apiserver's words. Method: the same requests to both.
#[tokio::test]
async fn refused_grants_have_the_words_of_kube_apiserver() {
    let Some(scene) = AuthorizationScene::start("authorization of grants", identities()).await else { return };
    let rules = json!([
        {"verbs": ["create", "update", "patch", "get"], "apiGroups": ["rbac.authorization.k8s.io"],
         "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]},
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
    ]);
    let role = json!({"metadata": {"name": "writer"}, "rules": rules});
    let binding = |name: &str, kind: &str, role: &str| {
        let group = "rbac.authorization.k8s.io";
        json!({"metadata": {"name": name}, "roleRef": {"apiGroup": group, "kind": kind, "name": role},
               "subjects": [{"apiGroup": group, "kind": "User", "name": "erin"}]})
    };
    scene.put("/api/v1/namespaces", &namespace("a")).await;
    scene.put(&format!("{RBAC}/clusterroles"), &role).await;
    scene.put(&format!("{RBAC}/clusterrolebindings"), &binding("writer", "ClusterRole", "writer")).await;
    let of = |resource: &str, verbs: &[&str]| json!({"metadata": {"name": "r"}, "rules": [{"verbs": verbs, "apiGroups": [""], "resources": [resource]}]});
    for client in scene.clients("erin") {
        until("the right has begun", async || client.get(&format!("{RBAC}/clusterroles/view")).await.code == 200).await;
    }
    let aggregated = json!({"metadata": {"name": "g"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
    let reviews = "/apis/authorization.k8s.io/v1";
    // 1.37 names other fields for some of them.
    let has_our_texts = scene.genuine.is_of_our_release("texts of refused grants").await;
    for (path, object) in [
        (format!("{RBAC}/namespaces/a/roles"), of("secrets", &["get", "delete"])),
        (format!("{RBAC}/namespaces/a/roles"), of("pods", &["get", "list"])),
        (format!("{RBAC}/namespaces/a/rolebindings"), binding("b", "ClusterRole", "cluster-admin")),
        (format!("{RBAC}/namespaces/a/rolebindings"), binding("c", "Role", "r")),
        (format!("{RBAC}/namespaces/a/rolebindings"), binding("d", "Role", "none")),
        (format!("{RBAC}/clusterroles"), of("nodes", &["*"])),
        (format!("{RBAC}/clusterroles"), aggregated),
        (format!("{RBAC}/clusterrolebindings"), binding("e", "ClusterRole", "system:kube-dns")),
        (format!("{RBAC}/clusterrolebindings"), binding("f", "ClusterRole", "none")),
        (format!("{reviews}/selfsubjectaccessreviews"), json!({"spec": {}})),
        (format!("{reviews}/selfsubjectrulesreviews"), json!({"spec": {}})),
        (format!("{reviews}/subjectaccessreviews"), json!({"spec": {"user": "x"}})),
    ] {
        let [theirs, ours] = scene.clients("erin");
        let [theirs, ours] = [theirs.post(&path, &object).await, ours.post(&path, &object).await];
        let of = |code: u16, status: Value| {
            (code, status["message"].clone(), status["reason"].clone(), status["details"].clone())
        };
        let [theirs, ours] = [theirs, ours].map(|answer| of(answer.code.as_u16(), answer.json()));
        assert_eq!((ours.0, &ours.2), (theirs.0, &theirs.2), "POST {path} {object}");
        assert!(!has_our_texts || ours == theirs, "POST {path} {object}: {ours:?}, not {theirs:?}");
    }
    let [theirs, ours] = scene.clients(ADMIN);
    let bindings = format!("{RBAC}/namespaces/a/rolebindings");
    let changed = binding("c", "ClusterRole", "cluster-admin");
    let [theirs, ours] = [
        theirs.put(&format!("{bindings}/c"), &changed).await.with_code(422),
        ours.put(&format!("{bindings}/c"), &changed).await,
    ];
    assert_eq!(ours.code, 422);
    assert!(!has_our_texts || ours.message() == theirs.message(), "{} {}", ours.message(), theirs.message());
    let update = of("secrets", &["get"]);
    let [theirs, ours] = scene.clients("erin");
    let path = format!("{RBAC}/namespaces/a/roles/r");
    let [theirs, ours] = [theirs.put(&path, &update).await, ours.put(&path, &update).await];
    assert_eq!((ours.code.as_u16(), ours.message()), (theirs.code.as_u16(), theirs.message()));
}

/// The cases of the table that need nothing but RBAC and tokens of a file.
fn own_cases() -> Vec<RightsCase> {
    let is_account = |case: &RightsCase| matches!(case.caller, RightsCaller::ServiceAccount { .. });
    cases().into_iter().filter(|case| !is_account(case)).collect()
}

async fn create(client: &Client, manifest: &Manifest) {
    until(&format!("{} is created", manifest.path()), async || {
        [201, 409].contains(&client.post(&manifest.collection, &manifest.body).await.code.as_u16())
    })
    .await;
}

/// Goal: roles stored in this server decide about reads in all their forms, and a change acts within a second. Method: the
/// cases that are also sent to kube-apiserver and through caches.
#[tokio::test]
async fn stored_roles_allow_and_refuse_as_expected() {
    let cases = own_cases();
    let mut callers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for case in &cases {
        if let RightsCaller::User { name, groups } = &case.caller {
            callers.insert(name, groups.iter().map(String::as_str).collect());
        }
    }
    let identities = callers.iter().map(|(name, groups)| Identity::new(name, groups)).collect();
    let Some(scene) = AuthorizationScene::start("authorization of reads", identities).await else { return };
    let ours = scene.ours();
    ours.create(&secret("shared").data("dg==")).await;
    for manifest in world().iter().chain(cases.iter().flat_map(|case| &case.grants)) {
        create(&ours, manifest).await;
    }
    let anonymous = scene.genuine.anonymous_of(scene.server.address());
    let send = async |case: &RightsCase| {
        let mut path = case.path.to_owned();
        if path.contains(CONTINUE) || path.contains(NOW) {
            let collection = path.split('?').next().unwrap_or_default().to_owned();
            let page = ours.get(&format!("{collection}?limit=1")).await.with_code(200);
            path = path.replace(CONTINUE, &page.token().unwrap_or_default());
            path = path.replace(NOW, &page.resource_version().to_string());
        }
        let client = match &case.caller {
            RightsCaller::User { name, .. } => anonymous.with_token(&token_of(name)),
            RightsCaller::UnknownToken => anonymous.with_token("unknown"),
            RightsCaller::Anonymous | RightsCaller::ServiceAccount { .. } => anonymous,
        };
        client.get_with(&path, &case.headers).await
    };
    let mut wrong = Vec::new();
    for case in &cases {
        let begun = Instant::now();
        loop {
            let answer = send(case).await;
            match case.expected.check(answer.code.as_u16(), &answer.body) {
                Ok(()) => break,
                Err(problem) if begun.elapsed() > CHANGED_WITHIN => {
                    wrong.push(format!("{} GET {}: {problem}", case.name, case.path));
                    break;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
    for case in &cases {
        let Some((change, expected)) = &case.then else { continue };
        match change {
            RightsChange::Delete(path) => drop(ours.delete(path).await.with_code(200)),
            RightsChange::Create(manifest) => create(&ours, manifest).await,
        }
        let begun = Instant::now();
        loop {
            let answer = send(case).await;
            match expected.check(answer.code.as_u16(), &answer.body) {
                Ok(()) => break,
                Err(problem) if begun.elapsed() > CHANGED_WITHIN => {
                    wrong.push(format!("{} after its change: {problem}", case.name));
                    break;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
