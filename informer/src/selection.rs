//! The objects that a declaration selects: its namespaces, and the selectors in each.
//!
//! INVARIANT: of two declarations that select the same objects by the same requests, the [`Selection`]s are equal.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use informer_core::selector::{field, label, shard};

use crate::{error::ConfigError, resource_kind::ResourceKind, selectors::IntoLabelSelector};

/// The field by which a watch of all namespaces excludes some.
const NAMESPACE: &str = "metadata.namespace";

/// Selectors of the objects that one watch reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct WatchSelectors {
    pub(crate) labels: label::Selector,
    pub(crate) fields: field::Selector,
    pub(crate) shard: Option<shard::Selector>,
}

/// The selected objects: a watch for each entry, whose key is a namespace. The empty key stands for all namespaces
/// without an entry, which its field selector then excludes. At least one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Selection(BTreeMap<String, WatchSelectors>);

/// A selection as it is being declared. Parses texts once, when they are set; keeps the first mistake.
#[derive(Clone, Default)]
pub(crate) struct DeclaredSelection {
    /// Selectors of namespaces without their own.
    selectors: WatchSelectors,
    /// Empty for all namespaces.
    namespaces: BTreeSet<String>,
    /// True if the namespaces are those of the cluster, which cluster-scoped types ignore.
    has_default_namespaces: bool,
    labels_within: BTreeMap<String, label::Selector>,
    fields_within: BTreeMap<String, field::Selector>,
    mistake: Option<ConfigError>,
}

impl DeclaredSelection {
    /// Sets the namespaces of a cluster's declarations.
    pub(crate) fn default_namespaces(&mut self, namespaces: impl IntoIterator<Item = String>) {
        self.namespaces(namespaces);
        self.has_default_namespaces = true;
    }

    /// Selects from all namespaces.
    pub(crate) fn all_namespaces(&mut self) {
        self.namespaces.clear();
    }

    /// Replaces the namespaces. None at all is a mistake, because it would mean all of them.
    pub(crate) fn namespaces(&mut self, namespaces: impl IntoIterator<Item = String>) {
        self.namespaces = namespaces.into_iter().collect();
        self.has_default_namespaces = false;
        let wrong = self.namespaces.iter().find(|namespace| !is_label(namespace)).cloned();
        if let Some(wrong) = wrong.or_else(|| self.namespaces.is_empty().then(String::new)) {
            self.mistake(ConfigError::Namespace(wrong));
        }
    }

    /// Sets the label selector, of one namespace or of all without their own.
    pub(crate) fn labels(&mut self, namespace: Option<String>, selector: impl IntoLabelSelector) {
        match (selector.into_label_selector(), namespace) {
            (Ok(selector), None) => self.selectors.labels = selector,
            (Ok(selector), Some(namespace)) => drop(self.labels_within.insert(namespace, selector)),
            (Err(error), _) => self.mistake(ConfigError::Labels(error)),
        }
    }

    /// Sets the field selector, of one namespace or of all without their own.
    pub(crate) fn fields(&mut self, namespace: Option<String>, selector: &str) {
        match (field::Selector::parse(selector), namespace) {
            (Ok(selector), None) => self.selectors.fields = selector,
            (Ok(selector), Some(namespace)) => drop(self.fields_within.insert(namespace, selector)),
            (Err(error), _) => self.mistake(ConfigError::Fields(error)),
        }
    }

    /// Selects one of `count` parts of the objects, by the hash of `field`.
    pub(crate) fn shard(&mut self, field: shard::ShardField, index: u32, count: u32) {
        self.selectors.shard = shard::Selector::part(field, index, count);
        if self.selectors.shard.is_none() {
            self.mistake(ConfigError::Shard { index, count });
        }
    }

    /// Keeps the first mistake only: later ones often follow from it.
    fn mistake(&mut self, mistake: ConfigError) {
        self.mistake.get_or_insert(mistake);
    }

