//! Documents of a server, read into figures. Without I/O.
//!
//! INVARIANT: every text of the server goes through [`clean`], so that none can command a terminal.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    exposition::{MetricSample, samples},
    limits::TEXT_CHARS_MAX,
};

/// One part of a reading, or the reason why it is missing: one line.
pub(crate) type PartResult<T> = Result<T, String>;

/// A server at one moment.
#[derive(Clone, Debug)]
pub(crate) struct ServerReading {
    /// Unix time, in seconds.
    pub(crate) at: f64,
    pub(crate) health: PartResult<HealthReport>,
    pub(crate) figures: PartResult<Figures>,
    pub(crate) watches: PartResult<ListedWatches>,
    pub(crate) windows: PartResult<Vec<TypeWindow>>,
}

/// Makes a text of the server safe to print, on one line of bounded length: removes control characters, and those that
/// end a line or reverse the direction of text.
pub(crate) fn clean(text: &str) -> String {
    let is_special = |letter: &char| {
        letter.is_control()
            || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().filter(|letter| !is_special(letter)).take(TEXT_CHARS_MAX).collect()
}

/// The answer of `/readyz?verbose`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HealthReport {
    pub(crate) is_ready: bool,
    /// Number of all checks.
    pub(crate) checks: usize,
    /// Checks that fail, and those that pass with a remark.
    pub(crate) remarks: Vec<String>,
}

impl HealthReport {
    pub(crate) fn read(code: u16, text: &str) -> Self {
        let (mut checks, mut remarks) = (0, Vec::new());
        for line in text.lines() {
            let Some((mark, rest)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) else { continue };
            checks += 1;
            if mark != "+" || !rest.ends_with(" ok") {
                remarks.push(clean(rest));
            }
        }
        Self { is_ready: code == 200, checks, remarks }
    }
}

/// Figures of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TypeFigures {
    pub(crate) objects: u64,
    pub(crate) watches: u64,
    pub(crate) window_events: u64,
    pub(crate) window_bytes: u64,
    /// Time that the window covers; `None` until it evicts.
    pub(crate) window_seconds: Option<f64>,
    /// Changes applied since the start.
    pub(crate) events: u64,
    pub(crate) sent_bytes: u64,
    /// Starts of a history.
    pub(crate) histories: u64,
}

/// Figures of one priority level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LevelFigures {
    pub(crate) executing_seats: u64,
    pub(crate) limit_seats: u64,
    pub(crate) waiting: u64,
    pub(crate) dispatched: u64,
    pub(crate) rejected: u64,
}

/// Reads of one kind: lists, or initial states of watches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReadFigures {
    pub(crate) count: u64,
    pub(crate) seconds: f64,
}

/// The metrics of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) resident_bytes: u64,
    pub(crate) cpu_seconds: f64,
    /// Unix time, in seconds; zero if unknown.
    pub(crate) started: f64,
    pub(crate) open_files: u64,
    pub(crate) max_files: u64,
    pub(crate) connections: u64,
    pub(crate) lists: ReadFigures,
    pub(crate) lists_sent_bytes: u64,
    pub(crate) streams: ReadFigures,
    /// Open watches by state.
    pub(crate) watches: BTreeMap<String, u64>,
    /// Bytes of all watches, with those of their initial states.
    pub(crate) watches_sent_bytes: u64,
    /// Reads that clients had to begin anew, by cause.
    pub(crate) relists: BTreeMap<&'static str, u64>,
    pub(crate) types: BTreeMap<String, TypeFigures>,
    pub(crate) levels: BTreeMap<String, LevelFigures>,
}

impl Figures {
    /// Reads the text of `/metrics`. Unknown metrics are skipped.
    pub(crate) fn read(text: &str) -> Self {
        let mut figures = Self::default();
        for sample in samples(text) {
            let is_known = figures.take_process(&sample) || figures.take_type(&sample) || figures.take_reads(&sample);
            if !is_known {
                figures.take_level(&sample);
            }
        }
        // The first history of a type is no relist.
        let restarts = figures.types.values().map(|ty| ty.histories.saturating_sub(1)).sum();
        figures.relists.insert("history restarted", restarts);
        figures
    }

