//! Attributes of reads, compared row by row with kube-apiserver's RequestInfo, and the texts of denials.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::{
    registry::{Definition, Registry},
    route::{self, Route},
};

/// Built-in types, `widgets.example.com` (namespaced), and a cluster-scoped type with the plural `namespaces`.
fn registry() -> Registry {
    let defined = |plural: &str, group: &str, scope: &str| {
        let names = json!({"plural": plural, "kind": plural, "singular": plural, "listKind": format!("{plural}List")});
        let object = json!({"metadata": {"name": format!("{plural}.{group}"), "uid": plural},
            "spec": {"group": group, "scope": scope, "names": names, "versions": [{"name": "v1", "served": true,
            "storage": true, "subresources": {"status": {}}}]}, "status": {"acceptedNames": names}});
        let definition = Definition::read(object.as_object().unwrap()).expect("a definition");
        definition.types(&Arc::new(definition.schema()), 1).remove(0)
    };
    let types =
        [defined("widgets", "example.com", "Namespaced"), defined("namespaces", "tenants.example.com", "Cluster")];
    Registry::builtin().changed([], types.iter())
}

fn attributes(registry: &Registry, request: &str) -> ReadAttributes {
    let (path, query) = request.split_once('?').unwrap_or((request, ""));
    let Route::Resource(target) = route::parse(registry, path) else { panic!("{path} names no resource") };
    ReadAttributes::new(&Method::GET, &target, &Query::parse(Some(query))).expect("a read")
}

/// `verb group/version/resource[/subresource] namespace name [fields] [labels]`, with `-` for empty parts.
fn line(read: &ReadAttributes) -> String {
    let part = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let selector = |sign: &str, selector: &RawSelector| match &*selector.raw_selector {
        "" => String::new(),
        text => format!(" {sign}{{{text}}}"),
    };
    let subresource = if read.subresource.is_empty() { String::new() } else { format!("/{}", read.subresource) };
    format!(
        "{} {}/{}/{}{subresource} {} {}{}{}",
        read.verb.text(),
        part(&read.group),
        read.version,
        read.resource,
        part(&read.namespace),
        part(&read.name),
        selector("fields", &read.field_selector),
        selector("labels", &read.label_selector),
    )
}

fn check(rows: &[(&str, &str)]) {
    let registry = registry();
    for (request, expected) in rows {
        assert_eq!(line(&attributes(&registry, request)), *expected, "{request}");
    }
}

#[test]
fn paths_and_the_watch_option_name_verb_and_object() {
    check(&[
        ("/api/v1/pods", "list -/v1/pods - -"),
        ("/api/v1/pods/", "list -/v1/pods - -"),
        ("/api/v1/namespaces/a/pods", "list -/v1/pods a -"),
        ("/api/v1/namespaces/a/pods/b", "get -/v1/pods a b"),
        ("/api/v1/namespaces/a/pods/b/status", "get -/v1/pods/status a b"),
        ("/api/v1/nodes", "list -/v1/nodes - -"),
        ("/api/v1/nodes/n", "get -/v1/nodes - n"),
        ("/apis/apps/v1/deployments", "list apps/v1/deployments - -"),
        ("/apis/apps/v1/namespaces/a/deployments/b", "get apps/v1/deployments a b"),
        ("/apis/example.com/v1/widgets", "list example.com/v1/widgets - -"),
        ("/apis/example.com/v1/namespaces/a/widgets", "list example.com/v1/widgets a -"),
        ("/apis/example.com/v1/namespaces/a/widgets/b", "get example.com/v1/widgets a b"),
        ("/apis/example.com/v1/namespaces/a/widgets?watch=1", "watch example.com/v1/widgets a -"),
        // A namespace is in itself; so is each object of a type with this plural.
        ("/api/v1/namespaces", "list -/v1/namespaces - -"),
        ("/api/v1/namespaces/a", "get -/v1/namespaces a a"),
        ("/api/v1/namespaces/a/status", "get -/v1/namespaces/status a a"),
        ("/api/v1/namespaces?watch=true", "watch -/v1/namespaces - -"),
        ("/apis/tenants.example.com/v1/namespaces", "list tenants.example.com/v1/namespaces - -"),
        ("/apis/tenants.example.com/v1/namespaces/a", "get tenants.example.com/v1/namespaces a a"),
        ("/api/v1/pods?watch=1", "watch -/v1/pods - -"),
        ("/api/v1/pods?watch=true", "watch -/v1/pods - -"),
        ("/api/v1/pods?watch", "watch -/v1/pods - -"),
        ("/api/v1/pods?watch=", "watch -/v1/pods - -"),
        ("/api/v1/pods?watch=no", "watch -/v1/pods - -"),
        ("/api/v1/pods?watch=0", "list -/v1/pods - -"),
        ("/api/v1/pods?watch=False", "list -/v1/pods - -"),
        ("/api/v1/pods?watch=false&watch=true", "list -/v1/pods - -"),
        // A path with a name is a get, whatever its options are.
        ("/api/v1/namespaces/a/pods/b?watch=1", "get -/v1/pods a b"),
        ("/api/v1/namespaces/a/pods/b?fieldSelector=metadata.name%3Dc", "get -/v1/pods a b"),
    ]);
}

