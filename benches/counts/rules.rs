//! Instructions of the server for each byte of hostile input.
//!
//! Goal: no rule of access or of the API costs more than in proportion to the bytes that a caller sends, apart from a
//! logarithm. Method: each rule gets an input of eight times as many items; the instructions for each byte may grow by
//! [`GROWTH_MAX`] at most, where a quadratic rule needs eight times as many. A code that shows that a request did not reach its
//! rule fails, too.
//!
//! The program runs itself under callgrind, which counts inside of [`counted_request`] alone and writes a file after each call.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::{
    env, fs,
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use cache_server::{
    Server,
    app::App,
    config::{AuthenticationConfig, AuthorizationConfig, AuthorizationMode, Config, PopulateSpec},
    http::handle,
};
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::{
    runtime::{Builder, Runtime},
    time::sleep,
};

/// Items of the smaller input.
const ITEMS: usize = 500;

/// Factor between both inputs.
const FACTOR: usize = 8;

/// Bound on the growth of the instructions for each byte.
const GROWTH_MAX: f64 = 1.25;

/// Bound on the instructions for each byte of the larger input.
const PER_BYTE_MAX: f64 = 2_500.0;

/// Time until bindings have taken effect, under callgrind.
const GRANT_MAX: Duration = Duration::from_secs(60);

/// Variable that makes the program answer the requests, under callgrind.
const COUNTED: &str = "RULES_COUNTED";

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/owned/roles?dryRun=All";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All";
const CONFIGMAPS: &str = "/api/v1/namespaces/owned/configmaps";
const PODS: &str = "/api/v1/namespaces/owned/pods";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/work.example.com/v1/namespaces/owned/things";

/// A request of a caller.
struct Shot {
    by: &'static str,
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    kind: &'static str,
    body: Bytes,
}

/// Makes a request with so many items.
type Rule = (&'static str, fn(usize) -> Shot);

impl Shot {
    /// Bytes that the caller sends.
    fn bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.path.len() + headers + self.body.len()
    }

    fn request(self) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(self.method).uri(self.path).header(header::CONTENT_TYPE, self.kind);
        request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.by));
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(self.body)).expect("a request")
    }
}

fn shot(by: &'static str, method: Method, path: &str, kind: &'static str, body: &Value) -> Shot {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    Shot { by, method, path: path.to_owned(), headers: Vec::new(), kind, body }
}

/// A create; the objects that [`prepare`] makes have other names.
fn post(path: &str, body: &Value) -> Shot {
    let mut body = body.clone();
    if path.contains("/owned/") {
        body["metadata"]["name"] = json!("new");
    }
    shot("honest", Method::POST, path, JSON, &body)
}

fn patch(path: &str, kind: &'static str, body: &Value) -> Shot {
    shot("honest", Method::PATCH, path, kind, body)
}

fn get(path: &str) -> Shot {
    shot("honest", Method::GET, path, JSON, &Value::Null)
}

/// `path` with a parameter.
fn with_query(path: &str, name: &str, value: &str) -> String {
    let escaped = value.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    format!("{path}?{name}={}", escaped.collect::<String>())
}

fn by_owner(shot: Shot) -> Shot {
    Shot { by: "owner", ..shot }
}

fn list<T>(items: usize, item: impl Fn(usize) -> T) -> Vec<T> {
    (0..items).map(item).collect()
}

fn role(rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r", "namespace": "owned"},
        "rules": rules})
}

fn configmap(metadata: Value) -> Value {
    let mut metadata = metadata;
    (metadata["name"], metadata["namespace"]) = (json!("c"), json!("owned"));
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

fn pod(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "owned"}, "spec": spec})
}

fn thing(spec: Value) -> Value {
    json!({"apiVersion": "work.example.com/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "owned"},
        "spec": spec})
}

/// A definition of `things`, with a part of the schema of their `spec`.
fn definition(name: &str, properties: Value, more: Value) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let mut version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    for (member, value) in more.as_object().into_iter().flatten() {
        version[member] = value.clone();
    }
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{name}s.work.example.com")},
        "spec": {"group": "work.example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": format!("{name}s"), "singular": name, "kind": "Thing", "listKind": "ThingList"}}})
}

