//! Inputs of a driver, and the values its parts derive from them.

use std::sync::Arc;

use informer_core::{
    Read, Request, Resource, ResourceVersion,
    reflector::{self, Verdict},
    session::VerdictTable,
    wire::framer::TypeMeta,
};

use crate::{checkpoint, cluster::ClusterState, config::Config, delays::Delays};

/// Inputs of a driver. Immutable while it runs.
pub(crate) struct Setup {
    pub(crate) cluster: Arc<ClusterState>,
    pub(crate) resource: Resource,
    pub(crate) type_meta: TypeMeta,
    // True if only metadata is requested. A server that does not support that sends whole objects.
    pub(crate) metadata_only: bool,
    // Stored form, part of the checkpoint's identity: a checkpoint of another program or build must not be used.
    pub(crate) object_changes: checkpoint::ObjectChanges,
    // Replaces the reflector's own delays.
    pub(crate) delays: Option<Box<dyn Delays>>,
    pub(crate) config: Config,
}

impl Setup {
    /// Verdicts on streams, shared by the cluster's informers of this type.
    pub(super) fn verdicts(&self) -> TypeVerdicts {
        TypeVerdicts {
            cluster: Arc::clone(&self.cluster),
            path: format!("{}/{}", self.resource.group_version_path, self.resource.plural),
        }
    }

    pub(super) fn reflector(&self, resume: Option<ResourceVersion>) -> reflector::Config {
        let config = &self.config;
        reflector::Config {
            semantic: config.list_semantic.clone(),
            initial: config.initial_list,
            resume,
            spread: config.spread,
            resume_initial: config.resume_initial,
            page_size: config.page_size,
            healthy_after: config.healthy_after,
            idle_timeout: config.idle_timeout,
            initial_events_stall: config.initial_events_stall,
            watch_timeout_seconds: config.watch_timeout_seconds.clone(),
            poll_interval: config.poll_interval,
            verdict_lasts: self.cluster.verdicts().lasts(),
            backoff: config.backoff.clone(),
            seed: fastrand::u64(..),
            ..reflector::Config::default()
        }
    }

    /// Identity of this informer's checkpoint.
    pub(super) fn identity(&self) -> checkpoint::Identity {
        let cluster = self.cluster.identity();
        let resource = &self.resource;
        checkpoint::Identity::new(
            &cluster.server,
            &cluster.authority,
            resource,
            &self.config.drop_paths,
            self.object_changes,
        )
    }

    pub(super) fn request(&self, read: &Read) -> Request {
        let request = Request::new(&self.resource, read);
        if self.config.bookmarks { request } else { request.without_bookmarks(read) }
    }
}

/// The cluster's verdicts on the streams of one resource type.
pub(super) struct TypeVerdicts {
    cluster: Arc<ClusterState>,
    // Path of the resource type without namespace and selectors.
    path: String,
}

impl VerdictTable for TypeVerdicts {
    fn verdict(&self, endpoint: usize) -> Verdict {
        self.cluster.verdicts().of(endpoint, self.path.clone())
    }

    fn set_verdict(&mut self, endpoint: usize, verdict: Verdict) {
        self.cluster.verdicts().set(endpoint, self.path.clone(), verdict);
    }
}
