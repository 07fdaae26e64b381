//! From raw events to kube's: objects are decoded, and deletes wait until no initial state is gathered.
//!
//! Objects that do not decode are told sparingly: kube's controllers and `default_backoff()` pause all events after
//! each error, longer each time, and reset only on success. A hundred broken objects would stop a controller for an hour.

use std::collections::{BTreeMap, VecDeque};

use futures::{Stream, StreamExt, stream};
use informer_core::object;
use kube::runtime::watcher::{Error as Failure, Event, Result};
use serde::de::DeserializeOwned;

use super::failures;
use crate::{decode::DecodeError, raw};

/// The stream that a declaration describes.
pub(super) fn stream<K>(declared: raw::Builder) -> impl Stream<Item = Result<Event<K>>> + Send + use<K>
where
    K: DeserializeOwned + Send + 'static,
{
    let events = stream::unfold(Translation::new(declared), |mut translation| async {
        translation.next().await.map(|item| (item, translation))
    });
    events.fuse()
}

struct Translation<K> {
    source: Source,
    metadata_only: bool,
    /// Whether the reader gathers initial state.
    is_initial: bool,
    /// Deleted while the reader gathers, by key, in the last state: a reader that has put them aside would not look
    /// there again. At most as many as the reader has gathered.
    gone: BTreeMap<String, K>,
    broken: Broken,
    ready: VecDeque<Result<Event<K>>>,
}

/// Objects whose last state did not decode, or was skipped.
#[derive(Default)]
struct Broken {
    /// Told or logged, by key, and the initial state since which they are met. Told again when they were gone or have
    /// decoded in between.
    known: BTreeMap<String, u64>,
    /// Initial states that were begun.
    inits: u64,
    /// Whether it was logged that no more are remembered.
    overflowed: bool,
    /// The first new one since something could be told.
    first: Option<Failure>,
    /// Whether the last thing told was such an object.
    was_last: bool,
}

impl Broken {
    fn is_new(&mut self, key: &str) -> bool {
        if let Some(met) = self.known.get_mut(key) {
            *met = self.inits;
            return false;
        }
        if self.known.len() >= BROKEN_KNOWN_MAX {
            if !std::mem::replace(&mut self.overflowed, true) {
                tracing::warn!("more than {BROKEN_KNOWN_MAX} objects do not decode; the others are not named");
            }
            return false;
        }
        self.known.insert(key.to_owned(), self.inits);
        true
    }
}

/// Broken objects that are remembered. Beyond them they are neither told nor logged, which is logged.
const BROKEN_KNOWN_MAX: usize = 1024;

enum Source {
    /// Not polled yet.
    Declared(Box<raw::Builder>),
    Started(raw::Events),
    Over,
}

impl<K: DeserializeOwned> Translation<K> {
    fn new(declared: raw::Builder) -> Self {
        Self {
            metadata_only: declared.declared.metadata_only,
            source: Source::Declared(Box::new(declared)),
            is_initial: false,
            gone: BTreeMap::new(),
            broken: Broken::default(),
            ready: VecDeque::new(),
        }
    }

    async fn next(&mut self) -> Option<Result<Event<K>>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            match std::mem::replace(&mut self.source, Source::Over) {
                Source::Declared(declared) => match declared.start() {
                    Ok(events) => self.source = Source::Started(events),
                    Err(mistake) => self.ready.push_back(Err(failures::other(mistake))),
                },
                Source::Started(mut events) => {
                    let event = events.next().await?;
                    self.source = Source::Started(events);
                    self.take(event);
                }
                Source::Over => return None,
            }
        }
    }

    fn take(&mut self, event: std::result::Result<raw::Event, crate::Error>) {
        match event {
            Ok(raw::Event::Init) => {
                self.is_initial = true;
                self.gone.clear();
                self.broken.inits += 1;
                self.tell(Event::Init);
            }
            Ok(raw::Event::InitApply(object)) => {
                self.gone.remove(object.key());
                self.decoded(&object, Event::InitApply);
            }
            Ok(raw::Event::InitDone(_)) => {
                self.is_initial = false;
                let Broken { known, inits, .. } = &mut self.broken;
                known.retain(|_, met| met == inits);
                self.tell(Event::InitDone);
                for object in std::mem::take(&mut self.gone).into_values() {
                    self.tell(Event::Delete(object));
                }
            }
            // The reader keeps what it had, and what it has put aside goes with the next Init.
            Ok(raw::Event::InitAbandoned) => {
                self.is_initial = false;
                self.gone.clear();
            }
            Ok(raw::Event::Apply(object)) => self.decoded(&object, Event::Apply),
            Ok(raw::Event::Delete(object)) => self.deleted(&object),
            Ok(raw::Event::Bookmark(_)) => {}
            Err(error) => match error.skipped().map(ToOwned::to_owned) {
                Some(key) => self.broken(&key, error),
                None => self.ready.push_back(Err(failures::from_error(error))),
            },
        }
    }

    fn tell(&mut self, event: Event<K>) {
        self.broken.was_last = false;
        self.ready.push_back(Ok(event));
        if !self.is_initial
            && let Some(error) = self.broken.first.take()
        {
            self.tell_broken(error);
        }
    }

    fn tell_broken(&mut self, error: Failure) {
        self.broken.was_last = true;
        self.ready.push_back(Err(error));
    }

    fn decoded(&mut self, object: &raw::Object, event: impl FnOnce(K) -> Event<K>) {
        match self.decode(object.key(), object.json()) {
            Ok(decoded) => {
                self.broken.known.remove(object.key());
                self.tell(event(decoded));
            }
            Err(error) => self.broken(object.key(), error),
        }
    }

    /// Once for each object, never in initial state, never twice in a row: the first of those that come meanwhile is
    /// told as soon as something else was. All are logged.
    fn broken(&mut self, key: &str, error: impl std::error::Error + Send + Sync + 'static) {
        if !self.broken.is_new(key) {
            return;
        }
        tracing::warn!(%error, "an object is left out");
        let error = failures::other(error);
        if self.is_initial || self.broken.was_last {
            self.broken.first.get_or_insert(error);
        } else {
            self.tell_broken(error);
        }
    }

    /// A delete is worth more than the object's last state: one that does not decode is told with its metadata alone,
    /// where `K` allows that, so that no reader keeps it for ever.
    fn deleted(&mut self, object: &raw::Object) {
        self.broken.known.remove(object.key());
        let last = self.decode(object.key(), object.json()).or_else(|error| {
            let metadata = object::metadata_only(object.json()).map_err(|_| ());
            metadata.and_then(|json| self.decode(object.key(), &json).map_err(|_| ())).map_err(|()| error)
        });
        match last {
            Ok(last) if self.is_initial => drop(self.gone.insert(object.key().to_owned(), last)),
            Ok(last) => self.tell(Event::Delete(last)),
            Err(error) => {
                self.broken(object.key(), error);
                self.broken.known.remove(object.key());
            }
        }
    }

    fn decode(&self, key: &str, json: &[u8]) -> std::result::Result<K, DecodeError> {
        // A server that does not know how to send metadata alone has sent everything.
        let trimmed = self.metadata_only.then(|| object::metadata_only(json).ok()).flatten();
        let json = trimmed.as_deref().unwrap_or(json);
        serde_json::from_slice(json).map_err(|error| DecodeError::new(key, json, &error))
    }
}
