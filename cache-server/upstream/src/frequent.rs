//! Callers that read single objects often enough for a question about all of them to pay.
//!
//! Their reads are answered from caches; all others are passed on, and the API server decides about each.

use std::{collections::HashMap, mem, time::Duration};

use access_rules::request_info::{RequestInfo, ResourceAttributes};
use parking_lot::Mutex;
use ring::rand::{SystemRandom, generate};
use tokio::time::Instant;

use super::key::QuestionKey;
use crate::limits::{FREQUENT_READERS_MAX, RIGHT_AGE};

/// Reads of single objects, by caller and the widest question about them.
#[derive(Debug)]
pub struct FrequentReaders {
    counts: Mutex<ReadCounts>,
    /// A name that no object has and no rule contains.
    unused_name: String,
}

/// Two generations of counts: the elder one is dropped as a whole once the younger one is full. So callers that read stay, and
/// invented ones push out each other.
#[derive(Debug, Default)]
struct ReadCounts {
    young: HashMap<QuestionKey, ReadCount>,
    elder: HashMap<QuestionKey, ReadCount>,
}

#[derive(Debug)]
struct ReadCount {
    /// Start of the present count.
    begun: Instant,
    count: u32,
    /// Time of the last answer that the caller may not read all objects.
    refused: Option<Instant>,
    /// Time at which an answer did not come in time.
    deferred: Option<Instant>,
}

/// Outcome of the last review of a caller's right to all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderState {
    Unknown,
    /// The caller may not read all objects, by an answer of the last [`REFUSED_AGE`].
    Refused,
    /// No answer came in time in the last [`DEFERRED_AGE`].
    Deferred,
}

impl Default for FrequentReaders {
    /// Draws the name.
    fn default() -> Self {
        let random: [u8; 16] = generate(&SystemRandom::new()).expect("the operating system has random bytes").expose();
        let unused_name = format!("unused-{:032x}", u128::from_be_bytes(random));
        Self { counts: Mutex::default(), unused_name }
    }
}

impl FrequentReaders {
    /// Counts a read. Returns true from the caller's [`FREQUENT_READS`]th read in [`RIGHT_AGE`] on.
    pub fn count(&self, key: QuestionKey) -> bool {
        self.with(key, |reads, now| {
            if RIGHT_AGE <= now.duration_since(reads.begun) {
                (reads.begun, reads.count) = (now, 0);
            }
            reads.count = reads.count.saturating_add(1);
            FREQUENT_READS <= reads.count
        })
    }

    /// Notes that the caller may not read all objects.
    pub fn refuse(&self, key: QuestionKey) {
        self.with(key, |reads, now| reads.refused = Some(now));
    }

    /// Notes that no answer came in time. Returns true for the first read that notes it.
    pub fn defer(&self, key: QuestionKey) -> bool {
        self.with(key, |reads, now| {
            let is_first = !is_recent(reads.deferred, DEFERRED_AGE);
            reads.deferred = Some(now);
            is_first
        })
    }

    /// Returns what was noted.
    pub fn state(&self, key: QuestionKey) -> ReaderState {
        self.with(key, |reads, _| {
            if is_recent(reads.refused, REFUSED_AGE) {
                ReaderState::Refused
            } else if is_recent(reads.deferred, DEFERRED_AGE) {
                ReaderState::Deferred
            } else {
                ReaderState::Unknown
            }
        })
    }

    /// Returns the questions that include `read`, the widest first, each with one that must be allowed too.
    ///
    /// An empty name means all objects, in each review of Kubernetes' API. But kube-apiserver's RBAC compares it as a text, so
    /// that a rule with `resourceNames: [""]` allows it and no object. And an authorizer that excludes some names may allow any
    /// other one. So both are reviewed: all, and a name that no rule can contain by chance.
    pub fn questions(&self, read: &RequestInfo) -> Vec<[RequestInfo; 2]> {
        let with_both = |all: RequestInfo| {
            let mut unused = all.clone();
            unused.resource.iter_mut().for_each(|of| of.name.clone_from(&self.unused_name));
            [all, unused]
        };
        widened(read).into_iter().map(with_both).collect()
    }

    fn with<T>(&self, key: QuestionKey, use_reads: impl FnOnce(&mut ReadCount, Instant) -> T) -> T {
        let (counts, now) = (&mut *self.counts.lock(), Instant::now());
        use_reads(counts.entry(key, now), now)
    }
}

impl ReadCounts {
    /// Returns the count of `key`, which becomes young.
    fn entry(&mut self, key: QuestionKey, now: Instant) -> &mut ReadCount {
        if FREQUENT_READERS_MAX / 2 <= self.young.len() && !self.young.contains_key(&key) {
            // The key itself may be in the generation that is dropped.
            let last = self.elder.remove(&key);
            self.elder = mem::take(&mut self.young);
            self.young.extend(last.map(|last| (key, last)));
        }
        let elder = &mut self.elder;
        let new = ReadCount { begun: now, count: 0, refused: None, deferred: None };
        self.young.entry(key).or_insert_with(|| elder.remove(&key).unwrap_or(new))
    }
}

