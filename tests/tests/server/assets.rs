//! The programs of `cache-server assets`, started and asked as controller-runtime's envtest does.
//!
//! Source: controller-runtime `pkg/internal/testing/controlplane`.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tests::{
    http::{Client, MERGE_PATCH},
    objects::configmap,
    process::{START_WAIT, STOP_WAIT, Server},
    tls::Authority,
};
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

const APPLY_PATCH: &str = "application/apply-patch+yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// Starts with new ports, each of which another process may take before the program does.
const PORT_ATTEMPTS: usize = 5;

/// A control plane of the programs in a folder.
struct Plane {
    etcd: Child,
    apiserver: Child,
    /// Trusts the serving certificate, and has none itself.
    anonymous: Client,
    admin: Client,
    _folder: tempfile::TempDir,
}

impl Plane {
    async fn start(assets: &Path) -> Self {
        for _ in 0..PORT_ATTEMPTS {
            if let Some(plane) = Self::try_start(assets).await {
                return plane;
            }
        }
        panic!("a program ended at each of {PORT_ATTEMPTS} starts");
    }

    /// Returns `None` if a program ended, as it does if its port was taken meanwhile.
    async fn try_start(assets: &Path) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let [etcd_at, apiserver_at] = free_addresses();
        let dir = folder.path().display().to_string();
        let url = format!("http://{etcd_at}");
        let mut etcd = start(
            &assets.join("etcd"),
            &[
                format!("--advertise-client-urls={url}"),
                format!("--data-dir={dir}"),
                format!("--listen-client-urls={url}"),
                "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
                "--unsafe-no-fsync=true".to_owned(),
            ],
        );
        let (serving, clients) = (Authority::new(), Authority::new());
        let files = serving.issue(folder.path());
        for (from, to) in [(&files.cert, "apiserver.crt"), (&files.key, "apiserver.key")] {
            std::fs::rename(from, folder.path().join(to)).expect("a file");
        }
        let account_keys = serving.issue(folder.path());
        for (from, to) in [(&account_keys.cert, "sa-signer.crt"), (&account_keys.key, "sa-signer.key")] {
            std::fs::rename(from, folder.path().join(to)).expect("a file");
        }
        let authorities = folder.path().join("client-cert-auth-ca.crt");
        std::fs::write(&authorities, clients.pem()).expect("a file");
        let mut apiserver = start(
            &assets.join("kube-apiserver"),
            &[
                "--allow-privileged=true".to_owned(),
                "--authorization-mode=RBAC".to_owned(),
                format!("--bind-address={}", apiserver_at.ip()),
                format!("--cert-dir={dir}"),
                format!("--client-ca-file={}", authorities.display()),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                format!("--etcd-servers={url}"),
                format!("--secure-port={}", apiserver_at.port()),
                format!("--service-account-issuer=https://{apiserver_at}/"),
                format!("--service-account-key-file={dir}/sa-signer.crt"),
                format!("--service-account-signing-key-file={dir}/sa-signer.key"),
                "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            ],
        );
        let admin = clients.issue_user(folder.path(), "admin", &["system:masters"]);
        // envtest does not verify the certificate while it waits, and its clients do.
        let anonymous = Client::new(apiserver_at).over_tls(serving.trust());
        let with_cert = Client::new(apiserver_at).over_tls(serving.trust_as(&admin));
        let health = Client::new(etcd_at);
        let ready = async {
            health.answers_well("/health").await;
            anonymous.answers_well("/readyz").await;
        };
        tokio::select! {
            biased;
            _ = etcd.wait() => return None,
            _ = apiserver.wait() => return None,
            () = ready => {}
        }
        Some(Self { etcd, apiserver, anonymous, admin: with_cert, _folder: folder })
    }

    /// Ends both programs by SIGTERM, as envtest does.
    async fn stop(self) -> [ExitStatus; 2] {
        let end = async |mut child: Child| {
            let id = child.id().expect("it runs").to_string();
            assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
            timeout(STOP_WAIT, child.wait()).await.expect("ends in time").expect("a status")
        };
        [end(self.apiserver).await, end(self.etcd).await]
    }
}

trait Probe {
    /// Waits until a GET is answered with 200.
    async fn answers_well(&self, path: &str);
}

