//! The ground truth: ConfigMaps in one namespace, their history, and random writes.

use std::collections::BTreeMap;

/// The objects and their history.
pub(crate) struct World {
    pub(crate) version: u64,
    pub(crate) objects: BTreeMap<String, Object>,
    pub(crate) history: Vec<Change>,
    /// Changes up to this version are compacted.
    pub(crate) compacted: u64,
    rng: fastrand::Rng,
    made: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) value: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) kind: &'static str,
    /// The object at the version of the change; for a deletion, its last content.
    pub(crate) object: Object,
}

/// Approximate number of objects.
const OBJECTS: usize = 40;

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        let mut world =
            Self { version: 100, objects: BTreeMap::new(), history: Vec::new(), compacted: 0, rng, made: 0 };
        for _ in 0..OBJECTS {
            world.create();
        }
        world.compacted = world.version - 20;
        world
    }

    fn create(&mut self) {
        self.made += 1;
        self.version += 1;
        let name = format!("c-{:05}", self.rng.u32(..200));
        let known = self.objects.contains_key(&name);
        let name = if known { format!("n-{:05}", self.made) } else { name };
        let uid = format!("uid-{}", self.made);
        let object = Object { name: name.clone(), uid, version: self.version, value: self.rng.u64(..1_000_000) };
        self.history.push(Change { kind: "ADDED", object: object.clone() });
        self.objects.insert(name, object);
    }

    /// Makes one write: usually an update, sometimes a creation or a deletion.
    pub(crate) fn step(&mut self) {
        let at = self.rng.usize(..self.objects.len().max(1));
        let Some(name) = self.objects.keys().nth(at).cloned() else { return self.create() };
        match self.rng.u8(..10) {
            0 | 1 if self.objects.len() > OBJECTS / 2 => self.delete(&name),
            2 | 3 => self.create(),
            _ => self.change(&name),
        }
    }

    fn change(&mut self, name: &str) {
        self.version += 1;
        let (version, value) = (self.version, self.rng.u64(..1_000_000));
        if let Some(object) = self.objects.get_mut(name) {
            (object.version, object.value) = (version, value);
            self.history.push(Change { kind: "MODIFIED", object: object.clone() });
        }
    }

    fn delete(&mut self, name: &str) {
        self.version += 1;
        if let Some(mut object) = self.objects.remove(name) {
            object.version = self.version;
            self.history.push(Change { kind: "DELETED", object });
        }
    }

    /// Updates every object.
    pub(crate) fn touch(&mut self) {
        for name in self.objects.keys().cloned().collect::<Vec<_>>() {
            self.change(&name);
        }
    }

    /// Deletes every object, like `kubectl delete --all`.
    pub(crate) fn clear(&mut self) {
        for name in self.objects.keys().cloned().collect::<Vec<_>>() {
            self.delete(&name);
        }
    }

    /// Compacts the history up to now.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.version;
    }

    /// Replaces the history at this version by one with other objects, as after a restore or behind another endpoint.
    pub(crate) fn replace(&mut self, version: u64) {
        self.objects.clear();
        self.history.clear();
        (self.version, self.compacted) = (version, version);
        for _ in 0..OBJECTS {
            self.create();
        }
        self.compacted = self.version;
    }

    /// The state that a reader must converge to: values by name.
    pub(crate) fn truth(&self) -> BTreeMap<String, u64> {
        self.objects.values().map(|object| (object.name.clone(), object.value)).collect()
    }
}

impl Object {
    pub(crate) fn metadata(&self) -> String {
        format!(
            r#"{{"name":"{}","namespace":"d","uid":"{}","resourceVersion":"{}"}}"#,
            self.name, self.uid, self.version
        )
    }

    pub(crate) fn json(&self) -> String {
        self.with(&self.metadata())
    }

    /// The object with `prefix` in front of its version.
    pub(crate) fn versioned(&self, prefix: &str) -> String {
        let key = "\"resourceVersion\":\"";
        self.with(&self.metadata().replace(key, &format!("{key}{prefix}")))
    }

    /// The object with other metadata.
    pub(crate) fn with(&self, metadata: &str) -> String {
        format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata},"data":{{"value":"{}"}}}}"#, self.value)
    }
}