    fn take_process(&mut self, sample: &MetricSample<'_>) -> bool {
        match sample.name {
            "process_resident_memory_bytes" => self.resident_bytes = count(sample),
            "process_cpu_seconds_total" => self.cpu_seconds = sample.value,
            "process_start_time_seconds" => self.started = sample.value,
            "process_open_fds" => self.open_files = count(sample),
            "process_max_fds" => self.max_files = count(sample),
            "cache_connections" => self.connections = count(sample),
            _ => return false,
        }
        true
    }

    fn take_type(&mut self, sample: &MetricSample<'_>) -> bool {
        let Self { types, watches, .. } = self;
        let ty = sample.label("resource");
        match sample.name {
            "cache_objects" => slot(types, &ty).objects = count(sample),
            "cache_window_events" => slot(types, &ty).window_events = count(sample),
            "cache_window_bytes" => slot(types, &ty).window_bytes = count(sample),
            "cache_window_seconds" => slot(types, &ty).window_seconds = Some(sample.value),
            "cache_events_total" => slot(types, &ty).events = count(sample),
            "cache_epochs_total" => slot(types, &ty).histories = count(sample),
            "cache_watchers" => {
                slot(types, &ty).watches += count(sample);
                *slot(watches, &sample.label("state")) += count(sample);
            }
            _ => return false,
        }
        true
    }

    fn take_reads(&mut self, sample: &MetricSample<'_>) -> bool {
        let is_list = || sample.label("verb") == "LIST";
        let mut relist = |cause| *self.relists.entry(cause).or_default() += count(sample);
        match sample.name {
            "apiserver_request_duration_seconds_count" if is_list() => self.lists.count += count(sample),
            "apiserver_request_duration_seconds_sum" if is_list() => self.lists.seconds += sample.value,
            "apiserver_watch_list_duration_seconds_count" => self.streams.count += count(sample),
            "apiserver_watch_list_duration_seconds_sum" => self.streams.seconds += sample.value,
            "cache_sent_bytes_total" => self.take_sent(sample),
            "cache_watches_expired_total" => relist("watch expired"),
            "cache_watches_refused_total" => relist("watch refused"),
            "cache_readers_cut_total" if sample.label("reason") == "bytes" => relist("cut for bytes"),
            "cache_readers_cut_total" => relist("cut for time"),
            "cache_marked_streams_total" if sample.label("answer") == "restarted" => relist("marks restarted"),
            _ => return false,
        }
        true
    }

    fn take_sent(&mut self, sample: &MetricSample<'_>) {
        match &*sample.label("verb") {
            "LIST" => self.lists_sent_bytes += count(sample),
            "WATCH" => self.watches_sent_bytes += count(sample),
            _ => {}
        }
        let (resource, group) = (sample.label("resource"), sample.label("group"));
        let id = if group.is_empty() { resource.into_owned() } else { format!("{resource}.{group}") };
        if !id.is_empty() {
            slot(&mut self.types, &id).sent_bytes += count(sample);
        }
    }

    fn take_level(&mut self, sample: &MetricSample<'_>) {
        let Some(name) = sample.name.strip_prefix("apiserver_flowcontrol_") else { return };
        let (levels, level) = (&mut self.levels, sample.label("priority_level"));
        match name {
            "current_executing_seats" => slot(levels, &level).executing_seats += count(sample),
            "current_limit_seats" => slot(levels, &level).limit_seats = count(sample),
            "current_inqueue_requests" => slot(levels, &level).waiting += count(sample),
            "dispatched_requests_total" => slot(levels, &level).dispatched += count(sample),
            "rejected_requests_total" => slot(levels, &level).rejected += count(sample),
            _ => {}
        }
    }
}

/// Returns the figures of a name of the server.
fn slot<'a, F: Default>(all: &'a mut BTreeMap<String, F>, name: &str) -> &'a mut F {
    all.entry(clean(name)).or_default()
}

