//! Objects as stored and as sent by a server, equal in every run.

use cache_server::populate::{PopulateSpec, objects};

/// Pods of about 5 KB with managedFields, compact JSON without uid and resourceVersion, in the order of the generator.
pub(crate) fn pods(count: u32) -> Vec<Vec<u8>> {
    let spec = PopulateSpec { pods: count, nodes: 80, namespaces: 40, seed: 1 };
    objects(&spec).filter(|object| object.plural == "pods").map(|object| object.json).collect()
}

/// `pod` as sent by a server, with this version and a uid derived from `number`.
pub(crate) fn at_version(pod: &[u8], number: usize, version: usize) -> Vec<u8> {
    let mark = br#""metadata":{"#;
    let at = memchr::memmem::find(pod, mark).expect("a pod has metadata") + mark.len();
    let names = format!(r#""uid":"00000000-0000-4000-8000-{number:012}","resourceVersion":"{version}","#);
    [&pod[..at], names.as_bytes(), &pod[at..]].concat()
}
