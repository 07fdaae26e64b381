//! Helpers of the tests: small objects, and parsed watch lines.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::{sync::Arc, time::Duration};

use informer_core::{
    Time,
    selector::{field, label},
};
use serde_json::{Value, json};
use watch_cache::{Budget, Change, Cursor, Draft, Entry, Field, Filter, Schema, Slices, Step};

/// One object as the model knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) key: String,
    pub(crate) node: String,
    pub(crate) app: String,
    pub(crate) resource_version: u64,
}

impl Pod {
    pub(crate) fn namespace(&self) -> &str {
        self.key.split_once('/').expect("a key").0
    }

    pub(crate) fn entry(&self, schema: &Schema) -> Arc<Entry> {
        let (namespace, name) = self.key.split_once('/').expect("a key");
        let object = json!({
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": self.app}},
            "spec": {"nodeName": self.node},
        });
        Draft::new(schema, object.to_string().as_bytes()).expect("an object").commit(self.resource_version)
    }

    pub(crate) fn read(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            key: format!("{}/{}", text("/metadata/namespace"), text("/metadata/name")),
            node: text("/spec/nodeName"),
            app: text("/metadata/labels/app"),
            resource_version: text("/metadata/resourceVersion").parse().expect("digits"),
        }
    }
}

pub(crate) fn pod(key: &str, node: &str, app: &str, resource_version: u64) -> Pod {
    Pod { key: key.into(), node: node.into(), app: app.into(), resource_version }
}

pub(crate) fn schema() -> Arc<Schema> {
    let node = Field { label: "spec.nodeName".into(), path: "spec.nodeName".into(), absent: String::new(), or: None };
    Arc::new(Schema {
        kind: "Pod".into(),
        api_version: "v1".into(),
        builtin: true,
        fields: vec![node],
        node_field: Some(0),
    })
}

pub(crate) fn put(pod: &Pod) -> Change {
    Change::Put(pod.entry(&schema()))
}

pub(crate) fn deleted(key: &str, resource_version: u64) -> Change {
    Change::Deleted { key: key.into(), resource_version }
}

pub(crate) fn filter(namespace: Option<&str>, labels: &str, fields: &str) -> Arc<Filter> {
    let labels = label::Selector::parse(labels).expect("a label selector");
    let fields = field::Selector::parse(fields).expect("a field selector");
    Filter::new(&schema(), true, namespace, labels, &fields).expect("known fields")
}

pub(crate) fn at(seconds: u64) -> Time {
    Time(Duration::from_secs(seconds))
}

pub(crate) const PLENTY: Budget = Budget { slices: 64, bytes: 16 << 10 };

/// Steps until the cursor waits or is over. Returns the lines sent, each as `ADDED ns/name@rv`, and the last step;
/// `done RV` marks the end of the initial state.
pub(crate) fn drain(cursor: &mut Cursor) -> (Vec<String>, Step) {
    let mut delivered = Vec::new();
    loop {
        let mut out = Slices::new();
        let step = cursor.step(PLENTY, &mut out, None);
        delivered
            .extend(lines(&out).into_iter().map(|(kind, pod)| format!("{kind} {}@{}", pod.key, pod.resource_version)));
        match step {
            Step::Sent => {}
            Step::InitialDone(position) => delivered.push(format!("done {position}")),
            Step::Wait | Step::Expired(_) | Step::EpochEnded => return (delivered, step),
        }
    }
}

/// Parses the watch lines in `out`.
pub(crate) fn lines(out: &Slices) -> Vec<(String, Pod)> {
    let bytes: Vec<u8> = out.iter().flat_map(|slice| slice.iter().copied()).collect();
    let text = String::from_utf8(bytes).expect("UTF-8");
    text.lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).expect("a line is JSON");
            (line["type"].as_str().expect("a type").to_owned(), Pod::read(&line["object"]))
        })
        .collect()
}

/// A waker that counts its calls.
#[derive(Debug, Default)]
pub(crate) struct Counting(std::sync::atomic::AtomicUsize);

impl Counting {
    pub(crate) fn count(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

impl std::task::Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}
