//! Whose state a checkpoint is. INVARIANT: two informers that may not share a state differ in it.

use std::{fmt, time::UNIX_EPOCH};

use informer_core::Resource;

/// What a saved state belongs to: another one in any part is of no use to this informer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The server's URL, or the name the user gave the cluster.
    pub(super) server: String,
    /// A digest of the certificate authority; empty when it is not known.
    pub(super) ca: String,
    /// Path, namespace and selectors, as in a request.
    pub(super) resource: String,
    /// The paths that are cut.
    pub(super) trimming: String,
    /// What else makes stored objects differ from those sent.
    pub(super) kept_as: String,
    /// The program whose types and functions the objects went through; empty when they went through none. Not part of
    /// the file's name: a new version of a program takes the place of the old one's state.
    pub(super) program: String,
}

/// What the program made of objects before they were kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptAs {
    /// Only their metadata is kept.
    pub(crate) is_metadata: bool,
    /// How many functions of the program changed them.
    pub(crate) transforms: usize,
    /// The name of the type of which they are kept.
    pub(crate) decoded_to: Option<&'static str>,
}

impl KeptAs {
    const fn is_up_to_the_program(&self) -> bool {
        self.transforms > 0 || self.decoded_to.is_some()
    }
}

impl fmt::Display for KeptAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_metadata, transforms, decoded_to } = self;
        let whole = if *is_metadata { "metadata" } else { "objects" };
        write!(f, "{whole}, {transforms} transforms, {}", decoded_to.unwrap_or("JSON"))
    }
}

impl Identity {
    /// The identity of what reads `resource` and cuts `drop_paths` from each object.
    pub(crate) fn new(server: &str, ca: &str, resource: &Resource, drop_paths: &[String], kept_as: KeptAs) -> Self {
        let mut cut: Vec<&str> = drop_paths.iter().map(String::as_str).collect();
        cut.sort_unstable();
        cut.dedup();
        let Resource { labels, fields, .. } = resource;
        Self {
            server: server.to_owned(),
            ca: ca.to_owned(),
            resource: format!("{}?labelSelector={labels}&fieldSelector={fields}", resource.path()),
            trimming: cut.join(","),
            kept_as: kept_as.to_string(),
            program: if kept_as.is_up_to_the_program() { this_program() } else { String::new() },
        }
    }

    /// The file's name without its ending: readable, and different for every identity.
    pub(super) fn file_stem(&self) -> String {
        let path = self.resource.split('?').next().unwrap_or_default();
        let plural = path.rsplit('/').next().unwrap_or_default();
        let is_plain = |byte: &char| byte.is_ascii_alphanumeric() || matches!(byte, '-' | '_');
        let readable: String = plural.chars().filter(is_plain).take(READABLE_BYTES_MAX).collect();
        let lasting = Self { program: String::new(), ..self.clone() };
        format!("{readable}-{:016x}", digest(lasting.to_string().as_bytes()))
    }
}

/// One line a part: what the file says about itself.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, ca, resource, trimming, kept_as, program } = self;
        write!(f, "server {server}\nca {ca}\nresource {resource}\nwithout {trimming}\nas {kept_as}\nby {program}")
    }
}

/// Bytes of a file's name that say which type it is.
const READABLE_BYTES_MAX: usize = 63;

/// FNV-1a: the same in every build and on every machine. Tells files apart; nothing rests on it that must not collide,
/// because the file holds the whole identity.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Tells builds of a program apart, by what the file system says of its file. A type that gained a field, and a function
/// that does something else, would otherwise be handed what the ones before them made.
fn this_program() -> String {
    let told =
        std::env::current_exe().and_then(|file| file.metadata()).and_then(|file| Ok((file.len(), file.modified()?)));
    told.map_or_else(
        |_| "unknown".to_owned(),
        |(bytes, modified)| {
            let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
            format!("{bytes} bytes of {}", since.as_nanos())
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource() -> Resource {
        Resource {
            group_version_path: "/apis/apps/v1".into(),
            plural: "deployments".into(),
            namespace: Some("prod".into()),
            labels: "app=web".into(),
            fields: String::new(),
        }
    }

    fn identity(drop_paths: &[&str], kept_as: KeptAs) -> Identity {
        let drop_paths: Vec<String> = drop_paths.iter().map(|path| (*path).to_owned()).collect();
        Identity::new("https://10.0.0.1/", "", &resource(), &drop_paths, kept_as)
    }

    #[test]
    fn whatever_makes_states_differ_is_part_of_the_name() {
        let forms = [
            KeptAs::default(),
            KeptAs { is_metadata: true, ..KeptAs::default() },
            KeptAs { transforms: 1, ..KeptAs::default() },
            KeptAs { decoded_to: Some("agent::Slim"), ..KeptAs::default() },
        ];
        let mut names = forms.map(|kept_as| identity(&["a", "b"], kept_as).file_stem()).to_vec();
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
            of("x", "", &|resource| resource.group_version_path = "/apis/apps/v2".into()),
        ]);
        for (at, name) in names.iter().enumerate() {
            assert!(name.starts_with("deployments-") && name.len() == "deployments-".len() + 16, "{name}");
            assert!(!names[..at].contains(name), "{names:?}");
        }
        assert_eq!(identity(&["b", "a", "b"], forms[0]), identity(&["a", "b"], forms[0]), "in any order");
    }

    /// What a program made of objects is of use to the same build alone, which is told by the file and not by its name:
    /// a new build takes the old one's place.
    #[test]
    fn another_build_has_the_same_name_and_another_identity_where_its_code_counts() {
        let kept = identity(&[], KeptAs { transforms: 1, ..KeptAs::default() });
        let other = Identity { program: "another build".into(), ..kept.clone() };
        assert_eq!(kept.file_stem(), other.file_stem());
        assert_ne!(kept.to_string(), other.to_string());
        assert!(kept.program.contains(" bytes of "), "{}", kept.program);
        assert_eq!(identity(&[], KeptAs::default()).program, "", "JSON as it was received is anybody's");
    }
}