fn selector(kind: &str, items: usize, item: impl Fn(usize) -> String) -> Shot {
    get(&with_query("/api/v1/pods", kind, &list(items / 8, item).join(",")))
}

fn dry(path: &str) -> String {
    format!("{path}?dryRun=All")
}

fn apply(path: &str, body: &Value) -> Shot {
    patch(&format!("{path}?dryRun=All&fieldManager=m&force=true"), APPLY, body)
}

/// Rules of access.
const ACCESS: &[Rule] = &[
    ("role that multiplies", |items| {
        let values = |kind: &str| list(items / 4, |index| format!("{kind}{index}"));
        let rule = json!({"apiGroups": values("g"), "resources": values("r"), "verbs": values("v"), "resourceNames": values("n")});
        by_owner(post(ROLES, &role(json!([rule]))))
    }),
    ("role of many rules", |items| {
        let rule = |index| json!({"apiGroups": ["g"], "resources": [format!("r{index}")], "verbs": ["v"]});
        by_owner(post(ROLES, &role(json!(list(items, rule)))))
    }),
    ("role of held names", |items| {
        let names = list(items, |index| format!("n{index}"));
        let rule = json!({"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "list"], "resourceNames": names});
        by_owner(post(ROLES, &role(json!([rule]))))
    }),
    ("cluster role of paths", |items| {
        let paths = list(items, |index| format!("/p{index}/*"));
        let mut role = role(json!([{"nonResourceURLs": paths, "verbs": ["get", "post"]}]));
        (role["kind"], role["metadata"]) = (json!("ClusterRole"), json!({"name": "r"}));
        post(CLUSTER_ROLES, &role)
    }),
    ("aggregated role of many selectors", |items| {
        let selectors = list(items, |index| json!({"matchLabels": {format!("l{index}"): "v"}}));
        let mut role = role(json!([]));
        (role["kind"], role["metadata"]) = (json!("ClusterRole"), json!({"name": "r"}));
        role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        post(CLUSTER_ROLES, &role)
    }),
    ("binding of many subjects", |items| {
        let subject =
            |index| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": format!("u{index}")});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b"},
            "roleRef": {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "view"},
            "subjects": list(items, subject)});
        by_owner(post("/apis/rbac.authorization.k8s.io/v1/namespaces/owned/rolebindings?dryRun=All", &binding))
    }),
    ("review of many groups", |items| {
        let groups = list(items, |index| format!("g{index}"));
        let spec = json!({"user": "u", "groups": groups, "resourceAttributes": {"verb": "get", "resource": "pods"}});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review)
    }),
    ("impersonation of many groups", |items| {
        let groups =
            list(items / 100, |index| ("impersonate-group".to_owned(), format!("g{index}{}", "x".repeat(500))));
        let headers = [("impersonate-user".to_owned(), "u".to_owned())].into_iter().chain(groups);
        Shot { headers: headers.collect(), ..get("/api/v1/nodes") }
    }),
    ("flow schema of many rules", |items| {
        let rule = |index| {
            json!({"subjects": [{"kind": "User", "user": {"name": format!("u{index}")}}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}]})
        };
        let schema = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "f"},
            "spec": {"priorityLevelConfiguration": {"name": "exempt"}, "rules": list(items, rule)}});
        post("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas?dryRun=All", &schema)
    }),
    ("pod of a node with many secrets", |items| {
        let volumes =
            list(items, |index| json!({"name": format!("v{index}"), "secret": {"secretName": format!("s{index}")}}));
        let spec = json!({"nodeName": "n1", "volumes": volumes, "containers": [{"name": "c", "image": "i"}]});
        post(&dry(PODS), &pod(spec))
    }),
    ("accepted types", |items| {
        let types = list(items / 8, |index| format!("application/x{index};q=0.{}", index % 10)).join(", ");
        Shot { headers: vec![("accept".to_owned(), format!("{types}, {JSON}"))], ..get("/api/v1/nodes") }
    }),
];

