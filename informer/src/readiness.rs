//! Readiness of several informers at once.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use futures::future::try_join_all;
use informer_core::{Resource, store};
use tokio::time::timeout;

use crate::{
    error::{NotReady, Ready},
    lifetime::Lifetime,
    progress::Progress,
    status::InformerReport,
};

/// Readiness of an informer without its type, for [`ready_all`] and for probes. Cheap to clone. Does not keep the
/// informer running. From [`Informer::readiness`](crate::Informer::readiness).
#[derive(Clone)]
pub struct Readiness {
    objects: Arc<DeclaredObjects>,
    life: Lifetime,
}

/// Description of the objects that an informer reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclaredObjects {
    /// Plural of the type, with its group behind a dot if it has one: `pods`, `deployments.apps`.
    pub(crate) resource: String,
    /// Empty for all namespaces.
    pub(crate) namespaces: Vec<String>,
    pub(crate) labels: String,
    pub(crate) fields: String,
    pub(crate) shard: String,
}

/// Waits until all of these informers are ready: `ready_all([pods.readiness(), nodes.readiness()], deadline)`. For all
/// informers of a cluster, see [`Cluster::ready_all`](crate::Cluster::ready_all).
///
/// Cancel safe. Cost: one wake-up of the caller for each informer.
///
/// # Errors
/// [`InformersNotReady`] names each informer that is not ready at the deadline, and why. It is returned earlier if
/// waiting for one of them is useless, because it has ended, or its `Exact` version has expired.
pub async fn ready_all(
    informers: impl IntoIterator<Item = Readiness>,
    deadline: Duration,
) -> Result<(), InformersNotReady> {
    let informers: Vec<Readiness> = informers.into_iter().collect();
    // After a timeout and after an early end alike, each informer has its reason.
    let _ = timeout(deadline, all_ready(&informers)).await;
    unready(&informers)
}

/// Waits until all are ready, or one of them cannot become ready.
pub(crate) async fn all_ready(informers: &[Readiness]) -> Result<(), NotReady> {
    try_join_all(informers.iter().map(|informer| informer.ready(Duration::MAX))).await.map(drop)
}

/// Returns an error that names the informers that are not ready.
pub(crate) fn unready(informers: &[Readiness]) -> Result<(), InformersNotReady> {
    let unready: Vec<UnreadyInformer> = informers.iter().filter_map(Readiness::unready).collect();
    if unready.is_empty() { Ok(()) } else { Err(InformersNotReady { unready, started: informers.len() }) }
}

impl Readiness {
    pub(crate) const fn new(objects: Arc<DeclaredObjects>, life: Lifetime) -> Self {
        Self { objects, life }
    }

    pub(crate) const fn life(&self) -> &Lifetime {
        &self.life
    }

    /// Waits until the informer is ready; see [`Informer::ready`](crate::Informer::ready).
    ///
    /// # Errors
    /// [`NotReady`] at the deadline, or earlier if waiting is useless.
    pub async fn ready(&self, deadline: Duration) -> Result<Ready, NotReady> {
        self.life.ready(deadline).await
    }

    /// True while the informer keeps its copy in step; see [`Informer::is_running`](crate::Informer::is_running).
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.life.end_reason().is_none()
    }

    /// True if the server was heard within `max_age`; see [`Informer::is_alive`](crate::Informer::is_alive).
    #[must_use]
    pub fn is_alive(&self, max_age: Duration) -> bool {
        self.life.is_alive(max_age)
    }

    /// `None` if the informer is ready.
    fn unready(&self) -> Option<UnreadyInformer> {
        let reason = self.life.readiness().err()?;
        let DeclaredObjects { resource, namespaces, labels, fields, shard } = (*self.objects).clone();
        Some(UnreadyInformer { resource, namespaces, labels, fields, shard, reason })
    }
}

impl DeclaredObjects {
    /// Returns the report of the informer that reads these objects. Cost: a few texts.
    pub(crate) fn report(&self, progress: &Progress, state: &store::Snapshot, is_derived: bool) -> InformerReport {
        let Self { resource, namespaces, labels, fields, shard } = self.clone();
        let (objects, bytes) = (state.objects.len(), state.stored_bytes);
        let (status, age) = (progress.status(), progress.age());
        InformerReport { resource, namespaces, labels, fields, shard, is_derived, status, objects, bytes, age }
    }
}

impl From<&Resource> for DeclaredObjects {
    fn from(resource: &Resource) -> Self {
        Self {
            resource: name_of(&resource.group_version_path, &resource.plural),
            namespaces: resource.namespace.iter().cloned().collect(),
            labels: resource.labels.clone(),
            fields: resource.fields.clone(),
            shard: resource.shard.as_ref().map(ToString::to_string).unwrap_or_default(),
        }
    }
}

/// Name of a resource type for logs and labels.
pub(crate) fn name_of(group_version_path: &str, plural: &str) -> String {
    let group_version = group_version_path.strip_prefix("/apis/");
    match group_version.and_then(|path| path.split_once('/')) {
        Some((group, _)) => format!("{plural}.{group}"),
        None => plural.to_owned(),
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("objects", &self.objects).field("ready", &self.life.readiness()).finish()
    }
}

/// Informers that are not ready. `Display` prints each with its reason.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InformersNotReady {
    /// The informers that are not ready, in the order of their start or of the call; at least one.
    pub unready: Vec<UnreadyInformer>,
    /// Number of informers waited for.
    pub started: usize,
}

/// An informer that is not ready, and the reason.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UnreadyInformer {
    /// Plural of the type, with its group behind a dot if it has one: `pods`, `deployments.apps`.
    pub resource: String,
    /// The namespaces; empty for all namespaces and for cluster-scoped types.
    pub namespaces: Vec<String>,
    /// Label selector; empty for none. If namespaces differ, the one of each: `app=web in a and app=api in b`.
    pub labels: String,
    /// The field selector, as [`labels`](Self::labels).
    pub fields: String,
    /// The shard selector; empty for all objects.
    pub shard: String,
    /// The reason, with the error of the last attempt.
    pub reason: NotReady,
}

impl fmt::Display for UnreadyInformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, namespaces, labels, fields, shard, reason } = self;
        f.write_str(resource)?;
        let (namespaces, selected) = (namespaces.join(" or "), [(" with labels ", labels), (" with fields ", fields)]);
        for (name, text) in [(" in namespace ", &namespaces)].into_iter().chain(selected).chain([(" in ", shard)]) {
            if !text.is_empty() {
                write!(f, "{name}{text}")?;
            }
        }
        write!(f, ": {reason}")
    }
}

impl fmt::Display for InformersNotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} informers are not ready", self.unready.len(), self.started)?;
        self.unready.iter().try_for_each(|informer| write!(f, "; {informer}"))
    }
}

impl StdError for InformersNotReady {}
