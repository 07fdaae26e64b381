//! Bad requests over real sockets: which are refused, with which status code, in which words.

use bytes::Bytes;
use http::Method;
use informer_core::wire::continue_token::{ContinueToken, Position};
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, with_query},
    objects::configmap,
    process::Server,
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn server() -> Server {
    Server::start(BINARY, &["--first-revision", "1000"]).await
}

/// A query as people write it, with what they would escape.
fn path(query: &str) -> String {
    let pairs: Vec<_> = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    with_query(CONFIGMAPS, &pairs)
}

const V1: (&str, &str) =
    ("resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided");
const V2: (&str, &str) =
    ("resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden when continue is provided");
const V3: (&str, &str) =
    ("resourceVersionMatch", r#"Unsupported value: "Bad": supported values: "Exact", "NotOlderThan", """#);
const V4: (&str, &str) =
    ("resourceVersionMatch", r#"Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#);
const V5: (&str, &str) = ("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list");
const W1: (&str, &str) =
    ("resourceVersionMatch", "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
const W3: (&str, &str) = (
    "resourceVersionMatch",
    "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
);
const W4_EXACT: (&str, &str) =
    ("resourceVersionMatch", r#"Unsupported value: "Exact": supported values: "NotOlderThan""#);
const W4_BAD: (&str, &str) = ("resourceVersionMatch", r#"Unsupported value: "Bad": supported values: "NotOlderThan""#);
const W5: (&str, &str) =
    ("resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden when continue is provided");

/// Goal: every row of both validation tables, alone and together, byte for byte.
#[tokio::test]
async fn bad_combinations_name_every_cause() {
    let server = server().await;
    let client = server.client();
    for (query, causes) in [
        ("resourceVersionMatch=NotOlderThan", &[V1][..]),
        ("resourceVersionMatch=Exact", &[V1]),
        ("resourceVersionMatch=Bad&continue=x", &[V1, V2, V3]),
        ("resourceVersionMatch=Exact&continue=x&resourceVersion=1", &[V2]),
        ("resourceVersionMatch=Bad&resourceVersion=1", &[V3]),
        ("resourceVersionMatch=Exact&resourceVersion=0", &[V4]),
        ("resourceVersionMatch=Exact&resourceVersion=0&continue=x", &[V2, V4]),
        ("sendInitialEvents=true", &[V5]),
        ("sendInitialEvents=false", &[V5]),
        ("sendInitialEvents=", &[V5]),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", &[V1, V5]),
        ("watch=false&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0", &[V5]),
        ("watch=1&sendInitialEvents=true", &[W1]),
        ("watch=1&sendInitialEvents=false&resourceVersion=1", &[W1]),
        ("watch=1&resourceVersion=1&resourceVersionMatch=Exact&sendInitialEvents=true", &[W1, W4_EXACT]),
        ("watch=1&resourceVersion=1&resourceVersionMatch=Bad&sendInitialEvents=true", &[W1, W4_BAD]),
        ("watch=1&resourceVersion=1&resourceVersionMatch=NotOlderThan", &[W3]),
        ("watch=1&resourceVersionMatch=NotOlderThan", &[W3]),
        ("watch=1&resourceVersionMatch=Exact&continue=x", &[W3, W4_EXACT, W5]),
        ("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x", &[W5]),
        // Without a position a watch asks for state by default, and then this is the same.
        ("watch=1&continue=x", &[W5]),
    ] {
        let answer = client.get(&path(query)).await.with_code(422);
        let texts: Vec<_> = causes.iter().map(|(field, text)| format!("{field}: {text}")).collect();
        let texts = if texts.len() == 1 { texts[0].clone() } else { format!("[{}]", texts.join(", ")) };
        let causes: Vec<_> = causes
            .iter()
            .map(|(field, text)| {
                let reason =
                    if text.starts_with("Unsupported") { "FieldValueNotSupported" } else { "FieldValueForbidden" };
                let (text, field) = (Value::from(*text), Value::from(*field));
                format!(r#"{{"reason":"{reason}","message":{text},"field":{field}}}"#)
            })
            .collect();
        let message = Value::from(format!("ListOptions.meta.k8s.io \"\" is invalid: {texts}"));
        assert_eq!(
            answer.text(),
            format!(
                "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\"message\":{message},\
                 \"reason\":\"Invalid\",\"details\":{{\"group\":\"meta.k8s.io\",\"kind\":\"ListOptions\",\
                 \"causes\":[{}]}},\"code\":422}}\n",
                causes.join(",")
            ),
            "{query}"
        );
        assert_eq!(answer.header("content-type"), "application/json");
        assert!(answer.header("cache-control").contains("private"));
    }
}

#[track_caller]
fn refused(answer: Answer, message: &str) {
    let asked = answer.asked.clone();
    let answer = answer.with_code(400);
    let message = Value::from(message);
    assert_eq!(
        answer.text(),
        format!(
            "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\"message\":{message},\
             \"reason\":\"BadRequest\",\"code\":400}}\n"
        ),
        "{asked}"
    );
}

#[tokio::test]
async fn bad_values_are_refused_in_kubernetes_words() {
    let server = server().await;
    let client = server.client();
    let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                 for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let position = |text: &str, why: &str| {
        format!(
            "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": {why}"
        )
    };
    for (query, message) in [
        ("resourceVersion=abc", position("abc", "invalid syntax")),
        ("resourceVersion=-1", position("-1", "invalid syntax")),
        ("resourceVersion=1.5", position("1.5", "invalid syntax")),
        ("resourceVersion= 1", position(" 1", "invalid syntax")),
        ("resourceVersion=+5", position("+5", "invalid syntax")),
        ("resourceVersion=99999999999999999999", position("99999999999999999999", "value out of range")),
        ("limit=", "strconv.ParseInt: parsing \"\": invalid syntax".into()),
        ("limit=x", "strconv.ParseInt: parsing \"x\": invalid syntax".into()),
        ("timeoutSeconds=x", "strconv.ParseInt: parsing \"x\": invalid syntax".into()),
        ("watch=1&limit=x", "strconv.ParseInt: parsing \"x\": invalid syntax".into()),
        ("watch=1&timeoutSeconds=1.5", "strconv.ParseInt: parsing \"1.5\": invalid syntax".into()),
        ("limit=9223372036854775808", "strconv.ParseInt: parsing \"9223372036854775808\": value out of range".into()),
        ("labelSelector=a,", "found '', expected: identifier after ','".into()),
        ("labelSelector=a in b", "unable to parse requirement: found 'b' expected: '('".into()),
        ("labelSelector=!", "unable to parse requirement: found '', expected: identifier".into()),
        ("labelSelector=a=$$", format!("unable to parse requirement: values[0][a]: Invalid value: \"$$\": {value}")),
        ("watch=1&labelSelector=a,", "found '', expected: identifier after ','".into()),
        ("fieldSelector=foo", "invalid selector: 'foo'; can't understand 'foo'".into()),
        ("fieldSelector=a=\\x", "invalid field selector: invalid escape sequence: \\x".into()),
        (
            "fieldSelector=spec.foo=x",
            "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"".into(),
        ),
        (
            "watch=1&fieldSelector=spec.foo=x",
            "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"".into(),
        ),
    ] {
        refused(client.get(&path(query)).await, &message);
    }
    for plural in ["pods", "nodes", "secrets"] {
        let unknown = format!("/api/v1/{plural}?fieldSelector=spec.foo%3Dx");
        refused(client.get(&unknown).await, "field label not supported: spec.foo");
    }
    let grouped = client.get("/apis/apps/v1/deployments?fieldSelector=spec.foo%3Dx").await;
    refused(grouped, "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"");
}

#[tokio::test]
async fn odd_values_that_kubernetes_takes_are_taken() {
    let server = server().await;
    let client = server.client();
    let listed = client.get(CONFIGMAPS).await.with_code(200).resource_version();
    client.create(&configmap("a")).await;
    // Reads of any age are of this age from here on.
    client.get(CONFIGMAPS).await.with_code(200);
    for query in [
        "resourceVersion=05",
        "resourceVersion=",
        "continue=",
        "resourceVersionMatch=",
        "labelSelector=",
        "fieldSelector=,",
        "watch=0",
        "watch=FALSE",
        "watch=false",
        "allowWatchBookmarks=perhaps",
        "unknown=parameter",
        "pretty=perhaps",
        "limit=-5",
        "limit=1&limit=x",
    ] {
        assert_eq!(client.get(&path(query)).await.with_code(200).keys(), ["default/a"], "{query}");
    }
    let mut bare = client.watch(&format!("{CONFIGMAPS}?watch&timeoutSeconds=1")).await;
    assert_eq!(bare.event().await.brief(), "ADDED default/a");
    let mut paged = client.watch(&path(&format!("watch=1&limit=5&continue=x&resourceVersion={listed}"))).await;
    assert_eq!(paged.event().await.brief(), "ADDED default/a");
    // Everything else is true as well.
    for query in ["watch=", "watch=no", "watch=2", "watch=true", "watch=1&limit=5"] {
        let mut watch = client.watch(&format!("{}&timeoutSeconds=1", path(query))).await;
        assert_eq!(watch.code(), 200, "{query}");
        assert_eq!(watch.event().await.brief(), "ADDED default/a", "{query}");
    }
}

#[tokio::test]
async fn bad_tokens_are_refused_in_kubernetes_words() {
    let server = server().await;
    let client = server.client();
    let now = client.create(&configmap("a")).await;
    let up = ContinueToken { resource_version: Position::At(now), start: "../b".into() }.encode();
    for (token, why) in [
        ("%%%", "illegal base64 data at input byte 0"),
        ("invalidContinueToken", "invalid character '\\u008a' looking for beginning of value"),
        ("aGVsbG8", "invalid character 'h' looking for beginning of value"),
        (
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhIn0",
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        ("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIifQ", "encoded start key empty (version meta.k8s.io/v1)"),
        (&up, "/../b"),
    ] {
        for more in [&[][..], &[("limit", "1")], &[("resourceVersion", "abc")], &[("resourceVersion", "0")]] {
            let answer = client.get(&with_query(&with_query(CONFIGMAPS, &[("continue", token)]), more)).await;
            refused(answer, &format!("invalid continue token: continue key is not valid: {why}"));
        }
    }
    let good = ContinueToken::after("a", Position::At(now)).encode();
    let both = with_query(CONFIGMAPS, &[("continue", &good), ("resourceVersion", "1")]);
    refused(client.get(&both).await, "specifying resource version is not allowed when using continue");
}

/// Kubernetes does not map these to 400; clients take either as a plain failure.
#[tokio::test]
async fn a_bad_position_of_a_watch_or_a_get_is_an_unmapped_error() {
    let server = server().await;
    let client = server.client();
    client.create(&configmap("a")).await;
    for query in ["?watch=1&resourceVersion=abc", "/a?resourceVersion=abc"] {
        let answer = client.get(&format!("{CONFIGMAPS}{query}")).await.with_code(500);
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
            "message": "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
        });
        assert_eq!(answer.json(), expected, "{query}");
    }
}

#[tokio::test]
async fn a_single_object_is_read_at_least_as_new_as_asked() {
    let server = server().await;
    let client = server.client();
    let now = client.create(&configmap("a").data("v")).await;
    // Reads of any age are of this age from here on.
    client.get(CONFIGMAPS).await.with_code(200);
    for query in ["", "?resourceVersion=0", &format!("?resourceVersion={now}")] {
        let object = client.get(&format!("{CONFIGMAPS}/a{query}")).await.with_code(200);
        assert_eq!((object.resource_version(), &object.json()["data"]["k"]), (now, &json!("v")), "{query}");
    }
    let missing = client.get(&format!("{CONFIGMAPS}/nope")).await.with_code(404);
    assert_eq!(
        missing.text(),
        concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"nope\" not found","#,
            r#""reason":"NotFound","details":{"name":"nope","kind":"configmaps"},"code":404}"#,
            "\n"
        )
    );
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused_in_kubernetes_shape() {
    let server = server().await;
    let client = server.client();
    let unknown = client.get("/api/v1/foos").await.with_code(404);
    assert_eq!(
        unknown.json(),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound",
               "message": "the server could not find the requested resource", "details": {}, "code": 404})
    );
    for path in ["/apis/none/v1", "/apis/none/v1/foos", "/nothing"] {
        let answer = client.get(path).await.with_code(404);
        assert_eq!(
            (answer.text(), answer.header("content-type")),
            ("404 page not found\n", "text/plain; charset=utf-8"),
            "{path}"
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    for (method, path) in [(Method::PUT, CONFIGMAPS.to_owned()), (Method::POST, format!("{CONFIGMAPS}/a"))] {
        let answer = client.send(Client::request(method, &path, &[], Bytes::new())).await.with_code(405);
        assert_eq!(answer.json()["reason"], "MethodNotAllowed", "{path}");
    }
}

#[tokio::test]
async fn what_nobody_can_read_is_not_acceptable() {
    let server = server().await;
    let client = server.client();
    client.create(&configmap("a")).await;
    for (accept, query) in [
        ("text/html", ""),
        ("application/xyz", "?watch=1"),
        ("application/json;stream=foo", ""),
        ("application/yaml", "?watch=1"),
    ] {
        let answer = client.get_with(&format!("{CONFIGMAPS}{query}"), &[("accept", accept)]).await.with_code(406);
        assert_eq!(answer.json()["reason"], "NotAcceptable", "{accept}");
    }
    for accept in [
        "application/json",
        "*/*",
        "application/*",
        "application/vnd.kubernetes.protobuf,application/json",
        "application/json;as=Unknown;v=v1;g=meta.k8s.io,application/json",
        "text/html,application/json;q=0.5",
    ] {
        let answer = client.get_with(CONFIGMAPS, &[("accept", accept)]).await.with_code(200);
        assert_eq!(answer.json()["kind"], "ConfigMapList", "{accept}");
    }
}
