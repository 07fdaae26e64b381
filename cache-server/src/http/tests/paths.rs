//! Paths: the resource that a request reaches is the one that it is authorized for.

use access_rules::request_info::ResourceAttributes;

use super::*;

/// Plurals that mean something else in other places of a path, and one that does not.
const PLURALS: [&str; 8] = ["watch", "proxy", "status", "finalize", "namespaces", "scale", "pods", "things"];

/// Segments of paths: all that the splitting of a path compares with, escapes, and names.
const SEGMENTS: [&str; 12] = [
    "namespaces",
    "watch",
    "proxy",
    "status",
    "finalize",
    "pods",
    "nodes",
    "things",
    "exec",
    "",
    "p%72oxy",
    "a%2Fwatch",
];

/// Segments that are combined after a prefix.
const SEGMENTS_MAX: usize = 4;

/// Defines each plural in two groups, namespaced and not.
async fn with_hostile_types() -> Server {
    let server = Server::new();
    for (group, scope) in [("inside.example", "Namespaced"), ("outside.example", "Cluster")] {
        for plural in PLURALS {
            let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
            let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.{group}")}, "spec": {"group": group, "scope": scope,
                "names": {"plural": plural, "kind": format!("Kind{plural}")}, "versions": [version]}});
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let created = server.send(with_body("POST", path, definition.to_string())).await;
            assert_eq!(created.code, 201, "{}", created.body);
            assert!(server.app.registry.now().find(group, "v1", plural).is_some(), "{plural}.{group}");
        }
    }
    server
}

/// Compares the route of a path with the attributes of its request. Returns true if it leads to a resource.
fn compare(server: &Server, path: &str) -> bool {
    let info = RequestInfo::new("GET", path, &Query::default());
    let (target, is_missing) = match route::parse(&server.app.registry.now(), path) {
        Route::Resource(target) => (target, false),
        Route::Missing(target) => (target, true),
        Route::Connect(ty, subresource) => {
            let of = info.resource.unwrap_or_else(|| panic!("{path} connects without a resource"));
            assert_eq!((&of.group, &of.resource), (&ty.group, &ty.plural), "{path}");
            assert_eq!(of.subresource, subresource, "{path}");
            return true;
        }
        Route::NotFound | Route::Unknown | Route::Forks(_) => return false,
        Route::Discovery(_)
        | Route::OpenApi(_)
        | Route::Health(..)
        | Route::Version
        | Route::Metrics
        | Route::Debug(_) => {
            assert_eq!(info.resource, None, "{path}");
            return false;
        }
    };
    let Target { ty, namespace, name, subresource, watched } = target;
    let text = |part: Option<String>| part.unwrap_or_default();
    let (name, mut namespace) = (text(name), text(namespace));
    if ty.plural == "namespaces" && namespace.is_empty() {
        // A namespace is in itself.
        namespace.clone_from(&name);
    }
    let verb = match (watched, name.is_empty()) {
        // A subresource that does not exist is answered without an object, whatever the verb is.
        _ if is_missing => info.verb.clone(),
        (true, _) => "watch".into(),
        (false, true) => "list".into(),
        (false, false) => "get".into(),
    };
    let reached = ResourceAttributes {
        group: ty.group.clone(),
        version: ty.version.clone(),
        resource: ty.plural.clone(),
        subresource: text(subresource),
        namespace,
        name,
        ..ResourceAttributes::default()
    };
    assert_eq!((info.verb, info.resource), (verb, Some(reached)), "{path}");
    true
}

/// Goal: no path reaches a resource under the attributes of another one, whatever types are defined. Method: every path of
/// up to four segments after the version and after a namespace, of built-in types and of types with confusing names.
#[tokio::test]
async fn every_path_leads_to_the_resource_that_it_is_authorized_for() {
    let server = with_hostile_types().await;
    let mut reached = 0_usize;
    let versions = ["/api/v1", "/apis/inside.example/v1", "/apis/outside.example/v1"];
    for prefix in versions.iter().flat_map(|version| [(*version).to_owned(), format!("{version}/namespaces/a")]) {
        let mut paths = vec![prefix];
        for _ in 0..SEGMENTS_MAX {
            paths = paths.iter().flat_map(|path| SEGMENTS.iter().map(move |next| format!("{path}/{next}"))).collect();
            reached += paths.iter().filter(|path| compare(&server, path)).count();
        }
    }
    assert!(reached > 1_000, "{reached}");
    for path in ["/apis/outside.example/v1/namespaces/a%2Fthings", "//api/v1/pods", "/api%2Fv1%2Fnamespaces%2Fa%2Fpods"]
    {
        compare(&server, path);
    }
}

/// Goal: types whose plural is a prefix of paths are not served under the attributes of others. Method: each method on
/// their collections, beside a type with an ordinary plural and the same types inside of a namespace.
#[tokio::test]
async fn types_with_the_names_of_prefixes_are_reached_in_namespaces_only() {
    let server = with_hostile_types().await;
    for (path, code) in [
        ("/apis/outside.example/v1/things", 200),
        ("/apis/outside.example/v1/watch", 404),
        ("/apis/outside.example/v1/proxy", 404),
        ("/apis/outside.example/v1/proxy/things", 404),
        ("/apis/inside.example/v1/watch", 404),
        ("/apis/inside.example/v1/namespaces/a/watch", 200),
        ("/apis/inside.example/v1/namespaces/a/proxy", 200),
        ("/apis/inside.example/v1/namespaces/a/status/b", 404),
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.code, code, "{path}: {}", answer.body);
        if code == 404 {
            for method in ["POST", "DELETE", "PUT"] {
                let answer = server.send(with_body(method, path, r#"{"metadata":{"name":"a"}}"#.to_owned())).await;
                assert_eq!(answer.code, 404, "{method} {path}: {}", answer.body);
            }
        }
    }
}
