//! Raw clients that list, watch, disconnect and resume, and record what each connection showed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use informer_core::wire::watch_event::EventKind;
use serde_json::Value;
use tests::http::{Client, Event, Step, Watch, key, resource_version, with_query};
use tokio::time::sleep;

use super::truth::{Apps, Content, Epoch, Kind, Selector, State, WatchedEvent};

/// Number of namespaces, of names in each, and of values of the label `app`.
pub(crate) const NAMESPACES: usize = 4;
pub(crate) const NAMES: usize = 40;
pub(crate) const APPS: usize = 4;

/// The observations of one connection or one list.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) asked: String,
    pub(crate) selector: Selector,
    /// Its start: a position, or a complete state at one.
    pub(crate) begin: Begin,
    pub(crate) events: Vec<WatchedEvent>,
    /// Positions of bookmarks, each with the number of events before it.
    pub(crate) bookmarks: Vec<(usize, u64)>,
    /// Number of the server that accepted it, from 1; `None` if it may have been another one.
    pub(crate) server: Option<usize>,
}

#[derive(Debug)]
pub(crate) enum Begin {
    After(u64),
    At { at: u64, state: State },
}

impl Segment {
    /// Position after which its events begin.
    pub(crate) fn after(&self) -> u64 {
        match &self.begin {
            Begin::After(at) | Begin::At { at, .. } => *at,
        }
    }

    /// Compares it with the history that its positions belong to. Fails with the first difference.
    pub(crate) fn check(&self, epoch: &Epoch) -> Result<(), String> {
        let after = self.after();
        if let Begin::At { at, state } = &self.begin {
            let expected = epoch.state(&self.selector, *at);
            if *state != expected {
                return Err(format!("the state at {at} is {state:?}, not {expected:?}"));
            }
        }
        let ends = [self.events.last().map(|event| event.at), self.bookmarks.last().map(|(_, mark)| *mark)];
        let mut expected = epoch.events(&self.selector, after, ends.into_iter().flatten().max().unwrap_or(after));
        let (mut bookmarks, mut last) = (self.bookmarks.iter().peekable(), after);
        for (count, event) in self.events.iter().enumerate() {
            while let Some((_, mark)) = bookmarks.next_if(|(before, _)| *before == count) {
                last = *mark;
            }
            if event.at <= last {
                return Err(format!("{event:?} after a position of {last}"));
            }
            let due = expected.next();
            if due.as_ref() != Some(event) {
                return Err(format!("event {count} is {event:?}, not {due:?}"));
            }
        }
        // The last bookmark is above all that is still due.
        expected.next().map_or(Ok(()), |due| Err(format!("a bookmark at {:?} before {due:?}", ends[1])))
    }
}

/// A random selector: every kind of bucket in the server, and other conditions.
pub(crate) fn selector(rng: &mut Rng) -> Selector {
    let namespace = |rng: &mut Rng| Some(format!("ns{}", rng.usize(0..NAMESPACES)));
    let app = |rng: &mut Rng| format!("a{}", rng.usize(0..APPS));
    match rng.u8(0..8) {
        0 => Selector::default(),
        1 => Selector { namespace: namespace(rng), ..Selector::default() },
        2 => Selector { name: Some(format!("n{}", rng.usize(0..NAMES))), ..Selector::default() },
        3 => Selector { app: Some(Apps::In(vec![app(rng)])), ..Selector::default() },
        4 => Selector { app: Some(Apps::In(vec![app(rng), app(rng)])), ..Selector::default() },
        5 => Selector { app: Some(Apps::Not(app(rng))), ..Selector::default() },
        6 => Selector { namespace: namespace(rng), app: Some(Apps::In(vec![app(rng)])), ..Selector::default() },
        _ => Selector {
            namespace: namespace(rng),
            name: Some(format!("n{}", rng.usize(0..NAMES))),
            ..Selector::default()
        },
    }
}

