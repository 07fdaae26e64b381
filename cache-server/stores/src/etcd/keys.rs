//! Keys of objects in etcd: the root prefix, the prefix of the type, then the key that the object has in its cache.

use api_rules::etcd::key_prefix;
use bytes::Bytes;

use crate::registry::ResourceType;

/// The keys of one type.
#[derive(Clone, Debug)]
pub(super) struct TypeKeys {
    /// Ends with `/`.
    pub(super) prefix: Bytes,
    /// The first key behind those with the prefix.
    pub(super) end: Bytes,
    is_namespaced: bool,
}

impl TypeKeys {
    /// Returns the keys of a type below `root`, which ends with `/`.
    pub(super) fn new(root: &str, ty: &ResourceType) -> Self {
        let prefix = format!("{root}{}", key_prefix(ty));
        let end = end_of(prefix.as_bytes());
        Self { prefix: Bytes::from(prefix), end, is_namespaced: ty.namespaced }
    }

    /// Returns the key of an object, from the one that it has in its cache.
    pub(super) fn key(&self, object: &str) -> Bytes {
        Bytes::from([&self.prefix, object.as_bytes()].concat())
    }

    /// Returns the key that an object has in its cache; `None` if it is no object of the type.
    pub(super) fn object<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        let object = std::str::from_utf8(key.strip_prefix(&*self.prefix)?).ok()?;
        let slashes = object.bytes().filter(|&byte| byte == b'/').count();
        (slashes == usize::from(self.is_namespaced) && object.split('/').all(|part| !part.is_empty())).then_some(object)
    }
}

/// Returns the first key behind those with a prefix, which ends with `/`.
pub(super) fn end_of(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        // Not 0xFF, so the next byte exists.
        *last += 1;
    }
    Bytes::from(end)
}

/// Returns the first key behind `key`.
pub(super) fn after(key: &[u8]) -> Bytes {
    Bytes::from([key, &[0]].concat())
}

/// Returns the root prefix with a slash at both ends.
pub(super) fn root_of(prefix: &str) -> String {
    match prefix.trim_matches('/') {
        "" => "/".to_owned(),
        inner => format!("/{inner}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    /// Goal: a key of another type, or of a folder below a type, is no object.
    #[test]
    fn keys_of_objects_are_told_from_others() {
        let registry = Registry::builtin();
        let of = |plural| TypeKeys::new("/registry/", &registry.find("", "v1", plural).expect("a built-in type"));
        let (pods, nodes, services) = (of("pods"), of("nodes"), of("services"));
        assert_eq!(pods.object(b"/registry/pods/ns/a"), Some("ns/a"));
        assert_eq!(pods.key("ns/a"), "/registry/pods/ns/a");
        assert_eq!(nodes.object(b"/registry/minions/a"), Some("a"));
        assert_eq!(services.object(b"/registry/services/specs/ns/a"), Some("ns/a"));
        for other in ["/registry/pods/a", "/registry/pods/ns/", "/registry/pods/ns/a/b", "/registry/podtemplates/ns/a"]
        {
            assert_eq!(pods.object(other.as_bytes()), None, "{other}");
        }
        assert_eq!(pods.object(b"/registry/pods/ns/\xff"), None);
        assert_eq!(pods.end, "/registry/pods0");
        assert_eq!(["registry", "/a/b/", "", "/"].map(root_of), ["/registry/", "/a/b/", "/", "/"]);
    }
}
