//! Semantics of a read, and the HTTP request that expresses exactly them.
//!
//! Every non-zero resourceVersion on a LIST carries a match; follow-up pages carry only `limit` and `continue`. The
//! cost of each request on each version of kube-apiserver is in the repository's `docs/requests.md`.

use std::fmt;

use crate::{resource_version::ResourceVersion, selector::shard, wire::marks};

/// Required freshness of a read.
///
/// # Source
/// Kubernetes API concepts, "Semantics for get and list" and "Semantics for watch".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListSemantic {
    /// The state when the request arrives. Older servers read the whole etcd prefix for it.
    MostRecent,
    /// Any state in the server's memory, possibly old: the cheapest read. Sends `resourceVersion=0`, for which stock
    /// servers ignore the limit of a page.
    #[default]
    Any,
    /// At least as new as the position, so never older than the state seen. Served from the server's cache; lists for
    /// it are not paged.
    NotOlderThan(ResourceVersion),
    /// Exactly the position. For the first read only. It may have expired, which is final.
    Exact(ResourceVersion),
}

/// Strategy for fetching the initial state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InitialList {
    /// Streams first, pages if the server refuses or stalls; the verdict is kept per endpoint and resource type. An
    /// overloaded server (429, 5xx), an unreachable one and one with slow headers get another stream request.
    #[default]
    Auto,
    /// Watch-list: initial state as watch events. Constant memory on the server.
    Stream,
    /// LIST in pages. Reads "not older than seen", such as relists, are not paged, because kube-apiserver before 1.34
    /// reads their pages from etcd, unless the server has paged "any" state.
    Paged,
    /// One LIST.
    Unpaged,
}

/// The objects to read: a resource type, optionally in one namespace, optionally filtered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Path of the collection without the namespace: `/api/v1` or `/apis/apps/v1`.
    pub group_version_path: String,
    /// Lower-case plural, as in the path: `pods`.
    pub plural: String,
    /// `None` reads all namespaces, or a cluster-scoped type.
    pub namespace: Option<String>,
    /// Canonical text of the label selector, empty for all objects.
    pub labels: String,
    /// Canonical text of the field selector, empty for all objects.
    pub fields: String,
    /// Shard to read; `None` for all objects. kube-apiserver ignores it without the feature gate `ShardedListAndWatch`, so
    /// the objects of a response may be of any shard.
    pub shard: Option<shard::Selector>,
}

impl Resource {
    /// Returns the path of the collection: `/api/v1/namespaces/prod/pods`.
    #[must_use]
    pub fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{}/namespaces/{namespace}/{}", self.group_version_path, self.plural),
            None => format!("{}/{}", self.group_version_path, self.plural),
        }
    }

    /// Returns the path of the collection in one namespace; an empty one means a cluster-scoped type.
    fn path_in(&self, namespace: &str) -> String {
        let mut path = self.group_version_path.clone();
        if !namespace.is_empty() {
            path.push_str("/namespaces/");
            escape(namespace, &mut path);
        }
        path.push('/');
        path.push_str(&self.plural);
        path
    }
}

/// Marks (resume tokens) that a stream requests from servers that support them. Others ignore it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Marks {
    /// No marks.
    #[default]
    Unrequested,
    /// The state from its beginning, with marks.
    New,
    /// The rest of the state, behind this mark.
    After(String),
}

/// One read, as ordered by the reflector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Initial state as watch events, then live: `sendInitialEvents=true`. Never with [`ListSemantic::Exact`].
    Stream {
        /// Required freshness of the state.
        semantic: ListSemantic,
        /// Time after which the server ends the response, in seconds.
        timeout_seconds: u32,
        /// Start position in the state, on servers that can resume a broken stream.
        marks: Marks,
    },
    /// A LIST, or the first page of one.
    List {
        /// Required freshness of the state.
        semantic: ListSemantic,
        /// Objects per page; `None` for all at once.
        limit: Option<u32>,
    },
    /// A page after the first.
    Page {
        /// Objects per page.
        limit: u32,
        /// Token of the previous page.
        token: String,
    },
    /// Changes after a position.
    Watch {
        /// The last position seen.
        after: ResourceVersion,
        /// Time after which the server ends the response, in seconds.
        timeout_seconds: u32,
    },
}

impl Read {
    /// Returns true if the response is a watch stream and not a LIST body.
    #[must_use]
    pub const fn is_watch(&self) -> bool {
        matches!(self, Self::Stream { .. } | Self::Watch { .. })
    }

    /// Returns true if the read requests initial state; the relist budget counts these.
    #[must_use]
    pub const fn is_initial(&self) -> bool {
        !matches!(self, Self::Watch { .. })
    }
}

/// One GET: path and query. `Display` shows it as sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    path: String,
    query: String,
    marks: Marks,
}

