//! JSON templates: the part shared by replicas is rendered once, the holes are filled in per replica.

use serde_json::Value;

/// A value that differs between the replicas of a workload. Templates have it as `{{name}}` inside a string; compact
/// JSON has two consecutive opening braces nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hole {
    Name,
    Uid,
    Node,
    HostIp,
    PodIp,
    /// Suffix of the volume with the service account's token.
    Token,
    Created,
    Scheduled,
    Started,
    Ready,
    /// ID of the container with this index.
    Container(usize),
}

/// Maximum of containers in a pod; each has its own hole.
pub(super) const CONTAINERS_MAX: usize = 4;

impl Hole {
    fn parse(name: &str) -> Self {
        match name {
            "name" => Self::Name,
            "uid" => Self::Uid,
            "node" => Self::Node,
            "host-ip" => Self::HostIp,
            "pod-ip" => Self::PodIp,
            "token" => Self::Token,
            "created" => Self::Created,
            "scheduled" => Self::Scheduled,
            "started" => Self::Started,
            "ready" => Self::Ready,
            other => {
                let index = other.strip_prefix("container-").and_then(|index| index.parse().ok());
                Self::Container(index.expect("templates name only holes that exist"))
            }
        }
    }
}

/// The values of one replica, by hole.
pub(super) struct Fill {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) node: String,
    pub(super) host_ip: String,
    pub(super) pod_ip: String,
    pub(super) token: String,
    pub(super) created: String,
    pub(super) scheduled: String,
    pub(super) started: String,
    pub(super) ready: String,
    pub(super) containers: [String; CONTAINERS_MAX],
}

impl Fill {
    fn get(&self, hole: Hole) -> &str {
        match hole {
            Hole::Name => &self.name,
            Hole::Uid => &self.uid,
            Hole::Node => &self.node,
            Hole::HostIp => &self.host_ip,
            Hole::PodIp => &self.pod_ip,
            Hole::Token => &self.token,
            Hole::Created => &self.created,
            Hole::Scheduled => &self.scheduled,
            Hole::Started => &self.started,
            Hole::Ready => &self.ready,
            Hole::Container(index) => &self.containers[index],
        }
    }
}

/// Pairs of text and hole, followed by the remaining text.
pub(super) struct Template {
    parts: Vec<(String, Hole)>,
    rest: String,
}

impl Template {
    pub(super) fn new(value: &Value) -> Self {
        let text = value.to_string();
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after.split_once("}}").expect("a hole that was opened is closed");
            parts.push((before.to_owned(), Hole::parse(name)));
            rest = after;
        }
        Self { parts, rest: rest.to_owned() }
    }

    /// Number of containers whose ID is a hole of the template.
    pub(super) fn containers(&self) -> usize {
        let used = |index: &usize| self.parts.iter().any(|(_, hole)| *hole == Hole::Container(*index));
        (0..CONTAINERS_MAX).filter(used).count()
    }

    /// Renders one replica. The values are names, ids, addresses and times, which need no escaping.
    pub(super) fn render(&self, fill: &Fill) -> Vec<u8> {
        let pieces = || self.parts.iter().flat_map(|(text, hole)| [text.as_str(), fill.get(*hole)]);
        let mut out = Vec::with_capacity(pieces().map(str::len).sum::<usize>() + self.rest.len());
        pieces().for_each(|piece| out.extend_from_slice(piece.as_bytes()));
        out.extend_from_slice(self.rest.as_bytes());
        out
    }
}
