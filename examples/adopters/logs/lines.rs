//! Lines, the records made of them, and what a run of them took.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    hash::{DefaultHasher, Hasher as _},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{Api, ResourceExt as _, api::ListParams};
use measured::Failure;
use serde::{Deserialize, Serialize};

use crate::{
    HEAP,
    fields::{Labelled, PodFields},
};

/// Results of a collector, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Allocated bytes that the three copies added.
    live: usize,
    looked_up: Duration,
    recorded: Duration,
    /// Hash of the records of one line of each container.
    pub(crate) hash: u64,
}

impl Outcome {
    /// A row of the table.
    pub(crate) fn row(&self, name: &str, lines: usize) -> String {
        let rate = |time: Duration, count: usize| count as f64 / time.as_secs_f64();
        format!(
            "| {name} | {:.2} | {:.0} | {:.0} | {:.0} |",
            self.live as f64 / f64::from(1 << 20),
            rate(self.looked_up, lines),
            rate(self.looked_up, 3 * lines),
            rate(self.recorded, lines)
        )
    }
}

/// The container that wrote a line, as the path of its log file names it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
}

/// Metadata of lines.
pub(crate) trait Lookups {
    /// Looks up pod, namespace and node. Returns the bytes of their names, so that no lookup is optimised away.
    ///
    /// # Errors
    /// One of them is missing.
    fn look_up(&self, line: &Source) -> Result<usize, Failure>;

    /// Looks up, and appends the record.
    ///
    /// # Errors
    /// As of `look_up`.
    fn record(&self, line: &Source, record: &mut String) -> Result<(), Failure>;
}

/// The only node of the server.
pub(crate) async fn first_node(config: &kube::Config) -> Result<String, Failure> {
    let nodes = Api::<Node>::all(kube::Client::try_from(config.clone())?).list(&ListParams::default().limit(1)).await?;
    Ok(nodes.items.first().ok_or("the server has no node")?.name_any())
}

/// Sources of all containers of the pods.
pub(crate) fn sources<'a>(pods: impl Iterator<Item = (&'a str, &'a str, Vec<&'a str>)>) -> Vec<Source> {
    let of = |(namespace, pod, containers): (&str, &str, Vec<&str>)| {
        let source = |name: &str| Source { namespace: namespace.into(), pod: pod.into(), container: name.into() };
        containers.into_iter().map(source).collect::<Vec<_>>()
    };
    let mut sources: Vec<_> = pods.flat_map(of).collect();
    sources.sort_by(|a, b| (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container)));
    sources
}

/// Makes the lines of the sources in turn. `live` is the heap that the copies added.
pub(crate) fn run(lookups: &impl Lookups, sources: &[Source], lines: usize, live: usize) -> Result<Outcome, Failure> {
    let mut record = String::new();
    let mut hasher = DefaultHasher::new();
    for line in sources {
        record.clear();
        lookups.record(line, &mut record)?;
        hasher.write(record.as_bytes());
    }
    let started = Instant::now();
    let mut bytes = 0;
    for line in sources.iter().cycle().take(lines) {
        bytes += lookups.look_up(line)?;
    }
    let looked_up = started.elapsed();
    assert!(bytes >= lines, "every object has a name");
    let started = Instant::now();
    for line in sources.iter().cycle().take(lines) {
        record.clear();
        lookups.record(line, &mut record)?;
    }
    Ok(Outcome { live, looked_up, recorded: started.elapsed(), hash: hasher.finish() })
}

/// Allocated bytes.
pub(crate) fn heap() -> usize {
    HEAP.current_usage()
}

/// Bytes of the names of kube's types.
pub(crate) fn length_of_kube(pod: &Pod, namespace: &Namespace, node: &Node) -> usize {
    [&pod.metadata.name, &namespace.metadata.name, &node.metadata.name].into_iter().flatten().map(String::len).sum()
}

/// Appends the record of types of one's own.
pub(crate) fn write_fields(
    pod: &PodFields,
    namespace: &Labelled,
    node: &Labelled,
    container: &str,
    record: &mut String,
) {
    let PodFields { metadata, spec, status } = pod;
    let owner = metadata.owner_references.first().map(|owner| (&*owner.kind, &*owner.name));
    write_pod([&metadata.namespace, &metadata.name, &metadata.uid, &spec.node_name, &status.pod_ip], owner, record);
    let image = spec.containers.iter().find(|each| each.name == container).map_or("", |each| &each.image);
    let found = status.container_statuses.iter().find(|each| each.name == container);
    let (id, image_id) = found.map_or(("", ""), |each| (&each.container_id, &each.image_id));
    write_texts([container, image, id, image_id], record);
    write_pairs(&metadata.labels, record);
    write_pairs(&metadata.annotations, record);
    write_pairs(&namespace.metadata.labels, record);
    write_pairs(&node.metadata.labels, record);
}

/// Appends the record of kube's types.
pub(crate) fn write_of_kube(pod: &Pod, namespace: &Namespace, node: &Node, container: &str, record: &mut String) {
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    let node_name = spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    let ip = status.and_then(|status| status.pod_ip.as_deref()).unwrap_or_default();
    let metadata = &pod.metadata;
    let owner = metadata.owner_references.iter().flatten().next().map(|owner| (&*owner.kind, &*owner.name));
    let texts = [&metadata.namespace, &metadata.name, &metadata.uid].map(|text| text.as_deref().unwrap_or_default());
    write_pod([texts[0], texts[1], texts[2], node_name, ip], owner, record);
    let of = spec.and_then(|spec| spec.containers.iter().find(|each| each.name == container));
    let image = of.and_then(|each| each.image.as_deref()).unwrap_or_default();
    let statuses = status.and_then(|status| status.container_statuses.as_ref());
    let found = statuses.into_iter().flatten().find(|each| each.name == container);
    let id = found.and_then(|each| each.container_id.as_deref()).unwrap_or_default();
    write_texts([container, image, id, found.map_or("", |each| &each.image_id)], record);
    let empty = BTreeMap::new();
    write_pairs(metadata.labels.as_ref().unwrap_or(&empty), record);
    write_pairs(metadata.annotations.as_ref().unwrap_or(&empty), record);
    write_pairs(namespace.metadata.labels.as_ref().unwrap_or(&empty), record);
    write_pairs(node.metadata.labels.as_ref().unwrap_or(&empty), record);
}

fn write_pod(texts: [&str; 5], owner: Option<(&str, &str)>, record: &mut String) {
    write_texts(texts, record);
    let (kind, name) = owner.unwrap_or_default();
    write_texts([kind, name], record);
}

fn write_texts<const N: usize>(texts: [&str; N], record: &mut String) {
    for text in texts {
        record.push_str(text);
        record.push('\t');
    }
}

fn write_pairs(pairs: &BTreeMap<String, String>, record: &mut String) {
    for (key, value) in pairs {
        write!(record, "{key}={value},").expect("memory is writable");
    }
    record.push('\t');
}
