//! Goal: bounds on positions that are held for clients that may resume. Method: streams of large objects that break
//! midway, small windows, paused time. The wire format is tested in `tests/tests/sdk/resuming.rs`.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use watch_cache::Limits;

use super::*;
use crate::{
    config::Config,
    http::tests::{Server, get, with_body},
    read::body::Body,
};

const OBJECTS: usize = 60;
/// About thirty objects fit between two marks.
const OBJECT_BYTES: usize = 5_000;

async fn server(limits: Limits) -> Server {
    let server = Server::with(Config { limits, ..Config::default() });
    for number in 0..OBJECTS {
        write(&server, &format!("map-{number:02}")).await;
    }
    server
}

async fn write(server: &Server, name: &str) {
    write_large(server, name, OBJECT_BYTES).await;
}

async fn write_large(server: &Server, name: &str, bytes: usize) {
    let data = "v".repeat(bytes);
    let object =
        format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}"}},"data":{{"k":"{data}"}}}}"#);
    let answer = server.send(with_body("POST", "/api/v1/namespaces/ns/configmaps", object)).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
}

/// Writes enough to push every earlier position out of an ordinary window.
async fn write_much(server: &Server) {
    for round in 0..20 {
        let patch = format!(r#"{{"data":{{"k":"{}"}}}}"#, format!("{round}").repeat(OBJECT_BYTES));
        server.patch("ns", "map-59", &patch).await;
    }
}

fn request(path: &str, marks: &str) -> Request<Full<Bytes>> {
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut request = get(&format!("{path}?{query}"));
    request.headers_mut().insert(HEADER, HeaderValue::from_str(marks).expect("a header"));
    request
}

async fn open(server: &Server, marks: &str) -> (String, Lines) {
    open_at(server, "/api/v1/configmaps", marks).await
}

async fn open_at(server: &Server, path: &str, marks: &str) -> (String, Lines) {
    let response = server.open(request(path, marks)).await;
    let reply = response.headers()[HEADER].to_str().expect("text").to_owned();
    (reply, Lines { body: response.into_body(), text: String::new() })
}

struct Lines {
    body: Body,
    text: String,
}

impl Lines {
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.find('\n') {
                let line: String = self.text.drain(..=end).collect();
                return Some(serde_json::from_str(&line).expect("a line is a document"));
            }
            // A cut connection also ends before the end bookmark.
            let batch = self.body.frame().await?.ok()?.into_data().expect("data");
            assert!(batch.len() <= crate::limits::SLICES_MAX, "{} slices", batch.len());
            for slice in batch.iter() {
                self.text.push_str(std::str::from_utf8(slice).expect("text"));
            }
        }
    }

    /// Reads up to the next mark; `None` if the stream ends before.
    async fn mark(&mut self) -> Option<String> {
        loop {
            let event = self.next().await?;
            if let Some(token) = event["object"]["metadata"]["annotations"][marks::ANNOTATION].as_str() {
                return Some(token.to_owned());
            }
        }
    }

    /// Counts the objects up to the end of the initial state; `None` if the stream ends before.
    async fn objects(&mut self) -> Option<usize> {
        let mut count = 0;
        loop {
            let event = self.next().await?;
            if event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true" {
                return Some(count);
            }
            count += usize::from(event["type"] == "ADDED");
        }
    }
}

/// A window of a few objects, with a separate bound for snapshots.
fn tight(snapshot_bytes_max: usize) -> Limits {
    Limits { window_bytes_max: 32 << 10, snapshot_bytes_max, ..Limits::default() }
}

#[tokio::test(start_paused = true)]
async fn a_position_is_held_for_a_while_after_its_stream_was_left() {
    let server = server(tight(1 << 20)).await;
    let (_, mut first) = open(&server, "new").await;
    let mark = first.mark().await.expect("a mark");
    // An open stream keeps its position, however long the client does not read.
    tokio::time::advance(MARKED_WAIT * 3).await;
    write_much(&server).await;
    drop(first);
    tokio::time::advance(MARKED_WAIT - Duration::from_secs(1)).await;
    write_much(&server).await;
    let (reply, mut rest) = open(&server, &mark).await;
    assert_eq!(reply, "resumed");
    let objects = rest.objects().await.expect("an end");
    assert!(0 < objects && objects < OBJECTS, "{objects}");
    drop(rest);
    tokio::time::advance(MARKED_WAIT + Duration::from_secs(1)).await;
    write_much(&server).await;
    let (reply, mut whole) = open(&server, &mark).await;
    assert_eq!((reply.as_str(), whole.objects().await), ("restarted", Some(OBJECTS)));
}

/// Goal: the memory bound takes precedence over held positions, and a state that was cut gets no end bookmark.
#[tokio::test(start_paused = true)]
async fn a_position_that_costs_too_much_is_given_up() {
    let server = server(tight(48 << 10)).await;
    let (_, mut first) = open(&server, "new").await;
    let mark = first.mark().await.expect("a mark");
    write_much(&server).await;
    assert_eq!(first.objects().await, None, "cut, without an end");
    let (reply, mut again) = open(&server, &mark).await;
    assert_eq!((reply.as_str(), again.objects().await), ("restarted", Some(OBJECTS)));
    let (_, mut left) = open(&server, "new").await;
    let mark = left.mark().await.expect("a mark");
    drop(left);
    write_much(&server).await;
    assert_eq!(open(&server, &mark).await.0, "restarted");
}

/// Goal: no position is held for a client that read no mark, or that got the complete state: otherwise every client's
/// start would lengthen the window.
#[tokio::test(start_paused = true)]
async fn streams_that_were_left_before_their_first_mark_or_complete_hold_nothing() {
    for complete in [false, true] {
        let server = server(tight(1 << 20)).await;
        let (_, mut first) = open(&server, "new").await;
        if complete {
            assert_eq!(first.objects().await, Some(OBJECTS));
        } else {
            assert!(first.next().await.is_some());
        }
        let ty = server.app.registry.now().find("", "v1", "configmaps").expect("built in");
        let reader = server.app.caches.reader(&ty).await.expect("listed");
        let position = reader.applied();
        drop(first);
        write_much(&server).await;
        assert!(reader.at(position).is_err(), "{complete}");
    }
}

/// Goal: a mark is valid only for its own request, also if the path selects the object. Method: an object larger than
/// the distance of marks, watched alone, in its namespace and everywhere.
#[tokio::test(start_paused = true)]
async fn the_mark_of_one_object_is_worth_nothing_for_all_of_them() {
    let server = server(Limits::default()).await;
    write_large(&server, "map-00a", 2 * MARK_BYTES).await;
    let one = "/api/v1/watch/namespaces/ns/configmaps/map-00a";
    let (reply, mut alone) = open_at(&server, one, "new").await;
    let mark = alone.mark().await.expect("a mark");
    assert_eq!(reply, "accepted");
    let (reply, mut rest) = open_at(&server, one, &mark).await;
    assert_eq!((reply.as_str(), rest.objects().await), ("resumed", Some(0)));
    for path in ["/api/v1/namespaces/ns/configmaps", "/api/v1/configmaps"] {
        let (reply, mut all) = open_at(&server, path, &mark).await;
        assert_eq!((reply.as_str(), all.objects().await), ("restarted", Some(OBJECTS + 1)), "{path}");
    }
}