/// Selectors, and rules for writes of built-in types.
const BUILT_IN: &[Rule] = &[
    ("label selector of many conditions", |items| selector("labelSelector", items, |index| format!("a{index}!=b"))),
    ("label selector of many values", |items| {
        let values = list(items / 4, |index| format!("v{index}")).join(",");
        get(&with_query("/api/v1/pods", "labelSelector", &format!("app notin ({values})")))
    }),
    ("label selector of one label", |items| selector("labelSelector", items, |index| format!("app!=b{index}"))),
    ("field selector", |items| selector("fieldSelector", items, |index| format!("metadata.name!=b{index}"))),
    ("query of many parameters", |items| {
        get(&format!("/api/v1/nodes?{}", list(items / 8, |index| format!("p{index}=v")).join("&")))
    }),
    ("labels", |items| {
        let labels: serde_json::Map<_, _> = (0..items).map(|index| (format!("l{index}"), json!("v"))).collect();
        post(&dry(CONFIGMAPS), &configmap(json!({"labels": labels, "annotations": labels})))
    }),
    ("finalizers", |items| {
        post(&dry(CONFIGMAPS), &configmap(json!({"finalizers": list(items, |index| format!("e.com/f{index}"))})))
    }),
    ("owners", |items| {
        let owner =
            |index| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{index}"), "uid": format!("u{index}")});
        post(&dry(CONFIGMAPS), &configmap(json!({"ownerReferences": list(items, owner)})))
    }),
    ("unknown fields", |items| {
        let unknown: serde_json::Map<_, _> = (0..items).map(|index| (format!("x{index}"), json!(1))).collect();
        let mut object = configmap(json!({}));
        object.as_object_mut().expect("an object").extend(unknown);
        post(&format!("{CONFIGMAPS}?dryRun=All&fieldValidation=Warn"), &object)
    }),
    ("fields given twice", |items| {
        let twice = list(items, |index| format!("\"k{index}\":\"a\",\"k{index}\":\"b\"")).join(",");
        let head = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"},"data":{"#;
        Shot {
            body: format!("{head}{twice}}}}}").into(),
            ..post(&format!("{CONFIGMAPS}?dryRun=All&fieldValidation=Warn"), &json!({}))
        }
    }),
    ("field managers", |items| post(&dry(CONFIGMAPS), &configmap(json!({"managedFields": owners(items, |_| 1)})))),
    ("containers of one name", |items| {
        let containers = list(items, |index| {
            json!({"name": format!("c{}", index % 7), "image": "i",
            "ports": [{"containerPort": index % 3}]})
        });
        post(&dry(PODS), &pod(json!({"containers": containers})))
    }),
    ("JSON patch of many additions", |items| {
        let operations = list(items, |index| json!({"op": "add", "path": format!("/data/k{index}"), "value": "v"}));
        let first = json!({"op": "add", "path": "/data", "value": {}});
        patch(&dry(&format!("{CONFIGMAPS}/c")), JSON_PATCH, &json!([vec![first], operations].concat()))
    }),
    ("JSON patch of many copies", |items| {
        let operations = list(items, |index| json!({"op": "copy", "from": "/metadata", "path": format!("/x{index}")}));
        patch(&dry(&format!("{CONFIGMAPS}/c")), JSON_PATCH, &json!(operations))
    }),
    ("JSON patch of many tests", |items| {
        let operations = list(items, |_| json!({"op": "test", "path": "/metadata/name", "value": "c"}));
        patch(&dry(&format!("{CONFIGMAPS}/c")), JSON_PATCH, &json!(operations))
    }),
    ("merge patch", |items| {
        let data: serde_json::Map<_, _> = (0..items).map(|index| (format!("k{index}"), json!("v"))).collect();
        patch(&dry(&format!("{CONFIGMAPS}/c")), MERGE_PATCH, &json!({"data": data}))
    }),
    ("strategic patch of merged lists", |items| {
        let containers = list(items, |index| json!({"name": format!("c{index}"), "image": "i"}));
        let order = list(items, |index| json!({"name": format!("c{}", items - index)}));
        let spec = json!({"containers": containers, "$setElementOrder/containers": order});
        patch(&dry(&format!("{PODS}/p")), STRATEGIC, &json!({"spec": spec}))
    }),
    ("strategic patch of deletions", |items| {
        let names = list(items, |index| json!({"$patch": "delete", "name": format!("c{index}")}));
        let finalizers = list(items, |index| format!("e.com/f{index}"));
        let metadata = json!({"$deleteFromPrimitiveList/finalizers": finalizers, "finalizers": finalizers});
        patch(&dry(&format!("{PODS}/p")), STRATEGIC, &json!({"metadata": metadata, "spec": {"containers": names}}))
    }),
    ("apply of a map", |items| {
        let data: serde_json::Map<_, _> = (0..items).map(|index| (format!("k{index}"), json!("v"))).collect();
        let mut object = configmap(json!({}));
        object["data"] = json!(data);
        apply(&format!("{CONFIGMAPS}/c"), &object)
    }),
    ("apply of a keyed list", |items| {
        let containers = list(items, |index| json!({"name": format!("c{index}"), "image": "i"}));
        apply(&format!("{PODS}/p"), &pod(json!({"containers": containers})))
    }),
    ("apply of a set", |items| {
        let finalizers = list(items, |index| format!("e.com/f{index}"));
        apply(&format!("{CONFIGMAPS}/c"), &configmap(json!({"finalizers": finalizers})))
    }),
    ("merge patch that is stored", |items| {
        let value = unique();
        let data: serde_json::Map<_, _> = (0..items).map(|index| (format!("k{index}"), json!(value))).collect();
        patch(&format!("{CONFIGMAPS}/stored"), MERGE_PATCH, &json!({"data": data}))
    }),
    ("strategic patch that is stored", |items| {
        let image = unique();
        let containers = list(items, |index| json!({"name": format!("c{index}"), "image": image}));
        patch(&format!("{PODS}/stored"), STRATEGIC, &json!({"spec": {"containers": containers}}))
    }),
    ("apply that is stored", |items| {
        let (value, mut object) = (unique(), pod(json!({})));
        object["metadata"]["name"] = json!("applied");
        let args = list(items, |index| format!("{index} {value}"));
        object["spec"]["containers"] = json!([{"name": "c", "image": "i", "args": args}]);
        patch(&format!("{PODS}/applied?fieldManager=m&force=true"), APPLY, &object)
    }),
];

