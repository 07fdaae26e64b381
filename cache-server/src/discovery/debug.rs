//! Documents about the state of this server: `/debug/watches`, `/debug/snapshots`, `/debug/summary` and `/statusz`. The
//! first two name callers; none contains objects.
//!
//! INVARIANT: a request visits at most [`VISITED_MAX`] watches, and shows at most [`PAGE_MAX`] of them, or
//! [`HOLDERS_MAX`] readers of a type.
//!
//! Source of `/statusz`: component-base `zpages/statusz`.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    sync::Arc,
};

use api_rules::version::git_version;
use http::StatusCode;
use informer_serving::status::{Status, StatusExt as _};
use serde::Serialize;
use watch_cache::{HoldKind, Reader, WindowHolder};

use super::PATHS;
use crate::{
    app::App,
    clock,
    metrics::watches::{OpenWatches, PAGE_MAX, WatchPause, WatchRecord},
    read::body::{self, Response},
    request::{RequestHead, TextPrefix},
};

/// Watches that one request visits: a bound on its time.
const VISITED_MAX: usize = 10_000;

/// Upper bounds of the classes of [`summary`], in events; the last one has none.
const BEHIND_CLASSES: [Option<usize>; 5] = [Some(0), Some(9), Some(99), Some(999), None];

/// Holders of one type in [`snapshots`].
const HOLDERS_MAX: usize = 20;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WatchPage<'a> {
    watches: Vec<WatchRow<'a>>,
    /// Value of `continue` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none", rename = "continue")]
    next: Option<String>,
    /// Number of all open watches.
    open: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WatchRow<'a> {
    number: u64,
    user: &'a str,
    user_agent: &'a str,
    peer: Option<String>,
    resource: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    label_selector: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    field_selector: String,
    state: &'static str,
    waits_for: &'static str,
    resource_version: u64,
    /// Changes of the type after the position, whether or not the selector matches them; zero while it waits for some.
    events_behind: usize,
    bytes_queued: u32,
    since: String,
    events_sent: u64,
    bytes_sent: u64,
}

/// `GET /debug/watches?limit=…&continue=…&state=…`: the open watches, the oldest first; with `state` only those in it. A page
/// may be empty although there is a next one, because a request visits at most [`VISITED_MAX`] of them.
///
/// # Errors
/// 400 for a limit or a position that is no number.
pub(super) fn watches(app: &App, head: &RequestHead<'_>) -> Result<Response, Status> {
    let number = |name: &str| match head.query.get(name).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| Status::bad_request(format!("{name} is no number"))),
    };
    let limit = number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
    let all = app.metrics.open_watches();
    let limit = limit.unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let state = head.query.get("state").filter(|state| !state.is_empty());
    let mut page = Vec::new();
    let next = visit(all, number("continue")?.unwrap_or(0), |watch| {
        if state.is_none_or(|state| state == watch.state()) {
            page.push(watch);
        }
        page.len() < limit
    });
    let next = next.map(|last| last.to_string());
    let rows = page.iter().map(|watch| WatchRow::new(app, watch)).collect();
    let document = WatchPage { watches: rows, next, open: all.count() };
    Ok(json(&document))
}

/// Shows watches with numbers above `after` to `visit`, the oldest first, until it returns false; at most
/// [`VISITED_MAX`]. Returns the number of the last one if there are more.
fn visit(all: &OpenWatches, mut after: u64, mut visit: impl FnMut(Arc<WatchRecord>) -> bool) -> Option<u64> {
    let mut left = VISITED_MAX;
    loop {
        let (chunk, has_more) = all.page(after, PAGE_MAX.min(left));
        let count = chunk.len();
        for (at, watch) in chunk.into_iter().enumerate() {
            after = watch.number();
            if !visit(watch) {
                return (has_more || at + 1 < count).then_some(after);
            }
        }
        left -= count;
        if !has_more || left == 0 {
            return has_more.then_some(after);
        }
    }
}

/// Returns the number of changes behind `position`. A watch that waits for events has none to read, wherever it stands.
fn events_behind(watch: &WatchRecord, position: u64, cache: impl FnOnce() -> Option<Reader>) -> usize {
    if watch.pause() == WatchPause::Events { 0 } else { cache().map_or(0, |cache| cache.events_after(position)) }
}

