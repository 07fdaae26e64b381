//! Parts that older versions of kube lack or have in another form.

use std::path::{Path, PathBuf};

use super::kube::Config;
#[cfg(feature = "runtime")]
use super::kube::{Resource, core::Status};

/// File of the certificate authority that the next request trusts as it is then.
pub(super) fn authority_file(config: &Config) -> Option<&Path> {
    config.root_cert_file.as_deref()
}

pub(super) fn set_authority_file(config: &mut Config, file: PathBuf) {
    config.root_cert_file = Some(file);
}

/// True for types that are read by their metadata only.
#[cfg(feature = "runtime")]
pub(super) fn is_metadata<K: Resource>() -> bool {
    K::metadata_api()
}

/// A Status, as kube's errors have it.
#[cfg(feature = "runtime")]
pub(super) fn answer(status: Status) -> Box<Status> {
    Box::new(status)
}