impl Request {
    /// Builds the request for `read` of `resource`.
    #[must_use]
    pub fn new(resource: &Resource, read: &Read) -> Self {
        let mut query = QueryText::default();
        match read {
            Read::Stream { semantic, timeout_seconds, .. } => {
                query.add("watch", "true");
                query.add("sendInitialEvents", "true");
                query.add("resourceVersionMatch", "NotOlderThan");
                match semantic {
                    ListSemantic::MostRecent => {}
                    ListSemantic::Any => query.add("resourceVersion", "0"),
                    ListSemantic::NotOlderThan(position) | ListSemantic::Exact(position) => {
                        query.add("resourceVersion", position.as_str());
                    }
                }
                query.add("allowWatchBookmarks", "true");
                query.add("timeoutSeconds", &timeout_seconds.to_string());
            }
            Read::List { semantic, limit } => {
                match semantic {
                    ListSemantic::MostRecent => {}
                    ListSemantic::Any => query.add("resourceVersion", "0"),
                    ListSemantic::NotOlderThan(position) => query.at(position, "NotOlderThan"),
                    ListSemantic::Exact(position) => query.at(position, "Exact"),
                }
                if let Some(limit) = limit {
                    query.add("limit", &limit.to_string());
                }
            }
            Read::Page { limit, token } => {
                query.add("limit", &limit.to_string());
                query.add("continue", token);
            }
            Read::Watch { after, timeout_seconds } => {
                query.add("watch", "true");
                query.add("resourceVersion", after.as_str());
                query.add("allowWatchBookmarks", "true");
                query.add("timeoutSeconds", &timeout_seconds.to_string());
            }
        }
        query.add_selectors(resource);
        let marks = if let Read::Stream { marks, .. } = read { marks.clone() } else { Marks::Unrequested };
        Self { path: resource.path(), query: query.0, marks }
    }

    /// Removes `allowWatchBookmarks` from a watch. Streams keep it, because a bookmark ends their initial state.
    #[must_use]
    pub fn without_bookmarks(mut self, read: &Read) -> Self {
        if matches!(read, Read::Watch { .. }) {
            // Values are escaped, so no selector can contain this text.
            self.query = self.query.replace("&allowWatchBookmarks=true", "");
        }
        self
    }

    /// Builds a GET of one object of `resource`, not older than `at`.
    #[must_use]
    pub fn object(resource: &Resource, namespace: &str, name: &str, at: &ResourceVersion) -> Self {
        let mut path = resource.path_in(namespace);
        path.push('/');
        escape(name, &mut path);
        let mut query = QueryText::default();
        query.add("resourceVersion", at.as_str());
        Self { path, query: query.0, marks: Marks::Unrequested }
    }

    /// Builds a LIST of the one object of `resource` with this name, not older than `at`: for clients that may list but
    /// not get.
    #[must_use]
    pub fn named(resource: &Resource, namespace: &str, name: &str, at: &ResourceVersion) -> Self {
        let mut query = QueryText::default();
        // No limit: kube-apiserver before 1.31 reads limited lists from etcd.
        query.at(at, "NotOlderThan");
        query.add("fieldSelector", &format!("metadata.name={name}"));
        Self { path: resource.path_in(namespace), query: query.0, marks: Marks::Unrequested }
    }

    /// The value of the header [`marks::HEADER`], if it is sent.
    #[must_use]
    pub fn marks(&self) -> Option<&str> {
        match &self.marks {
            Marks::Unrequested => None,
            Marks::New => Some(marks::NEW),
            Marks::After(token) => Some(token),
        }
    }

    /// The path without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The query without the question mark; may be empty.
    #[must_use]
    pub fn query(&self) -> &str {
        &self.query
    }

    /// Returns path and query as one URI reference.
    #[must_use]
    pub fn uri(&self) -> String {
        if self.query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, self.query) }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GET {}", self.uri())
    }
}

#[derive(Default)]
struct QueryText(String);

impl QueryText {
    fn add(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(name);
        self.0.push('=');
        escape(value, &mut self.0);
    }

    fn at(&mut self, position: &ResourceVersion, with_match: &str) {
        self.add("resourceVersion", position.as_str());
        self.add("resourceVersionMatch", with_match);
    }

    fn add_selectors(&mut self, resource: &Resource) {
        for (name, value) in [("labelSelector", &resource.labels), ("fieldSelector", &resource.fields)] {
            if !value.is_empty() {
                self.add(name, value);
            }
        }
        if let Some(shard) = &resource.shard {
            self.add("shardSelector", &shard.to_string());
        }
    }
}