impl Probe for Client {
    async fn answers_well(&self, path: &str) {
        let well = async {
            while !self.try_get(path).await.is_ok_and(|answer| answer.code == 200) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(START_WAIT, well).await.unwrap_or_else(|_| panic!("{path} of {self:?} is not well"));
    }
}

fn start(program: &Path, flags: &[String]) -> Child {
    let mut command = Command::new(program);
    command.args(flags).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

/// Ports that were free a moment ago, as envtest chooses them.
fn free_addresses() -> [SocketAddr; 2] {
    let open = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    open.map(|listener| listener.local_addr().expect("an address"))
}

/// Starts the program `kube-apiserver` with flags that it does not know. Returns `None` if it ended.
async fn begin_with_own_certificate(assets: &Path, certificates: &Path) -> Option<(Child, Client)> {
    let [address, _] = free_addresses();
    let flags = [
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", address.port()),
        format!("--cert-dir={}", certificates.display()),
        "--feature-gates=A=true".to_owned(),
        "--v".to_owned(),
        "4".to_owned(),
    ];
    let mut command = Command::new(assets.join("kube-apiserver"));
    command.args(&flags).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("starts");
    let made = certificates.join("apiserver.crt");
    let begun = async {
        while !std::fs::read_to_string(&made).is_ok_and(|text| text.contains("END CERTIFICATE")) {
            sleep(Duration::from_millis(20)).await;
        }
        let client = Client::new(address).over_tls(tests::tls::Trust::of_issuer(&made));
        client.answers_well("/readyz").await;
        client
    };
    tokio::select! {
        biased;
        _ = child.wait() => None,
        client = timeout(START_WAIT, begun) => Some((child, client.expect("makes a certificate"))),
    }
}

async fn write_assets(folder: &Path) -> PathBuf {
    let written = Server::run(BINARY, &["assets", "--dir", &folder.join("assets").display().to_string()]).await;
    assert_eq!((written.code, written.stderr.as_str()), (Some(0), ""), "{written:?}");
    PathBuf::from(written.stdout.trim_end())
}

/// Goal: envtest starts control planes of this server beside each other. Method: its flags, files and requests, twice at
/// once; each has objects of its own and ends by SIGTERM while a watch is open.
#[tokio::test]
async fn envtest_starts_two_control_planes_beside_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let assets = write_assets(folder.path()).await;
    let planes = tokio::join!(Plane::start(&assets), Plane::start(&assets));
    for (plane, other) in [(&planes.0, &planes.1), (&planes.1, &planes.0)] {
        plane.admin.get("/api/v1/namespaces/default").await.with_code(200);
        assert_eq!(plane.anonymous.get("/api/v1/namespaces/default").await.code, 403);
        plane.admin.create(&configmap("own")).await;
        plane.admin.delete(configmap("own").path().as_str()).await.with_code(200);
        assert_eq!(other.admin.get(configmap("own").path().as_str()).await.code, 404);
    }
    for plane in [planes.0, planes.1] {
        let mut watch = plane.admin.watch("/api/v1/configmaps?watch=1").await;
        let [apiserver, etcd] = plane.stop().await;
        assert!(apiserver.success() && etcd.success(), "{apiserver:?} {etcd:?}");
        watch.rest(STOP_WAIT).await;
    }
}

/// Goal: envtest finds out which flags it may pass, and flags of other releases are no error. Method: the help without the
/// flag that newer servers lack; a start with flags that no server has, and without a certificate.
#[tokio::test]
async fn programs_name_their_flags_and_accept_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let assets = write_assets(folder.path()).await;
    for (program, has) in [("kube-apiserver", "      --secure-port\n"), ("etcd", "      --unsafe-no-fsync\n")] {
        let help = Server::run(assets.join(program).to_str().expect("text"), &["--help"]).await;
        assert_eq!(help.code, Some(0));
        assert!(help.stdout.contains(has) && !help.stdout.contains("--insecure-port"), "{}", help.stdout);
    }
    let mut started = None;
    for _ in 0..PORT_ATTEMPTS {
        if started.is_none() {
            started = begin_with_own_certificate(&assets, &folder.path().join("certificates")).await;
        }
    }
    let (child, client) = started.expect("starts");
    client.post("/api/v1/namespaces", &json!({"metadata": {"name": "made"}})).await.with_code(201);
    let id = child.id().expect("it runs").to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    let ended = timeout(STOP_WAIT, child.wait_with_output()).await.expect("ends in time").expect("its output");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && stderr.contains("without effect here: --feature-gates --v\n"), "{stderr}");
}