/// Returns another text for each request, so that each changes its object.
fn unique() -> String {
    static REQUESTS: AtomicUsize = AtomicUsize::new(0);
    format!("{:08}", REQUESTS.fetch_add(1, Ordering::Relaxed))
}

/// Rules for definitions and custom objects.
const CUSTOM: &[Rule] = &[
    ("definition of many properties", |items| {
        let properties: serde_json::Map<_, _> =
            (0..items).map(|index| (format!("p{index}"), json!({"type": "string"}))).collect();
        post(&dry(DEFINITIONS), &definition("other", json!(properties), json!({})))
    }),
    ("definition of many values", |items| {
        let values = list(items, |index| format!("v{index}"));
        post(&dry(DEFINITIONS), &definition("other", json!({"e": {"type": "string", "enum": values}}), json!({})))
    }),
    ("definition of required members", |items| {
        let names = list(items, |index| format!("v{index}"));
        post(&dry(DEFINITIONS), &definition("other", json!({"e": {"type": "object", "required": names}}), json!({})))
    }),
    ("definition of short names", |items| {
        let mut object = definition("other", json!({}), json!({}));
        object["spec"]["names"]["shortNames"] = json!(list(items, |index| format!("s{index}")));
        object["spec"]["names"]["categories"] = json!(list(items, |index| format!("s{index}")));
        post(&dry(DEFINITIONS), &object)
    }),
    ("definition of columns", |items| {
        let column = |index| json!({"name": format!("c{index}"), "type": "string", "jsonPath": ".spec.x"});
        let more = json!({"additionalPrinterColumns": list(items, column),
            "selectableFields": list(items, |index| json!({"jsonPath": format!(".spec.p{index}")}))});
        post(&dry(DEFINITIONS), &definition("other", json!({}), more))
    }),
    ("items of a set", |items| post(&dry(THINGS), &thing(json!({"set": list(items, |index| format!("v{index}"))})))),
    ("items of a keyed list", |items| {
        post(&dry(THINGS), &thing(json!({"map": list(items, |index| json!({"key": format!("v{index}")}))})))
    }),
    ("items of an enumeration", |items| post(&dry(THINGS), &thing(json!({"values": list(items, |_| "v199")})))),
    ("unknown members", |items| {
        let unknown: serde_json::Map<_, _> = (0..items).map(|index| (format!("x{index}"), json!(1))).collect();
        post(&format!("{THINGS}?dryRun=All&fieldValidation=Strict"), &thing(json!(unknown)))
    }),
    ("apply of a set of a custom type", |items| {
        apply(&format!("{THINGS}/t"), &thing(json!({"set": list(items, |index| format!("v{index}"))})))
    }),
    ("apply of a keyed list of a custom type", |items| {
        apply(&format!("{THINGS}/t"), &thing(json!({"map": list(items, |index| json!({"key": format!("v{index}")}))})))
    }),
];

