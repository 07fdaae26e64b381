//! The ground truth: every version of every pod, and the questions that components ask about them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use fastrand::Rng;
use serde_json::json;

use crate::testing::FakeApiServer;

pub(super) const NAMESPACES: [&str; 3] = ["a", "b", "c"];
pub(super) const NODE: &str = "node-1";
const NODES: [&str; 2] = [NODE, "node-2"];
const APPS: [&str; 3] = ["web", "api", "old"];
/// Pods of each namespace besides its anchor.
const PODS: u8 = 4;

/// Label selectors, and the apps that each selects. Two differ only in their text.
const SELECTORS: [PodLabels; 4] =
    [("", &APPS), ("app=web", &["web"]), ("app in (web,api)", &["web", "api"]), ("app in (api, web)", &["web", "api"])];

/// Sets of namespaces; the empty one is all of them. The more frequent ones are listed twice.
const SCOPES: [&[&str]; 8] = [&[], &[], &["a"], &["b"], &["a"], &["a", "b"], &["b", "c"], &["a", "b", "c"]];

/// The namespace that some questions exclude, or from which they select by labels of its own.
const APART: &str = "a";

/// A label selector, and the apps that it selects.
type PodLabels = (&'static str, &'static [&'static str]);

/// Objects that a component asks for.
#[derive(Clone, Copy)]
pub(super) struct PodQuestion {
    pub(super) namespaces: &'static [&'static str],
    pub(super) labels: &'static str,
    apps: &'static [&'static str],
    /// Labels within [`APART`], of a question about all namespaces; without apps, it is excluded.
    apart: Option<PodLabels>,
    pub(super) on_node: bool,
}

/// The selected part of a pod.
#[derive(Clone, Copy, Debug)]
struct PodFacts {
    app: &'static str,
    node: &'static str,
}

/// One write; `facts` is `None` for a deletion.
struct PodVersion {
    version: u64,
    key: String,
    facts: Option<PodFacts>,
}

/// All writes, in order.
pub(super) struct PodHistory {
    server: FakeApiServer,
    writes: Vec<PodVersion>,
}

/// Versions by key.
pub(super) type PodView = BTreeMap<String, u64>;

impl PodQuestion {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let (labels, apps) = SELECTORS[[0, 0, 1, 2, 3][rng.usize(..5)]];
        let namespaces = SCOPES[rng.usize(..SCOPES.len())];
        let apart = [None, Some(("", &[][..])), Some(SELECTORS[rng.usize(..SELECTORS.len())])][rng.usize(..3)];
        let apart = apart.filter(|(_, within)| namespaces.is_empty() && *within != apps);
        Self { namespaces, labels, apps, apart, on_node: rng.u8(..4) == 0 }
    }

    /// All pods of these namespaces.
    pub(super) const fn of(namespaces: &'static [&'static str]) -> Self {
        Self { namespaces, labels: "", apps: &APPS, apart: None, on_node: false }
    }

    pub(super) fn fields(&self) -> String {
        let node = self.on_node.then(|| format!("spec.nodeName={NODE}"));
        let excluded = self.apart.filter(|(_, apps)| apps.is_empty()).map(|_| format!("metadata.namespace!={APART}"));
        node.into_iter().chain(excluded).collect::<Vec<_>>().join(",")
    }

    /// The namespace with labels of its own, and these.
    pub(super) fn labels_apart(&self) -> Option<(&'static str, &'static str)> {
        self.apart.filter(|(_, apps)| !apps.is_empty()).map(|(labels, _)| (APART, labels))
    }

    /// The apps that it selects in a namespace; none if it does not read it.
    fn apps_in(&self, namespace: &str) -> &'static [&'static str] {
        match self.apart {
            Some((_, apps)) if namespace == APART => apps,
            _ if self.namespaces.is_empty() || self.namespaces.contains(&namespace) => self.apps,
            _ => &[],
        }
    }

    pub(super) fn reads(&self, namespace: &str) -> bool {
        !self.apps_in(namespace).is_empty()
    }

    fn selects(&self, key: &str, facts: PodFacts) -> bool {
        let namespace = key.split('/').next().unwrap_or_default();
        self.apps_in(namespace).contains(&facts.app) && (!self.on_node || facts.node == NODE)
    }

    /// True if both ask for the same objects, whatever their text.
    pub(super) fn equals(&self, other: &Self) -> bool {
        let apart = |it: &Self| it.apart.map(|(_, apps)| apps);
        self.namespaces == other.namespaces
            && self.apps == other.apps
            && apart(self) == apart(other)
            && self.on_node == other.on_node
    }

    /// True only if a copy of `self` can answer `narrower`.
    pub(super) fn answers(&self, narrower: &Self) -> bool {
        let has_namespaces = self.namespaces.is_empty()
            || (!narrower.namespaces.is_empty()
                && narrower.namespaces.iter().all(|namespace| self.namespaces.contains(namespace)));
        let has_labels = self.labels.is_empty() || (self.apps == narrower.apps && narrower.apart.is_none());
        self.apart.is_none() && has_namespaces && has_labels && (!self.on_node || narrower.on_node)
    }

    /// Namespace of each watch, and true if it has labels and fields, if no copy answers it.
    pub(super) fn watches(&self) -> Vec<(Option<&'static str>, bool, bool)> {
        let part = |namespace, labels: &str, is_scoped| (namespace, !labels.is_empty(), is_scoped || self.on_node);
        let mut watches: Vec<_> = self.namespaces.iter().map(|it| part(Some(*it), self.labels, false)).collect();
        if watches.is_empty() {
            watches.push(part(None, self.labels, self.apart.is_some()));
        }
        watches.extend(self.labels_apart().map(|(namespace, labels)| part(Some(namespace), labels, false)));
        watches
    }

    pub(super) fn is_merged(&self) -> bool {
        self.watches().len() > 1
    }
}

