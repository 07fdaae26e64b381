//! Reads the commonly needed parts of an object from its raw JSON: identity, position, labels, single fields.
//!
//! INVARIANT: decodes no other part, copies only escaped texts, and never panics. Of a repeated member the first
//! counts.

use std::{borrow::Cow, ops::Range, sync::LazyLock};

use memchr::{memchr, memmem::Finder};

use crate::wire::{
    json::{self, JsonError, Walk},
    watch_event::INITIAL_EVENTS_ANNOTATION,
};

/// Metadata of one object read from its raw JSON bytes without decoding the rest.
///
/// Shape: ranges index the slice passed to [`Meta::read`]; members that are absent or `null` are empty or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta<'a> {
    /// `kind`.
    pub kind: Option<Cow<'a, str>>,
    /// `apiVersion`.
    pub api_version: Option<Cow<'a, str>>,
    /// `metadata.namespace`; empty if absent.
    pub namespace: Cow<'a, str>,
    /// `metadata.name`; empty if absent, as in a bookmark.
    pub name: Cow<'a, str>,
    /// `metadata.uid`; empty if absent.
    pub uid: Cow<'a, str>,
    /// `metadata.resourceVersion`; empty if absent.
    pub resource_version: Cow<'a, str>,
    /// Range of the text of `metadata.resourceVersion`, inside its quotes.
    pub resource_version_at: Option<Range<usize>>,
    /// Range of `metadata.labels`, the whole `{...}`.
    pub labels_at: Option<Range<usize>>,
    /// Range of `metadata.annotations`, the whole `{...}`.
    pub annotations_at: Option<Range<usize>>,
    /// True if the annotation `k8s.io/initial-events-end` is `"true"`: the bookmark that ends the initial state.
    pub initial_events_end: bool,
    /// True if `metadata.deletionTimestamp` is set.
    pub deletion_timestamp: bool,
}

/// Error of [`Meta::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// The bytes are not a JSON object.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A member does not have its Kubernetes type.
    #[error("{member} is not {expected}")]
    WrongType {
        /// Dotted path of the member.
        member: &'static str,
        /// The expected type, with its article.
        expected: &'static str,
    },
}

impl<'a> Meta<'a> {
    /// Reads the metadata of an object from its JSON.
    ///
    /// Cost: stops once kind, apiVersion and metadata are found, which API servers send first; about half a nanosecond
    /// per byte up to there.
    ///
    /// # Errors
    /// [`MetaError::Json`] if the bytes up to there are not a JSON object, [`MetaError::WrongType`] if a member does
    /// not have its Kubernetes type.
    pub fn read(object: &'a [u8]) -> Result<Self, MetaError> {
        Self::read_as(object, false)
    }

    /// Like [`read`](Self::read), but a `metadata.resourceVersion` of the wrong type counts as absent: for readers that
    /// keep objects with any version.
    ///
    /// # Errors
    /// See [`read`](Self::read).
    pub fn read_lenient(object: &'a [u8]) -> Result<Self, MetaError> {
        Self::read_as(object, true)
    }

    fn read_as(object: &'a [u8], any_version: bool) -> Result<Self, MetaError> {
        let mut meta = Self::default();
        let mut walk = Walk::new(object)?;
        let mut metadata = false;
        while !(metadata && meta.kind.is_some() && meta.api_version.is_some()) {
            let Some(key) = walk.key()? else { break };
            match &*key.bytes() {
                b"kind" if meta.kind.is_none() => meta.kind = text(object, walk.value()?, "kind")?,
                b"apiVersion" if meta.api_version.is_none() => {
                    meta.api_version = text(object, walk.value()?, "apiVersion")?;
                }
                b"metadata" if !metadata => metadata = meta.read_metadata(object, &mut walk, any_version)?,
                _ => {}
            }
        }
        Ok(meta)
    }

    /// Returns `namespace/name`, or `name` for an object without namespace.
    #[must_use]
    pub fn key(&self) -> String {
        let mut key = String::new();
        self.write_key(&mut key);
        key
    }

