//! Translates raw events to kube's: decodes objects, and delays deletions while initial state is gathered.
//!
//! Errors of objects that do not decode are delivered sparingly: kube's controllers and `default_backoff()` pause all
//! events after each error, longer each time, and reset only on success. A hundred broken objects would stop a
//! controller for an hour.

use std::collections::{BTreeMap, VecDeque};

use futures::{Stream, StreamExt, stream};
use informer_core::object;
use serde::de::DeserializeOwned;

use super::{
    super::kube::runtime::watcher::{Error as Failure, Event, Result},
    failures,
};
use crate::{decode::DecodeError, raw};

/// The stream of a declaration.
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
    source: EventSource,
    metadata_only: bool,
    /// True while the reader gathers initial state.
    is_initial: bool,
    /// Last states of objects deleted while the reader gathers, by key. A `Delete` now would not remove them from the
    /// state the reader has put aside. At most as many as the reader has gathered.
    gone: BTreeMap<String, K>,
    broken: BrokenObjects,
    /// Watches cut since something was delivered.
    cuts: u32,
    ready: VecDeque<Result<Event<K>>>,
}

/// Watches that may be cut in a row without an error: as many as the pace of requests lets resume at once. If nothing is
/// delivered in between, it is an outage.
const SILENT_CUTS_MAX: u32 = 8;

/// Objects whose last version did not decode, or was skipped.
#[derive(Default)]
struct BrokenObjects {
    /// Objects already reported or logged, by key, with the last initial state that contained them. Reported again if
    /// they were deleted or decoded in between.
    known: BTreeMap<String, u64>,
    /// Number of initial states begun.
    inits: u64,
    /// True once the log says that no more keys are remembered.
    overflowed: bool,
    /// First unreported error, held back until an event was delivered.
    first: Option<Failure>,
    /// True if the last item delivered was such an error.
    was_last: bool,
}

impl BrokenObjects {
    fn is_new(&mut self, key: &str) -> bool {
        if let Some(met) = self.known.get_mut(key) {
            *met = self.inits;
            return false;
        }
        if self.known.len() >= BROKEN_KNOWN_MAX {
            if !std::mem::replace(&mut self.overflowed, true) {
                tracing::warn!(limit = BROKEN_KNOWN_MAX, "object errors suppressed");
            }
            return false;
        }
        self.known.insert(key.to_owned(), self.inits);
        true
    }
}

/// Most broken objects remembered. Further ones are neither reported nor logged by name; one log line says so.
const BROKEN_KNOWN_MAX: usize = 1024;

enum EventSource {
    /// Not polled yet.
    Declared(Box<raw::Builder>),
    Started(raw::Events),
    Over,
}

impl<K: DeserializeOwned> Translation<K> {
    fn new(declared: raw::Builder) -> Self {
        Self {
            metadata_only: declared.declared.metadata_only,
            source: EventSource::Declared(Box::new(declared)),
            is_initial: false,
            gone: BTreeMap::new(),
            broken: BrokenObjects::default(),
            cuts: 0,
            ready: VecDeque::new(),
        }
    }

    async fn next(&mut self) -> Option<Result<Event<K>>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            match std::mem::replace(&mut self.source, EventSource::Over) {
                EventSource::Declared(declared) => match declared.start() {
                    Ok(events) => self.source = EventSource::Started(events),
                    Err(mistake) => self.ready.push_back(Err(failures::other(mistake))),
                },
                EventSource::Started(mut events) => {
                    let event = events.next().await?;
                    self.source = EventSource::Started(events);
                    self.take(event);
                }
                EventSource::Over => return None,
            }
        }
    }

    fn take(&mut self, event: std::result::Result<raw::Event, crate::error::Error>) {
        // A state that begins again and again delivers nothing.
        if matches!(
            event,
            Ok(raw::Event::InitDone(_) | raw::Event::Apply(_) | raw::Event::Delete(_) | raw::Event::Bookmark(_))
        ) {
            self.cuts = 0;
        }
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
                let BrokenObjects { known, inits, .. } = &mut self.broken;
                known.retain(|_, met| met == inits);
                self.tell(Event::InitDone);
                for object in std::mem::take(&mut self.gone).into_values() {
                    self.tell(Event::Delete(object));
                }
            }
            // The reader keeps its old state, and drops what it has put aside at the next Init.
            Ok(raw::Event::InitAbandoned) => {
                self.is_initial = false;
                self.gone.clear();
            }
            Ok(raw::Event::Apply(object)) => self.decoded(&object, Event::Apply),
            Ok(raw::Event::Delete(object)) => self.deleted(&object),
            Ok(raw::Event::Bookmark(_)) => {}
            // It resumes by itself: a program that pauses after each error would wait longer than the stream does.
            Err(error) if error.is_cut_watch() && self.cuts < SILENT_CUTS_MAX => self.cuts += 1,
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

    /// Reports a broken object once, but never during initial state and never twice in a row: the first error held back
    /// is delivered after the next event. All are logged.
    fn broken(&mut self, key: &str, error: impl std::error::Error + Send + Sync + 'static) {
        if !self.broken.is_new(key) {
            return;
        }
        tracing::warn!(key, %error, "object dropped");
        let error = failures::other(error);
        if self.is_initial || self.broken.was_last {
            self.broken.first.get_or_insert(error);
        } else {
            self.tell_broken(error);
        }
    }

    /// Delivers a deletion. If the last state does not decode, falls back to its metadata alone, where `K` allows that,
    /// so that no reader keeps the object for ever.
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
        // A server without metadata-only support has sent the whole object.
        let trimmed = self.metadata_only.then(|| object::metadata_only(json).ok()).flatten();
        let json = trimmed.as_deref().unwrap_or(json);
        serde_json::from_slice(json).map_err(|error| DecodeError::new(key, json, &error))
    }
}