    /// Validates the selection, for objects of this type.
    ///
    /// # Errors
    /// The first wrong setting.
    pub(crate) fn resolve(&self, of: &ResourceKind) -> Result<Selection, ConfigError> {
        let named: BTreeSet<&String> = self.labels_within.keys().chain(self.fields_within.keys()).collect();
        let is_everywhere = self.namespaces.is_empty() || (of.is_cluster_scoped && self.has_default_namespaces);
        if of.is_cluster_scoped && !(is_everywhere && named.is_empty()) {
            return Err(ConfigError::ClusterScoped { plural: of.plural.clone() });
        }
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        if let Some(wrong) = named.iter().find(|namespace| !is_label(namespace)) {
            return Err(ConfigError::Namespace((*wrong).clone()));
        }
        if is_everywhere {
            return self.everywhere(named);
        }
        if let Some(other) = named.into_iter().find(|namespace| !self.namespaces.contains(*namespace)) {
            return Err(ConfigError::UnselectedNamespace(other.clone()));
        }
        let part = |namespace: &String| (namespace.clone(), self.within(namespace));
        Ok(Selection(self.namespaces.iter().map(part).collect()))
    }

    /// Selects from all namespaces, of which those in `named` have selectors of their own.
    fn everywhere(&self, named: BTreeSet<&String>) -> Result<Selection, ConfigError> {
        let parts = named.into_iter().map(|namespace| (namespace.clone(), self.within(namespace)));
        let mut parts: BTreeMap<_, _> = parts.filter(|(_, selectors)| *selectors != self.selectors).collect();
        let mut others = self.selectors.clone();
        if !parts.is_empty() {
            let excluded = parts.keys().map(|namespace| format!(",{NAMESPACE}!={namespace}"));
            let fields = others.fields.to_string() + &excluded.collect::<String>();
            others.fields = field::Selector::parse(&fields).map_err(ConfigError::Fields)?;
        }
        parts.insert(String::new(), others);
        Ok(Selection(parts))
    }

    fn within(&self, namespace: &str) -> WatchSelectors {
        WatchSelectors {
            labels: self.labels_within.get(namespace).unwrap_or(&self.selectors.labels).clone(),
            fields: self.fields_within.get(namespace).unwrap_or(&self.selectors.fields).clone(),
            shard: self.selectors.shard.clone(),
        }
    }
}

/// Shows the texts of the selectors.
impl fmt::Debug for DeclaredSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn texts<S: ToString>(within: &BTreeMap<String, S>) -> BTreeMap<&String, String> {
            within.iter().map(|(namespace, selector)| (namespace, selector.to_string())).collect()
        }
        f.debug_struct("DeclaredSelection")
            .field("labels", &self.selectors.labels.to_string())
            .field("fields", &self.selectors.fields.to_string())
            .field("shard", &self.selectors.shard.as_ref().map(ToString::to_string))
            .field("namespaces", &self.namespaces)
            .field("labels_within", &texts(&self.labels_within))
            .field("fields_within", &texts(&self.fields_within))
            .field("mistake", &self.mistake)
            .finish()
    }
}

