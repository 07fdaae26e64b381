//! Finite responses, most of them invalid: each yields a typed error, never a panic, and no error text quotes a body.

use std::{error::Error as _, time::Duration};

use informer::{Cause, Class, Cluster, ConfigError, Error, InitialList, ListSemantic, ResourceVersion};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::Expression;
use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};

use crate::fixture::{
    Reply, SOON, Step, added, cluster_at, contents, end_bookmark, event, in_memory, is_watch, item, list, ok, pod,
    refuse, status, until,
};

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(&format!(": {source}"));
        next = source.source();
    }
    text
}

async fn failure_of(template: ResponseTemplate) -> Error {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(template).mount(&server).await;
    let informer = cluster_at(&server.uri()).informer::<Pod>().initial_list(InitialList::Unpaged).start().unwrap();
    let failed = || informer.stats().reflector.requests > 0 && format!("{:?}", informer).contains("GET");
    until("the request", failed).await;
    for _ in 0..500 {
        if let Cause::Failed(error) = informer.ready(Duration::from_millis(10)).await.unwrap_err().cause {
            return error;
        }
    }
    panic!("no failure");
}

/// Goal: an error's methods classify it correctly. Method: one row per response: code, expired, forbidden, retryable,
/// Retry-After.
#[tokio::test]
async fn refusals_say_what_they_are() {
    for (code, reason, flags, retry_after) in [
        (400, "BadRequest", (false, false, false), None),
        (401, "Unauthorized", (false, true, false), None),
        (403, "Forbidden", (false, true, false), None),
        (404, "NotFound", (false, false, false), None),
        (405, "MethodNotAllowed", (false, false, false), None),
        (410, "Expired", (true, false, false), None),
        (422, "Invalid", (false, false, false), None),
        (429, "TooManyRequests", (false, false, true), Some(Duration::from_secs(7))),
        (500, "InternalError", (false, false, true), None),
        (504, "Timeout", (false, false, true), None),
    ] {
        let mut template = ResponseTemplate::new(code).set_body_string(status(code, reason, "because"));
        if let Some(time) = retry_after {
            template = template.insert_header("Retry-After", time.as_secs().to_string());
        }
        let error = failure_of(template).await;
        assert_eq!(error.code(), Some(code));
        assert_eq!((error.is_expired(), error.is_forbidden(), error.is_retryable()), flags, "{code}");
        assert_eq!(error.retry_after(), retry_after, "{code}");
        assert_eq!(chain(&error), format!("the server answered {code}: because"));
        assert_eq!(error.request().unwrap().to_string(), "GET /api/v1/pods?resourceVersion=0");
    }
}