impl Selector {
    /// The path for this selector, with more parameters.
    fn path(&self, more: &[(&str, &str)]) -> String {
        let collection = match &self.namespace {
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/configmaps"),
            None => "/api/v1/configmaps".to_owned(),
        };
        let (labels, fields) = (self.labels(), self.name.as_ref().map(|name| format!("metadata.name={name}")));
        let mut query = more.to_vec();
        if !labels.is_empty() {
            query.push(("labelSelector", &labels));
        }
        query.extend(fields.as_ref().map(|fields| ("fieldSelector", &**fields)));
        with_query(&collection, &query)
    }
}

/// The compared parts of an object.
pub(crate) fn content(object: &Value) -> Content {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Content { app: text(&object["metadata"]["labels"]["app"]), value: text(&object["data"]["k"]) }
}

/// The state in a list.
pub(crate) fn state(list: &Value) -> State {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| (key(item).into(), (resource_version(item), content(item)))).collect()
}

/// Converts an event that carries an object; `None` for other events.
pub(crate) fn seen(event: &Event) -> Option<WatchedEvent> {
    let kind = match event.kind {
        EventKind::Added => Kind::Added,
        EventKind::Modified => Kind::Modified,
        EventKind::Deleted => Kind::Deleted,
        EventKind::Bookmark | EventKind::Error | EventKind::Other => return None,
    };
    let (key, at) = (key(&event.object).into(), event.resource_version());
    Some(WatchedEvent { kind, key, at, content: content(&event.object) })
}

/// The end of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    /// The connection broke, or the client left.
    Early,
    /// The server sent a 410.
    Expired,
}

/// A client that never stops.
pub(crate) struct Watcher {
    pub(crate) client: Client,
    pub(crate) rng: Rng,
    /// Number of servers started so far.
    pub(crate) servers: Arc<AtomicUsize>,
    pub(crate) segments: tokio::sync::mpsc::UnboundedSender<Segment>,
}

impl Watcher {
    pub(crate) async fn run(mut self) {
        let selector = selector(&mut self.rng);
        let client = if self.rng.u8(0..4) == 0 { self.client.over_http2() } else { self.client };
        let mut position = None;
        loop {
            let from = match position.take().filter(|_| self.rng.u8(0..10) > 0) {
                Some(at) => Some(at),
                None if self.rng.bool() => self.list(&client, &selector).await,
                None => None,
            };
            position = self.watch(&client, &selector, from).await;
            sleep(Duration::from_millis(self.rng.u64(0..100))).await;
        }
    }

    fn server(&self) -> usize {
        self.servers.load(Ordering::SeqCst)
    }

    /// Lists, in pages or whole. Returns the position.
    async fn list(&mut self, client: &Client, selector: &Selector) -> Option<u64> {
        let limit = self.rng.usize(1..40).to_string();
        let first: &[(&str, &str)] = match self.rng.u8(0..3) {
            0 => &[],
            1 => &[("resourceVersion", "0")],
            _ => &[("limit", &limit)],
        };
        let (before, asked) = (self.server(), selector.path(first));
        let (mut path, mut state, mut at) = (asked.clone(), State::new(), None);
        loop {
            let answer = client.try_get(&path).await.ok()?;
            if answer.code != 200 {
                refused(answer.code.as_u16(), &path);
                return None;
            }
            let list = answer.json();
            let position = resource_version(&list);
            assert_eq!(*at.get_or_insert(position), position, "{path}: pages of one list are of one position");
            for item in list["items"].as_array().expect("items") {
                let known = state.insert(key(item).into(), (resource_version(item), content(item)));
                assert!(known.is_none(), "{path}: {} comes twice", key(item));
            }
            let Some(token) = answer.token() else { break };
            path = selector.path(&[("limit", &limit), ("continue", &token)]);
        }
        let (at, server) = (at?, Some(before).filter(|&before| before == self.server()));
        let (events, bookmarks) = (Vec::new(), Vec::new());
        let begin = Begin::At { at, state };
        let _ = self.segments.send(Segment { asked, selector: selector.clone(), begin, events, bookmarks, server });
        Some(at)
    }