/// Rules for custom objects of a server that acts as a cluster: it enforces their schemas.
const ENFORCED: &[Rule] = &[
    ("refused numbers below a long name", |items| {
        post(&dry(THINGS), &thing(json!({"numbers": {"n".repeat(64 * items): list(items, |_| 1.5)}})))
    }),
    ("refused values of a list", |items| post(&dry(THINGS), &thing(json!({"values": list(items, |_| "none")})))),
    ("equal items of a set", |items| post(&dry(THINGS), &thing(json!({"set": list(items, |index| index / 2)})))),
    ("items without the keys of their list", |items| {
        post(&dry(THINGS), &thing(json!({"map": list(items, |_| json!({}))})))
    }),
    ("dropped members", |items| {
        let unknown: serde_json::Map<_, _> = (0..items).map(|index| (format!("x{index}"), json!(1))).collect();
        post(&format!("{THINGS}?dryRun=All&fieldValidation=Warn"), &thing(json!(unknown)))
    }),
    ("objects with defaults", |items| {
        post(&dry(THINGS), &thing(json!({"defaulted": list(items, |_| json!({"given": "v"}))})))
    }),
    // With a field that gets an owner: else entries stay as they are.
    ("owners of fields", |items| {
        post(&dry(CONFIGMAPS), &configmap(json!({"labels": {"a": "b"}, "managedFields": owners(items, |_| 1)})))
    }),
    ("owners of fields at many versions", |items| {
        let owners = owners(items, |index| index);
        post(&dry(CONFIGMAPS), &configmap(json!({"labels": {"a": "b"}, "managedFields": owners})))
    }),
];

