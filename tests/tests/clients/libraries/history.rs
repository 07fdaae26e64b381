//! Seeded writes to a server, and the events that a watcher of the matching objects must see.

use std::collections::BTreeMap;

use fastrand::Rng;
use tests::{
    http::Client,
    objects::{Object, configmap},
};

/// Selector of the programs' watches: ConfigMaps of all namespaces with this label.
pub(crate) const SELECTOR: &str = "followed=yes";
/// Name of the last object that is written. A program that receives it prints its copy and exits.
pub(crate) const SENTINEL: &str = "sentinel";

/// Names in each namespace, and namespaces, of the objects that are written.
pub(crate) const NAMES: u8 = 40;
pub(crate) const NAMESPACES: u8 = 3;

/// A state: resourceVersions by key.
pub(crate) type State = BTreeMap<String, u64>;

/// Type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Added,
    Modified,
    Deleted,
}

/// One event of the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) kind: Kind,
    pub(crate) key: String,
    pub(crate) version: u64,
}

/// The writes, as events of the watch.
#[derive(Debug, Default)]
pub(crate) struct History {
    told: Vec<Told>,
    /// For each existing object, true if it matches.
    there: BTreeMap<String, bool>,
}

impl History {
    /// All events, in order.
    pub(crate) fn told(&self) -> &[Told] {
        &self.told
    }

    /// The matching objects at a position.
    pub(crate) fn state_at(&self, version: u64) -> State {
        let mut state = State::new();
        for told in self.told.iter().take_while(|told| told.version <= version) {
            match told.kind {
                Kind::Added | Kind::Modified => state.insert(told.key.clone(), told.version),
                Kind::Deleted => state.remove(&told.key),
            };
        }
        state
    }

    /// Records an acknowledged write: the object now matches, does not match, or is deleted (`None`).
    pub(crate) fn wrote(&mut self, key: &str, matches: Option<bool>, version: u64) {
        let before = match matches {
            Some(matches) => self.there.insert(key.to_owned(), matches),
            None => self.there.remove(key),
        };
        let kind = match (before == Some(true), matches == Some(true)) {
            (false, true) => Kind::Added,
            (true, true) => Kind::Modified,
            (true, false) => Kind::Deleted,
            (false, false) => return,
        };
        self.told.push(Told { kind, key: key.to_owned(), version });
    }

    /// Makes `count` random writes in several namespaces: objects are created, changed and deleted, and start or stop
    /// matching.
    pub(crate) async fn write(&mut self, client: Client, random: &mut Rng, count: usize) {
        for _ in 0..count {
            let namespace = format!("team-{}", random.u8(0..NAMESPACES));
            let object = configmap(&format!("map-{}", random.u8(0..NAMES))).namespace(&namespace);
            let key = key_of(&object);
            match self.there.get(&key).copied() {
                Some(_) if random.u8(0..5) == 0 => {
                    let version = removed(client, &object).await;
                    self.wrote(&key, None, version);
                }
                Some(matches) => {
                    let matches = matches != (random.u8(0..4) == 0);
                    let version = client.update(&filled(object, matches, random)).await;
                    self.wrote(&key, Some(matches), version);
                }
                None => {
                    let matches = random.u8(0..5) < 3;
                    let version = client.create(&filled(object, matches, random)).await;
                    self.wrote(&key, Some(matches), version);
                }
            }
        }
    }

    /// Writes the sentinel, which is the last object.
    pub(crate) async fn finish(&mut self, client: Client) {
        let object = configmap(SENTINEL).namespace("team-0").label("followed", "yes");
        let version = client.create(&object).await;
        self.wrote(&key_of(&object), Some(true), version);
    }
}

pub(crate) fn key_of(object: &Object) -> String {
    tests::http::key(object.body())
}

/// Fills in random data, because a write that changes nothing is not a change.
pub(crate) fn filled(object: Object, matches: bool, random: &mut Rng) -> Object {
    object.label("followed", if matches { "yes" } else { "no" }).data(&format!("{:x}", random.u128(..)))
}

/// Deletes an object. Returns the position afterwards from a list, because the response lacks it. This is the only
/// writer.
async fn removed(client: Client, object: &Object) -> u64 {
    client.delete(&object.path()).await.with_code(200);
    client.get(&format!("{}?limit=1", object.everywhere())).await.with_code(200).resource_version()
}