#[test]
fn positions_pages_and_initial_events_change_no_attribute() {
    check(&[
        ("/api/v1/pods?limit=500", "list -/v1/pods - -"),
        ("/api/v1/pods?limit=500&continue=abc", "list -/v1/pods - -"),
        ("/api/v1/pods?resourceVersion=0", "list -/v1/pods - -"),
        ("/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact", "list -/v1/pods - -"),
        ("/api/v1/namespaces/a/pods/b?resourceVersion=0", "get -/v1/pods a b"),
        (
            "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            "watch -/v1/pods - -",
        ),
        ("/api/v1/pods?sendInitialEvents=true", "list -/v1/pods - -"),
        ("/api/v1/pods?watch=1&resourceVersion=7&timeoutSeconds=5", "watch -/v1/pods - -"),
    ]);
}

#[test]
fn a_required_name_is_the_name_of_the_read() {
    check(&[
        ("/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db", "list -/v1/pods a b fields{metadata.name=b}"),
        ("/api/v1/pods?fieldSelector=metadata.name==b", "list -/v1/pods - b fields{metadata.name==b}"),
        ("/api/v1/pods?watch=1&fieldSelector=metadata.name=b", "watch -/v1/pods - b fields{metadata.name=b}"),
        ("/api/v1/pods?fieldSelector=metadata.name!=b", "list -/v1/pods - - fields{metadata.name!=b}"),
        ("/api/v1/pods?fieldSelector=metadata.name=", "list -/v1/pods - - fields{metadata.name=}"),
        (
            "/api/v1/pods?fieldSelector=spec.nodeName=n,metadata.name=b",
            "list -/v1/pods - b fields{spec.nodeName=n,metadata.name=b}",
        ),
        // Of two names the first one in the order of the terms' texts: `=` precedes letters, and follows digits.
        (
            "/api/v1/pods?fieldSelector=metadata.name=a,metadata.name==b",
            "list -/v1/pods - b fields{metadata.name=a,metadata.name==b}",
        ),
        (
            "/api/v1/pods?fieldSelector=metadata.name==b,metadata.name=1",
            "list -/v1/pods - 1 fields{metadata.name==b,metadata.name=1}",
        ),
        // Only names that can stand in a path count. An escaped comma belongs to the value.
        ("/api/v1/pods?fieldSelector=metadata.name=a/b", "list -/v1/pods - - fields{metadata.name=a/b}"),
        ("/api/v1/pods?fieldSelector=metadata.name=..", "list -/v1/pods - - fields{metadata.name=..}"),
        ("/api/v1/pods?fieldSelector=metadata.name=a%25b", "list -/v1/pods - - fields{metadata.name=a%b}"),
        (
            r"/api/v1/pods?fieldSelector=spec.x=a\,metadata.name\=b",
            r"list -/v1/pods - - fields{spec.x=a\,metadata.name\=b}",
        ),
        (r"/api/v1/pods?fieldSelector=metadata.name=a\,b", r"list -/v1/pods - a,b fields{metadata.name=a\,b}"),
        // A name in namespaces does not become their namespace.
        ("/api/v1/namespaces?fieldSelector=metadata.name=a", "list -/v1/namespaces - a fields{metadata.name=a}"),
        // Unreadable options leave the name out; the selectors are sent all the same.
        ("/api/v1/pods?fieldSelector=metadata.name=b&limit=x", "list -/v1/pods - - fields{metadata.name=b}"),
        ("/api/v1/pods?fieldSelector=metadata.name=b&timeoutSeconds=", "list -/v1/pods - - fields{metadata.name=b}"),
        (
            "/api/v1/pods?fieldSelector=metadata.name=b&labelSelector=a,,,&watch=1",
            "watch -/v1/pods - - fields{metadata.name=b} labels{a,,,}",
        ),
        ("/api/v1/pods?fieldSelector=metadata.name=b,oops", "list -/v1/pods - - fields{metadata.name=b,oops}"),
    ]);
}

