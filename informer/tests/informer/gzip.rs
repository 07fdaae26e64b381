//! Compressed lists over sockets: which requests accept them, and compression that is missing, broken or a bomb.

use std::{error::Error as _, io::Write as _, time::Duration};

use flate2::{Compression, write::GzEncoder};
use informer::{Cause, Error, GzipError, Informer, InformerBuilder, InitialList, ListSemantic};
use k8s_openapi::api::core::v1::Pod;
use wiremock::{Mock, MockServer, Request, ResponseTemplate, matchers::any};

use crate::fixture::{SOON, cluster_at, contents, item, list, until};

fn packed(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn compressed(body: Vec<u8>) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_raw(body, "application/json").insert_header("Content-Encoding", "gzip")
}

fn is_watch(request: &Request) -> bool {
    request.url.query().is_some_and(|query| query.contains("watch=true"))
}

/// A server that answers lists by `answer`, with their number from 0, and keeps watches waiting.
async fn server(answer: impl Fn(usize, &Request) -> ResponseTemplate + Send + Sync + 'static) -> MockServer {
    let (server, lists) = (MockServer::start().await, std::sync::atomic::AtomicUsize::new(0));
    let respond = move |request: &Request| {
        if is_watch(request) {
            return ResponseTemplate::new(200).set_delay(SOON);
        }
        answer(lists.fetch_add(1, std::sync::atomic::Ordering::SeqCst), request)
    };
    Mock::given(any()).respond_with(respond).mount(&server).await;
    server
}

fn declared(server: &MockServer) -> InformerBuilder<Pod> {
    cluster_at(&server.uri()).informer::<Pod>().initial_list(InitialList::Unpaged)
}

fn with_gzip(server: &MockServer) -> Informer<Pod> {
    declared(server).config(|config| config.gzip_lists = true).start().unwrap()
}

/// Goal: lists and pages are requested compressed, and nothing else is. Method: two pages and a watch, with the setting
/// and without.
#[tokio::test]
async fn only_lists_accept_gzip_and_only_if_it_is_set() {
    for (is_set, expected) in [(true, "gzip"), (false, "identity")] {
        let server = server(move |number, _| {
            let token = if number == 0 { "next" } else { "" };
            let page = list(&[item(&format!("a/{number}"), 1)], 9, token);
            if is_set { compressed(packed(&page)) } else { ResponseTemplate::new(200).set_body_string(page) }
        })
        .await;
        let paged = declared(&server).initial_list(InitialList::Paged).list_semantic(ListSemantic::MostRecent);
        let pods = paged.config(|config| config.gzip_lists = is_set).start().unwrap();
        pods.ready(SOON).await.unwrap();
        assert_eq!(contents(&pods), "a/0@1 a/1@1");
        let mut requests = Vec::new();
        while !requests.iter().any(is_watch) {
            tokio::time::sleep(Duration::from_millis(2)).await;
            requests = server.received_requests().await.unwrap();
        }
        for request in &requests {
            let encoding = request.headers["accept-encoding"].to_str().unwrap();
            assert_eq!(encoding, if is_watch(request) { "identity" } else { expected }, "{}", request.url);
        }
        assert_eq!(requests.iter().filter(|request| !is_watch(request)).count(), 2);
    }
}

#[tokio::test]
async fn a_server_that_does_not_compress_is_read_as_before() {
    let server =
        server(|_, _| ResponseTemplate::new(200).set_body_string(list(&[item("a/1", 1), item("a/2", 2)], 9, ""))).await;
    let pods = with_gzip(&server);
    pods.ready(SOON).await.unwrap();
    assert_eq!(contents(&pods), "a/1@1 a/2@2");
}

/// Goal: broken compression changes no state and is retried. Method: a body that ends too early, one that is not gzip,
/// then a whole one.
#[tokio::test]
async fn a_list_whose_compression_is_broken_is_read_again() {
    let whole = packed(&list(&[item("a/1", 1), item("a/2", 2)], 9, ""));
    let server = server(move |number, _| match number {
        0 => compressed(whole[..whole.len() / 2].to_vec()),
        1 => compressed(b"not gzip".to_vec()),
        _ => compressed(whole.clone()),
    })
    .await;
    let pods = with_gzip(&server);
    pods.ready(SOON).await.unwrap();
    assert_eq!(contents(&pods), "a/1@1 a/2@2");
    assert_eq!(pods.stats().reflector.unhealthy_ends, 2);
}

async fn failure_of(body: Vec<u8>) -> Error {
    let server = server(move |_, _| compressed(body.clone())).await;
    let pods = with_gzip(&server);
    until("a failure", || pods.stats().reflector.unhealthy_ends > 0).await;
    let not_ready = pods.ready(Duration::ZERO).await.unwrap_err();
    let Cause::Failed(error) = not_ready.cause else { panic!("{not_ready}") };
    error
}

#[tokio::test]
async fn broken_compression_is_a_typed_error_that_may_pass() {
    let whole = packed(&list(&[item("a/1", 1)], 9, ""));
    for (body, expected) in [
        (whole[..whole.len() / 2].to_vec(), "the gzip stream ends too early"),
        (b"not gzip".to_vec(), "the gzip stream is corrupt"),
    ] {
        let error = failure_of(body).await;
        let gzip = error.source().and_then(|source| source.downcast_ref::<GzipError>()).unwrap();
        assert_eq!((error.to_string().as_str(), gzip.to_string().as_str()), ("the answer broke off", expected));
        assert!(error.is_retryable());
    }
}

/// Goal: limits hold for decompressed bytes. Method: 4 MiB of one letter, a thousandth compressed, in an object and
/// around the objects.
#[tokio::test]
async fn a_bomb_is_refused_by_the_limits_of_plain_bodies() {
    let filler = "x".repeat(4 << 20);
    let huge = item("a/huge", 1).replace("node-1", &filler);
    let bomb = packed(&list(&[huge, item("a/1", 2)], 9, ""));
    assert!(bomb.len() < 16 << 10, "{}", bomb.len());
    let server = server(move |_, _| compressed(bomb.clone())).await;
    let limited = declared(&server).object_bytes_max(256 << 10).config(|config| config.gzip_lists = true);
    let pods = limited.start().unwrap();
    pods.ready(SOON).await.unwrap();
    assert_eq!((contents(&pods).as_str(), pods.stats().skipped), ("a/1@2 a/huge@1!", 1));

    let around = list(&[item("a/1", 1)], 9, "").replacen("PodList", &filler, 1);
    let error = failure_of(packed(&around)).await;
    assert!(error.to_string().starts_with("the answer is not a Kubernetes list"), "{error}");
    assert!(error.is_retryable());
}