    /// Like [`key`](Self::key), but replaces the contents of `out`, to reuse its allocation.
    pub fn write_key(&self, out: &mut String) {
        out.clear();
        if !self.namespace.is_empty() {
            out.reserve(self.namespace.len() + 1 + self.name.len());
            out.push_str(&self.namespace);
            out.push('/');
        }
        out.push_str(&self.name);
    }

    /// Reads the members of `metadata`. Returns false if it is `null`.
    fn read_metadata(&mut self, object: &'a [u8], walk: &mut Walk<'a>, any_version: bool) -> Result<bool, MetaError> {
        if !walk.enter()? {
            return if is_null(object, &walk.value()?) { Ok(false) } else { Err(wrong("metadata", "an object")) };
        }
        while let Some(key) = walk.key()? {
            match &*key.bytes() {
                b"name" => set(&mut self.name, text(object, walk.value()?, "metadata.name")?),
                b"namespace" => set(&mut self.namespace, text(object, walk.value()?, "metadata.namespace")?),
                b"uid" => set(&mut self.uid, text(object, walk.value()?, "metadata.uid")?),
                b"resourceVersion" if self.resource_version_at.is_none() => {
                    let at = walk.value()?;
                    let version = match text(object, at.clone(), "metadata.resourceVersion") {
                        Err(_) if any_version => None,
                        read => read?,
                    };
                    if let Some(version) = version {
                        self.resource_version = version;
                        self.resource_version_at = Some(at.start + 1..at.end - 1);
                    }
                }
                b"labels" if self.labels_at.is_none() => {
                    self.labels_at = map(object, walk.value()?, "metadata.labels")?;
                }
                b"annotations" if self.annotations_at.is_none() => {
                    self.annotations_at = map(object, walk.value()?, "metadata.annotations")?;
                }
                b"deletionTimestamp" => self.deletion_timestamp |= !is_null(object, &walk.value()?),
                _ => {}
            }
        }
        if let Some(at) = &self.annotations_at {
            self.initial_events_end = ends_initial_events(&object[at.clone()]);
        }
        Ok(true)
    }
}

/// Returns the members of a flat string map such as labels, in order. Values that are not strings are skipped.
///
/// Never panics on invalid JSON: ends where it stops being a map. `null` counts as an empty map.
pub fn string_map<'a>(json: &'a [u8]) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
    json::members(json)
        .map_while(Result::ok)
        .filter_map(|member| Some((member.key.text()?, json::string(member.value)?)))
}

/// Returns the value of `key` in a flat string map.
///
/// Cost: scans up to the member found, and decodes nothing else.
#[must_use]
pub fn label<'a>(map_json: &'a [u8], key: &str) -> Option<Cow<'a, str>> {
    let mut walk = Walk::new(map_json).ok()?;
    while let Some(found) = walk.key().ok()? {
        if found.is(key) {
            return json::string(&map_json[walk.value().ok()?]);
        }
    }
    None
}

/// Returns the scalar at a dotted path such as `spec.nodeName`: a string's contents, or the text of a number or
/// boolean.
///
/// Shape: objects only, no arrays; `null` counts as absent. A key may contain dots:
/// `metadata.labels.app.kubernetes.io/name`. Cost: scans up to the member found, about half a nanosecond per byte.
#[must_use]
pub fn field<'a>(object: &'a [u8], path: &str) -> Option<Cow<'a, str>> {
    json::unescape(&object[field_at(object, path)?])
}

/// Appends the scalars at a dotted path that enters arrays by `[]`, such as `spec.containers[].image` or
/// `metadata.finalizers[]`, to `found`, in their order in the object; see [`field`] for scalars and paths.
///
/// Cost: scans up to the array, and each of its elements once for its end and once for the rest of the path.
pub fn push_fields(object: &[u8], path: &str, found: &mut Vec<String>) {
    let Some((array, rest)) = path.split_once("[]") else {
        found.extend(field(object, path).map(Cow::into_owned));
        return;
    };
    let Some(at) = value_at(object, array) else { return };
    for element in json::elements(&object[at]) {
        match rest.strip_prefix('.') {
            Some(rest) => push_fields(element, rest, found),
            None => {
                let at = scalar(element, 0..element.len());
                found.extend(at.and_then(|at| json::unescape(&element[at])).map(Cow::into_owned));
            }
        }
    }
}

