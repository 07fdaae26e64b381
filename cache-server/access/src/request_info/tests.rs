//! Attributes of reads, compared row by row with kube-apiserver's RequestInfo.

use serde_json::json;

use super::*;

fn attributes(request: &str) -> RequestInfo {
    let (path, query) = request.split_once('?').unwrap_or((request, ""));
    RequestInfo::new("GET", path, &Query::parse(Some(query)))
}

/// `verb group/version/resource[/subresource] namespace name [fields] [labels]`, with `-` for empty parts.
fn line(info: &RequestInfo) -> String {
    let read = info.resource.as_ref().expect("a resource");
    let part = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let selector = |sign: &str, selector: &RawSelector| match &*selector.raw_selector {
        "" => String::new(),
        text => format!(" {sign}{{{text}}}"),
    };
    let subresource = if read.subresource.is_empty() { String::new() } else { format!("/{}", read.subresource) };
    format!(
        "{} {}/{}/{}{subresource} {} {}{}{}",
        info.verb,
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
    for (request, expected) in rows {
        assert_eq!(line(&attributes(request)), *expected, "{request}");
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
fn the_question_has_only_the_parts_that_restrict_it() {
    for (request, expected) in [
        ("/api/v1/pods", json!({"version": "v1", "resource": "pods"})),
        (
            "/apis/apps/v1/namespaces/a/deployments?watch=1&fieldSelector=metadata.name=b&labelSelector=c",
            json!({"group": "apps", "version": "v1", "resource": "deployments", "namespace": "a",
                "name": "b", "fieldSelector": {"rawSelector": "metadata.name=b"},
                "labelSelector": {"rawSelector": "c"}}),
        ),
    ] {
        assert_eq!(serde_json::to_value(attributes(request).resource).unwrap(), expected, "{request}");
    }
}

#[test]
fn denials_have_the_api_servers_words() {
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
        let read = attributes(request);
        let status = read.forbidden(user, reason);
        assert_eq!(status.message, expected, "{request}");
        let (details, of) = (status.details.expect("details"), read.resource.expect("a resource"));
        assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"), "{request}");
        assert_eq!((details.group, details.kind, details.name), (of.group, of.resource, of.name), "{request}");
    }
}

/// Describes a request in one line: verb, group/version, namespace, resource/subresource, name.
fn info(request: &str) -> String {
    let (method, target) = request.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let info = RequestInfo::new(method, path, &Query::parse(Some(query)));
    let Some(of) = info.resource else { return format!("{} {}", info.verb, info.path) };
    let text = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let [group, namespace, resource, subresource, name] =
        [&of.group, &of.namespace, &of.resource, &of.subresource, &of.name].map(|part| text(part));
    format!("{} {group}/{} {namespace} {resource}/{subresource} {name}", text(&info.verb), of.version)
}

#[test]
fn requests_have_the_attributes_of_their_path() {
    for (request, expected) in [
        ("GET /api/v1/pods", "list -/v1 - pods/- -"),
        ("HEAD /api/v1/pods/", "list -/v1 - pods/- -"),
        ("GET /api/v1/pods?watch=1", "watch -/v1 - pods/- -"),
        ("GET /api/v1/pods?watch=false", "list -/v1 - pods/- -"),
        ("GET /api/v1/watch/namespaces/a/pods/b", "watch -/v1 a pods/- b"),
        ("DELETE /api/v1/watch/pods", "watch -/v1 - pods/- -"),
        ("GET /api/v1/namespaces/a", "get -/v1 a namespaces/- a"),
        ("PUT /api/v1/namespaces/a/finalize", "update -/v1 a namespaces/finalize a"),
        ("GET /api/v1/namespaces/a/pods/b/status", "get -/v1 a pods/status b"),
        ("POST /api/v1/namespaces/a/pods/b/exec", "create -/v1 a pods/exec b"),
        ("DELETE /apis/apps/v1/namespaces/a/deployments", "deletecollection apps/v1 a deployments/- -"),
        ("DELETE /apis/apps/v1/namespaces/a/deployments/b", "delete apps/v1 a deployments/- b"),
        ("PATCH /apis/none/v7/things/b", "patch none/v7 - things/- b"),
        ("BREW /api/v1/pods", "- -/v1 - pods/- -"),
        ("GET /api/v1/pods?fieldSelector=metadata.name%3Da", "list -/v1 - pods/- a"),
        ("GET /api/v1/pods?fieldSelector=metadata.name%3Da&limit=x", "list -/v1 - pods/- -"),
        ("GET /api/v1/pods?fieldSelector=metadata.name%3D..", "list -/v1 - pods/- -"),
        ("GET /api/v1/namespaces/a%2Fb/secrets", "get -/v1 a b/- secrets"),
        ("GET /api/v1/namespaces/a%2Fsecrets", "list -/v1 a secrets/- -"),
        ("GET /api/v1/namespaces%2fa%2fsecrets%2f", "list -/v1 a secrets/- -"),
        ("GET /%61pi/v1/pods", "list -/v1 - pods/- -"),
        ("GET /api/v1", "get /api/v1"),
        ("GET /apis/apps/v1", "get /apis/apps/v1"),
        ("HEAD /healthz", "head /healthz"),
        ("GET /", "get /"),
        ("GET /api/v1/%zz", "get /api/v1/%zz"),
    ] {
        assert_eq!(info(request), expected, "{request}");
    }
}

#[test]
fn refusals_have_the_words_of_kube_apiserver() {
    let refusal = |method, path: &str| {
        let info = RequestInfo::new(method, path, &Query::default());
        info.forbidden(Some("system:anonymous"), "why").message
    };
    assert_eq!(
        refusal("GET", "/api/v1/pods"),
        r#"pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the cluster scope: why"#
    );
    assert_eq!(
        refusal("DELETE", "/apis/apps/v1/namespaces/a/deployments/b"),
        r#"deployments.apps "b" is forbidden: User "system:anonymous" cannot delete resource "deployments" in API group "apps" in the namespace "a": why"#
    );
    assert_eq!(refusal("GET", "/metrics"), r#"forbidden: User "system:anonymous" cannot get path "/metrics": why"#);
}
