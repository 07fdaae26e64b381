//! A reader: takes events at its own pace, and ends once what it was told adds up to the state that is.

use std::{fmt, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _};
use informer::Event;
use k8s_openapi::api::core::v1::Pod;
use tokio::{
    sync::{Barrier, watch},
    time::sleep,
};

use crate::{Failure, State};

/// How a reader reads.
pub(crate) enum Pace {
    /// As fast as events come. Says how many changes it was told.
    Prompt { told: watch::Sender<usize> },
    /// With a pause after each event.
    Slow(Duration),
    /// Not at all until all changes were made.
    Late,
}

impl Pace {
    /// As fast as events come, and nobody wants to know.
    pub(crate) fn prompt() -> Self {
        Self::Prompt { told: watch::Sender::new(0) }
    }
}

/// What readers tell each other.
#[derive(Clone)]
pub(crate) struct Signals {
    /// All have been told the first state.
    pub(crate) ready: Arc<Barrier>,
    /// The last state, once all changes were made.
    pub(crate) end: watch::Receiver<Option<State>>,
}

/// What one reader was told.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) name: &'static str,
    /// Pods of the first state.
    initial: usize,
    added: usize,
    pub(crate) updated: usize,
    pub(crate) deleted: usize,
    pub(crate) resets: usize,
    state: State,
}

/// Reads until what was told is the last state.
///
/// # Errors
/// The informer ended first, or an event does not follow from those before.
pub(crate) async fn follow(
    name: &'static str,
    mut events: impl Stream<Item = Event<Pod>> + Unpin,
    pace: Pace,
    signals: Signals,
) -> Result<Tally, Failure> {
    let mut tally = Tally { name, ..Tally::default() };
    while !tally.take(events.next().await.ok_or("the informer ended")?)? {}
    tally.initial = tally.added;
    signals.ready.wait().await;

    let mut end = signals.end;
    if matches!(pace, Pace::Late) {
        end.wait_for(Option::is_some).await?;
    }
    while end.borrow().as_ref() != Some(&tally.state) {
        tokio::select! {
            event = events.next() => drop(tally.take(event.ok_or("the informer ended")?)?),
            changed = end.changed() => changed?,
        }
        match &pace {
            Pace::Prompt { told } => drop(told.send_replace(tally.changes())),
            Pace::Slow(pause) => sleep(*pause).await,
            Pace::Late => {}
        }
    }
    Ok(tally)
}

impl Tally {
    /// Names the columns.
    pub(crate) const HEADER: &str = "subscriber     first  created  updated  deleted  resets";

    /// Takes an event. Returns whether everything up to now has been told.
    fn take(&mut self, event: Event<Pod>) -> Result<bool, Failure> {
        let entry = |pod: &informer::Object<Pod>| (pod.key().to_owned(), pod.resource_version().to_owned());
        match event {
            Event::Added(pod) => {
                self.added += 1;
                let (key, version) = entry(&pod);
                self.follows(!self.state.contains_key(&key), &key)?;
                self.state.insert(key, version);
            }
            Event::Updated { old, new } => {
                self.updated += 1;
                let (key, version) = entry(&new);
                self.follows(self.state.get(&key).map(String::as_str) == Some(old.resource_version()), &key)?;
                self.state.insert(key, version);
            }
            Event::Deleted { last_known, .. } => {
                self.deleted += 1;
                let (key, version) = entry(&last_known);
                let told = self.state.remove(&key);
                self.follows(told == Some(version), &key)?;
            }
            // What follows is the difference from what was told, without the changes in between.
            Event::Reset => self.resets += 1,
            Event::Synced(_) => return Ok(true),
            _ => return Err("an event this program does not know".into()),
        }
        Ok(false)
    }

    fn follows(&self, it_does: bool, key: &str) -> Result<(), Failure> {
        if it_does { Ok(()) } else { Err(format!("{}: an event of {key} does not follow", self.name).into()) }
    }

    /// Pods that came after the first state.
    pub(crate) const fn created(&self) -> usize {
        self.added - self.initial
    }

    /// Changes after the first state.
    pub(crate) const fn changes(&self) -> usize {
        self.created() + self.updated + self.deleted
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, initial, updated, deleted, resets, .. } = self;
        let created = self.created();
        write!(f, "{name:<13} {initial:>6} {created:>8} {updated:>8} {deleted:>8} {resets:>7}")
    }
}