/// Entries of managedFields of writers that do not apply.
fn owners(items: usize, version: impl Fn(usize) -> usize) -> Vec<Value> {
    list(items, |index| {
        json!({"manager": format!("m{index}"), "operation": "Update", "apiVersion": format!("v{}", version(index)),
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:k{index}"): {}}}})
    })
}

/// A single-threaded server that knows its callers: one that may do everything, and the owner of a namespace. Neither is exempt
/// from flow control.
struct World {
    runtime: Runtime,
    server: Server,
}

impl World {
    fn new(folder: &Path, acts_as_cluster: bool) -> Self {
        let tokens = folder.join("tokens.csv");
        let users = "admin,admin,admin,system:masters\nowner,owner,owner\nhonest,honest,honest\n";
        fs::write(&tokens, users).expect("a file");
        let authentication = AuthenticationConfig { token_auth_file: Some(tokens), ..AuthenticationConfig::default() };
        let authorization = AuthorizationConfig { modes: vec![AuthorizationMode::Node, AuthorizationMode::Rbac] };
        let populate = PopulateSpec { pods: 10, nodes: 10, namespaces: 5, seed: 1 };
        let populate = (!acts_as_cluster).then_some(populate);
        let listen = ([127, 0, 0, 1], 0).into();
        let config = Config { listen, authentication, authorization, populate, acts_as_cluster, ..Config::default() };
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let server = runtime.block_on(Server::bind(config)).expect("a server");
        let world = Self { runtime, server };
        world.grant();
        world.prepare();
        world
    }

    /// Lets one user do everything, and another everything in a namespace.
    fn grant(&self) {
        let subject = |name: &str| json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}]);
        let role = |name: &str| json!({"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": name});
        let binding =
            |name: &str, of: &str| json!({"metadata": {"name": name}, "roleRef": role(of), "subjects": subject(name)});
        let bindings = "/apis/rbac.authorization.k8s.io/v1";
        let owned = format!("{bindings}/namespaces/owned/rolebindings");
        self.create("admin", &format!("{bindings}/clusterrolebindings"), &binding("honest", "cluster-admin"));
        self.create("admin", "/api/v1/namespaces", &json!({"metadata": {"name": "owned"}}));
        self.create("admin", &owned, &binding("owner", "admin"));
        // Bindings take effect soon, not at once.
        let begun = Instant::now();
        for user in ["owner", "honest"] {
            while self.answer(Shot { by: user, ..get(CONFIGMAPS) }) == 403 {
                assert!(begun.elapsed() < GRANT_MAX, "{user} has no rights");
                self.runtime.block_on(async { sleep(Duration::from_millis(1)).await });
            }
        }
    }

    /// Creates the objects that the rules concern.
    fn prepare(&self) {
        let strings = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
        let keyed = json!({"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]});
        let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"], "items": keyed});
        let values =
            json!({"type": "array", "items": {"type": "string", "enum": list(200, |index| format!("v{index}"))}});
        let numbers = json!({"type": "object",
            "additionalProperties": {"type": "array", "items": {"type": "integer"}}});
        let defaults = json!({"type": "object", "properties":
            {"given": {"type": "string"}, "a": {"type": "string", "default": "v"}, "b": {"type": "integer", "default": 1}}});
        let schema = json!({"set": strings, "map": map, "values": values, "numbers": numbers,
            "defaulted": {"type": "array", "items": defaults}});
        self.create("honest", DEFINITIONS, &definition("thing", schema, json!({})));
        self.create("honest", CONFIGMAPS, &configmap(json!({})));
        self.create("honest", PODS, &pod(json!({"containers": [{"name": "c", "image": "i"}]})));
        for (path, mut object) in
            [(CONFIGMAPS, configmap(json!({}))), (PODS, pod(json!({"containers": [{"name": "stored", "image": "i"}]})))]
        {
            object["metadata"]["name"] = json!("stored");
            self.create("honest", path, &object);
        }
    }

    fn create(&self, by: &'static str, path: &str, object: &Value) {
        let code = self.answer(shot(by, Method::POST, path, JSON, object));
        assert_eq!(code, 201, "{path}");
    }

    fn answer(&self, shot: Shot) -> u16 {
        self.runtime.block_on(code(Arc::clone(self.server.app()), shot.request()))
    }
}

/// Reads the answer to a request to its end. Returns its code.
async fn code(app: Arc<App>, request: Request<Full<Bytes>>) -> u16 {
    let response = handle(app, request).await;
    let code = response.status().as_u16();
    response.into_body().collect().await.expect("a whole body");
    code
}

/// Answers a request. callgrind knows this function by its name.
#[inline(never)]
fn counted_request(world: &World, request: Request<Full<Bytes>>) -> u16 {
    world.runtime.block_on(code(Arc::clone(world.server.app()), request))
}

/// The rules, each with true if its server acts as a cluster.
fn rules() -> impl Iterator<Item = (&'static Rule, bool)> {
    [(ACCESS, false), (BUILT_IN, false), (CUSTOM, false), (ENFORCED, true)]
        .into_iter()
        .flat_map(|(rules, acts_as_cluster)| rules.iter().map(move |rule| (rule, acts_as_cluster)))
}

/// Answers each rule's requests. Prints a line with bytes and code for each counted one.
fn answer(folder: &Path) {
    let worlds = [false, true].map(|acts_as_cluster| World::new(folder, acts_as_cluster));
    for ((_, request), acts_as_cluster) in rules() {
        let world = &worlds[usize::from(acts_as_cluster)];
        // Fills caches.
        world.answer(request(ITEMS));
        for items in [ITEMS, ITEMS * FACTOR] {
            let shot = request(items);
            let bytes = shot.bytes();
            let code = counted_request(world, shot.request());
            println!("{bytes} {code}");
        }
    }
}

/// One counted request.
#[derive(Clone, Copy)]
struct Counted {
    bytes: u32,
    code: u16,
    instructions: u64,
}

impl Counted {
    /// Reads a line of [`answer`], and the file that callgrind wrote after that request.
    fn read(line: &str, counts: &str) -> Option<Self> {
        let (bytes, code) = line.split_once(' ')?;
        let total = counts.lines().find_map(|line| line.strip_prefix("totals: "))?;
        Some(Self { bytes: bytes.parse().ok()?, code: code.parse().ok()?, instructions: total.parse().ok()? })
    }

    fn per_byte(self) -> f64 {
        self.instructions as f64 / f64::from(self.bytes)
    }
}

/// Counts the instructions of all rules. Returns the rules that exceed a bound.
fn exceeding(folder: &Path) -> Vec<&'static str> {
    let counts = folder.join("counts");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet", "--collect-atstart=no"]);
    valgrind.args(["--toggle-collect=*::counted_request", "--dump-after=*::counted_request"]);
    valgrind.arg(format!("--callgrind-out-file={}", counts.display()));
    valgrind.arg(env::current_exe().expect("a program")).env(COUNTED, folder).stderr(Stdio::inherit());
    let output = valgrind.output().expect("valgrind is installed");
    assert!(output.status.success(), "{}", output.status);
    let lines = String::from_utf8(output.stdout).expect("text");
    let counted: Vec<_> = lines
        .lines()
        .enumerate()
        .map(|(index, line)| {
            let counts =
                fs::read_to_string(counts.with_extension((index + 1).to_string())).expect("a file of callgrind");
            Counted::read(line, &counts).expect("a line for each file")
        })
        .collect();
    assert_eq!(counted.len(), 2 * rules().count(), "requests");
    println!("{:<42} {:>8} {:>12} {:>9} {:>6}  code", "rule", "bytes", "instructions", "per byte", "growth");
    let mut exceeding = Vec::new();
    for (((name, _), _), pair) in rules().zip(counted.chunks(2)) {
        let [small, large] = [pair[0], pair[1]];
        let growth = large.per_byte() / small.per_byte();
        let Counted { bytes, code, instructions } = large;
        println!("{name:<42} {bytes:>8} {instructions:>12} {:>9.0} {growth:>6.2}  {code}", large.per_byte());
        let is_judged = !matches!(code, 400 | 401 | 404..=406 | 409 | 413..=415 | 429..);
        if !is_judged || GROWTH_MAX < growth || PER_BYTE_MAX < large.per_byte() {
            exceeding.push(*name);
        }
    }
    exceeding
}

fn main() -> ExitCode {
    if let Some(folder) = env::var_os(COUNTED) {
        answer(Path::new(&folder));
        return ExitCode::SUCCESS;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let exceeding = exceeding(folder.path());
    for name in &exceeding {
        println!("exceeds its bounds: {name}");
    }
    ExitCode::from(u8::from(!exceeding.is_empty()))
}
