//! Inputs of a driver, and the values its parts derive from them.

use informer_core::{Read, Request, Resource, ResourceVersion, reflector, wire::framer::TypeMeta};

use crate::{checkpoint, cluster::Cluster, config::Config, delays::Delays};

/// Inputs of a driver. Immutable while it runs.
pub(crate) struct Setup {
    pub(crate) cluster: Cluster,
    pub(crate) resource: Resource,
    pub(crate) type_meta: TypeMeta,
    // True if only metadata is requested. A server that does not support that sends whole objects.
    pub(crate) metadata_only: bool,
    // Stored form, part of the checkpoint's identity: a checkpoint of another program or build must not be used.
    pub(crate) kept_as: checkpoint::KeptAs,
    // Replaces the reflector's own delays.
    pub(crate) delays: Option<Box<dyn Delays>>,
    pub(crate) config: Config,
}

impl Setup {
    /// Path of the resource type without namespace and selectors: the key of a verdict.
    pub(super) fn type_path(&self) -> String {
        format!("{}/{}", self.resource.group_version_path, self.resource.plural)
    }

    pub(super) fn reflector(&self, resume: Option<ResourceVersion>, endpoint: usize) -> reflector::Config {
        let config = &self.config;
        reflector::Config {
            semantic: config.list_semantic.clone(),
            initial: config.initial_list,
            verdict: self.cluster.verdicts().of(endpoint, self.type_path()),
            resume,
            spread: config.spread,
            resume_initial: config.resume_initial,
            page_size: config.page_size,
            healthy_after: config.healthy_after,
            idle_timeout: config.idle_timeout,
            initial_events_stall: config.initial_events_stall,
            watch_timeout_seconds: config.watch_timeout_seconds.clone(),
            seed: fastrand::u64(..),
            ..reflector::Config::default()
        }
    }

    /// Identity of this informer's checkpoint.
    pub(super) fn identity(&self) -> checkpoint::Identity {
        let cluster = self.cluster.identity();
        let resource = &self.resource;
        checkpoint::Identity::new(&cluster.server, &cluster.authority, resource, &self.config.drop_paths, self.kept_as)
    }

    pub(super) fn request(&self, read: &Read) -> Request {
        let request = Request::new(&self.resource, read);
        if self.config.bookmarks { request } else { request.without_bookmarks(read) }
    }
}