impl Selection {
    /// Namespace and selectors of each watch. The empty namespace stands for those without an entry.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&str, &WatchSelectors)> {
        self.0.iter().map(|(namespace, selectors)| (namespace.as_str(), selectors))
    }

    /// Returns true if several watches read it.
    pub(crate) fn has_parts(&self) -> bool {
        self.0.len() > 1
    }

    /// Returns the selection of each watch.
    pub(crate) fn split(&self) -> impl Iterator<Item = Self> {
        self.0.iter().map(|(namespace, selectors)| Self([(namespace.clone(), selectors.clone())].into()))
    }

    /// Selectors of the watch that reads a namespace; `None` if none does. The empty namespace stands for those without
    /// an entry.
    pub(crate) fn of(&self, namespace: &str) -> Option<&WatchSelectors> {
        self.0.get(namespace).or_else(|| self.0.get(""))
    }

    /// Returns the selectors that select these objects among those of `wider`: without field terms that hold for all of
    /// them; `None` if `wider` may lack an object.
    pub(crate) fn narrowed(&self, wider: &Self) -> Option<Self> {
        let narrowed = self.parts().map(|(namespace, mine)| {
            let (wide, terms) = (wider.of(namespace)?, mine.fields.terms());
            let has_labels = wide.labels.requirements().all(|wide| mine.labels.requirements().any(|mine| mine == wide));
            let holds = |wide: &field::Term| excludes_other(wide, namespace) || terms.contains(wide);
            let has_fields = wide.fields.terms().iter().all(holds);
            // A term about the namespace may hold for one part of `wider` only, and every part passes this filter.
            let is_added = |term: &&field::Term| term.field == NAMESPACE || !wide.fields.terms().contains(term);
            let added = terms.iter().filter(is_added);
            let fields = field::Selector::parse(&added.map(field::Term::to_string).collect::<Vec<_>>().join(","));
            let (labels, shard) = (mine.labels.clone(), mine.shard.clone());
            let is_alike = has_labels && has_fields && mine.shard == wide.shard;
            let selectors = WatchSelectors { labels, fields: fields.ok()?, shard };
            is_alike.then(|| (namespace.to_owned(), selectors))
        });
        narrowed.collect::<Option<_>>().map(Self)
    }

    /// The namespaces; empty for all.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        if self.0.contains_key("") { Vec::new() } else { self.0.keys().cloned().collect() }
    }

    /// Text of the label selectors, as of [`texts`](Self::texts).
    pub(crate) fn labels(&self) -> String {
        self.texts(|selectors| selectors.labels.to_string())
    }

    /// Text of the field selectors, as of [`texts`](Self::texts).
    pub(crate) fn fields(&self) -> String {
        self.texts(|selectors| selectors.fields.to_string())
    }

    /// Text of the shard selector, which all parts have.
    pub(crate) fn shard(&self) -> String {
        self.texts(|selectors| selectors.shard.as_ref().map(ToString::to_string).unwrap_or_default())
    }

    /// The text that all parts have; else the text of each: `app=web in a and app=api in b`.
    fn texts(&self, text: impl Fn(&WatchSelectors) -> String) -> String {
        let all: BTreeSet<String> = self.0.values().map(&text).collect();
        if all.len() == 1 {
            return all.into_iter().collect();
        }
        let parts = self.parts().map(|(namespace, selectors)| (namespace, text(selectors)));
        let parts = parts.filter(|(_, text)| !text.is_empty()).map(|(namespace, text)| match namespace {
            "" => format!("{text} elsewhere"),
            namespace => format!("{text} in {namespace}"),
        });
        parts.collect::<Vec<_>>().join(" and ")
    }
}

/// Returns true if a term holds for all objects of one namespace, because it excludes another one.
fn excludes_other(term: &field::Term, namespace: &str) -> bool {
    !namespace.is_empty() && term.field == NAMESPACE && term.op == field::Op::NotEq && term.value != namespace
}

