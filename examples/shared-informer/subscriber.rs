//! A subscriber: takes events at its own pace, and ends once its state equals the final one.

use std::{fmt, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _};
use informer::Event;
use k8s_openapi::api::core::v1::Pod;
use tokio::{
    sync::{Barrier, watch},
    time::sleep,
};

use crate::{Failure, State};

/// Pace of a subscriber.
pub(crate) enum Pace {
    /// As fast as events arrive. Reports the number of changes so far.
    Prompt { delivered: watch::Sender<usize> },
    /// With a pause after each event.
    Slow(Duration),
    /// Not before all changes were made.
    Late,
}

impl Pace {
    /// As fast as events arrive, without a receiver for the reports.
    pub(crate) fn prompt() -> Self {
        Self::Prompt { delivered: watch::Sender::new(0) }
    }
}

/// Signals between the subscribers and the program.
#[derive(Clone)]
pub(crate) struct Signals {
    /// Passed once all subscribers have received the initial state.
    pub(crate) ready: Arc<Barrier>,
    /// The final state, once all changes were made.
    pub(crate) end: watch::Receiver<Option<State>>,
}

/// Events and state of a subscriber.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) name: &'static str,
    /// Number of pods in the initial state.
    initial: usize,
    added: usize,
    pub(crate) updated: usize,
    pub(crate) deleted: usize,
    pub(crate) resets: usize,
    state: State,
}

/// Reads until the state equals the final one.
///
/// # Errors
/// The informer ended first, or an event does not fit the state.
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
            Pace::Prompt { delivered } => drop(delivered.send_replace(tally.changes())),
            Pace::Slow(pause) => sleep(*pause).await,
            Pace::Late => {}
        }
    }
    Ok(tally)
}

impl Tally {
    /// Header of the table.
    pub(crate) const HEADER: &str = "subscriber     first  created  updated  deleted  resets";

    /// Applies an event. Returns true for [`Event::Synced`], when all changes up to now were delivered.
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
                let removed = self.state.remove(&key);
                self.follows(removed == Some(version), &key)?;
            }
            // The next events are the difference to the current state, without the changes in between.
            Event::Reset => self.resets += 1,
            Event::Synced(_) => return Ok(true),
            _ => return Err("an event this program does not know".into()),
        }
        Ok(false)
    }

    fn follows(&self, it_does: bool, key: &str) -> Result<(), Failure> {
        if it_does { Ok(()) } else { Err(format!("{}: an event of {key} does not follow", self.name).into()) }
    }

    /// Number of pods created after the initial state.
    pub(crate) const fn created(&self) -> usize {
        self.added - self.initial
    }

    /// Number of changes after the initial state.
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
