//! Callers that read single objects often enough for a question about all of them to pay.
//!
//! Their reads are answered from caches; all others are passed on, and the API server decides about each.

use std::{collections::HashMap, time::Duration};

use access_rules::request_info::{RequestInfo, ResourceAttributes};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::key::QuestionKey;
use crate::limits::{FREQUENT_READERS_MAX, RIGHT_AGE};

/// Reads of single objects, by caller and the widest question about them. Forgets all of them when it is full: then they are
/// passed on until they were frequent again.
#[derive(Debug, Default)]
pub struct FrequentReaders(Mutex<HashMap<QuestionKey, ReadCount>>);

#[derive(Debug)]
struct ReadCount {
    /// Start of the present count.
    begun: Instant,
    count: u32,
    /// Time of the last answer that the caller may not read all objects.
    refused: Option<Instant>,
}

impl FrequentReaders {
    /// Counts a read. Returns true if the caller has sent [`FREQUENT_READS`] in the age of a right.
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

    /// True if that was noted in the last [`REFUSED_AGE`].
    pub fn is_refused(&self, key: QuestionKey) -> bool {
        self.0.lock().get(&key).and_then(|reads| reads.refused).is_some_and(|since| since.elapsed() < REFUSED_AGE)
    }

    fn with<T>(&self, key: QuestionKey, use_reads: impl FnOnce(&mut ReadCount, Instant) -> T) -> T {
        let (all, now) = (&mut *self.0.lock(), Instant::now());
        if FREQUENT_READERS_MAX <= all.len() && !all.contains_key(&key) {
            all.clear();
        }
        use_reads(all.entry(key).or_insert(ReadCount { begun: now, count: 0, refused: None }), now)
    }
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

/// Reads of a caller in the age of a right from which its right to all objects is asked for.
const FREQUENT_READS: u32 = 4;

/// Time for which a caller without that right is not asked for again: its reads are passed on.
const REFUSED_AGE: Duration = Duration::from_mins(5);

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
        assert!(readers.is_refused(often) && !readers.is_refused(rare));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!readers.is_refused(often));
        for number in 0..2 * FREQUENT_READERS_MAX {
            readers.count(key(&maker, &number.to_string()));
        }
        assert!(readers.0.lock().len() <= FREQUENT_READERS_MAX);
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