/// Returns the object reduced to `kind`, `apiVersion` and `metadata`, in its own order.
///
/// Cost: one scan, and one copy of the result.
///
/// # Errors
/// If the bytes are not a JSON object.
pub fn metadata_only(object: &[u8]) -> Result<Vec<u8>, JsonError> {
    let mut metadata = Vec::with_capacity(object.len().min(1024));
    for member in json::members(object) {
        let member = member?;
        if let key @ (b"kind" | b"apiVersion" | b"metadata") = &*member.key.bytes() {
            metadata.push(if metadata.is_empty() { b'{' } else { b',' });
            metadata.extend_from_slice(b"\"");
            metadata.extend_from_slice(key);
            metadata.extend_from_slice(b"\":");
            metadata.extend_from_slice(member.value);
        }
    }
    metadata.extend_from_slice(if metadata.is_empty() { b"{}" } else { b"}" });
    Ok(metadata)
}

/// Returns the range of the text that [`field`] returns in `object`, before escapes are decoded.
#[must_use]
pub fn field_at(object: &[u8], path: &str) -> Option<Range<usize>> {
    scalar(object, value_at(object, path)?)
}

/// Returns the range of the value of any type at a dotted path; see [`field`] for paths and cost.
#[must_use]
pub fn value_at(object: &[u8], path: &str) -> Option<Range<usize>> {
    let mut walk = Walk::new(object).ok()?;
    // The remaining path inside each object entered.
    let mut rests = vec![path.as_bytes()];
    while walk.level() > 0 {
        let rest = *rests.last()?;
        let Some(key) = walk.key().ok()? else {
            rests.pop();
            continue;
        };
        let key = key.bytes();
        if *key == *rest {
            return walk.value().ok();
        }
        let inner = rest.strip_prefix(&*key).and_then(|rest| rest.strip_prefix(b"."));
        if let Some(inner) = inner
            && walk.enter().ok()?
        {
            rests.push(inner);
        }
    }
    None
}

/// Returns the range of the text of a scalar that is not `null`.
fn scalar(object: &[u8], at: Range<usize>) -> Option<Range<usize>> {
    match object.get(at.start)? {
        b'{' | b'[' | b'n' => None,
        b'"' => Some(at.start + 1..at.end - 1),
        _ => Some(at),
    }
}

/// Returns the string at `at`; `None` for `null`.
fn text<'a>(object: &'a [u8], at: Range<usize>, member: &'static str) -> Result<Option<Cow<'a, str>>, MetaError> {
    if is_null(object, &at) {
        return Ok(None);
    }
    json::string(&object[at]).map(Some).ok_or_else(|| wrong(member, "a string"))
}

/// Returns the range of the object at `at`; `None` for `null`.
fn map(object: &[u8], at: Range<usize>, member: &'static str) -> Result<Option<Range<usize>>, MetaError> {
    match object.get(at.start) {
        Some(b'{') => Ok(Some(at)),
        _ if is_null(object, &at) => Ok(None),
        _ => Err(wrong(member, "an object")),
    }
}

fn is_null(object: &[u8], at: &Range<usize>) -> bool {
    &object[at.clone()] == b"null"
}

/// Returns true if `annotations` mark the bookmark that ends the initial state. Most objects have annotations and never
/// this one, so the members are walked only if it can be there: as it is, or with escapes.
fn ends_initial_events(annotations: &[u8]) -> bool {
    static MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(INITIAL_EVENTS_ANNOTATION));
    let may_have_it = MARK.find(annotations).is_some() || memchr(b'\\', annotations).is_some();
    may_have_it && label(annotations, INITIAL_EVENTS_ANNOTATION).as_deref() == Some("true")
}

/// Sets an empty `member` to `found`.
fn set<'a>(member: &mut Cow<'a, str>, found: Option<Cow<'a, str>>) {
    if let (true, Some(found)) = (member.is_empty(), found) {
        *member = found;
    }
}

