//! CPU time to turn the bytes of a watch event into a stored object, without sockets: framing, decoding, storing.

use std::time::Instant;

use cache_server::populate::{PopulateSpec, generate};
use informer_core::{
    Meta, Time,
    store::{Event, Store},
    wire::framer::{Frame, Framer, FramerConfig, Shape},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    core::WatchEvent,
    runtime::{reflector, watcher},
};
use serde_json::Value;

use crate::Failure;

/// Microseconds of CPU per object, the best of `ROUNDS` rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) object_bytes: usize,
    pub(crate) kube_us: f64,
    pub(crate) informer_us: f64,
}

const ROUNDS: usize = 7;

/// Number of objects per round.
const OBJECTS: usize = 2_000;

/// Size of a chunk from a socket.
const CHUNK_BYTES: usize = 64 * 1024;

/// Measures both clients on the same bytes, alternately.
pub(crate) fn measure() -> Result<Cost, Failure> {
    let stream = stream()?;
    let mut cost = Cost { object_bytes: stream.len() / OBJECTS, kube_us: f64::MAX, informer_us: f64::MAX };
    for _ in 0..ROUNDS {
        cost.kube_us = cost.kube_us.min(timed(|| kube(&stream))?);
        cost.informer_us = cost.informer_us.min(timed(|| informer(&stream))?);
    }
    Ok(cost)
}

fn timed(run: impl FnOnce() -> Result<usize, Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    let objects = run()?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / objects as f64)
}

/// Pods as sent by a watch-list.
fn stream() -> Result<Vec<u8>, Failure> {
    let spec: PopulateSpec = format!("pods={OBJECTS},nodes=80,namespaces=40,seed=1").parse()?;
    let mut lines = Vec::new();
    for (number, (_, mut pod)) in generate(&spec).filter(|(resource, _)| resource == "pods").enumerate() {
        pod["metadata"]["resourceVersion"] = Value::from((number + 1).to_string());
        pod["metadata"]["uid"] = Value::from(format!("00000000-0000-4000-8000-{number:012}"));
        lines.extend_from_slice(br#"{"type":"ADDED","object":"#);
        serde_json::to_writer(&mut lines, &pod)?;
        lines.extend_from_slice(b"}\n");
    }
    Ok(lines)
}

/// Processes each line like kube, into kube's store.
fn kube(stream: &[u8]) -> Result<usize, Failure> {
    let (reader, mut writer) = reflector::store::<Pod>();
    for chunk in stream.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_str::<WatchEvent<Pod>>(std::str::from_utf8(chunk)?)? {
            WatchEvent::Added(pod) => writer.apply_watcher_event(&watcher::Event::Apply(pod)),
            WatchEvent::Modified(_) | WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
        }
    }
    Ok(reader.len())
}

/// Processes each chunk like the informer, into its store.
fn informer(stream: &[u8]) -> Result<usize, Failure> {
    let mut framer = Framer::new(FramerConfig {
        shape: Shape::Watch,
        cut: vec!["metadata.managedFields".into()],
        object_bytes_max: informer_core::limits::OBJECT_BYTES_MAX,
        type_meta: None,
    });
    let mut store = Store::default();
    for mut chunk in stream.chunks(CHUNK_BYTES) {
        while let Some(frame) = framer.next(&mut chunk)? {
            if let Frame::Event { object, .. } = frame {
                store.handle(Time::ZERO, Event::Apply(object, &Meta::read(object)?))?;
            }
        }
    }
    Ok(store.snapshot().objects.len())
}