/// Escapes as in RFC 3986, everything but unreserved characters, so that a value cannot add parameters.
fn escape(value: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> Resource {
        Resource {
            group_version_path: "/api/v1".into(),
            plural: "pods".into(),
            namespace: None,
            labels: String::new(),
            fields: String::new(),
            shard: None,
        }
    }

    /// Goal: every read is sent as documented. Method: golden texts, row by row.
    #[test]
    fn what_is_configured_is_what_goes_on_the_wire() {
        let at = || ResourceVersion::from(7);
        let stream = |semantic| Read::Stream { semantic, timeout_seconds: 300, marks: Marks::New };
        let list = |semantic, limit| Read::List { semantic, limit };
        let tail = "allowWatchBookmarks=true&timeoutSeconds=300";
        let head = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        for (read, expected) in [
            (stream(ListSemantic::Any), format!("{head}&resourceVersion=0&{tail}")),
            (stream(ListSemantic::MostRecent), format!("{head}&{tail}")),
            (stream(ListSemantic::NotOlderThan(at())), format!("{head}&resourceVersion=7&{tail}")),
            (list(ListSemantic::Any, None), "resourceVersion=0".into()),
            (list(ListSemantic::Any, Some(500)), "resourceVersion=0&limit=500".into()),
            (list(ListSemantic::MostRecent, None), String::new()),
            (list(ListSemantic::MostRecent, Some(500)), "limit=500".into()),
            (
                list(ListSemantic::NotOlderThan(at()), Some(500)),
                "resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=500".into(),
            ),
            (list(ListSemantic::Exact(at()), None), "resourceVersion=7&resourceVersionMatch=Exact".into()),
            (Read::Page { limit: 500, token: "a+b=".into() }, "limit=500&continue=a%2Bb%3D".into()),
            (Read::Watch { after: at(), timeout_seconds: 300 }, format!("watch=true&resourceVersion=7&{tail}")),
            (
                Read::Watch { after: "5&limit=1#+%=/\"~".parse().unwrap(), timeout_seconds: 300 },
                format!("watch=true&resourceVersion=5%26limit%3D1%23%2B%25%3D%2F%22~&{tail}"),
            ),
            (
                list(ListSemantic::NotOlderThan("eyJhIjoiMSJ9_-==".parse().unwrap()), None),
                "resourceVersion=eyJhIjoiMSJ9_-%3D%3D&resourceVersionMatch=NotOlderThan".into(),
            ),
        ] {
            assert_eq!(Request::new(&pods(), &read).query(), expected, "{read:?}");
        }
    }

    #[test]
    fn selectors_and_namespace_go_along() {
        let resource = Resource {
            namespace: Some("prod".into()),
            labels: "app in (a,b)".into(),
            fields: "spec.nodeName=node-1".into(),
            shard: None,
            ..pods()
        };
        let request = Request::new(&resource, &Read::List { semantic: ListSemantic::MostRecent, limit: None });
        assert_eq!(
            request.to_string(),
            "GET /api/v1/namespaces/prod/pods?labelSelector=app%20in%20%28a%2Cb%29&fieldSelector=spec.nodeName%3Dnode-1"
        );
    }

    #[test]
    fn one_object_is_asked_for_by_its_path_or_by_its_name() {
        let at = ResourceVersion::from(7);
        let shown = |request: Request| request.to_string();
        assert_eq!(
            shown(Request::object(&pods(), "prod", "web-0", &at)),
            "GET /api/v1/namespaces/prod/pods/web-0?resourceVersion=7"
        );
        assert_eq!(shown(Request::object(&pods(), "", "a:b/..", &at)), "GET /api/v1/pods/a%3Ab%2F..?resourceVersion=7");
        assert_eq!(
            shown(Request::named(&pods(), "prod", "web-0", &at)),
            "GET /api/v1/namespaces/prod/pods?resourceVersion=7&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Dweb-0"
        );
    }

    #[test]
    fn marks_are_asked_for_by_a_header() {
        let request = |marks| {
            let read = Read::Stream { semantic: ListSemantic::Any, timeout_seconds: 300, marks };
            Request::new(&pods(), &read)
        };
        assert_eq!(request(Marks::Unrequested).marks(), None);
        assert_eq!(request(Marks::New).marks(), Some("new"));
        let again = request(Marks::After("t".into()));
        assert_eq!((again.marks(), again.uri()), (Some("t"), request(Marks::New).uri()));
    }

    #[test]
    fn bookmarks_can_be_left_out_of_watches_and_of_nothing_else() {
        let after = ResourceVersion::from(7);
        let asks = |read: Read| Request::new(&pods(), &read).without_bookmarks(&read).query().contains("Bookmarks");
        assert!(!asks(Read::Watch { after, timeout_seconds: 300 }));
        let (semantic, marks) = (ListSemantic::Any, Marks::default());
        assert!(asks(Read::Stream { semantic, timeout_seconds: 300, marks }));
    }
}
