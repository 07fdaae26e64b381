//! The written objects, and the part of them that each watcher requests.

use std::fmt;

use super::marks::{ANNOTATION, Mark};

/// Scope of a watch. Each object and each watcher belongs to exactly one group; with `All` there is a single group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scope {
    /// All objects in all namespaces.
    All,
    /// Pods of one node, by field selector.
    Node,
    /// Objects of one namespace.
    Namespace,
    /// One object, by field selector.
    Name,
    /// Objects with one label.
    Label,
}

/// Kind of the written objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    ConfigMaps,
    Pods,
    EndpointSlices,
}

/// The objects of a run. Object `i` and watcher `i` are in group `i % groups`.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) kind: Kind,
    pub(crate) scope: Scope,
    pub(crate) objects: usize,
    pub(crate) groups: usize,
    /// Makes the names of this run's objects unique.
    pub(crate) run: String,
    /// Characters that pad an object to the requested size.
    pub(crate) padding: usize,
}

impl Subject {
    pub(crate) const fn group(&self, index: usize) -> usize {
        index % self.groups
    }

    /// The object that write `number` changes.
    pub(crate) const fn object_of(&self, number: u32) -> usize {
        number as usize % self.objects
    }

    /// The namespace of object `index`.
    pub(crate) fn namespace(&self, index: usize) -> String {
        match self.scope {
            Scope::Namespace => format!("load-{}", self.group(index)),
            Scope::All | Scope::Node | Scope::Name | Scope::Label => "load".to_owned(),
        }
    }

    /// All namespaces in use.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        let count = if self.scope == Scope::Namespace { self.groups } else { 1 };
        (0..count).map(|index| self.namespace(index)).collect()
    }

    pub(crate) fn name(&self, index: usize) -> String {
        format!("load-{}-{index}", self.run)
    }

    /// Path of the collection in a namespace.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.kind.prefix(), self.kind.plural())
    }

    pub(crate) fn path(&self, index: usize) -> String {
        format!("{}/{}", self.collection(&self.namespace(index)), self.name(index))
    }

    /// Path and query of a watch, ending with `?` or `&` so that parameters can be appended.
    pub(crate) fn watched(&self, watcher: usize) -> String {
        let group = self.group(watcher);
        let all = format!("{}/{}?", self.kind.prefix(), self.kind.plural());
        match self.scope {
            // The whole type: objects from elsewhere have no mark and are ignored.
            Scope::All => all,
            Scope::Node => format!("{all}fieldSelector=spec.nodeName%3Dload-node-{group}&"),
            Scope::Namespace => format!("{}?", self.collection(&self.namespace(group))),
            Scope::Name => {
                format!("{}?fieldSelector=metadata.name%3D{}&", self.collection("load"), self.name(group))
            }
            Scope::Label => format!("{all}labelSelector=load-group%3D{group}&"),
        }
    }

    /// The object before its first write; `filled` adds the padding.
    pub(crate) fn json(&self, index: usize, filled: bool) -> String {
        let (name, namespace, group) = (self.name(index), self.namespace(index), self.group(index));
        let mark = Mark { number: 0, nanos: 0 }.text().replace('0', "-");
        let padding = "x".repeat(if filled { self.padding } else { 0 });
        let metadata = |padding: &str| {
            format!(
                r#""metadata":{{"name":"{name}","namespace":"{namespace}","labels":{{"load-group":"{group}"}},"annotations":{{"{ANNOTATION}":"{mark}"{padding}}}}}"#
            )
        };
        let padded = metadata(&format!(r#","load/padding":"{padding}""#));
        match self.kind {
            Kind::ConfigMaps => {
                let metadata = metadata("");
                format!(r#"{{"apiVersion":"v1","kind":"ConfigMap",{metadata},"data":{{"padding":"{padding}"}}}}"#)
            }
            Kind::Pods => format!(
                r#"{{"apiVersion":"v1","kind":"Pod",{padded},"spec":{{"nodeName":"load-node-{group}","containers":[{{"name":"main","image":"main"}}]}}}}"#
            ),
            Kind::EndpointSlices => format!(
                r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice",{padded},"addressType":"IPv4","endpoints":[{{"addresses":["10.0.0.1"]}}]}}"#
            ),
        }
    }

    /// A merge patch with the mark of a write.
    pub(crate) fn patch(mark: Mark) -> String {
        format!(r#"{{"metadata":{{"annotations":{{"{ANNOTATION}":"{}"}}}}}}"#, mark.text())
    }
}

impl Kind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::ConfigMaps | Self::Pods => "/api/v1",
            Self::EndpointSlices => "/apis/discovery.k8s.io/v1",
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            Self::ConfigMaps => "configmaps",
            Self::Pods => "pods",
            Self::EndpointSlices => "endpointslices",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Node => "node",
            Self::Namespace => "namespace",
            Self::Name => "name",
            Self::Label => "label",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(kind: Kind, scope: Scope) -> Subject {
        Subject { kind, scope, objects: 10, groups: 4, run: "1".to_owned(), padding: 3 }
    }

    #[test]
    fn each_group_asks_for_its_own_objects() {
        let paths = [Scope::All, Scope::Node, Scope::Namespace, Scope::Name, Scope::Label]
            .map(|scope| subject(Kind::Pods, scope).watched(6));
        assert_eq!(
            paths,
            [
                "/api/v1/pods?",
                "/api/v1/pods?fieldSelector=spec.nodeName%3Dload-node-2&",
                "/api/v1/namespaces/load-2/pods?",
                "/api/v1/namespaces/load/pods?fieldSelector=metadata.name%3Dload-1-2&",
                "/api/v1/pods?labelSelector=load-group%3D2&",
            ]
        );
    }

    #[test]
    fn objects_are_json_of_their_kind() {
        for kind in [Kind::ConfigMaps, Kind::Pods, Kind::EndpointSlices] {
            let subject = subject(kind, Scope::Node);
            let [bare, filled] = [false, true].map(|filled| subject.json(5, filled));
            assert_eq!(bare.len() + 3, filled.len());
            let object: serde_json::Value = serde_json::from_str(&filled).unwrap();
            assert_eq!(object["metadata"]["name"], "load-1-5");
            assert_eq!(object["metadata"]["labels"]["load-group"], "1");
        }
    }

    #[test]
    fn an_object_that_was_not_written_yet_has_no_mark() {
        let json = subject(Kind::Pods, Scope::All).json(0, true);
        super::super::marks::Scanner::new().feed(json.as_bytes(), |mark| panic!("{mark:?}"));
    }
}
