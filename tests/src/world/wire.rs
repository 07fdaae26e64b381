//! Converts between the model's objects and the SDK's: facts to a session's inputs and frames, objects to JSON and back.

use informer_core::{
    session::SessionInput,
    store::{self, Snapshot},
    wire::{
        framer::{Frame, ListEnd},
        marks::{self, MarksReply},
        watch_event::EventKind,
    },
};
use serde_json::{Value, json};

use crate::{
    api::Fact,
    model::{Change, Kind, Object, State},
};

/// A fact as a session receives it.
pub(super) enum Told {
    Input(SessionInput<'static>),
    Frame(ToldFrame),
    /// The requested object, as JSON.
    Found(Option<Vec<u8>>),
}

/// A frame with its own bytes.
pub(super) enum ToldFrame {
    Item(Vec<u8>),
    Event(EventKind, Vec<u8>),
    ListEnd(ListEnd),
}

impl ToldFrame {
    pub(super) fn borrow(&self) -> Frame<'_> {
        match self {
            Self::Item(object) => Frame::Item(object),
            Self::Event(kind, object) => Frame::Event { kind: *kind, object },
            Self::ListEnd(end) => Frame::ListEnd(end.clone()),
        }
    }
}

/// Converts `fact` into an input or a frame of a session.
pub(super) fn told(fact: &Fact) -> Told {
    let event = |kind, object| Told::Frame(ToldFrame::Event(kind, object));
    match fact {
        Fact::Item(item) => Told::Frame(ToldFrame::Item(json(item))),
        Fact::Event(Change { kind: Kind::Added, object }) => event(EventKind::Added, json(object)),
        Fact::Event(Change { kind: Kind::Modified, object }) => event(EventKind::Modified, json(object)),
        Fact::Event(Change { kind: Kind::Deleted, object }) => event(EventKind::Deleted, json(object)),
        Fact::Accepted => Told::Input(SessionInput::Accepted(None)),
        Fact::AcceptedWithMarks => Told::Input(SessionInput::Accepted(Some(MarksReply::Accepted))),
        Fact::Resumed => Told::Input(SessionInput::Accepted(Some(MarksReply::Resumed))),
        Fact::Mark { token } => {
            event(EventKind::Bookmark, bookmark(&json!({"annotations": {marks::ANNOTATION: token}})))
        }
        Fact::Found(found) => Told::Found(found.as_ref().map(json)),
        Fact::Noise => event(EventKind::Other, b"{}".to_vec()),
        Fact::Bookmark { version, end } => {
            let annotations = if *end { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
            event(EventKind::Bookmark, bookmark(&json!({"resourceVersion": version, "annotations": annotations})))
        }
        Fact::PageEnd { version, token } => Told::Frame(ToldFrame::ListEnd(ListEnd {
            resource_version: version.to_string(),
            continue_token: token.clone(),
            remaining: None,
        })),
        Fact::Ended(end) => Told::Input(SessionInput::Ended(*end)),
    }
}

fn bookmark(metadata: &Value) -> Vec<u8> {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata}).to_string().into_bytes()
}

pub(super) fn state_of(snapshot: &Snapshot) -> State {
    snapshot.objects.iter().map(|entry| (entry.key().to_owned(), object_of(entry))).collect()
}

pub(super) fn object_of(entry: &store::Entry) -> Object {
    Object {
        key: entry.key().to_owned(),
        uid: entry.uid().to_owned(),
        version: entry.resource_version().parse().unwrap_or(0),
        written_in: entry.field("spec.writtenIn").and_then(|text| text.parse().ok()).unwrap_or(u32::MAX),
    }
}

pub(super) fn json(object: &Object) -> Vec<u8> {
    let (namespace, name) = object.key.split_once('/').unwrap_or(("", &object.key));
    let Object { uid, version, written_in, .. } = object;
    let metadata = format!(r#""namespace":"{namespace}","name":"{name}","uid":"{uid}","resourceVersion":"{version}""#);
    let spec = format!(r#""writtenIn":{written_in}"#);
    format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{{metadata}}},"spec":{{{spec}}}}}"#).into_bytes()
}
