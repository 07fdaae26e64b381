//! Tasks that must not end: a panic of one is logged and counted, makes the server unready, and the task is started again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
#[cfg(any(test, feature = "testing"))]
use tokio::sync::Notify;
use tokio::{
    task::{AbortHandle, JoinError, JoinSet},
    time::{Instant, sleep, timeout},
};

use crate::limits::{RESTART_PAUSE, RESTART_PAUSE_MAX};

/// The tasks of a server that are started again after a panic.
#[derive(Debug, Default)]
pub struct SupervisedTasks {
    panics: Family<TaskLabels, Counter>,
    /// Time since which a task has been panicking, by its name.
    failing: Mutex<BTreeMap<String, Instant>>,
    /// Makes all running tasks panic.
    #[cfg(any(test, feature = "testing"))]
    fault: Notify,
}

/// Labels of a metric of one task.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabels {
    task: String,
}

impl SupervisedTasks {
    /// Starts a task, and starts it again after a panic, with a growing pause. Ends when the task returns, or is aborted.
    pub fn spawn<F>(
        self: &Arc<Self>,
        name: impl Into<String>,
        mut task: impl FnMut() -> F + Send + 'static,
    ) -> AbortHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (tasks, name) = (Arc::clone(self), name.into());
        let supervising = tokio::spawn(async move {
            let mut backoff = RestartBackoff::default();
            // Aborts the task with this one.
            let mut running = JoinSet::new();
            loop {
                let began = Instant::now();
                running.spawn(tasks.breakable(task()));
                let ended = match timeout(RESTART_PAUSE_MAX, running.join_next()).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        tasks.failing.lock().remove(&name);
                        running.join_next().await
                    }
                };
                if !ended.is_some_and(has_panicked) {
                    tasks.failing.lock().remove(&name);
                    return;
                }
                tasks.fails(&name);
                sleep(backoff.pause_after(began.elapsed())).await;
            }
        });
        supervising.abort_handle()
    }

    /// Makes all running tasks panic once.
    #[cfg(any(test, feature = "testing"))]
    pub fn break_all(&self) {
        self.fault.notify_waiters();
    }

    #[cfg(any(test, feature = "testing"))]
    fn breakable<F: Future<Output = ()>>(self: &Arc<Self>, task: F) -> impl Future<Output = ()> + use<F> {
        let tasks = Arc::clone(self);
        async move {
            tokio::select! {
                biased;
                () = tasks.fault.notified() => panic!("on purpose"),
                () = task => {}
            }
        }
    }

    #[cfg(not(any(test, feature = "testing")))]
    #[expect(clippy::unused_self, reason = "as in tests")]
    fn breakable<F: Future<Output = ()>>(&self, task: F) -> F {
        task
    }

    fn fails(&self, name: &str) {
        tracing::error!(task = name, "task panicked");
        self.panics.get_or_create(&TaskLabels { task: name.to_owned() }).inc();
        self.failing.lock().entry(name.to_owned()).or_insert_with(Instant::now);
    }

    /// Returns the tasks that have panicked and not run for 5 s ([`RESTART_PAUSE_MAX`]) since, each with the time for which
    /// it has been failing.
    pub fn failing(&self) -> Vec<(String, Duration)> {
        self.failing.lock().iter().map(|(name, since)| (name.clone(), since.elapsed())).collect()
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("cache_task_panics", "Panics of background tasks", self.panics.clone());
    }
}

/// Returns true if a task ended with a panic.
pub fn has_panicked(ended: Result<(), JoinError>) -> bool {
    ended.is_err_and(|error| error.is_panic())
}

/// Pauses before restarts: doubled for each panic, and short again after a task that ran for longer than the longest one.
#[derive(Debug)]
pub struct RestartBackoff {
    /// The next pause.
    pause: Duration,
}

impl Default for RestartBackoff {
    fn default() -> Self {
        Self { pause: RESTART_PAUSE }
    }
}

impl RestartBackoff {
    /// Returns the pause before the next start of a task that ran for this time.
    pub fn pause_after(&mut self, ran: Duration) -> Duration {
        let pause = if RESTART_PAUSE_MAX < ran { RESTART_PAUSE } else { self.pause };
        self.pause = (pause * 2).min(RESTART_PAUSE_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Goal: a panic stops no task for good, and is visible. Method: a task that panics twice, and then runs.
    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_started_again() {
        let (tasks, starts) = (Arc::new(SupervisedTasks::default()), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&starts);
        tasks.spawn("example", move || {
            let start = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(2 <= start, "on purpose");
                std::future::pending::<()>().await;
            }
        });
        let until = async |done: &dyn Fn() -> bool| {
            while !done() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        until(&|| starts.load(Ordering::Relaxed) == 3).await;
        assert!(matches!(&*tasks.failing(), [(name, _)] if name == "example"));
        until(&|| tasks.failing().is_empty()).await;
        let mut registry = Registry::default();
        tasks.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        assert!(text.contains("cache_task_panics_total{task=\"example\"} 2"), "{text}");
    }
}