impl<'a> WatchRow<'a> {
    fn new(app: &App, watch: &'a WatchRecord) -> Self {
        let (kind, reader, filter) = (watch.kind(), watch.reader(), watch.filter());
        let ty = kind.current_type(&app.registry.now());
        let fields = ty.as_ref().map(|ty| filter.field_selector(&ty.schema)).unwrap_or_default();
        let resource_version = watch.position();
        Self {
            number: watch.number(),
            user: &reader.user,
            user_agent: &reader.agent,
            peer: watch.peer().address.map(|address| address.to_string()),
            resource: kind.id(),
            namespace: TextPrefix(filter.namespace().unwrap_or_default()).to_string(),
            label_selector: TextPrefix(&filter.labels().to_string()).to_string(),
            field_selector: TextPrefix(&fields).to_string(),
            state: watch.state(),
            waits_for: watch.pause().as_str(),
            resource_version,
            events_behind: events_behind(watch, resource_version, || app.caches.current(ty.as_ref()?)),
            bytes_queued: watch.bytes_queued(),
            since: clock::before(watch.age()),
            events_sent: watch.events(),
            bytes_sent: watch.bytes(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CacheRow {
    resource: String,
    objects: usize,
    window_events: usize,
    window_bytes: usize,
    /// Number of all readers and positions that keep events.
    holders: usize,
    /// Holders at the oldest positions.
    oldest: Vec<HolderRow>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HolderRow {
    kind: &'static str,
    /// Absent for users without limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// Events that the window keeps for it.
    events_held: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_seconds: Option<u64>,
    bytes_read: u64,
    is_late: bool,
}

/// `GET /debug/snapshots`: for each cache its window, and the readers that keep events in it.
pub(super) fn snapshots(app: &App) -> Response {
    let now = app.caches.now();
    let filled = app.caches.filled(&app.registry.now()).into_iter();
    let held: Vec<_> = filled.map(|(ty, reader)| (ty, reader.stats(), reader.holders(now, HOLDERS_MAX))).collect();
    // Every request takes the lock of the names: only those that are shown are copied under it.
    let owners = held.iter().flat_map(|(_, _, (oldest, _))| oldest.iter().map(|(holder, _)| holder.owner)).collect();
    let users = app.access.names_of_owners(&owners);
    let types: Vec<_> = held
        .into_iter()
        .map(|(ty, stats, (oldest, holders))| CacheRow {
            resource: ty.id().to_owned(),
            objects: stats.objects,
            window_events: stats.window_events,
            window_bytes: stats.window_bytes,
            holders,
            oldest: oldest.into_iter().map(|(holder, events)| HolderRow::new(holder, events, &users)).collect(),
        })
        .collect();
    json(&types)
}

impl HolderRow {
    fn new(holder: WindowHolder, events: u64, users: &HashMap<u64, String>) -> Self {
        let kind = match holder.kind {
            HoldKind::List => "list",
            HoldKind::Stream => "stream",
            HoldKind::Page => "page",
            HoldKind::Return => "return",
        };
        Self {
            kind,
            user: users.get(&holder.owner).map(|name| TextPrefix(name).to_string()),
            events_held: if holder.is_late { 0 } else { events },
            open_seconds: holder.seen_for.map(|time| time.as_secs()),
            held_seconds: holder.held_for.map(|time| time.as_secs()),
            bytes_read: holder.read_bytes,
            is_late: holder.is_late,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ServerSummary {
    version: &'static str,
    up_seconds: u64,
    /// Place of the objects: `memory`, `folder`, `etcd` or `upstream`.
    storage: &'static str,
    /// Number of all open watches.
    open: usize,
    /// Number of watches in `states` and `behind`: the oldest ones.
    visited: usize,
    /// Watches by state, by the names of the metric `cache_watchers`.
    states: BTreeMap<&'static str, usize>,
    /// Watches by the number of changes of their type that they have not read, whether or not their selectors match these.
    behind: Vec<BehindClass>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BehindClass {
    /// Greatest number of changes; absent for the last class.
    #[serde(skip_serializing_if = "Option::is_none")]
    up_to: Option<usize>,
    watches: usize,
}

/// `GET /debug/summary`: the storage, and the states of watches and how far they are behind, as `/debug/watches` shows them.
pub(super) fn summary(app: &App) -> Response {
    let (all, types) = (app.metrics.open_watches(), app.registry.now());
    let mut classes = BEHIND_CLASSES.map(|up_to| BehindClass { up_to, watches: 0 });
    let mut caches = HashMap::new();
    let (mut visited, mut states) = (0, BTreeMap::new());
    visit(all, 0, |watch| {
        *states.entry(watch.state()).or_default() += 1;
        let behind = events_behind(&watch, watch.position(), || {
            let id = watch.kind().id();
            if !caches.contains_key(id) {
                let cache = watch.kind().current_type(&types).and_then(|ty| app.caches.current(&ty));
                caches.insert(id.to_owned(), cache);
            }
            caches.get(id)?.clone()
        });
        if let Some(class) = classes.iter_mut().find(|class| class.up_to.is_none_or(|up_to| behind <= up_to)) {
            class.watches += 1;
        }
        visited += 1;
        true
    });
    let config = &app.config;
    let storage = match (&config.upstream, &config.etcd, &config.data_dir) {
        (Some(_), _, _) => "upstream",
        (None, Some(_), _) => "etcd",
        (None, None, Some(_)) => "folder",
        (None, None, None) => "memory",
    };
    json(&ServerSummary {
        version: env!("CARGO_PKG_VERSION"),
        up_seconds: app.metrics.running_for().as_secs(),
        storage,
        open: all.count(),
        visited,
        states,
        behind: classes.into(),
    })
}

/// `GET /statusz`, for people.
pub(super) fn status(app: &App) -> Response {
    let up = app.metrics.running_for();
    let seconds = up.as_secs();
    let mut text = String::from("\ncache-server statusz\n");
    text.push_str(
        "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees ",
    );
    text.push_str("and is for debugging purposes only.\n\n");
    let stats = app.caches.stats();
    let objects: usize = stats.iter().map(|(_, stats)| stats.objects).sum();
    let lines = [
        ("Started", clock::before(up)),
        ("Up", format!("{} hr {:02} min {:02} sec", seconds / 3_600, seconds / 60 % 60, seconds % 60)),
        ("Binary version", env!("CARGO_PKG_VERSION").to_owned()),
        ("Emulation version", git_version()),
        ("Caches", format!("{} types, {objects} objects", stats.len())),
        ("Watches", app.metrics.open_watches().count().to_string()),
        ("Paths", PATHS.join(" ")),
    ];
    for (name, value) in lines {
        writeln!(text, "{name}: {value}").expect("writing to memory cannot fail");
    }
    body::text(StatusCode::OK, text.into())
}

fn json(document: &impl Serialize) -> Response {
    let mut text = serde_json::to_vec(document).expect("a document of texts and numbers has a JSON form");
    text.push(b'\n');
    body::json(StatusCode::OK, text.into())
}
