//! Identity of a checkpoint. INVARIANT: two informers that must not share a state have different identities.

use std::{fmt, time::UNIX_EPOCH};

use informer_core::Resource;

/// Identity of a saved state: an informer uses the state only if every part is equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The server's URL, or the name the user gave the cluster.
    pub(super) server: String,
    /// Digest of the certificate authority; empty if unknown.
    pub(super) ca: String,
    /// Path, namespace and selectors, as in a request.
    pub(super) resource: String,
    /// The paths cut out of objects.
    pub(super) trimming: String,
    /// Other causes for which stored objects differ from sent ones.
    pub(super) object_changes: String,
    /// Build of the program whose types and functions processed the objects; empty if none did. Not part of the file's
    /// name: a new build replaces the old build's state.
    pub(super) program: String,
}

/// Change that the program made to objects before they were stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectChanges {
    /// True if only metadata is stored.
    pub(crate) is_metadata: bool,
    /// Number of transform functions.
    pub(crate) transforms: usize,
    /// True if the function is the cluster's default, which is another one than a declaration's.
    pub(crate) is_transform_of_cluster: bool,
    /// Name of the type they are stored as.
    pub(crate) decoded_to: Option<&'static str>,
}

impl ObjectChanges {
    const fn is_up_to_the_program(&self) -> bool {
        self.transforms > 0 || self.decoded_to.is_some()
    }
}

impl fmt::Display for ObjectChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_metadata, transforms, is_transform_of_cluster, decoded_to } = self;
        let whole = if *is_metadata { "metadata" } else { "objects" };
        let whose = if *is_transform_of_cluster { " of the cluster" } else { "" };
        write!(f, "{whole}, {transforms} transforms{whose}, {}", decoded_to.unwrap_or("JSON"))
    }
}

impl Identity {
    /// Identity of an informer that reads `resource` and cuts `drop_paths` from each object.
    pub(crate) fn new(
        server: &str,
        ca: &str,
        resource: &Resource,
        drop_paths: &[String],
        object_changes: ObjectChanges,
    ) -> Self {
        let mut cut: Vec<&str> = drop_paths.iter().map(String::as_str).collect();
        cut.sort_unstable();
        cut.dedup();
        let Resource { labels, fields, shard, .. } = resource;
        let shard = shard.as_ref().map(|shard| format!("&shardSelector={shard}")).unwrap_or_default();
        Self {
            server: server.to_owned(),
            ca: ca.to_owned(),
            resource: format!("{}?labelSelector={labels}&fieldSelector={fields}{shard}", resource.path()),
            trimming: cut.join(","),
            object_changes: object_changes.to_string(),
            program: if object_changes.is_up_to_the_program() { this_program() } else { String::new() },
        }
    }

    /// Name of the file without its extension: readable, and different for every identity (apart from the build).
    pub(super) fn file_stem(&self) -> String {
        let path = self.resource.split('?').next().unwrap_or_default();
        let plural = path.rsplit('/').next().unwrap_or_default();
        let is_plain = |byte: &char| byte.is_ascii_alphanumeric() || matches!(byte, '-' | '_');
        let readable: String = plural.chars().filter(is_plain).take(READABLE_BYTES_MAX).collect();
        let lasting = Self { program: String::new(), ..self.clone() };
        format!("{readable}-{:016x}", digest(lasting.to_string().as_bytes()))
    }
}

/// One line per part; stored in the file.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, ca, resource, trimming, object_changes, program } = self;
        write!(
            f,
            "server {server}\nca {ca}\nresource {resource}\nwithout {trimming}\nas {object_changes}\nby {program}"
        )
    }
}

/// Longest readable part of a file's name, in bytes.
const READABLE_BYTES_MAX: usize = 63;

/// FNV-1a: equal in every build and on every machine. Distinguishes files; a collision is harmless, because the file
/// holds the whole identity.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Identifies the build of this program, by size and time of its executable. Otherwise a changed type or transform
/// would receive objects that its previous version made.
fn this_program() -> String {
    let build =
        std::env::current_exe().and_then(|file| file.metadata()).and_then(|file| Ok((file.len(), file.modified()?)));
    build.map_or_else(
        |_| "unknown".to_owned(),
        |(bytes, modified)| {
            let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
            format!("{bytes} bytes of {}", since.as_nanos())
        },
    )
}

#[cfg(test)]
mod tests {
    use informer_core::selector::shard::{Selector, ShardField};

    use super::*;

    fn resource() -> Resource {
        Resource {
            group_version_path: "/apis/apps/v1".into(),
            plural: "deployments".into(),
            namespace: Some("prod".into()),
            labels: "app=web".into(),
            fields: String::new(),
            shard: None,
        }
    }

    fn identity(drop_paths: &[&str], object_changes: ObjectChanges) -> Identity {
        let drop_paths: Vec<String> = drop_paths.iter().map(|path| (*path).to_owned()).collect();
        Identity::new("https://10.0.0.1/", "", &resource(), &drop_paths, object_changes)
    }

    #[test]
    fn whatever_makes_states_differ_is_part_of_the_name() {
        let forms = [
            ObjectChanges::default(),
            ObjectChanges { is_metadata: true, ..ObjectChanges::default() },
            ObjectChanges { transforms: 1, ..ObjectChanges::default() },
            ObjectChanges { transforms: 1, is_transform_of_cluster: true, ..ObjectChanges::default() },
            ObjectChanges { decoded_to: Some("agent::Slim"), ..ObjectChanges::default() },
        ];
        let mut names = forms.map(|object_changes| identity(&["a", "b"], object_changes).file_stem()).to_vec();
        let of = |server: &str, ca: &str, change: &dyn Fn(&mut Resource)| {
            let mut resource = resource();
            change(&mut resource);
            Identity::new(server, ca, &resource, &[], forms[0]).file_stem()
        };
        names.extend([
            of("x", "", &|_| {}),
            of("y", "", &|_| {}),
            of("x", "1f", &|_| {}),
            of("x", "", &|resource| resource.namespace = None),
            of("x", "", &|resource| resource.labels = "app=api".into()),
            of("x", "", &|resource| resource.fields = "metadata.name=a".into()),
            of("x", "", &|resource| resource.shard = Selector::part(ShardField::Uid, 0, 2)),
            of("x", "", &|resource| resource.shard = Selector::part(ShardField::Uid, 1, 2)),
            of("x", "", &|resource| resource.group_version_path = "/apis/apps/v2".into()),
        ]);
        for (at, name) in names.iter().enumerate() {
            assert!(name.starts_with("deployments-") && name.len() == "deployments-".len() + 16, "{name}");
            assert!(!names[..at].contains(name), "{names:?}");
        }
        assert_eq!(identity(&["b", "a", "b"], forms[0]), identity(&["a", "b"], forms[0]), "in any order");
    }

    /// Goal: objects processed by a program are used by the same build only. The file's contents tell builds apart, not
    /// its name: a new build replaces the old build's state.
    #[test]
    fn another_build_has_the_same_name_and_another_identity_where_its_code_counts() {
        let transformed = identity(&[], ObjectChanges { transforms: 1, ..ObjectChanges::default() });
        let other = Identity { program: "another build".into(), ..transformed.clone() };
        assert_eq!(transformed.file_stem(), other.file_stem());
        assert_ne!(transformed.to_string(), other.to_string());
        assert!(transformed.program.contains(" bytes of "), "{}", transformed.program);
        assert_eq!(identity(&[], ObjectChanges::default()).program, "", "JSON as it was received is anybody's");
    }
}
