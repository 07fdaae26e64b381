//! The SDK with the types of kube 1 and k8s-openapi 0.25: feature `kube-1`.
//!
//! Of kube 1, [`watcher`] reads whole objects of `PartialObjectMeta`, a changed file of the certificate authority is not
//! read again, `NO_PROXY` is ignored, and exec plugins must print JSON. Its errors lack `retryAfterSeconds`: a
//! controller takes one second for any 429. Leader election needs the feature `kube-5`, and `FakeApiServer::client` too:
//! `Client::new(server.clone(), "default")` is its client of any kube.

use ::kube_1 as kube;

#[allow(clippy::useless_conversion, reason = "kube 5 boxes the URLs of its errors")]
#[path = "adapter/mod.rs"]
mod adapter;

/// Parts that kube 1 lacks or has in another form.
mod differences {
    use std::path::{Path, PathBuf};

    use super::kube::{self, Config};

    pub(super) const fn authority_file(_: &Config) -> Option<&Path> {
        None
    }

    pub(super) fn set_authority_file(_: &mut Config, _: PathBuf) {}

    #[allow(clippy::extra_unused_type_parameters, reason = "later kubes ask the type")]
    #[cfg(feature = "runtime")]
    pub(super) const fn is_metadata<K: kube::Resource>() -> bool {
        false
    }

    #[cfg(feature = "runtime")]
    pub(super) fn answer(status: kube::core::Status) -> kube::core::ErrorResponse {
        let kube::core::Status { message, reason, code, .. } = status;
        kube::core::ErrorResponse { status: "Failure".to_owned(), message, reason, code }
    }
}

use self::Kube1 as Types;
pub use self::adapter::*;

/// The types of kube 1: those that implement its `Resource`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Kube1 {}
