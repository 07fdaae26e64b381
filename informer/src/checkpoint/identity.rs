//! Whose state a checkpoint is. INVARIANT: two informers that may not share a state differ in it.

use std::fmt;

use informer_core::Resource;

/// What a saved state belongs to: another one in any part is of no use to this informer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The server's URL, or the name the user gave the cluster.
    pub(crate) server: String,
    /// A digest of the certificate authority; empty when it is not known.
    pub(crate) ca: String,
    /// Path, namespace and selectors, as in a request.
    pub(crate) resource: String,
    /// The paths that are cut, and what else makes stored objects differ from those sent.
    pub(crate) trimming: String,
}

impl Identity {
    /// The identity of what reads `resource` and cuts `drop_paths` from each object.
    pub(crate) fn new(server: &str, ca: &str, resource: &Resource, drop_paths: &[String]) -> Self {
        let mut cut: Vec<&str> = drop_paths.iter().map(String::as_str).collect();
        cut.sort_unstable();
        cut.dedup();
        let Resource { labels, fields, .. } = resource;
        Self {
            server: server.to_owned(),
            ca: ca.to_owned(),
            resource: format!("{}?labelSelector={labels}&fieldSelector={fields}", resource.path()),
            trimming: cut.join(","),
        }
    }

    /// The file's name without its ending: readable, and different for every identity.
    pub(super) fn file_stem(&self) -> String {
        let path = self.resource.split('?').next().unwrap_or_default();
        let plural = path.rsplit('/').next().unwrap_or_default();
        let is_plain = |byte: &char| byte.is_ascii_alphanumeric() || matches!(byte, '-' | '_');
        let readable: String = plural.chars().filter(is_plain).take(READABLE_BYTES_MAX).collect();
        format!("{readable}-{:016x}", digest(self.to_string().as_bytes()))
    }
}

/// One line a part: what the file says about itself.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, ca, resource, trimming } = self;
        write!(f, "server {server}\nca {ca}\nresource {resource}\nwithout {trimming}")
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
