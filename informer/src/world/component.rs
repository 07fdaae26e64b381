//! One component of the program: its handle, its subscribers, and everything that must hold for them at any time.

use std::{collections::BTreeSet, time::Duration};

use futures::{FutureExt as _, StreamExt as _, stream::BoxStream};
use k8s_openapi::api::core::v1::Pod;

use super::{
    BrokenGuarantee, ensure,
    truth::{NODE, PodHistory, PodQuestion, PodView},
};
use crate::{Event, Index, Informer, Ready};

/// A user of shared pods.
pub(super) struct Component {
    pub(super) number: usize,
    pub(super) question: PodQuestion,
    pub(super) pods: Informer<Pod>,
    pub(super) by_node: Option<Index<Pod>>,
    pub(super) from_wider: bool,
    pub(super) followers: Vec<SubscriberReplica>,
    /// Version of the newest state that was looked at.
    version: u64,
}

/// A subscriber, and the state that its events add up to.
pub(super) struct SubscriberReplica {
    events: BoxStream<'static, Event<Pod>>,
    view: PodView,
    synced: Option<u64>,
    order: EventOrder,
    resets: usize,
    resets_max: usize,
}

/// Expectations of the next event.
enum EventOrder {
    /// Differences between states: versions in between may be missing.
    Latest,
    /// Initial state, a reset or a relist: differences until the next quiet point.
    Differences,
    /// Every change since this version, once.
    Each {
        since: u64,
        /// Version of the last change, if changes of all keys come in order.
        last: Option<u64>,
    },
}

/// Capacity at which no subscriber of these worlds falls behind.
const AMPLE: usize = 4_096;

impl Component {
    pub(super) fn new(number: usize, question: PodQuestion, pods: Informer<Pod>) -> Self {
        Self { number, question, pods, by_node: None, from_wider: true, followers: Vec::new(), version: 0 }
    }

    /// True if the copy is derived from others, so that a subscriber of each change may be reset.
    pub(super) fn is_derived(&self) -> bool {
        self.by_node.is_some() || self.question.is_merged() || self.pods.explain().contains("filtered here")
    }

    pub(super) fn follow_latest(&mut self) {
        self.followers.push(SubscriberReplica::new(self.pods.subscribe().boxed(), EventOrder::Latest, 0));
    }

    pub(super) fn follow_each(&mut self, capacity: usize) {
        // Each source of a derived copy may be followed by its ring only from its next change on.
        let sources = self.question.watches().len() + usize::from(self.by_node.is_some());
        let resets_max = match (capacity < AMPLE, self.is_derived()) {
            (true, _) => usize::MAX,
            (false, true) => sources,
            (false, false) => 0,
        };
        let events = self.pods.subscribe_all(capacity).boxed();
        self.followers.push(SubscriberReplica::new(events, EventOrder::Differences, resets_max));
    }

    /// Reads at most `count` waiting events of each subscriber.
    pub(super) fn read(&mut self, truth: &PodHistory, may_relist: bool, count: usize) -> Result<(), BrokenGuarantee> {
        for follower in &mut self.followers {
            for _ in 0..count {
                let Some(event) = follower.events.next().now_or_never() else { break };
                let event = event.ok_or_else(|| BrokenGuarantee("Lifecycle: a used copy ended".to_owned()))?;
                follower.take(&self.question, truth, may_relist, &event)?;
            }
        }
        Ok(())
    }

    /// A state has a version, and is the truth at that version. Versions do not go back.
    pub(super) fn check_state(&mut self, truth: &PodHistory) -> Result<(), BrokenGuarantee> {
        let now = self.pods.store().snapshot();
        let objects: PodView = now.iter().map(|pod| (pod.key().to_owned(), number(pod.resource_version()))).collect();
        let Some(version) = now.resource_version().map(|version| number(version.as_str())) else {
            return ensure(objects.is_empty(), "Atomic", || format!("{objects:?} without a version"));
        };
        ensure(version >= self.version, "Ordered", || format!("state at {version} after {}", self.version))?;
        self.version = version;
        let expected = truth.view_at(&self.question, version);
        if !self.question.is_merged() {
            return ensure(objects == expected, "Atomic", || format!("at {version}: {objects:?}, not {expected:?}"));
        }
        // Some namespaces may be further: each object is as old as the whole, or was shown later.
        let keys: BTreeSet<&String> = objects.keys().chain(expected.keys()).collect();
        for key in keys {
            let (found, least) = (objects.get(key).copied(), expected.get(key).copied());
            let is_later = truth
                .steps(&self.question, key, version)
                .any(|(at, shown)| found == shown.then_some(at) || (!shown && found.is_none()));
            ensure(found == least || is_later, "Atomic", || format!("{key} is {found:?} at {version}, not {least:?}"))?;
        }
        Ok(())
    }