/// Returns true for an RFC 1123 label, as every namespace name is. Keeps other path segments out of the request.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_kind::ResourceScope;

    type Change = fn(&mut DeclaredSelection);

    fn labels(declared: &mut DeclaredSelection, namespace: &str, selector: &str) {
        declared.labels(Some(namespace.to_owned()), selector);
    }

    fn resolved(change: Change) -> Result<String, ConfigError> {
        let mut declared = DeclaredSelection::default();
        change(&mut declared);
        let selection = declared.resolve(&ResourceKind::new("v1", "Pod", "pods"))?;
        let part = |(namespace, selectors): (&str, &WatchSelectors)| {
            format!("{namespace}[{}][{}]", selectors.labels, selectors.fields)
        };
        Ok(selection.parts().map(part).collect::<Vec<_>>().join(" "))
    }

    /// Goal: each namespace has its own selectors, else those of all. Method: declarations, and the watches they become.
    #[test]
    fn each_watch_has_the_selectors_of_its_namespace() {
        let cases: [(Change, &str); 8] = [
            (|_| {}, "[][]"),
            (|it| it.namespaces(["b".into(), "a".into()]), "a[][] b[][]"),
            (
                |it| {
                    labels(it, "b", "app=api");
                    it.namespaces(["a".into(), "b".into()]);
                    it.labels(None, "app=web");
                },
                "a[app=web][] b[app=api][]",
            ),
            (
                |it| {
                    it.namespaces(["a".into(), "b".into()]);
                    it.labels(None, "app=web");
                    it.fields(None, "spec.nodeName=n");
                    labels(it, "a", "");
                    it.fields(Some("b".into()), "status.phase=Running");
                },
                "a[][spec.nodeName=n] b[app=web][status.phase=Running]",
            ),
            (
                |it| {
                    labels(it, "a", "app=api");
                    labels(it, "a", "app=web");
                },
                "[][metadata.namespace!=a] a[app=web][]",
            ),
            (
                |it| {
                    it.fields(None, "metadata.name=x\\,y");
                    it.fields(Some("b".into()), "");
                    labels(it, "a", "app=web");
                },
                "[][metadata.name=x\\,y,metadata.namespace!=a,metadata.namespace!=b] \
                 a[app=web][metadata.name=x\\,y] b[][]",
            ),
            // The namespace differs from the others in nothing.
            (
                |it| {
                    labels(it, "a", "app in (web)");
                    it.labels(None, "app in (web)");
                },
                "[app in (web)][]",
            ),
            (
                |it| {
                    it.namespaces(["a".into()]);
                    labels(it, "a", "app=web");
                },
                "a[app=web][]",
            ),
        ];
        for (change, expected) in cases {
            assert_eq!(resolved(change).unwrap(), expected);
        }
    }

    #[test]
    fn default_namespaces_are_replaced_and_ignored_by_cluster_scoped_types() {
        let (pods, nodes) = (ResourceKind::new("v1", "Pod", "pods"), ResourceKind::new("v1", "Node", "nodes"));
        let nodes = nodes.scope(ResourceScope::Cluster);
        let mut declared = DeclaredSelection::default();
        declared.default_namespaces(["a".into()]);
        let namespaces = |declared: &DeclaredSelection, of| declared.resolve(of).map(|it| it.namespaces());
        assert_eq!(namespaces(&declared, &pods).unwrap(), ["a"]);
        assert!(namespaces(&declared, &nodes).unwrap().is_empty());
        let mut all = declared.clone();
        all.all_namespaces();
        assert!(namespaces(&all, &pods).unwrap().is_empty());
        declared.namespaces(["b".into()]);
        assert_eq!(namespaces(&declared, &pods).unwrap(), ["b"]);
        assert!(namespaces(&declared, &nodes).is_err(), "these are the declaration's own");
    }

    #[test]
    fn contradictions_are_errors() {
        let unselected = resolved(|it| {
            it.namespaces(["a".into()]);
            labels(it, "b", "app=web");
        });
        assert_eq!(unselected, Err(ConfigError::UnselectedNamespace("b".into())));
        assert_eq!(resolved(|it| labels(it, "../b", "")), Err(ConfigError::Namespace("../b".into())));
        assert!(matches!(resolved(|it| labels(it, "b", "==")), Err(ConfigError::Labels(_))));
        assert!(matches!(resolved(|it| it.fields(Some("b".into()), "x")), Err(ConfigError::Fields(_))));

        let mut declared = DeclaredSelection::default();
        labels(&mut declared, "a", "app=web");
        let nodes = ResourceKind::new("v1", "Node", "nodes").scope(ResourceScope::Cluster);
        assert_eq!(declared.resolve(&nodes), Err(ConfigError::ClusterScoped { plural: "nodes".into() }));
    }

    #[test]
    fn selectors_are_described_once_or_for_each_namespace() {
        let mut declared = DeclaredSelection::default();
        declared.labels(None, "app=web");
        declared.namespaces(["a".into(), "b".into()]);
        let of = ResourceKind::new("v1", "Pod", "pods");
        assert_eq!(declared.resolve(&of).unwrap().labels(), "app=web");
        labels(&mut declared, "b", "app=api");
        let both = declared.resolve(&of).unwrap();
        assert_eq!((both.labels(), both.fields()), ("app=web in a and app=api in b".into(), String::new()));
        let mut others = DeclaredSelection::default();
        labels(&mut others, "b", "app=api");
        assert!(format!("{others:?}").contains(r#"labels_within: {"b": "app=api"}"#), "{others:?}");
        let others = others.resolve(&of).unwrap();
        assert_eq!((others.labels(), others.namespaces()), ("app=api in b".into(), Vec::new()));
        assert_eq!(others.fields(), "metadata.namespace!=b elsewhere");
    }
}