const fn wrong(member: &'static str, expected: &'static str) -> MetaError {
    MetaError::WrongType { member, expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","namespace":"shop","uid":"u-1",
        "resourceVersion":"42","labels":{"app":"web","q\"":"\u00e9","n":1},"annotations":{"note":"{\"a\":[]}"}},
        "spec":{"nodeName":"node-1","replicas":3,"paused":true,"none":null,"inner":{"a.b/c":"x"},"list":[{"z":"1"}]}}"#;

    #[test]
    fn a_pod_is_read() {
        let meta = Meta::read(POD).unwrap();
        assert_eq!((meta.kind.as_deref(), meta.api_version.as_deref()), (Some("Pod"), Some("v1")));
        assert_eq!(
            (&*meta.namespace, &*meta.name, &*meta.uid, &*meta.resource_version),
            ("shop", "web-0", "u-1", "42")
        );
        assert_eq!(meta.key(), "shop/web-0");
        assert_eq!(&POD[meta.resource_version_at.unwrap()], b"42");
        let labels = &POD[meta.labels_at.unwrap()];
        let all: Vec<_> = string_map(labels).collect();
        assert_eq!(all, [("app".into(), "web".into()), ("q\"".into(), "\u{e9}".into())]);
        assert_eq!(label(labels, "q\"").as_deref(), Some("\u{e9}"));
        assert_eq!((label(labels, "n"), label(labels, "none")), (None, None));
        assert_eq!(&POD[meta.annotations_at.unwrap()], br#"{"note":"{\"a\":[]}"}"#);
        assert!(!meta.initial_events_end && !meta.deletion_timestamp);
    }

    #[test]
    fn metadata_alone_is_kept_wherever_it_stands() {
        for (object, expected) in [
            ("{}", "{}"),
            (r#"{"spec":{"metadata":1}}"#, "{}"),
            (r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"a"}}"#),
            (
                r#"{ "kind" : "Pod", "spec":{}, "metadata": {"name":"a", "x":[1]} , "status":{},"apiVersion":"v1" }"#,
                r#"{"kind":"Pod","metadata":{"name":"a", "x":[1]},"apiVersion":"v1"}"#,
            ),
        ] {
            assert_eq!(metadata_only(object.as_bytes()).unwrap(), expected.as_bytes(), "{object}");
        }
        assert!(metadata_only(b"[]").is_err() && metadata_only(br#"{"spec":"#).is_err());
    }

    #[test]
    fn fields_are_found_by_path() {
        for (path, expected) in [
            ("spec.nodeName", Some("node-1")),
            ("spec.replicas", Some("3")),
            ("spec.paused", Some("true")),
            ("spec.none", None),
            ("spec.inner", None),
            ("spec.inner.a.b/c", Some("x")),
            ("spec.list", None),
            ("spec.list.z", None),
            ("spec.nodeName.x", None),
            ("spec", None),
            ("spec.", None),
            ("", None),
            ("kind", Some("Pod")),
            ("metadata.labels.app", Some("web")),
            ("metadata.labels.q\"", Some("\u{e9}")),
            ("nodeName", None),
        ] {
            assert_eq!(field(POD, path).as_deref(), expected, "{path}");
        }
        assert_eq!(&POD[field_at(POD, "metadata.labels.q\"").unwrap()], br"\u00e9");
        assert_eq!(field(br#"{"a":{"b":1},"a.b":2,"a":{"c":3}}"#, "a.c").as_deref(), Some("3"));
    }

    #[test]
    fn fields_inside_arrays_are_found_by_path() {
        let pod = br#"{"metadata":{"finalizers":["a","b\u0021",null,{}]},"spec":{"containers":[
            {"image":"i1","ports":[{"name":"http"},{"name":"dns"}]},{"ports":null},7,
            {"image":"i2","ports":[{"port":1}]}]}}"#;
        for (path, expected) in [
            ("spec.containers[].image", vec!["i1", "i2"]),
            ("spec.containers[].ports[].name", vec!["http", "dns"]),
            ("spec.containers[].ports[].port", vec!["1"]),
            ("metadata.finalizers[]", vec!["a", "b!"]),
            ("spec.containers[]", vec!["7"]),
            ("spec.containers", vec![]),
            ("spec[].image", vec![]),
            ("spec.none[].image", vec![]),
            ("[]", vec![]),
        ] {
            let mut found = Vec::new();
            push_fields(pod, path, &mut found);
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn absent_and_null_members_are_none() {
        for json in [
            "{}",
            r#"{"kind":null,"apiVersion":null,"metadata":null}"#,
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"name":null,"namespace":null,"uid":null,"resourceVersion":null,"labels":null,
                "annotations":null,"deletionTimestamp":null}}"#,
        ] {
            assert_eq!(Meta::read(json.as_bytes()), Ok(Meta::default()), "{json}");
        }
    }

    #[test]
    fn a_version_of_another_type_can_be_read_as_none() {
        let json = br#"{"metadata":{"resourceVersion":12,"name":"a"}}"#;
        let meta = Meta::read_lenient(json).unwrap();
        assert_eq!((&*meta.name, &*meta.resource_version, meta.resource_version_at), ("a", "", None));
        assert!(Meta::read(json).is_err() && Meta::read_lenient(br#"{"metadata":{"name":5}}"#).is_err());
    }

    #[test]
    fn wrong_types_are_errors_that_name_the_member() {
        for (json, expected) in [
            (r#"{"kind":7}"#, "kind is not a string"),
            (r#"{"apiVersion":{}}"#, "apiVersion is not a string"),
            (r#"{"metadata":"x"}"#, "metadata is not an object"),
            (r#"{"metadata":{"name":5}}"#, "metadata.name is not a string"),
            (r#"{"metadata":{"namespace":["a"]}}"#, "metadata.namespace is not a string"),
            (r#"{"metadata":{"uid":true}}"#, "metadata.uid is not a string"),
            (r#"{"metadata":{"resourceVersion":12}}"#, "metadata.resourceVersion is not a string"),
            (r#"{"metadata":{"labels":[]}}"#, "metadata.labels is not an object"),
            (r#"{"metadata":{"annotations":""}}"#, "metadata.annotations is not an object"),
            (r#"{"metadata":{"name":"\x"}}"#, "metadata.name is not a string"),
            ("[]", "malformed JSON at byte 0"),
            (r#"{"metadata":{"name":"a"}"#, "JSON ends too early"),
        ] {
            assert_eq!(Meta::read(json.as_bytes()).unwrap_err().to_string(), expected, "{json}");
        }
    }

    #[test]
    fn bookmarks_and_terminating_objects_are_recognised() {
        let json = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","creationTimestamp":null,
            "annotations":{"k8s.io/initial-events-end":"true"}}}"#;
        let meta = Meta::read(json).unwrap();
        assert!(meta.initial_events_end && meta.name.is_empty() && meta.key().is_empty());
        let json = br#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","n\u0061me":"a",
            "annotations":{"k8s.io/initial-events-end":"false"}}}"#;
        let meta = Meta::read(json).unwrap();
        assert!(meta.deletion_timestamp && !meta.initial_events_end);
        assert_eq!(meta.key(), "a");
    }

    #[test]
    fn of_equal_members_the_first_counts() {
        let json =
            br#"{"metadata":{"name":"a","name":"b","labels":{"x":"1"},"labels":{"x":"2"}},"metadata":{"uid":"u"}}"#;
        let meta = Meta::read(json).unwrap();
        assert_eq!((&*meta.name, &*meta.uid), ("a", ""));
        assert_eq!(label(&json[meta.labels_at.unwrap()], "x").as_deref(), Some("1"));
    }

    #[test]
    fn every_prefix_is_an_error_or_the_whole_metadata() {
        let whole = Meta::read(POD).unwrap();
        for end in 0..POD.len() {
            if let Ok(meta) = Meta::read(&POD[..end]) {
                assert_eq!(meta, whole, "cut at {end}");
            }
            let _ = field(&POD[..end], "spec.replicas");
            let _ = string_map(&POD[..end]).count();
            push_fields(&POD[..end], "spec.list[].z", &mut Vec::new());
        }
    }
}