/// Value of a counter or of a gauge of whole numbers; zero for what is none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, and makes NaN zero")]
fn count(sample: &MetricSample<'_>) -> u64 {
    sample.value as u64
}

/// Open watches, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedWatches {
    pub(crate) watches: Vec<ListedWatch>,
    /// Number of all open watches: more than are listed if they exceed the pages that are read.
    pub(crate) open: usize,
}

/// One page of `/debug/watches`.
#[derive(Debug, Deserialize)]
struct WatchPageDocument {
    #[serde(default)]
    watches: Vec<ListedWatch>,
    #[serde(rename = "continue")]
    next: Option<String>,
    #[serde(default)]
    open: usize,
}

/// One open watch. Members that a server lacks are empty.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ListedWatch {
    pub(crate) user: String,
    pub(crate) user_agent: String,
    pub(crate) peer: Option<String>,
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) state: String,
    pub(crate) waits_for: String,
    pub(crate) resource_version: u64,
    pub(crate) events_behind: u64,
    pub(crate) bytes_queued: u64,
    /// Time of its start, RFC 3339.
    pub(crate) since: String,
    pub(crate) events_sent: u64,
    pub(crate) bytes_sent: u64,
}

impl ListedWatches {
    /// Adds a page of `/debug/watches`. Returns the position of the next one, if there is one.
    pub(crate) fn add(&mut self, page: &[u8]) -> PartResult<Option<u64>> {
        let page: WatchPageDocument = serde_json::from_slice(page).map_err(|error| unreadable(&error))?;
        self.open = page.open;
        self.watches.extend(page.watches.into_iter().map(ListedWatch::cleaned));
        Ok(page.next.and_then(|next| next.parse().ok()))
    }
}

impl ListedWatch {
    fn cleaned(mut self) -> Self {
        let Self { user, user_agent, peer, resource, namespace, .. } = &mut self;
        for text in [user, user_agent, resource, namespace].into_iter().chain(peer) {
            *text = clean(text);
        }
        let Self { label_selector, field_selector, state, waits_for, since, .. } = &mut self;
        for text in [label_selector, field_selector, state, waits_for, since] {
            *text = clean(text);
        }
        self
    }
}

/// The window of one type, and its readers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(crate) struct TypeWindow {
    pub(crate) resource: String,
    /// Number of all readers and positions that keep events.
    pub(crate) holders: u64,
    /// Holders at the oldest positions.
    pub(crate) oldest: Vec<ListedHolder>,
}

/// One reader or position that keeps events.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ListedHolder {
    pub(crate) kind: String,
    pub(crate) user: String,
    pub(crate) events_held: u64,
}

/// Reads `/debug/snapshots`.
pub(crate) fn windows(document: &[u8]) -> PartResult<Vec<TypeWindow>> {
    let mut windows: Vec<TypeWindow> = serde_json::from_slice(document).map_err(|error| unreadable(&error))?;
    for TypeWindow { resource, oldest, .. } in &mut windows {
        *resource = clean(resource);
        for ListedHolder { kind, user, .. } in oldest {
            (*kind, *user) = (clean(kind), clean(user));
        }
    }
    Ok(windows)
}