#[test]
fn selectors_of_collections_are_sent_as_written() {
    check(&[
        ("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1", "watch -/v1/pods - - fields{spec.nodeName=n1}"),
        ("/api/v1/pods?fieldSelector=spec.host=n1", "list -/v1/pods - - fields{spec.host=n1}"),
        ("/api/v1/pods?labelSelector=app%3Dweb", "list -/v1/pods - - labels{app=web}"),
        (
            "/api/v1/pods?labelSelector=app+in+(a,b),n%3E5&fieldSelector=status.phase!=Failed",
            "list -/v1/pods - - fields{status.phase!=Failed} labels{app in (a,b),n>5}",
        ),
        ("/api/v1/pods?labelSelector=a&labelSelector=b", "list -/v1/pods - - labels{a}"),
        ("/api/v1/pods?labelSelector=&fieldSelector=", "list -/v1/pods - -"),
    ]);
}

#[test]
fn paths_with_watch_have_names_and_no_selectors() {
    check(&[
        ("/api/v1/watch/pods", "watch -/v1/pods - -"),
        ("/api/v1/watch/namespaces/a/pods", "watch -/v1/pods a -"),
        ("/api/v1/watch/namespaces/a/pods/b", "watch -/v1/pods a b"),
        ("/api/v1/watch/namespaces", "watch -/v1/namespaces - -"),
        ("/api/v1/watch/namespaces/a", "watch -/v1/namespaces a a"),
        ("/api/v1/watch/nodes/n", "watch -/v1/nodes - n"),
        ("/apis/example.com/v1/watch/widgets", "watch example.com/v1/widgets - -"),
        ("/api/v1/watch/pods?watch=0", "watch -/v1/pods - -"),
        ("/api/v1/watch/pods?fieldSelector=metadata.name=b", "watch -/v1/pods - -"),
        ("/api/v1/watch/pods?fieldSelector=spec.nodeName=n1&labelSelector=a", "watch -/v1/pods - -"),
    ]);
}

#[test]
fn writes_are_no_reads() {
    let registry = registry();
    let Route::Resource(target) = route::parse(&registry, "/api/v1/namespaces/a/pods") else { panic!("a resource") };
    let read = |method: Method| ReadAttributes::new(&method, &target, &Query::default());
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
        assert_eq!(read(method.clone()), None, "{method}");
    }
    assert_eq!(read(Method::HEAD), read(Method::GET));
}

#[test]
fn the_question_has_only_the_parts_that_restrict_it() {
    let registry = registry();
    for (request, expected) in [
        ("/api/v1/pods", json!({"verb": "list", "version": "v1", "resource": "pods"})),
        (
            "/apis/apps/v1/namespaces/a/deployments?watch=1&fieldSelector=metadata.name=b&labelSelector=c",
            json!({"verb": "watch", "group": "apps", "version": "v1", "resource": "deployments", "namespace": "a",
                "name": "b", "fieldSelector": {"rawSelector": "metadata.name=b"},
                "labelSelector": {"rawSelector": "c"}}),
        ),
    ] {
        assert_eq!(serde_json::to_value(attributes(&registry, request)).unwrap(), expected, "{request}");
    }
}

#[test]
fn denials_have_the_api_servers_words() {
    let registry = registry();
    for (request, user, reason, expected) in [
        (
            "/api/v1/namespaces/default/pods",
            Some("x"),
            "",
            r#"pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "default""#,
        ),
        (
            "/apis/apps/v1/deployments?watch=1",
            Some("system:serviceaccount:a:b"),
            r#"RBAC: clusterrole.rbac.authorization.k8s.io "z" not found"#,
            concat!(
                r#"deployments.apps is forbidden: User "system:serviceaccount:a:b" cannot watch resource "#,
                r#""deployments" in API group "apps" at the cluster scope: "#,
                r#"RBAC: clusterrole.rbac.authorization.k8s.io "z" not found"#
            ),
        ),
        (
            "/api/v1/namespaces/a/pods/b/status",
            Some("x"),
            "",
            r#"pods "b" is forbidden: User "x" cannot get resource "pods/status" in API group "" in the namespace "a""#,
        ),
        (
            "/api/v1/namespaces/a",
            Some("x"),
            "",
            concat!(
                r#"namespaces "a" is forbidden: User "x" cannot get resource "namespaces" in API group "" "#,
                r#"in the namespace "a""#
            ),
        ),
        (
            "/api/v1/nodes?fieldSelector=metadata.name=n",
            Some("<a&b>"),
            "<no>",
            concat!(
                r#"nodes "n" is forbidden: User "&lt;a&amp;b&gt;" cannot list resource "nodes" in API group "" "#,
                r#"at the cluster scope: <no>"#
            ),
        ),
        (
            "/api/v1/nodes",
            None,
            "",
            r#"nodes is forbidden: the caller cannot list resource "nodes" in API group "" at the cluster scope"#,
        ),
    ] {
        let read = attributes(&registry, request);
        let status = read.forbidden(user, reason);
        assert_eq!(status.message, expected, "{request}");
        let details = status.details.expect("details");
        assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"), "{request}");
        assert_eq!((details.group, details.kind, details.name), (read.group, read.resource, read.name), "{request}");
    }
}
