//! Readiness of all informers of a cluster at once.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use futures::future::try_join_all;
use tokio::time::timeout;

use super::{Cluster, running::InformerState};
use crate::{error::NotReady, progress::Progress};

impl Cluster {
    /// Waits until every informer of this cluster that runs now is ready, those of [shared](Self::shared) copies
    /// included. Like [`Informer::ready`](crate::Informer::ready), once for a whole program: start all, then wait.
    /// Informers that have ended or start later, and raw streams, are not waited for.
    ///
    /// Cancel safe. Cost: one wake-up of the caller for each informer.
    ///
    /// # Errors
    /// [`InformersNotReady`] names each informer that is not ready at the deadline, and why. It is returned earlier if
    /// waiting for one of them is useless, because it has ended, or its `Exact` version has expired.
    pub async fn ready_all(&self, deadline: Duration) -> Result<(), InformersNotReady> {
        let informers = self.running().live();
        let waits = informers.iter().map(|informer| async {
            let mut progress = informer.progress.clone();
            // An error means that the informer has ended; its progress has the reason.
            let _ = progress.wait_for(Progress::is_decided).await;
            if is_ready(&progress.borrow()) { Ok(()) } else { Err(()) }
        });
        // After a timeout and after an early end alike, the progress of each has the reason.
        let _ = timeout(deadline, try_join_all(waits)).await;
        let unready: Vec<UnreadyInformer> = informers.iter().filter_map(UnreadyInformer::of).collect();
        if unready.is_empty() { Ok(()) } else { Err(InformersNotReady { unready, started: informers.len() }) }
    }
}

const fn is_ready(progress: &Progress) -> bool {
    progress.is_synced && progress.ended.is_none()
}

/// Informers of a cluster that are not ready. `Display` prints each with its reason.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InformersNotReady {
    /// The informers that are not ready, in the order of their start; at least one.
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
    /// The namespace; `None` for all namespaces and for cluster-scoped types.
    pub namespace: Option<String>,
    /// The label selector; empty for none.
    pub labels: String,
    /// The field selector; empty for none.
    pub fields: String,
    /// The reason, with the error of the last attempt.
    pub reason: NotReady,
}

impl UnreadyInformer {
    /// `None` if the informer is ready.
    fn of(informer: &Arc<InformerState>) -> Option<Self> {
        let progress = informer.progress.borrow();
        let objects = &informer.objects;
        (!is_ready(&progress)).then(|| Self {
            resource: informer.resource.clone(),
            namespace: objects.namespace.clone(),
            labels: objects.labels.clone(),
            fields: objects.fields.clone(),
            reason: progress.not_ready(),
        })
    }
}

impl fmt::Display for UnreadyInformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, namespace, labels, fields, reason } = self;
        f.write_str(resource)?;
        let parts = [(" in namespace ", namespace.as_deref().unwrap_or_default()), (" with labels ", labels.as_str())];
        for (name, text) in parts.into_iter().chain([(" with fields ", fields.as_str())]) {
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
