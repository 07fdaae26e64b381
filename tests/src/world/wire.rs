//! Converts between the model's objects and the SDK's: facts to inputs, objects to JSON and back.

use informer_core::{
    Time,
    reflector::{self, Input, Observed, Proof, Reflector, Testimony},
    store::{self, Snapshot},
};

use crate::{
    api::Fact,
    model::{Change, Kind, Object, State},
};

/// Feeds `fact` to `reflector`. A proof always finds its object unchanged. `is_news` is true if the copy lacks the
/// content of an event.
pub(super) fn tell_fact(reflector: &mut Reflector, now: Time, fact: &Fact, is_news: bool) {
    let mut object = |change, object: &Object| {
        let version = object.version.to_string();
        let observed = Observed { change, key: &object.key, uid: &object.uid, resource_version: &version, is_news };
        reflector.handle(now, Input::Object(observed));
    };
    match fact {
        Fact::Item(item) => object(reflector::Change::Item, item),
        Fact::Event(Change { kind: Kind::Added, object: added }) => object(reflector::Change::Added, added),
        Fact::Event(Change { kind: Kind::Modified, object: changed }) => object(reflector::Change::Modified, changed),
        Fact::Event(Change { kind: Kind::Deleted, object: deleted }) => object(reflector::Change::Deleted, deleted),
        Fact::Accepted => reflector.handle(now, Input::Accepted),
        Fact::AcceptedWithMarks => reflector.handle(now, Input::AcceptedWithMarks),
        Fact::Resumed => reflector.handle(now, Input::Resumed),
        Fact::Mark { token } => reflector.handle(now, Input::Mark { token }),
        Fact::Found(_) => reflector.handle(now, Input::Proof(Testimony::without_object(Proof::Same))),
        Fact::Noise => reflector.handle(now, Input::Ignored),
        Fact::Bookmark { version, end } => {
            reflector.handle(now, Input::Bookmark { resource_version: version, initial_events_end: *end });
        }
        Fact::PageEnd { version, token } => {
            let (version, continue_token) = (version.to_string(), token.as_deref());
            reflector.handle(now, Input::PageEnd { resource_version: &version, continue_token });
        }
        Fact::Ended(end) => reflector.handle(now, Input::Ended(*end)),
    }
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