/// Goal: an operator finds the defaults and refusals of its definitions, and its Events. Method: objects of a definition with
/// defaults, an enum, a pattern, a rule, a rule that the server does not know, and no more fields, by each kind of write; an
/// Event as new clients send it.
#[tokio::test]
async fn a_control_plane_enforces_the_schemas_of_definitions() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
    let folder = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(&write_assets(folder.path()).await).await;
    let admin = plane.admin;
    let rules = json!([{"rule": "self.size < 100"}, {"rule": "semver('1.0.0').major() == 2"}]);
    let spec = json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
        "size": {"type": "integer", "default": 3}, "mode": {"type": "string", "enum": ["on", "off"]},
        "host": {"type": "string", "anyOf": [{"format": "ipv4"}, {"pattern": r"^[a-z]+(\.[a-z]+)*$"}]}}});
    let mut definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}});
    let defined = admin.post(DEFINITIONS, &definition).await.with_code(201);
    let warning = defined.header("warning");
    assert!(warning.contains("[1].rule: not enforced by this server: unknown function 'semver'"), "{warning}");
    let widget = |spec| json!({"metadata": {"name": "a"}, "spec": spec});
    for (host, code) in [("10.0.0.1", 201), ("a.b", 201), ("a..b", 422)] {
        admin.post(&format!("{WIDGETS}?dryRun=All"), &widget(json!({"host": host}))).await.with_code(code);
    }
    let broken = admin.post(WIDGETS, &widget(json!({"size": 100}))).await.with_code(422);
    assert!(broken.message().contains("spec: Invalid value: failed rule: self.size < 100"), "{}", broken.message());
    definition["metadata"]["name"] = json!("others.example.com");
    definition["spec"]["names"] = json!({"plural": "others", "kind": "Other"});
    let properties = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    properties["spec"]["properties"]["host"]["pattern"] = json!("(?=a)");
    let refused = admin.post(DEFINITIONS, &definition).await.with_code(422);
    assert!(refused.message().contains("invalid or unsupported Perl syntax: `(?=`"), "{}", refused.message());
    let refused = admin.post(WIDGETS, &widget(json!({"mode": "x"}))).await.with_code(422);
    assert!(refused.message().contains("spec.mode: Unsupported value: \"x\""), "{}", refused.message());
    let strict = format!("{WIDGETS}?fieldValidation=Strict");
    let unknown = admin.post(&strict, &widget(json!({"other": 1}))).await.with_code(400);
    assert!(unknown.message().contains("unknown field \"spec.other\""), "{}", unknown.message());
    let made = admin.post(WIDGETS, &widget(json!({"mode": "on", "other": 1}))).await.with_code(201);
    assert!(made.header("warning").contains("spec.other"), "{:?}", made.headers);
    assert_eq!(made.json()["spec"], json!({"mode": "on", "size": 3}));

    let path = format!("{WIDGETS}/a");
    let patched = admin.patch(&path, MERGE_PATCH, &json!({"spec": {"size": null, "mode": "off"}})).await.with_code(200);
    assert_eq!(patched.json()["spec"], json!({"mode": "off", "size": 3}));
    admin.patch(&path, MERGE_PATCH, &json!({"spec": {"size": "big"}})).await.with_code(422);
    let mut sent = patched.json();
    sent["spec"] = json!({"mode": "off"});
    let same = admin.put(&path, &sent).await.with_code(200).json();
    assert_eq!(same["metadata"]["resourceVersion"], sent["metadata"]["resourceVersion"], "a default is no change");

    let event = json!({"metadata": {"name": "a.1"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "Tested",
        "action": "Test", "type": "Normal", "regarding": {"kind": "Widget", "name": "a", "namespace": "default"}});
    admin.post("/apis/events.k8s.io/v1/namespaces/default/events", &event).await.with_code(201);
    let found = admin.get("/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3Da").await.with_code(200);
    assert_eq!(found.keys(), ["default/a.1"]);
}

