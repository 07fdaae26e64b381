//! Life of an informer: its end and the reason, and its liveness.

use std::{sync::Arc, time::Duration};

use futures::{Stream, stream};
use informer_core::wire::framer::TypeMeta;
use tokio::time::timeout;

use super::Informer;
use crate::{
    decode::DecodedObjects,
    ended::{EndReason, ShutdownTimeout},
    error::Error,
    keep_alive::KeepAlive,
    readiness::Readiness,
    shared::CopyUse,
    status::InformerStatus,
    subscription::Source,
};

/// A running informer taken apart, to be shared.
pub(crate) struct FeedingInformer<K> {
    pub(crate) source: Source,
    pub(crate) decoded: Arc<DecodedObjects<K>>,
    /// The informer stops when this is dropped.
    pub(crate) running: Arc<KeepAlive>,
}

impl<K> Informer<K> {
    /// Creates a handle that uses a shared copy. Must be called inside a tokio runtime.
    pub(crate) fn using(used: CopyUse, type_meta: TypeMeta) -> Self
    where
        K: Send + Sync + 'static,
    {
        let (source, progress, decoded) = used.parts();
        let objects = used.objects();
        Self::with_keep_alive(source, decoded, KeepAlive::new(used, progress, objects), type_meta)
    }

    /// Takes the handle apart.
    pub(crate) fn into_feeding(self) -> FeedingInformer<K> {
        let Self { decoded, source, keep_alive, .. } = self;
        FeedingInformer { source, decoded, running: keep_alive }
    }

    /// True while the informer keeps its copy in step. False once it has ended; [`end_reason`](Self::end_reason) has
    /// the reason. It is never restarted. Its last state stays readable. For a liveness probe: a restart of the program
    /// cures that end, and nothing else makes this false.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.end_reason().is_none()
    }

    /// Why the informer has ended; `None` while it runs.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        self.life().end_reason()
    }

    /// Returns the current phase of the informer, when it began, the requests in it, and the last failure.
    #[must_use]
    pub fn status(&self) -> InformerStatus {
        self.life().status()
    }

    /// Yields requests and responses that fail from now on, and ends with the informer, like client-go's
    /// `WatchErrorHandler`. The informer also logs each failure, and retries without the reader. A reader that polls
    /// late gets the last failure only. Does not keep the informer running, and ends with its last handle.
    pub fn errors(&self) -> impl Stream<Item = Error> + Send + Unpin + 'static {
        let life = self.life().clone();
        let seen = life.progress().failures;
        Box::pin(stream::unfold((life, seen), |(life, seen)| async move {
            let (error, seen) = life.failure_after(seen).await?;
            Some((error, (life, seen)))
        }))
    }

    /// Returns the readiness of this informer without its type, to wait for several with
    /// [`ready_all`](crate::ready_all).
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.keep_alive.readiness().clone()
    }

    /// For alerts, and for the readiness of programs that must not act on an old state: true if the informer runs and
    /// heard from the server within `max_age`, counted from the start until it first does. See [`age`](Self::age) for
    /// the signs of the server that count.
    ///
    /// Not for liveness probes: an outage of the server that lasts longer makes the result false, and a restart of
    /// every client would end in as many lists. Those call [`is_running`](Self::is_running).
    ///
    /// Choose `max_age` well above [`Config::idle_timeout`](crate::Config::idle_timeout): five minutes where the server
    /// sends a bookmark each minute, as kube-apiserver does; fifteen where it sends none, because a quiet watch may
    /// then last ten, and where the informer polls.
    #[must_use]
    pub fn is_alive(&self, max_age: Duration) -> bool {
        self.life().is_alive(max_age)
    }

    /// Stops the informer, whatever clones and subscriptions exist, and waits until it has ended or `deadline` has
    /// passed. Its last state is then in its [`checkpoint`](crate::Config::checkpoint). Snapshots, stores and clones
    /// stay readable; subscriptions end.
    ///
    /// Returns the reason of the end, at once if the informer had ended before. Otherwise waits for the event being
    /// processed and, with a checkpoint, for one save. Cancel safe: the informer ends even if the future is dropped
    /// after its first poll.
    ///
    /// Of a [shared](crate::InformerBuilder::start_shared) copy this ends the use by these handles, at once, for their
    /// stores too. Subscriptions deliver the state of this moment, and end. The copy runs on for its other users, and
    /// snapshots of these handles show its current state.
    ///
    /// # Errors
    /// [`ShutdownTimeout`] if the informer has not ended in time. It still ends later.
    pub async fn shutdown(&self, deadline: Duration) -> Result<EndReason, ShutdownTimeout> {
        self.keep_alive.shut_down();
        timeout(deadline, self.join()).await.map_err(|_| ShutdownTimeout { deadline })
    }

    /// Like [`shutdown`](Self::shutdown), but consumes the handle and waits without a deadline. Dropping a handle
    /// instead stops the informer only if it is the last one, and does not wait.
    pub async fn stop(self) {
        self.keep_alive.shut_down();
        self.join().await;
    }

    /// Shuts the informer down once `signal` resolves: a `CancellationToken`'s `cancelled_owned()`, `ctrl_c()`, or any
    /// other future. May be called several times; the first signal counts. [`join`](Self::join) waits for the end.
    ///
    /// Does not keep the informer running. Cost: one task, which ends with the informer or with its last handle.
    pub fn shutdown_on<F>(&self, signal: F)
    where
        F: Future + Send + 'static,
    {
        let (informer, life) = (Arc::downgrade(&self.keep_alive), self.life().clone());
        self.keep_alive.runtime().spawn(async move {
            tokio::select! {
                _ = signal => {
                    if let Some(informer) = informer.upgrade() {
                        informer.shut_down();
                    }
                }
                () = life.ended_or_dropped() => {}
            }
        });
    }

    /// Waits until the informer has ended, and returns the reason. Does not end it; the handle keeps it running.
    ///
    /// Cancel safe.
    pub async fn join(&self) -> EndReason {
        self.life().ended().await
    }
}
