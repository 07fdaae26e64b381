//! Model test of the store: it and a naive implementation show equal states, in every form and by every index.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::{
    keeping::{by_node, in_each_form},
    *,
};

/// One random step, with few names so that they collide.
#[derive(Clone, Debug)]
enum Happens {
    Init {
        trusts_versions: bool,
    },
    Seen(Thing),
    Gone(Thing),
    Done,
    Abandoned,
    Bookmark,
    /// Seconds pass.
    Time(u64),
    /// A reader takes a snapshot and keeps it.
    Hold,
}

/// A model object, made of small numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thing {
    name: u8,
    uid: u8,
    version: u8,
    node: u8,
    words: Vec<u8>,
}

#[derive(Default)]
struct Naive {
    now: BTreeMap<String, Thing>,
    stage: Option<(bool, BTreeMap<String, Thing>)>,
    /// With the second of its expiry.
    lingering: Vec<(u64, Thing)>,
    second: u64,
}

const LINGER: u64 = 10;

impl Thing {
    fn key(&self) -> String {
        // A namespace that is a prefix of another, and a name that sorts before the slash.
        let (namespace, name) =
            [("n", "a"), ("n", "b"), ("n-1", "a"), ("n.b", "-"), ("n", "a-")][usize::from(self.name)];
        format!("{namespace}/{name}")
    }

    fn json(&self) -> Vec<u8> {
        let (key, Self { uid, version, node, words, .. }) = (self.key(), self);
        let (namespace, name) = key.split_once('/').unwrap();
        let metadata = format!(
            r#""name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}","labels":{{"node":"{node}"}}"#
        );
        format!(r#"{{"metadata":{{{metadata}}},"spec":{{"nodeName":"{node}","words":{words:?}}}}}"#).into_bytes()
    }

    fn is(&self, other: &Self) -> bool {
        (self.uid, self.version) == (other.uid, other.version)
    }
}

impl Naive {
    fn take(&mut self, happens: &Happens) {
        match happens {
            Happens::Init { trusts_versions } => self.stage = Some((*trusts_versions, BTreeMap::new())),
            Happens::Seen(thing) => match &mut self.stage {
                Some((trusts, stage)) => {
                    let known = self.now.get(&thing.key()).filter(|known| *trusts && known.is(thing));
                    stage.insert(thing.key(), known.unwrap_or(thing).clone());
                }
                None => {
                    let known = self.now.get(&thing.key());
                    if known.is_none_or(|known| !known.is(thing)) {
                        let old = self.now.insert(thing.key(), thing.clone());
                        self.linger(old.filter(|old| old.uid != thing.uid));
                    }
                }
            },
            Happens::Gone(thing) => match &mut self.stage {
                Some((_, stage)) => drop(stage.remove(&thing.key())),
                None => {
                    let old = self.now.remove(&thing.key());
                    self.linger(old);
                }
            },
            Happens::Done => {
                let Some((_, stage)) = self.stage.take() else { return };
                let old = std::mem::replace(&mut self.now, stage);
                for (key, thing) in old {
                    let stays = self.now.get(&key).is_some_and(|new| new.uid == thing.uid);
                    self.linger(Some(thing).filter(|_| !stays));
                }
            }
            Happens::Abandoned => self.stage = None,
            Happens::Time(seconds) => {
                self.second += seconds;
                self.lingering.retain(|(until, _)| *until > self.second);
            }
            Happens::Bookmark | Happens::Hold => {}
        }
    }

    fn linger(&mut self, thing: Option<Thing>) {
        self.lingering.extend(thing.map(|thing| (self.second + LINGER, thing)));
    }

    fn show(&self) -> Shown {
        let keys = |is: &dyn Fn(&Thing) -> bool| self.now.values().filter(|thing| is(thing)).map(Thing::key).collect();
        let lingering = |is: &dyn Fn(&Thing) -> bool| {
            let found = self.lingering.iter().map(|(_, thing)| thing).filter(|thing| is(thing));
            sorted(found.map(|thing| format!("{}@{}/{}", thing.key(), thing.version, thing.uid)))
        };
        Shown {
            objects: self.now.values().map(Thing::json).map(Some).collect(),
            by_node: (0..3).map(|node| keys(&|thing| thing.node == node)).collect(),
            by_word: (0..4).map(|word| keys(&|thing| thing.words.contains(&word))).collect(),
            by_uid: (0..3).map(|uid| lingering(&|thing| thing.uid == uid)).collect(),
            by_key: (0..5).map(|name| lingering(&|thing| thing.name == name)).collect(),
        }
    }
}

/// All state visible to a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    objects: Vec<Option<Vec<u8>>>,
    by_node: Vec<Vec<String>>,
    by_word: Vec<Vec<String>>,
    by_uid: Vec<Vec<String>>,
    by_key: Vec<Vec<String>>,
}

fn sorted(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    texts
}

