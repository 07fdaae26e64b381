//! Progress of the start of a server that listens before it has started, for `/readyz` and the log.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A part of the start, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartPart {
    /// The first answer of the API server behind this server.
    Upstream,
    /// The CustomResourceDefinitions.
    Definitions,
    /// Deletions that an earlier process began.
    Deletions,
    /// The objects that authorizers decide by.
    Authorization,
    /// The caches of the named types.
    Caches,
    /// The settings that name types, and the objects to load.
    Settings,
}

impl StartPart {
    const fn name(self) -> &'static str {
        match self {
            Self::Upstream => "the first answer of the API server",
            Self::Definitions => "the CustomResourceDefinitions",
            Self::Deletions => "the deletions of an earlier process",
            Self::Authorization => "the objects of the authorizers",
            Self::Caches => "the caches of the named types",
            Self::Settings => "the settings",
        }
    }
}

/// Progress of a start. A server whose start has not begun has nothing to wait for.
#[derive(Debug, Default)]
pub(crate) struct StartProgress(Mutex<StartState>);

#[derive(Debug, Default)]
enum StartState {
    #[default]
    Complete,
    Waits {
        part: StartPart,
        since: Instant,
    },
    Failed {
        part: StartPart,
        reason: String,
    },
}

impl StartProgress {
    /// Notes that the start waits for `part` from now on.
    pub(crate) fn wait_for(&self, part: StartPart) {
        *self.0.lock() = StartState::Waits { part, since: Instant::now() };
    }

    /// Notes the end of the start.
    pub(crate) fn complete(&self) {
        *self.0.lock() = StartState::Complete;
    }

    /// Notes why the present part failed. Returns true unless it failed before for that reason.
    pub(crate) fn fail(&self, reason: String) -> bool {
        let state = &mut *self.0.lock();
        let part = match state {
            StartState::Failed { reason: before, .. } if *before == reason => return false,
            StartState::Waits { part, .. } | StartState::Failed { part, .. } => *part,
            StartState::Complete => StartPart::Settings,
        };
        *state = StartState::Failed { part, reason };
        true
    }

    /// Returns the part that has not started, and why; `None` once all have.
    pub(crate) fn missing(&self) -> Option<String> {
        match &*self.0.lock() {
            StartState::Complete => None,
            StartState::Waits { part, since } => {
                let seconds = Duration::from_secs(since.elapsed().as_secs());
                Some(format!("waits for {} for {seconds:?}", part.name()))
            }
            StartState::Failed { part, reason } => Some(format!("{} failed: {reason}", part.name())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_start_names_the_part_that_it_waits_for() {
        let progress = StartProgress::default();
        assert_eq!(progress.missing(), None);
        progress.wait_for(StartPart::Upstream);
        tokio::time::advance(Duration::from_millis(2_500)).await;
        assert_eq!(progress.missing().unwrap(), "waits for the first answer of the API server for 2s");
        progress.wait_for(StartPart::Settings);
        assert!(progress.fail("no such type".to_owned()));
        assert!(!progress.fail("no such type".to_owned()), "reported once");
        assert_eq!(progress.missing().unwrap(), "the settings failed: no such type");
        progress.complete();
        assert_eq!(progress.missing(), None);
    }
}
