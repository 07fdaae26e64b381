//! From raw events to kube's: objects are decoded, and deletes wait until no initial state is gathered.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

use futures::{Stream, StreamExt, stream};
use informer_core::object;
use kube::runtime::watcher::{Event, Result};
use serde::de::DeserializeOwned;

use super::failures;
use crate::{decode::DecodeError, raw};

/// The stream that a declaration describes.
pub(super) fn stream<K>(declared: raw::Builder) -> impl Stream<Item = Result<Event<K>>> + Send + use<K>
where
    K: DeserializeOwned + Send + 'static,
{
    stream::unfold(Translation::new(declared), |mut translation| async {
        translation.next().await.map(|item| (item, translation))
    })
}

struct Translation<K> {
    source: Source,
    metadata_only: bool,
    /// Whether the reader gathers initial state.
    is_initial: bool,
    /// Deleted while the reader gathers, by key, in the last state: a reader that has put them aside would not look
    /// there again. At most as many as the reader has gathered.
    gone: BTreeMap<String, K>,
    ready: VecDeque<Result<Event<K>>>,
}

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
                self.ready.push_back(Ok(Event::Init));
            }
            Ok(raw::Event::InitApply(object)) => {
                self.gone.remove(object.key());
                self.decoded(&object, Event::InitApply);
            }
            Ok(raw::Event::InitDone(_)) => {
                self.is_initial = false;
                self.ready.push_back(Ok(Event::InitDone));
                let gone = std::mem::take(&mut self.gone);
                self.ready.extend(gone.into_values().map(|object| Ok(Event::Delete(object))));
            }
            Ok(raw::Event::Apply(object)) => self.decoded(&object, Event::Apply),
            Ok(raw::Event::Delete(object)) => self.deleted(&object),
            Ok(raw::Event::Bookmark(_)) => {}
            Err(error) => self.ready.push_back(Err(failures::from_error(error))),
        }
    }

    fn decoded(&mut self, object: &raw::Object, event: impl FnOnce(K) -> Event<K>) {
        let item = self.decode(object.key(), object.json());
        self.ready.push_back(item.map(event).map_err(failures::other));
    }

    /// A delete is worth more than the object's last state: one that does not decode is told with its metadata alone,
    /// where `K` allows that, so that no reader keeps it for ever.
    fn deleted(&mut self, object: &raw::Object) {
        let last = self.decode(object.key(), object.json()).or_else(|error| {
            self.ready.push_back(Err(failures::other(error)));
            let metadata = object::metadata_only(object.json()).unwrap_or_default();
            self.decode(object.key(), &metadata)
        });
        let Ok(last) = last else { return };
        if self.is_initial {
            self.gone.insert(object.key().to_owned(), last);
        } else {
            self.ready.push_back(Ok(Event::Delete(last)));
        }
    }

    fn decode(&self, key: &str, json: &[u8]) -> std::result::Result<K, DecodeError> {
        // A server that does not know how to send metadata alone has sent everything.
        let trimmed = self.metadata_only.then(|| object::metadata_only(json).ok()).flatten();
        let json = trimmed.as_deref().unwrap_or(json);
        serde_json::from_slice(json).map_err(|error| DecodeError::new(key, json, &error))
    }
}

impl<K> fmt::Debug for Translation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Translation").field("is_initial", &self.is_initial).finish_non_exhaustive()
    }
}