/// Goal: an operator finds the defaults of the built-in types, and its writes that leave them out change nothing. Method: a
/// Deployment by each kind of write, and the same one on a server that is no cluster.
#[tokio::test]
async fn a_control_plane_fills_in_defaults_of_built_in_types() {
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
    let folder = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(&write_assets(folder.path()).await).await;
    let admin = &plane.admin;
    let labels = json!({"app": "a"});
    let deployment = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "a"}, "spec": {
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]}}}});
    let dry = admin.post(&format!("{DEPLOYMENTS}?dryRun=All"), &deployment).await.with_code(201).json();
    let made = admin.post(DEPLOYMENTS, &deployment).await.with_code(201).json();
    assert_eq!((&made["spec"], &made["status"]), (&dry["spec"], &json!({})));
    assert_eq!((&made["spec"]["replicas"], &made["spec"]["strategy"]["type"]), (&json!(1), &json!("RollingUpdate")));
    let pod = &made["spec"]["template"]["spec"];
    assert_eq!((&pod["restartPolicy"], &pod["securityContext"]), (&json!("Always"), &json!({})));
    let container = json!({"name": "c", "image": "nginx", "imagePullPolicy": "Always", "resources": {},
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"});
    assert_eq!(pod["containers"], json!([container]));

    let path = format!("{DEPLOYMENTS}/a");
    let same = admin.put(&path, &deployment).await.with_code(200).json();
    assert_eq!(version(&same), version(&made), "a default is no change");
    let apply = format!("{path}?fieldManager=m");
    let applied = admin.patch(&apply, APPLY_PATCH, &deployment).await.with_code(200).json();
    assert_eq!(applied["spec"], made["spec"]);
    let again = admin.patch(&apply, APPLY_PATCH, &deployment).await.with_code(200).json();
    assert_eq!(version(&again), version(&applied));
    let removed = json!({"spec": {"replicas": null, "strategy": null}});
    let removed = admin.patch(&path, MERGE_PATCH, &removed).await.with_code(200).json();
    assert_eq!(version(&removed), version(&applied));
    let recreated = json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}});
    let recreated = admin.patch(&path, MERGE_PATCH, &recreated).await.with_code(200).json();
    assert_eq!(recreated["spec"]["strategy"], json!({"type": "Recreate"}));
    assert_eq!(recreated["metadata"]["generation"], 2);

    let other = Server::start(BINARY, &[]).await;
    let made = Client::new(other.address()).post(DEPLOYMENTS, &deployment).await.with_code(201).json();
    assert_eq!(made["spec"], deployment["spec"], "no cluster");
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().expect("a version")
}

/// Goal: what a change leaves out has its default. Method: a Service and each kind of patch; an apply of a list that it replaces
/// as a whole, twice; a namespace with a generated name.
#[tokio::test]
async fn patches_leave_out_defaults() {
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    let folder = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(&write_assets(folder.path()).await).await;
    let admin = &plane.admin;
    let service = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"name": "a", "port": 80}]}});
    let made = admin.post(SERVICES, &service).await.with_code(201).json();
    assert_eq!(made["spec"]["ports"], json!([{"name": "a", "port": 80, "targetPort": 80, "protocol": "TCP"}]));
    assert_eq!(made["spec"]["internalTrafficPolicy"], "Cluster");
    let path = format!("{SERVICES}/a");
    let more = json!({"spec": {"ports": [{"port": 81, "name": "b"}]}});
    let more = admin.patch(&path, STRATEGIC_PATCH, &more).await.with_code(200).json();
    assert_eq!(more["spec"]["ports"][0], json!({"name": "b", "port": 81, "targetPort": 81, "protocol": "TCP"}));
    let third = json!([{"op": "add", "path": "/spec/ports/-", "value": {"port": 82, "name": "c"}}]);
    let third = admin.patch(&path, JSON_PATCH, &third).await.with_code(200).json();
    assert_eq!(third["spec"]["ports"][2]["targetPort"], 82);
    let policy = json!({"kind": "NetworkPolicy", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": "a"},
        "spec": {"ingress": [{"ports": [{"port": 80}]}]}});
    let apply = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/a?fieldManager=m";
    let first = admin.patch(apply, APPLY_PATCH, &policy).await.with_code(201).json();
    assert_eq!(first["spec"]["ingress"], json!([{"ports": [{"port": 80, "protocol": "TCP"}]}]));
    let again = admin.patch(apply, APPLY_PATCH, &policy).await.with_code(200).json();
    assert_eq!(version(&again), version(&first), "a default in a list that is replaced is no change");
    let space =
        admin.post("/api/v1/namespaces", &json!({"metadata": {"generateName": "n-"}})).await.with_code(201).json();
    assert_eq!(space["metadata"]["labels"]["kubernetes.io/metadata.name"], space["metadata"]["name"]);
}