fn is_recent(since: Option<Instant>, age_max: Duration) -> bool {
    since.is_some_and(|since| since.elapsed() < age_max)
}

/// Returns the questions whose allow includes `read`, the widest first: all objects of the type, and those of the namespace.
/// An empty name or namespace means all of them, in each review of Kubernetes' API.
pub fn widened(read: &RequestInfo) -> Vec<RequestInfo> {
    let Some(of) = &read.resource else { return Vec::new() };
    let of_namespace = |namespace: &str| {
        let resource = ResourceAttributes { namespace: namespace.to_owned(), name: String::new(), ..of.clone() };
        RequestInfo { resource: Some(resource), ..read.clone() }
    };
    let mut questions = vec![of_namespace("")];
    if !of.namespace.is_empty() {
        questions.push(of_namespace(&of.namespace));
    }
    questions
}

/// Reads of a caller in [`RIGHT_AGE`] from which this server requests a review of its right to all objects.
const FREQUENT_READS: u32 = 4;

/// Time for which this server requests no further review after a denial.
const REFUSED_AGE: Duration = Duration::from_mins(5);

/// Time for which reads are passed on after an answer that did not come in time.
const DEFERRED_AGE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use informer_serving::query::Query;

    use super::*;
    use crate::key::KeyMaker;

    fn key(maker: &KeyMaker, token: &str) -> QuestionKey {
        maker.token(token)
    }

    /// Goal: only frequent readers cost a question, refusals last, and memory is bounded. Method: paused time, and more
    /// callers than are remembered.
    #[tokio::test(start_paused = true)]
    async fn only_frequent_readers_are_asked_for() {
        let (readers, maker) = (FrequentReaders::default(), KeyMaker::random());
        let (often, rare) = (key(&maker, "often"), key(&maker, "rare"));
        assert_eq!([(); 5].map(|()| readers.count(often)), [false, false, false, true, true]);
        for _ in 0..8 {
            assert!(!readers.count(rare));
            tokio::time::advance(RIGHT_AGE / 3 + Duration::from_millis(1)).await;
        }
        readers.refuse(often);
        tokio::time::advance(REFUSED_AGE - Duration::from_secs(1)).await;
        assert_eq!([often, rare].map(|key| readers.state(key)), [ReaderState::Refused, ReaderState::Unknown]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(readers.state(often), ReaderState::Unknown);
        assert_eq!([(); 2].map(|()| readers.defer(rare)), [true, false]);
        assert_eq!(readers.state(rare), ReaderState::Deferred);
        tokio::time::advance(DEFERRED_AGE).await;
        assert_eq!(readers.state(rare), ReaderState::Unknown);
    }

    /// Goal: invented tokens neither reset the counts of callers that read, nor need memory without bound. Method: many more
    /// tokens than are remembered, beside a caller that reads now and then and one that was refused.
    #[tokio::test(start_paused = true)]
    async fn invented_tokens_push_out_no_caller_that_reads() {
        let (readers, maker) = (FrequentReaders::default(), KeyMaker::random());
        let (often, refused) = (key(&maker, "often"), key(&maker, "refused"));
        for _ in 0..4 {
            readers.count(often);
        }
        readers.refuse(refused);
        for number in 0..4 * FREQUENT_READERS_MAX {
            readers.count(key(&maker, &number.to_string()));
            if number % (FREQUENT_READERS_MAX / 4) == 0 {
                assert!(readers.count(often), "after {number} invented tokens");
                assert_eq!(readers.state(refused), ReaderState::Refused, "after {number} invented tokens");
            }
        }
        let counts = readers.counts.lock();
        assert!(counts.young.len() + counts.elder.len() <= FREQUENT_READERS_MAX);
    }

    #[test]
    fn questions_are_widened_to_the_namespace_and_to_all() {
        let read = |path: &str| RequestInfo::new("GET", path, &Query::parse(None));
        let widened_of = |path: &str| -> Vec<(String, String, String)> {
            let widened_of = widened(&read(path)).into_iter();
            widened_of
                .map(|info| {
                    let of = info.resource.expect("a resource");
                    (info.verb.into_owned(), of.namespace, of.name)
                })
                .collect()
        };
        let all = ("get".to_owned(), String::new(), String::new());
        let inside = ("get".to_owned(), "n".to_owned(), String::new());
        assert_eq!(widened_of("/api/v1/namespaces/n/pods/a"), [all.clone(), inside]);
        assert_eq!(widened_of("/api/v1/nodes/a"), [all]);
        assert_eq!(widened_of("/version"), []);
    }
}