    /// Watches from a position, or with initial events. Returns the position it reached.
    async fn watch(&mut self, client: &Client, selector: &Selector, from: Option<u64>) -> Option<u64> {
        let seconds = self.rng.u8(1..10).to_string();
        let position = from.map(|at| at.to_string());
        let mut query = vec![("watch", "1"), ("timeoutSeconds", &*seconds), ("allowWatchBookmarks", "true")];
        match &position {
            Some(position) => query.push(("resourceVersion", position)),
            None => query.extend([("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]),
        }
        let (before, asked) = (self.server(), selector.path(&query));
        let mut watch = client.try_watch(&asked).await.ok()?;
        if watch.code() != 200 {
            refused(watch.code().as_u16(), &asked);
            return from.filter(|_| watch.code() != 410);
        }
        let mut segment = Segment {
            asked,
            selector: selector.clone(),
            begin: from.map_or(Begin::At { at: 0, state: State::new() }, Begin::After),
            events: Vec::new(),
            bookmarks: Vec::new(),
            server: None,
        };
        let end = self.follow(&mut watch, &mut segment).await;
        // A watch that breaks before its first line may have been about to receive a 410.
        let spoke = end == End::Clean || !segment.events.is_empty() || !segment.bookmarks.is_empty();
        let accepted = end != End::Expired && spoke;
        segment.server = Some(before).filter(|&before| accepted && before == self.server());
        let last = match (&segment.begin, segment.events.last(), segment.bookmarks.last()) {
            (_, Some(event), Some((_, mark))) => Some(event.at.max(*mark)),
            (_, Some(event), None) => Some(event.at),
            (_, None, Some((_, mark))) => Some(*mark),
            (Begin::After(at), None, None) => Some(*at),
            (Begin::At { .. }, None, None) => None,
        };
        // An incomplete initial state cannot be checked.
        let whole = !matches!(segment.begin, Begin::At { at: 0, .. });
        if whole {
            let _ = self.segments.send(segment);
        }
        last.filter(|_| end != End::Expired && whole)
    }

    /// Reads a watch to its end, or leaves it early.
    async fn follow(&mut self, watch: &mut Watch, segment: &mut Segment) -> End {
        let mut left = self.rng.usize(1..400);
        let lazy = self.rng.u8(0..10) == 0;
        loop {
            match watch.step(Duration::from_secs(12)).await {
                Step::Event(event) => {
                    if event.kind == EventKind::Error {
                        return match event.object["code"].as_u64() {
                            Some(410) => End::Expired,
                            // A server without its storage knows no newest state, nor whether a position ahead of it
                            // exists.
                            Some(503 | 504) => End::Early,
                            _ => panic!("{}: {:?}", segment.asked, event.object),
                        };
                    }
                    note(segment, &event);
                }
                Step::End => return End::Clean,
                Step::Cut(_) | Step::Silence => return End::Early,
            }
            left -= 1;
            if left == 0 {
                return End::Early;
            }
            if lazy {
                sleep(Duration::from_millis(self.rng.u64(0..50))).await;
            }
        }
    }
}

fn note(segment: &mut Segment, event: &Event) {
    let Some(seen) = seen(event) else {
        let at = event.resource_version();
        match &mut segment.begin {
            Begin::At { at: begun @ 0, .. } if event.ends_initial_state() => *begun = at,
            Begin::At { at: 0, .. } => {}
            Begin::At { .. } | Begin::After(_) => segment.bookmarks.push((segment.events.len(), at)),
        }
        return;
    };
    match &mut segment.begin {
        Begin::At { at: 0, state } => {
            assert_eq!(seen.kind, Kind::Added, "{}: {seen:?} in the initial state", segment.asked);
            let known = state.insert(Arc::clone(&seen.key), (seen.at, seen.content));
            assert!(known.is_none(), "{}: {} comes twice", segment.asked, seen.key);
        }
        Begin::At { .. } | Begin::After(_) => segment.events.push(seen),
    }
}

/// Asserts that a refusal is one that clients must handle.
fn refused(code: u16, asked: &str) {
    assert!(matches!(code, 410 | 429 | 500 | 503 | 504), "{asked}: {code}");
}