fn unreadable(error: &serde_json::Error) -> String {
    clean(&format!("not the document of a cache-server: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_names_checks_that_fail_or_have_a_remark() {
        let text = "[+]ping ok\n[+]upstream degraded: 4 s\n[-]storage failed: disk\nreadyz check failed\n";
        let report = HealthReport::read(500, text);
        let remarks = vec!["upstream degraded: 4 s".to_owned(), "storage failed: disk".to_owned()];
        assert_eq!(report, HealthReport { is_ready: false, checks: 3, remarks });
        assert!(HealthReport::read(200, "ok").is_ready);
    }

    #[test]
    fn figures_are_sums_by_type_state_level_and_cause() {
        let figures = Figures::read(concat!(
            "cache_objects{resource=\"pods\"} 7\ncache_window_seconds{resource=\"pods\"} 75.5\n",
            "cache_watchers{resource=\"pods\",state=\"live\"} 2\ncache_watchers{resource=\"nodes\",state=\"live\"} 3\n",
            "cache_epochs_total{resource=\"pods\"} 3\ncache_epochs_total{resource=\"nodes\"} 1\n",
            "cache_readers_cut_total{resource=\"pods\",reader=\"list\",reason=\"bytes\"} 2\n",
            "cache_watches_refused_total{resource=\"pods\"} 4\n",
            "cache_sent_bytes_total{verb=\"LIST\",group=\"apps\",resource=\"deployments\"} 90\n",
            "cache_sent_bytes_total{verb=\"WATCH\",group=\"\",resource=\"pods\"} 40\n",
            "apiserver_request_duration_seconds_sum{verb=\"LIST\"} 1.5\n",
            "apiserver_request_duration_seconds_count{verb=\"LIST\"} 2\n",
            "apiserver_request_duration_seconds_count{verb=\"GET\"} 9\n",
            "apiserver_flowcontrol_current_executing_seats{priority_level=\"a\",flow_schema=\"x\"} 1\n",
            "apiserver_flowcontrol_current_executing_seats{priority_level=\"a\",flow_schema=\"y\"} 2\n",
            "process_resident_memory_bytes 1e6\nprocess_open_fds NaN\n",
        ));
        assert_eq!(figures.types["pods"].objects, 7);
        assert_eq!(figures.types["pods"].window_seconds, Some(75.5));
        assert_eq!(figures.types["deployments.apps"].sent_bytes, 90);
        assert_eq!(figures.watches["live"], 5);
        let causes = ["history restarted", "cut for bytes", "watch refused"];
        assert_eq!(causes.map(|cause| figures.relists[cause]), [2, 2, 4]);
        assert_eq!(figures.lists, ReadFigures { count: 2, seconds: 1.5 });
        assert_eq!((figures.lists_sent_bytes, figures.watches_sent_bytes), (90, 40));
        assert_eq!(figures.levels["a"].executing_seats, 3);
        assert_eq!((figures.resident_bytes, figures.open_files), (1_000_000, 0));
    }

    /// Goal: a name of a user or an object cannot command the terminal. Method: escape sequences in every document.
    #[test]
    fn texts_of_the_server_are_cleaned() {
        let bad = "\u{1b}]0;title\u{7}\u{9b}2J\u{202e}";
        let json = serde_json::to_string(bad).expect("a text");
        let mut table = ListedWatches::default();
        let page = format!(
            "{{\"watches\":[{{\"user\":{json},\"userAgent\":{json},\"peer\":{json},\"state\":{json},\"since\":{json}}}]}}"
        );
        assert_eq!(table.add(page.as_bytes()), Ok(None));
        let snapshots = format!("[{{\"resource\":{json},\"oldest\":[{{\"user\":{json},\"kind\":{json}}}]}}]");
        let windows = windows(snapshots.as_bytes()).expect("a document");
        let metrics = Figures::read(&format!("cache_objects{{resource=\"{bad}\"}} 1\n"));
        let health = HealthReport::read(500, &format!("[-]{bad}\n"));
        let ListedWatch { user, user_agent, peer, state, since, .. } = table.watches.remove(0);
        let TypeWindow { resource, mut oldest, .. } = windows.into_iter().next().expect("a type");
        let ListedHolder { user: holder, kind, .. } = oldest.remove(0);
        let mut texts = vec![user, user_agent, peer.unwrap_or_default(), state, since, resource, holder, kind];
        texts.extend(metrics.types.into_keys().chain(health.remarks));
        assert_eq!(texts.len(), 10);
        for text in texts {
            assert!(text.contains("title") && !text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{text:?}");
        }
        assert_eq!(clean(&"ä".repeat(1_000)).chars().count(), TEXT_CHARS_MAX);
        assert!(table.add(b"<html>").is_err());
    }
}