impl fmt::Display for PodQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} [{}] [{}]", self.namespaces, self.labels, self.fields())?;
        self.labels_apart().map_or(Ok(()), |(namespace, labels)| write!(f, " in {namespace}: [{labels}]"))
    }
}

impl PodHistory {
    /// Starts with one pod in each namespace that every question selects, so that no copy is ever empty: an empty one
    /// has no object to prove its history by.
    pub(super) fn new(server: FakeApiServer) -> Self {
        let mut history = Self { server, writes: Vec::new() };
        for namespace in NAMESPACES {
            history.put(format!("{namespace}/anchor"), PodFacts { app: "web", node: NODE });
        }
        history
    }

    /// Makes one random write. Returns its description.
    pub(super) fn write(&mut self, rng: &mut Rng) -> String {
        let namespace = NAMESPACES[rng.usize(..NAMESPACES.len())];
        let number = rng.u8(..=PODS);
        if number == PODS {
            self.touch(namespace);
            return format!("write {namespace}/anchor @{}", self.version());
        }
        let key = format!("{namespace}/pod-{number}");
        if rng.u8(..3) == 0 {
            self.delete(key.clone());
            return format!("delete {key} @{}", self.version());
        }
        let facts = PodFacts { app: APPS[rng.usize(..APPS.len())], node: NODES[rng.usize(..NODES.len())] };
        self.put(key.clone(), facts);
        format!("write {key} {} {} @{}", facts.app, facts.node, self.version())
    }

    /// Writes the anchor of a namespace, which every question about the namespace sees.
    pub(super) fn touch(&mut self, namespace: &str) {
        self.put(format!("{namespace}/anchor"), PodFacts { app: "web", node: NODE });
    }

    pub(super) fn version(&self) -> u64 {
        self.server.resource_version()
    }

    fn put(&mut self, key: String, facts: PodFacts) {
        let (namespace, name) = key.split_once('/').expect("a namespaced key");
        let revision = self.writes.len().to_string();
        self.server.put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": namespace,
                "labels": {"app": facts.app}, "annotations": {"revision": revision},
            },
            "spec": {"nodeName": facts.node, "containers": []},
        }));
        self.writes.push(PodVersion { version: self.version(), key, facts: Some(facts) });
    }

    fn delete(&mut self, key: String) {
        let (namespace, name) = key.split_once('/').expect("a namespaced key");
        let before = self.version();
        self.server
            .delete(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}}));
        if self.version() > before {
            self.writes.push(PodVersion { version: self.version(), key, facts: None });
        }
    }

    /// The answer to a question at a version.
    pub(super) fn view_at(&self, question: &PodQuestion, version: u64) -> PodView {
        let mut view = PodView::new();
        for write in self.writes.iter().take_while(|write| write.version <= version) {
            match write.facts {
                Some(facts) if question.selects(&write.key, facts) => {
                    view.insert(write.key.clone(), write.version);
                }
                Some(_) | None => drop(view.remove(&write.key)),
            }
        }
        view
    }

    pub(super) fn view(&self, question: &PodQuestion) -> PodView {
        self.view_at(question, u64::MAX)
    }

    /// Keys on [`NODE`] among the current answer.
    pub(super) fn on_node(&self, question: &PodQuestion) -> BTreeSet<String> {
        self.view(&PodQuestion { on_node: true, ..*question }).into_keys().collect()
    }

    /// Versions after `after` that change what the question shows of `key`: each with true if the pod is shown then.
    pub(super) fn steps<'a>(
        &'a self,
        question: &'a PodQuestion,
        key: &'a str,
        after: u64,
    ) -> impl Iterator<Item = (u64, bool)> + 'a {
        let mut is_shown = None;
        let of_key = self.writes.iter().filter(move |write| write.key == key);
        of_key.filter_map(move |write| {
            let shows = write.facts.is_some_and(|facts| question.selects(key, facts));
            let was_shown = is_shown.replace(shows).unwrap_or(false);
            ((shows || was_shown) && write.version > after).then_some((write.version, shows))
        })
    }

    /// The first version strictly between two that changes what the question shows.
    pub(super) fn first_between(&self, question: &PodQuestion, after: u64, before: u64) -> Option<u64> {
        let between = self.writes.iter().filter(|write| (after + 1..before).contains(&write.version));
        let changes = |write: &&PodVersion| self.steps(question, &write.key, after).any(|(at, _)| at == write.version);
        between.filter(changes).map(|write| write.version).next()
    }
}