#[tokio::test]
async fn answers_that_are_no_list_are_errors_without_their_text() {
    let item = item("a/secret", 7);
    let truncated = format!(r#"{{"kind":"PodList","metadata":{{"resourceVersion":"9"}},"items":[{item},"#);
    for (body, expected) in [
        ("<html>secret</html>".to_owned(), "the answer is not a Kubernetes list or watch: "),
        (truncated, "the answer is not a Kubernetes list or watch: the body ends too early"),
        (String::new(), "the answer is not a Kubernetes list or watch: the body ends too early"),
        ("[1]".to_owned(), "the answer is not a Kubernetes list or watch: "),
        (status(403, "Forbidden", "no"), "the server ended an accepted answer with 403: no"),
        (r#"{"kind":"PodList","metadata":{},"items":[{"secret":}]}"#.to_owned(), "the answer is not a "),
        (
            r#"{"kind":"PodList","metadata":{},"items":[]}"#.to_owned(),
            "the answer's resourceVersion or continue token leads nowhere",
        ),
    ] {
        let text = chain(&failure_of(ResponseTemplate::new(200).set_body_string(body)).await);
        assert!(text.starts_with(expected), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn an_error_page_without_status_is_an_error_with_its_code() {
    let error = failure_of(ResponseTemplate::new(502).set_body_string("<html>bad gateway</html>".repeat(9999))).await;
    assert_eq!(chain(&error), "the server answered 502 without a Status");
}

#[tokio::test]
async fn no_server_is_an_error_that_may_pass() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let informer = cluster_at(&format!("http://{address}")).informer::<Pod>().start().unwrap();
    until("a failure", || informer.stats().reflector.unhealthy_ends > 0).await;
    let not_ready = informer.ready(Duration::ZERO).await.unwrap_err();
    let Cause::Failed(error) = not_ready.cause else { panic!("{not_ready}") };
    assert!(error.is_retryable() && error.code().is_none());
    assert_eq!(error.to_string(), "the server gave no answer");
    let shown = format!("{error:?}");
    assert!(
        shown.starts_with("the server gave no answer: ") && shown.contains("(GET /api/v1/pods?watch=true&"),
        "{shown}"
    );
    assert!(shown.contains("refused") && !shown.contains("Inner"), "what went wrong, for people: {shown}");
}

#[tokio::test]
async fn a_url_without_scheme_is_an_error_before_anything_is_sent() {
    let error = Cluster::try_from(kube::Config::new("localhost:8001".parse().unwrap())).unwrap_err();
    assert!(chain(&error).starts_with("no client can be made of the configuration: "), "{}", chain(&error));
    Cluster::try_from(kube::Config::new("http://localhost:8001/prefix".parse().unwrap())).unwrap();
}

/// Goal: recovery from an expired page token. Method: the second page has expired; one unpaged list follows, with the
/// first page's semantic, and the token that would mix two states is not used.
#[tokio::test(start_paused = true)]
async fn an_expired_page_is_followed_by_one_unpaged_list() {
    let (cluster, log) = in_memory(|number, uri| match number {
        1 => ok([Step::Send(list(&[item("a/a", 3)], 9, "next"))]),
        2 => refuse(410, status(410, "Expired", "old").replace("{}", r#"{"continue":"inconsistent"}"#)),
        3 => ok([Step::Send(list(&[item("a/a", 3), item("a/b", 8)], 12, ""))]),
        _ => {
            assert!(is_watch(uri), "{uri}");
            ok([Step::Hang])
        }
    });
    let declared = cluster.informer::<Pod>().list_semantic(ListSemantic::MostRecent).initial_list(InitialList::Paged);
    let informer = declared.page_size(1).start().unwrap();
    informer.ready(SOON).await.unwrap();
    assert_eq!(contents(&informer), "a/a@3 a/b@8");
    assert_eq!(log.uris()[..3], ["/api/v1/pods?limit=1", "/api/v1/pods?limit=1&continue=next", "/api/v1/pods"]);
}

#[tokio::test(start_paused = true)]
async fn an_exact_version_that_is_gone_is_final() {
    let (cluster, log) = in_memory(|_, _| refuse(410, status(410, "Expired", "gone")));
    let exact = ListSemantic::Exact(ResourceVersion::from(7));
    let informer = cluster.informer::<Pod>().list_semantic(exact).start().unwrap();
    let not_ready = informer.ready(Duration::from_secs(3600)).await.unwrap_err();
    assert!(not_ready.since < SOON, "told at once");
    assert!(matches!(not_ready.cause, Cause::Failed(error) if error.is_expired()));
    assert_eq!(log.uris().len(), 1);
}

/// Goal: one bad object does not affect the others. Method: objects without a name, with a number as name, and without
/// a resourceVersion.
#[tokio::test(start_paused = true)]
async fn unreadable_objects_are_left_out_and_counted() {
    let (cluster, _log) = in_memory(|number, _| match number {
        1 => ok([Step::Send(list(
            &[
                r#"{"metadata":{"namespace":"a","resourceVersion":"3"}}"#.into(),
                r#"{"metadata":{"name":"x","namespace":"a"}}"#.into(),
                r#"{"metadata":{"name":7,"resourceVersion":"3"}}"#.into(),
                item("a/good", 5),
                r#"{"metadata":{"name":"odd","namespace":"a","resourceVersion":"6"},"spec":"hunter2"}"#.into(),
            ],
            9,
            "",
        ))]),
        _ => ok([Step::Hang]),
    });
    let informer = cluster.informer::<Pod>().initial_list(InitialList::Unpaged).start().unwrap();
    informer.ready(SOON).await.unwrap();
    assert_eq!(contents(&informer), "a/good@5 a/odd@6 a/x@", "what does not decode is stored all the same");
    assert_eq!((informer.stats().unreadable, informer.stats().reflector.unversioned), (2, 1));
    let snapshot = informer.store().snapshot();
    assert_eq!(snapshot.get("a/good").unwrap().decode().unwrap().metadata.name.as_deref(), Some("good"));
    let error = snapshot.get("a/odd").unwrap().decode().unwrap_err();
    assert_eq!((error.key.as_str(), error.path.as_str()), ("a/odd", "spec"));
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

/// Goal: dropped paths apply to objects only. Method: drop the annotations, which also carry the mark that ends initial
/// state, and a member that a Status has as well.
#[tokio::test(start_paused = true)]
async fn a_dropped_path_of_objects_takes_nothing_from_bookmarks_and_errors() {
    let gone = event("ERROR", status(410, "Expired", "too old").trim());
    let (cluster, log) = in_memory(move |number, _| match number {
        1 => ok([Step::Send(added("a/a", 3)), Step::Send(end_bookmark(9)), Step::Send(gone.clone())]),
        _ => ok([Step::Send(added("a/a", 3)), Step::Send(end_bookmark(12)), Step::Hang]),
    });
    let declared = cluster.informer::<Pod>().initial_list(InitialList::Stream);
    let pods = declared.drop_path("metadata.annotations").drop_path("reason").start().unwrap();
    pods.wait_for(&ResourceVersion::from(12), SOON).await.unwrap();
    assert_eq!(log.count("sendInitialEvents"), 2);
    assert_eq!(pods.stats().reflector.failures(Class::Expired), 1);
}

/// Goal: an error takes memory in proportion to a Status, not to an object. Method: an error of two megabytes.
#[tokio::test(start_paused = true)]
async fn an_error_too_large_to_be_a_status_is_not_read() {
    let huge = event("ERROR", &status(403, "Forbidden", &"x".repeat(2 << 20)));
    let (cluster, _log) = in_memory(move |_, _| ok([Step::Send(huge.clone()), Step::Hang]));
    let pods = cluster.informer::<Pod>().initial_list(InitialList::Stream).start().unwrap();
    let Cause::Failed(error) = pods.ready(SOON).await.unwrap_err().cause else { panic!("an error") };
    assert_eq!((chain(&error).as_str(), error.code()), ("the answer holds an error that cannot be read", None));
}

#[tokio::test(start_paused = true)]
async fn an_error_whose_body_does_not_come_keeps_its_code() {
    let (cluster, _log) = in_memory(|_, _| Reply { steps: vec![Step::Hang], ..refuse(403, "") });
    let pods = cluster.informer::<Pod>().initial_list(InitialList::Unpaged).start().unwrap();
    let Cause::Failed(error) = pods.ready(SOON).await.unwrap_err().cause else { panic!("an error") };
    assert!(error.is_forbidden(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn wrong_settings_are_told_by_start_and_nothing_is_sent() {
    let (cluster, log) = in_memory(|_, _| ok([Step::Hang]));
    let pods = || cluster.informer::<Pod>();
    let exact = ListSemantic::Exact(ResourceVersion::from(7));
    for (declared, expected) in [
        (pods().labels("a b c"), "the label selector does not parse"),
        (pods().labels(Expression::Equal("a".into(), "b,c".into())), "the label selector does not parse"),
        (pods().fields("what"), "the field selector does not parse"),
        (pods().namespace("../nodes"), "namespace \"../nodes\" is not a namespace's name"),
        (pods().page_size(0), "page_size must not be zero"),
        (pods().object_bytes_max(0), "object_bytes_max must not be zero"),
        (pods().config(|config| config.healthy_after = Duration::ZERO), "healthy_after must not be zero"),
        (
            pods().drop_path("metadata"),
            "path \"metadata\" cannot be dropped: it is empty, or objects are told apart by it",
        ),
        (pods().drop_path("a..b"), "path \"a..b\" cannot be dropped: it is empty, or objects are told apart by it"),
        (
            pods().list_semantic(exact).initial_list(InitialList::Stream),
            "ListSemantic::Exact cannot be read with InitialList::Stream",
        ),
    ] {
        assert_eq!(declared.start().unwrap_err().to_string(), expected);
    }
    let nodes = cluster.informer::<Node>().namespace("prod").start().unwrap_err();
    assert_eq!(nodes, ConfigError::ClusterScoped { plural: "nodes".into() });
    assert!(log.uris().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_and_what_is_kept() {
    let serve = || {
        in_memory(|number, _| match number {
            1 => ok([Step::Send(list(&[item("a/a", 3)], 9, ""))]),
            _ => ok([Step::Hang]),
        })
    };
    let json = |informer: &informer::Informer<Pod>| {
        String::from_utf8(informer.store().snapshot().get("a/a").unwrap().json().into_owned()).unwrap()
    };
    let (cluster, _log) = serve();
    let trimmed =
        cluster.informer::<Pod>().drop_path("metadata.labels").initial_list(InitialList::Paged).start().unwrap();
    trimmed.ready(SOON).await.unwrap();
    assert_eq!(
        json(&trimmed),
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"a","uid":"uid-a","resourceVersion":"3"},"spec":{"nodeName":"node-1","containers":[]}}"#
    );
    let (cluster, _log) = serve();
    let whole = cluster.informer::<Pod>().keep_managed_fields().initial_list(InitialList::Paged).start().unwrap();
    whole.ready(SOON).await.unwrap();
    assert_eq!(json(&whole), pod("a/a", 3));
}