fn shown(snapshot: &Snapshot) -> Shown {
    let by = |index, value: String| snapshot.by(index, &value).map(|entry| entry.key().to_owned()).collect();
    let lingering = |name: &str| {
        let found = snapshot.lingering(name);
        sorted(found.map(|entry| format!("{entry:?}/{}", entry.uid())))
    };
    let key = |name| Thing { name, uid: 0, version: 0, node: 0, words: Vec::new() }.key();
    Shown {
        objects: snapshot.objects.iter().map(|entry| json_of(entry)).collect(),
        by_node: (0..3).map(|node| by(0, node.to_string())).collect(),
        by_word: (0..4).map(|word| by(1, word.to_string())).collect(),
        by_uid: (0..3).map(|uid| lingering(&format!("{uid}"))).collect(),
        by_key: (0..5).map(|name| lingering(&key(name))).collect(),
    }
}

/// Returns the JSON as passed in, even if its form has sorted it; `None` if labels and JSON disagree.
fn json_of(entry: &Entry) -> Option<Vec<u8>> {
    let value: serde_json::Value = serde_json::from_slice(&entry.json()).unwrap();
    let number = |text: &serde_json::Value| text.as_str().unwrap().parse().unwrap();
    let metadata = &value["metadata"];
    let thing = Thing {
        name: (0..5).find(|name| Thing { name: *name, ..nothing() }.key() == entry.key())?,
        uid: number(&metadata["uid"]),
        version: number(&metadata["resourceVersion"]),
        node: number(&value["spec"]["nodeName"]),
        words: serde_json::from_value(value["spec"]["words"].clone()).unwrap(),
    };
    let agrees = entry.label("node") == entry.field("spec.nodeName")
        && (entry.uid(), entry.resource_version()) == (&*thing.uid.to_string(), &*thing.version.to_string());
    agrees.then(|| thing.json())
}

const fn nothing() -> Thing {
    Thing { name: 0, uid: 0, version: 0, node: 0, words: Vec::new() }
}

fn by_word() -> IndexFn {
    Box::new(|entry, tell| {
        let value: serde_json::Value = serde_json::from_slice(&entry.json()).unwrap();
        for word in value["spec"]["words"].as_array().unwrap() {
            tell(&word.to_string());
        }
    })
}

fn take(store: &mut Store, second: u64, happens: &Happens) {
    let now = Time(Duration::from_secs(second));
    let bytes = match happens {
        Happens::Seen(thing) | Happens::Gone(thing) => thing.json(),
        Happens::Init { .. } | Happens::Done | Happens::Abandoned => nothing().json(),
        Happens::Bookmark | Happens::Time(_) | Happens::Hold => nothing().json(),
    };
    let meta = Meta::read(&bytes).unwrap();
    let event = match happens {
        Happens::Init { trusts_versions } => Event::Init { trusts_versions: *trusts_versions },
        Happens::Seen(_) if store.is_staging() => Event::InitApply(&bytes, &meta),
        Happens::Seen(_) => Event::Apply(&bytes, &meta),
        Happens::Gone(_) => Event::Delete(&meta),
        Happens::Done if store.is_staging() => Event::InitDone(9.into()),
        Happens::Abandoned => Event::Abandon,
        Happens::Done | Happens::Bookmark | Happens::Hold => Event::Bookmark(9.into()),
        Happens::Time(_) => {
            let is_due = store.poll_timeout().is_some_and(|due| due <= now);
            assert!(store.handle_timeout(now) || !is_due, "it was due");
            return assert!(store.poll_timeout().is_none_or(|due| due > now), "it is over");
        }
    };
    store.handle(now, event).unwrap();
}

fn a_thing() -> impl Strategy<Value = Thing> {
    (0..5u8, 0..3u8, 1..4u8, 0..3u8, proptest::collection::vec(0..4u8, 0..4))
        .prop_map(|(name, uid, version, node, words)| Thing { name, uid, version, node, words })
}

fn what_happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        1 => any::<bool>().prop_map(|trusts_versions| Happens::Init { trusts_versions }),
        8 => a_thing().prop_map(Happens::Seen),
        2 => a_thing().prop_map(Happens::Gone),
        1 => Just(Happens::Done),
        1 => Just(Happens::Abandoned),
        1 => Just(Happens::Bookmark),
        1 => (1..8u64).prop_map(Happens::Time),
        1 => Just(Happens::Hold),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn snapshots_and_indexes_equal_the_model_in_every_form(
        story in proptest::collection::vec(what_happens(), 1..80)
    ) {
        for (form, keeping) in in_each_form() {
            let linger = Some(Duration::from_secs(LINGER));
            let mut store = Store::new(StoreConfig { indexes: vec![by_node(), by_word()], linger, ..keeping });
            step(&mut store, Init);
            step(&mut store, InitDone(9));
            let mut naive = Naive::default();
            let mut held = Vec::new();
            for happens in &story {
                naive.take(happens);
                take(&mut store, naive.second, happens);
                prop_assert_eq!(shown(&store.snapshot()), naive.show(), "{} after {:?}", form, happens);
                let bytes: usize = store.now.objects.iter().map(|entry| entry.stored_bytes()).sum();
                prop_assert_eq!(store.now.stored_bytes, bytes as u64, "{}", form);
                if matches!(happens, Happens::Hold) {
                    held.push((store.snapshot(), naive.show()));
                }
            }
            for (snapshot, then) in held {
                prop_assert_eq!(shown(&snapshot), then, "{}: a snapshot changed", form);
            }
        }
    }
}