/// Goal: what an apply leaves out goes with its defaults. Method: two applies of one manager, and a part of the object after
/// each second one.
#[tokio::test]
async fn an_apply_takes_along_the_defaults_of_what_it_leaves_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(&write_assets(folder.path()).await).await;
    let with = |strategy: Value, volume: Value, container: Value| {
        let mut all = json!({"name": "c", "image": "nginx"});
        all.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let labels = json!({"app": "a"});
        let mut spec = json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [all], "volumes": [volume]}}});
        spec["strategy"] = strategy;
        json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "a"}, "spec": spec})
    };
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}});
    let env = json!([{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    let probe = json!({"httpGet": {"port": 80}});
    let before =
        with(rolling, json!({"name": "v", "configMap": {"name": "m"}}), json!({"env": env, "livenessProbe": probe}));
    let volume = json!({"name": "v", "secret": {"secretName": "s"}});
    let after = with(json!({"type": "Recreate"}), volume, json!({"env": [{"name": "E", "value": "v"}]}));
    let apply = "/apis/apps/v1/namespaces/default/deployments/a?fieldManager=m";
    let first = plane.admin.patch(apply, APPLY_PATCH, &before).await.with_code(201).json();
    assert_eq!(first["spec"]["template"]["spec"]["volumes"][0]["configMap"]["defaultMode"], 420);
    let second = plane.admin.patch(apply, APPLY_PATCH, &after).await.with_code(200).json();
    let pod = &second["spec"]["template"]["spec"];
    assert_eq!(second["spec"]["strategy"], json!({"type": "Recreate"}));
    assert_eq!(pod["volumes"], json!([{"name": "v", "secret": {"secretName": "s", "defaultMode": 420}}]));
    let container = &pod["containers"][0];
    assert_eq!((&container["env"], container.get("livenessProbe")), (&json!([{"name": "E", "value": "v"}]), None));
}

/// Goal: controllers write the status, and end, of objects that a stricter definition would refuse. Method: a required spec,
/// writes of each part with a bad other part, then a definition that the object breaks in each way, and the removal of its finalizer alone and with a bad change.
#[tokio::test]
async fn objects_stay_usable_under_a_stricter_definition() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
    let folder = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(&write_assets(folder.path()).await).await;
    let admin = &plane.admin;
    let definition = |spec: Value| {
        let schema = json!({"type": "object", "required": ["spec"], "properties": {
            "spec": spec,
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}});
        json!({"metadata": {"name": "widgets.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}})
    };
    let first = json!({"type": "object", "properties": {"mode": {"type": "string"}, "old": {"type": "string"}}});
    admin.post(DEFINITIONS, &definition(first)).await.with_code(201);
    let widget = json!({"metadata": {"name": "a", "finalizers": ["example.com/x"]}, "spec": {"mode": "x", "old": "y"}});
    let mut sent = admin.post(WIDGETS, &widget).await.with_code(201).json();

    let (path, status) = (format!("{WIDGETS}/a"), format!("{WIDGETS}/a/status"));
    sent["status"] = json!({"phase": 1});
    admin.put(&status, &sent).await.with_code(422);
    let discarded = admin.put(&path, &sent).await.with_code(200).json();
    assert_eq!(discarded.get("status"), None);
    let version = &discarded["metadata"]["resourceVersion"];
    let bare = json!({"metadata": {"name": "a", "resourceVersion": version}, "status": {"phase": "Up"}});
    let written = admin.put(&status, &bare).await.with_code(200).json();
    assert_eq!((&written["spec"], &written["status"]), (&widget["spec"], &bare["status"]));

    let stricter = json!({"type": "object", "required": ["needed"], "properties": {
        "mode": {"type": "string", "enum": ["on"]}, "needed": {"type": "string"}, "size": {"type": "integer", "default": 3}}});
    let stricter = definition(stricter);
    admin.patch(&format!("{DEFINITIONS}/widgets.example.com"), MERGE_PATCH, &stricter).await.with_code(200);
    let other = json!({"metadata": {"name": "b"}, "spec": {"mode": "x"}});
    let enforced = async {
        while admin.post(&format!("{WIDGETS}?dryRun=All"), &other).await.code != 422 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(START_WAIT, enforced).await.expect("the new definition is enforced");
    let labelled = admin.patch(&path, MERGE_PATCH, &json!({"metadata": {"labels": {"a": "b"}}})).await.with_code(200);
    assert_eq!(labelled.json()["spec"], json!({"mode": "x", "size": 3}), "completed before it is compared");
    let bad = json!({"metadata": {"finalizers": null}, "spec": {"mode": "y"}});
    admin.patch(&path, MERGE_PATCH, &bad).await.with_code(422);
    admin.delete(&path).await.with_code(200);
    admin.patch(&path, MERGE_PATCH, &bad).await.with_code(422);
    admin.patch(&path, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.with_code(200);
    assert_eq!(admin.get(&path).await.code, 404);
}

/// Goal: a test gets a token of a service account, which proves it to the control plane and to reviews. Method: a token as
/// envtest's keys sign it, before and after a binding; tokens with other audiences, lives and bonds.
#[tokio::test]
async fn a_control_plane_issues_tokens_of_service_accounts() {
    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
    const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
    let folder = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(&write_assets(folder.path()).await).await;
    let (admin, path) = (&plane.admin, format!("{ACCOUNTS}/app/token"));
    assert_eq!(admin.post(&path, &json!({})).await.with_code(404).message(), "serviceaccounts \"app\" not found");
    let account = admin.post(ACCOUNTS, &json!({"metadata": {"name": "app"}})).await.with_code(201).json();
    let answer = admin.post(&path, &json!({"spec": {"expirationSeconds": 7200}})).await.with_code(201).json();
    assert_eq!((&answer["kind"], &answer["metadata"]["uid"]), (&json!("TokenRequest"), &account["metadata"]["uid"]));
    assert_eq!(answer["spec"]["expirationSeconds"], 7200);
    assert!(answer["status"]["expirationTimestamp"].is_string(), "{answer}");
    let token = answer["status"]["token"].as_str().expect("a token").to_owned();
    let claims = claims(&token);
    assert_eq!(claims["sub"], "system:serviceaccount:default:app");
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 7200);
    assert_eq!((&claims["aud"], &claims["nbf"]), (&answer["spec"]["audiences"], &claims["iat"]));
    assert_eq!(claims["aud"][0], claims["iss"]);
    assert!(claims["jti"].is_string(), "{claims}");
    let expected =
        json!({"namespace": "default", "serviceaccount": {"name": "app", "uid": account["metadata"]["uid"]}});
    assert_eq!(claims["kubernetes.io"], expected);
    let app = plane.anonymous.with_token(&token);
    let refused = app.get("/api/v1/configmaps").await.with_code(403).message();
    assert!(refused.contains("User \"system:serviceaccount:default:app\" cannot list"), "{refused}");
    let review = json!({"spec": {"token": token}});
    let user = admin.post(REVIEWS, &review).await.with_code(201).json()["status"]["user"].clone();
    assert_eq!((&user["username"], &user["uid"]), (&claims["sub"], &account["metadata"]["uid"]));
    let forged = json!({"spec": {"token": format!("{token}x")}});
    assert_eq!(admin.post(REVIEWS, &forged).await.json()["status"].get("authenticated"), None);
    let binding = json!({"metadata": {"name": "app"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "app", "namespace": "default"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    admin.post(bindings, &binding).await.with_code(201);
    app.answers_well("/api/v1/configmaps").await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "app", "nodeName": "n",
        "containers": [{"name": "c", "image": "i"}]}});
    let pod = admin.post("/api/v1/namespaces/default/pods", &pod).await.with_code(201).json();
    let bound =
        json!({"spec": {"audiences": ["vault"], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}}});
    let answer = admin.post(&path, &bound).await.with_code(201).json();
    let claims = self::claims(answer["status"]["token"].as_str().expect("a token"));
    assert_eq!(claims["aud"], json!(["vault"]));
    let (uid, bonds) = (&pod["metadata"]["uid"], &claims["kubernetes.io"]);
    assert_eq!((&bonds["pod"], &bonds["node"]), (&json!({"name": "p", "uid": uid}), &json!({"name": "n"})));
    let object = |kind: &str, name: &str, uid: &str| json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}}});
    for (body, code, text) in [
        (json!({"spec": {"expirationSeconds": 599}}), 422, "may not specify a duration less than 10 minutes"),
        (json!({"metadata": {"name": "b"}}), 422, "must match the service account name if specified"),
        (
            json!({"metadata": {"uid": "u"}}),
            409,
            "the UID in the token request (u) does not match the UID of the service",
        ),
        (object("Pod", "none", ""), 404, "pods \"none\" not found"),
        (object("Pod", "p", "u"), 409, "the UID in the bound object reference (u) does not match the UID in record."),
        (object("ConfigMap", "c", ""), 400, "cannot bind token to object of type /v1, Kind=ConfigMap"),
    ] {
        let refused = admin.post(&path, &body).await.with_code(code).message();
        assert!(refused.contains(text), "{text}: {refused}");
    }
}

/// The claims of a token.
fn claims(token: &str) -> Value {
    use base64::Engine as _;
    let payload = token.split('.').nth(1).expect("three parts");
    let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).expect("base64");
    serde_json::from_slice(&payload).expect("JSON")
}