    /// At a quiet point every view is the truth.
    pub(super) async fn check_quiet(&mut self, truth: &PodHistory) -> Result<(), BrokenGuarantee> {
        let expected = truth.view(&self.question);
        let now = self.pods.store().snapshot();
        let objects: PodView = now.iter().map(|pod| (pod.key().to_owned(), number(pod.resource_version()))).collect();
        ensure(objects == expected, "Converges", || format!("{objects:?}, not {expected:?}"))?;
        let ready = self.pods.ready(Duration::ZERO).await;
        ensure(matches!(ready, Ok(Ready::Watching)), "Ready", || format!("{ready:?}"))?;
        if let Some(index) = &self.by_node {
            let found: BTreeSet<String> = now.by(index, NODE).map(|pod| pod.key().to_owned()).collect();
            let expected = truth.on_node(&self.question);
            ensure(found == expected, "Indexed", || format!("{found:?}, not {expected:?}"))?;
        }
        for follower in &self.followers {
            let view = &follower.view;
            ensure(*view == expected, "Reliable", || format!("a subscriber was told {view:?}, not {expected:?}"))?;
            ensure(follower.synced.is_some(), "Reliable", || "a subscriber was not told the end".to_owned())?;
        }
        Ok(())
    }

    /// From a quiet point on, subscribers of each change miss none.
    pub(super) fn expect_each(&mut self, truth: &PodHistory) {
        let is_merged = self.question.is_merged();
        for follower in &mut self.followers {
            if !matches!(follower.order, EventOrder::Latest) {
                let since = truth.version();
                follower.order = EventOrder::Each { since, last: (!is_merged).then_some(since) };
            }
        }
    }
}

impl SubscriberReplica {
    fn new(events: BoxStream<'static, Event<Pod>>, order: EventOrder, resets_max: usize) -> Self {
        Self { events, view: PodView::new(), synced: None, order, resets: 0, resets_max }
    }

    pub(super) const fn resets(&self) -> usize {
        self.resets
    }

    fn take(
        &mut self,
        question: &PodQuestion,
        truth: &PodHistory,
        may_relist: bool,
        event: &Event<Pod>,
    ) -> Result<(), BrokenGuarantee> {
        if may_relist && matches!(self.order, EventOrder::Each { .. }) {
            self.order = EventOrder::Differences;
        }
        let (key, old, new) = match event {
            Event::Added(pod) => (pod.key(), None, Some(number(pod.resource_version()))),
            Event::Updated { old, new } => {
                (new.key(), Some(number(old.resource_version())), Some(number(new.resource_version())))
            }
            Event::Deleted { last_known, missed } => {
                ensure(!missed || may_relist, "Reliable", || format!("{event:?} was not missed"))?;
                (last_known.key(), Some(number(last_known.resource_version())), None)
            }
            Event::Reset => {
                self.resets += 1;
                self.order = EventOrder::Differences;
                return ensure(self.resets <= self.resets_max, "Reliable", || format!("{} resets", self.resets));
            }
            Event::Synced(version) => {
                let version = number(version.as_str());
                let last = self.synced.replace(version).unwrap_or(0);
                return ensure(version >= last, "Ordered", || format!("synced at {version} after {last}"));
            }
        };
        let replaced = match new {
            Some(new) => self.view.insert(key.to_owned(), new),
            None => self.view.remove(key),
        };
        ensure(replaced == old, "Reliable", || format!("{event:?}, but {key} was told as {replaced:?}"))?;
        let EventOrder::Each { since, last } = &mut self.order else { return Ok(()) };
        // A known object changes after the version told last, an unknown one after `since`.
        let after = old.unwrap_or(*since);
        let step = match (old, new) {
            // Removed and added again since then, or added first.
            (None, Some(new)) => truth.steps(question, key, after).find(|(at, shown)| *shown && *at == new),
            (Some(_), _) | (None, None) => truth.steps(question, key, after).next(),
        };
        let is_next = step.is_some_and(|(at, shown)| if shown { new == Some(at) } else { new.is_none() });
        ensure(is_next, "Reliable", || format!("{event:?} after {after}, not {step:?}"))?;
        if let (Some((at, _)), Some(last)) = (step, last) {
            ensure(at > *last, "Ordered", || format!("{event:?} at {at} after {last}"))?;
            let skipped = truth.first_between(question, *last, at);
            ensure(skipped.is_none(), "Reliable", || format!("{event:?} at {at} hides {skipped:?}"))?;
            *last = at;
        }
        Ok(())
    }
}

fn number(version: &str) -> u64 {
    version.parse().unwrap_or_else(|_| panic!("{version} is no version of this server"))
}
