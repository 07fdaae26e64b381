//! The task of an informer, from loading its checkpoint until its shutdown or the drop of its last handle.

use std::path::PathBuf;

use tokio::sync::oneshot;

use super::{
    Driver, Setup, StoreSink,
    link::Link,
    saving::{self, CheckpointSaver},
};
use crate::{
    cluster::InformerRegistration,
    ended::EndReason,
    progress::{InitialPhase, Outlet},
};

/// Starts the task of an informer, which runs until `stop` is sent (a shutdown) or dropped (with the last handle).
pub(crate) fn start(
    setup: Setup,
    sink: StoreSink,
    progress: Outlet,
    stop: oneshot::Receiver<()>,
    running: InformerRegistration,
) {
    match setup.config.checkpoint.clone() {
        None => {
            // Created before the spawn, so that `explain` shows the first request at once.
            let driver = Driver::new(setup, sink, progress, None);
            tokio::spawn(driver.run(stop, None, running));
        }
        Some(directory) => {
            progress.send_modify(|progress| progress.stage = InitialPhase::Proving);
            tokio::spawn(run_saved(setup, directory, sink, progress, stop, running));
        }
    }
}

async fn run_saved(
    setup: Setup,
    directory: PathBuf,
    sink: StoreSink,
    mut progress: Outlet,
    mut stop: oneshot::Receiver<()>,
    running: InformerRegistration,
) {
    let identity = setup.identity();
    let loaded = tokio::select! { biased;
        stopped = &mut stop => return progress.ending(reason_of(stopped)),
        loaded = saving::load(directory.clone(), identity.clone(), sink, &progress, running.resource()) => loaded,
    };
    let is_closed = loaded.writer.is_none();
    let saving = CheckpointSaver::new(directory, identity, loaded.writer, &running);
    let driver = Driver::new(setup, loaded.sink, progress, loaded.position);
    if is_closed {
        driver.reporter.not_saved();
    }
    driver.run(stop, Some(saving), running).await;
}

impl Driver<StoreSink> {
    /// Runs until the stop signal.
    async fn run(
        mut self,
        mut stop: oneshot::Receiver<()>,
        mut saving: Option<CheckpointSaver>,
        running: InformerRegistration,
    ) {
        loop {
            tokio::select! { biased;
                stopped = &mut stop => {
                    self.reporter.ending(reason_of(stopped));
                    break;
                }
                has_failed = saved(&mut saving) => if has_failed { self.reporter.not_saved() },
                () = self.turn() => self.keep_time(),
            }
            // Yield after each turn: a body that always has data must not starve other tasks, nor the stop signal
            // above.
            tokio::task::coop::consume_budget().await;
        }
        self.link = Link::Closed;
        if let Some(saving) = saving {
            saving.finish().await;
        }
        // Dropped last: their drop ends subscriptions and `shutdown`, whose callers rely on the last state being on
        // disk.
        drop((self, running));
    }
}

/// The sender is dropped with the last handle, and used by a shutdown.
const fn reason_of(stopped: Result<(), oneshot::error::RecvError>) -> EndReason {
    match stopped {
        Ok(()) => EndReason::ShutDown,
        Err(_) => EndReason::Dropped,
    }
}

async fn saved(saving: &mut Option<CheckpointSaver>) -> bool {
    match saving {
        Some(saving) => saving.turn().await,
        None => std::future::pending().await,
    }
}
