//! Unusual streams of real servers, proxies and users: undecodable and large objects, unknown event types, odd
//! bookmarks.

use informer::{InitialList, Representation};
use k8s_openapi::api::core::v1::Pod;

use crate::fixture::{SOON, Step, added, bookmark, contents, end_bookmark, event, in_memory, is_stream, ok};

/// A pod that does not decode, because its containers are no list.
fn poison(name: &str, version: u64) -> String {
    let meta = format!(r#"{{"name":"{name}","namespace":"a","uid":"uid-{name}","resourceVersion":"{version}"}}"#);
    event("ADDED", &format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{meta},"spec":{{"containers":7}}}}"#))
}

fn large(name: &str, version: u64, bytes: usize) -> String {
    let note = "n".repeat(bytes);
    let meta = format!(
        r#"{{"name":"{name}","namespace":"a","uid":"uid-{name}","resourceVersion":"{version}","annotations":{{"note":"{note}"}}}}"#
    );
    event("ADDED", &format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{meta}}}"#))
}

/// Goal: one broken or large object does not block the others, and unknown events are ignored. Method: one stream with
/// all of these, cut into pieces of several sizes, stored in each form.
#[tokio::test(start_paused = true)]
async fn what_is_odd_in_a_stream_keeps_nothing_else_from_anybody() {
    for (piece, form) in [
        (1 << 20, Representation::Json),
        (4_093, Representation::Json),
        (65_536, Representation::Typed),
        (977, Representation::Packed),
    ] {
        let stream = [
            added("a/first", 1),
            poison("poison", 2),
            event("SOMETHING-NEW", r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"3"}}"#),
            large("large", 4, 2 << 20),
            bookmark(5),
            added("a/last", 6),
            end_bookmark(7),
            bookmark(9),
            added("a/live", 10),
        ]
        .concat();
        let pieces: Vec<Step> = stream
            .as_bytes()
            .chunks(piece)
            .map(|piece| Step::Send(String::from_utf8(piece.to_vec()).unwrap()))
            .chain([Step::Hang])
            .collect();
        let (cluster, log) =
            in_memory(move |_, uri| if is_stream(uri) { ok(pieces.clone()) } else { ok([Step::Hang]) });
        let pods = cluster.informer::<Pod>().initial_list(InitialList::Stream).store(form).start().unwrap();
        pods.ready(SOON).await.unwrap();
        pods.wait_for("10", SOON).await.unwrap();
        assert_eq!(contents(&pods), "a/first@1 a/large@4 a/last@6 a/live@10 a/poison@2", "in pieces of {piece}");
        let now = pods.store().snapshot();
        let error = now.get("a/poison").unwrap().decode().expect_err("it is poison");
        assert_eq!((error.key.as_str(), error.path.as_str()), ("a/poison", "spec.containers"));
        let large = now.get("a/large").unwrap().decode().unwrap();
        assert_eq!(large.metadata.annotations.as_ref().unwrap()["note"].len(), 2 << 20);
        assert_eq!(log.uris().len(), 1, "nothing was asked again: {:?}", log.uris());
    }
}
