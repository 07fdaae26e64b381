//! The contents of one picture, from readings: lines of a summary, and tables. Without I/O.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use crate::{
    grid::{Datum, Grid, GridColumn},
    limits::MEMORY_READINGS_MAX,
    reading::{Figures, ListedHolder, ListedWatch, ListedWatches, PartResult, ReadFigures, ServerReading, TypeWindow},
};

/// The last readings of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadingHistory {
    last: Option<ServerReading>,
    /// Metrics before those of `last`, with their time.
    before: Option<(f64, Figures)>,
    /// Resident bytes, the oldest first.
    memory: VecDeque<u64>,
}

impl ReadingHistory {
    pub(crate) fn add(&mut self, reading: ServerReading) {
        if let Ok(figures) = &reading.figures {
            if self.memory.len() >= MEMORY_READINGS_MAX {
                self.memory.pop_front();
            }
            self.memory.push_back(figures.resident_bytes);
        }
        if let Some(ServerReading { at, figures: Ok(figures), .. }) = self.last.replace(reading) {
            self.before = Some((at, figures));
        }
    }

    /// Returns the picture of the last reading, and `problem`: the reason why there is no newer one.
    pub(crate) fn frame(&self, server: &str, problem: Option<&str>) -> TopFrame {
        let mut frame = TopFrame { title: format!("cache-server at {server}"), ..TopFrame::default() };
        frame.problem = problem.map(ToOwned::to_owned);
        let Some(reading) = &self.last else { return frame };
        frame.memory = self.memory.iter().copied().collect();
        frame.lines.push(("health", health(reading)));
        match &reading.figures {
            Ok(figures) => {
                if figures.started > 0.0 {
                    frame.title += &format!(", up {}", Datum::Seconds((reading.at - figures.started).max(0.0)));
                }
                frame.lines.extend(self.summary(reading, figures));
            }
            Err(reason) => frame.lines.push(("metrics", reason.clone())),
        }
        frame.tables = vec![self.types(reading), watches(reading), levels(&reading.figures)];
        frame
    }

    fn summary(&self, reading: &ServerReading, figures: &Figures) -> Vec<(&'static str, String)> {
        let [memory, connections, files, max] = [
            Datum::Bytes(figures.resident_bytes),
            Datum::Count(figures.connections),
            Datum::Count(figures.open_files),
            Datum::Count(figures.max_files),
        ];
        let mut process = format!("{memory} resident, {connections} connections, {files} of {max} files");
        if let Some(busy) = self.rate(reading.at, figures.cpu_seconds, |before| before.cpu_seconds) {
            process = format!("{:.0} % CPU, {process}", busy * 100.0);
        }
        let state = |name: &str| Datum::Count(figures.watches.get(name).copied().unwrap_or_default());
        let watches = format!(
            "{}: {} live, {} catching up, {} initial, {} parked, {} sent",
            Datum::Count(figures.watches.values().sum()),
            state("live"),
            state("catching_up"),
            state("initial"),
            state("parked"),
            Datum::Bytes(figures.watches_sent_bytes)
        );
        let reads = |ReadFigures { count, seconds }: ReadFigures| {
            #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
            let mean = Datum::Seconds(seconds / count.max(1) as f64);
            format!("{}, mean {mean}", Datum::Count(count))
        };
        let lists = format!("{}, {} sent", reads(figures.lists), Datum::Bytes(figures.lists_sent_bytes));
        let total = |count: &dyn Fn(&crate::reading::LevelFigures) -> u64| {
            Datum::Count(figures.levels.values().map(count).sum())
        };
        let flow = format!(
            "{} seats in use, {} requests waiting, {} refused",
            total(&|level| level.executing_seats),
            total(&|level| level.waiting),
            total(&|level| level.rejected)
        );
        let mut lines = vec![("process", process), ("watches", watches)];
        if let Ok(table) = &reading.watches {
            lines.push(("lag", lag(table)));
        }
        lines.extend([("lists", lists), ("streams", reads(figures.streams))]);
        lines.extend([("relists", relists(&figures.relists)), ("flow", flow)]);
        lines
    }

    /// Growth per second since the metrics before.
    fn rate(&self, at: f64, now: f64, before: impl Fn(&Figures) -> f64) -> Option<f64> {
        let (since, figures) = self.before.as_ref()?;
        let seconds = at - since;
        // A server that was started again begins at zero.
        (seconds > 0.0).then(|| ((now - before(figures)) / seconds).max(0.0))
    }

    fn types(&self, reading: &ServerReading) -> Grid {
        let windows: BTreeMap<&str, &TypeWindow> =
            reading.windows.iter().flatten().map(|window| (window.resource.as_str(), window)).collect();
        let figures = reading.figures.as_ref();
        let note =
            figures.err().cloned().or_else(|| reading.windows.as_ref().err().map(|why| format!("HELD BY: {why}")));
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = |name: &str, events: u64| {
            let before = |figures: &Figures| figures.types.get(name).map_or(0.0, |ty| ty.events as f64);
            self.rate(reading.at, events as f64, before).map_or(Datum::Absent, Datum::Rate)
        };
        let rows = figures.into_iter().flat_map(|figures| &figures.types).map(|(name, ty)| {
            vec![
                Datum::Text(name.clone()),
                Datum::Count(ty.objects),
                Datum::Count(ty.watches),
                rate(name, ty.events),
                Datum::Count(ty.window_events),
                Datum::Bytes(ty.window_bytes),
                ty.window_seconds.map_or(Datum::Absent, Datum::Seconds),
                Datum::Bytes(ty.sent_bytes),
                windows.get(name.as_str()).map_or(Datum::Absent, |window| Datum::Text(holders(window))),
            ]
        });
        Grid { name: "types", columns: TYPE_COLUMNS, rows: rows.collect(), note }
    }
}

/// One picture. Its texts contain no control characters.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopFrame {
    pub(crate) title: String,
    /// Reason why the server cannot be read: the rest is older.
    pub(crate) problem: Option<String>,
    /// Names and texts.
    pub(crate) lines: Vec<(&'static str, String)>,
    /// Resident bytes over time, the oldest first.
    pub(crate) memory: Vec<u64>,
    pub(crate) tables: Vec<Grid>,
}

/// Width of the names of a summary's lines.
const NAME_WIDTH: usize = 9;

/// A line of a summary.
pub(crate) fn summary_line(name: &str, text: &str) -> String {
    format!("{name:<NAME_WIDTH$}{text}")
}

impl TopFrame {
    /// Returns the picture as lines of plain text, with all rows and columns.
    pub(crate) fn text(&self) -> String {
        let mut lines = vec![self.title.clone()];
        lines.extend(self.problem.iter().map(|problem| summary_line("problem", problem)));
        lines.extend(self.lines.iter().map(|(name, text)| summary_line(name, text)));
        for grid in &self.tables {
            lines.extend([String::new(), grid.name.to_uppercase()]);
            lines.extend(grid.note.clone());
            if !grid.rows.is_empty() {
                lines.extend(grid.lines(usize::MAX / 2));
            }
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

const TYPE_COLUMNS: &[GridColumn] = &[
    GridColumn { name: "TYPE", rank: 0 },
    GridColumn { name: "OBJECTS", rank: 1 },
    GridColumn { name: "WATCHES", rank: 2 },
    GridColumn { name: "CHANGES/S", rank: 4 },
    GridColumn { name: "WINDOW", rank: 6 },
    GridColumn { name: "BYTES", rank: 3 },
    GridColumn { name: "COVERS", rank: 3 },
    GridColumn { name: "SENT", rank: 5 },
    GridColumn { name: "HELD BY", rank: 7 },
];

const WATCH_COLUMNS: &[GridColumn] = &[
    GridColumn { name: "USER", rank: 0 },
    GridColumn { name: "TYPE", rank: 1 },
    GridColumn { name: "STATE", rank: 2 },
    GridColumn { name: "WAITS FOR", rank: 3 },
    GridColumn { name: "BEHIND", rank: 3 },
    GridColumn { name: "AGE", rank: 5 },
    GridColumn { name: "SENT", rank: 6 },
    GridColumn { name: "EVENTS", rank: 7 },
    GridColumn { name: "QUEUED", rank: 8 },
    GridColumn { name: "AGENT", rank: 4 },
    GridColumn { name: "VERSION", rank: 9 },
    GridColumn { name: "PEER", rank: 11 },
    GridColumn { name: "SELECTS", rank: 10 },
];

const LEVEL_COLUMNS: &[GridColumn] = &[
    GridColumn { name: "PRIORITY LEVEL", rank: 0 },
    GridColumn { name: "SEATS", rank: 1 },
    GridColumn { name: "LIMIT", rank: 2 },
    GridColumn { name: "WAITING", rank: 1 },
    GridColumn { name: "SERVED", rank: 3 },
    GridColumn { name: "REFUSED", rank: 2 },
];

fn health(reading: &ServerReading) -> String {
    match &reading.health {
        Ok(report) => {
            let state = if report.is_ready { "ready" } else { "NOT READY" };
            let remarks =
                if report.remarks.is_empty() { String::new() } else { format!(": {}", report.remarks.join("; ")) };
            format!("{state}, {} checks{remarks}", report.checks)
        }
        Err(reason) => reason.clone(),
    }
}

/// The number of watches by the events that they have not read.
fn lag(table: &ListedWatches) -> String {
    const STEPS: [(u64, &str); 5] = [(0, "0"), (9, "1-9"), (99, "10-99"), (999, "100-999"), (u64::MAX, "1000+")];
    let mut counts = [0_u64; STEPS.len()];
    for watch in &table.watches {
        let step = STEPS.iter().position(|(most, _)| watch.events_behind <= *most).unwrap_or_default();
        counts[step] += 1;
    }
    let steps: Vec<String> =
        STEPS.iter().zip(counts).map(|((_, name), count)| format!("{name}: {}", Datum::Count(count))).collect();
    format!("{} events", steps.join(", "))
}

fn relists(causes: &BTreeMap<&'static str, u64>) -> String {
    let some: Vec<String> = causes
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(cause, count)| format!("{cause} {}", Datum::Count(*count)))
        .collect();
    if some.is_empty() { "none".to_owned() } else { some.join(", ") }
}

/// The readers of a window: their number, and the one that keeps most events.
fn holders(window: &TypeWindow) -> String {
    let most = window.oldest.iter().max_by_key(|holder| holder.events_held).filter(|holder| holder.events_held > 0);
    match most {
        Some(ListedHolder { kind, user, events_held }) => {
            let user = if user.is_empty() { String::new() } else { format!(" of {user}") };
            format!("{} ({kind}{user}: {} events)", window.holders, Datum::Count(*events_held))
        }
        None => window.holders.to_string(),
    }
}

fn watches(reading: &ServerReading) -> Grid {
    let note = match &reading.watches {
        Err(reason) => Some(reason.clone()),
        Ok(ListedWatches { watches, open }) if watches.len() < *open => {
            Some(format!("the oldest {} of {}", watches.len(), Datum::Count(*open as u64)))
        }
        Ok(_) => None,
    };
    let rows = reading.watches.iter().flat_map(|table| &table.watches).map(|watch| watch_row(watch, reading.at));
    Grid { name: "watches", columns: WATCH_COLUMNS, rows: rows.collect(), note }
}

fn watch_row(watch: &ListedWatch, now: f64) -> Vec<Datum> {
    let waits_for = match watch.waits_for.as_str() {
        "socket" => "its client to read",
        "turn" => "its turn",
        other => other,
    };
    let age = watch.since.parse::<Timestamp>().map(|since| now - since.as_duration().as_secs_f64());
    let namespace = if watch.namespace.is_empty() { String::new() } else { format!("-n {}", watch.namespace) };
    let selects: Vec<&str> = [namespace.as_str(), &watch.label_selector, &watch.field_selector]
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect();
    vec![
        Datum::Text(watch.user.clone()),
        Datum::Text(watch.resource.clone()),
        Datum::Text(watch.state.replace('_', " ")),
        Datum::Text(waits_for.to_owned()),
        Datum::Count(watch.events_behind),
        age.map_or(Datum::Absent, |age| Datum::Seconds(age.max(0.0))),
        Datum::Bytes(watch.bytes_sent),
        Datum::Count(watch.events_sent),
        Datum::Bytes(watch.bytes_queued),
        Datum::Text(watch.user_agent.clone()),
        Datum::Text(watch.resource_version.to_string()),
        Datum::Text(watch.peer.clone().unwrap_or_default()),
        Datum::Text(selects.join(" ")),
    ]
}

fn levels(figures: &PartResult<Figures>) -> Grid {
    let rows = figures.iter().flat_map(|figures| &figures.levels).map(|(name, level)| {
        vec![
            Datum::Text(name.clone()),
            Datum::Count(level.executing_seats),
            Datum::Count(level.limit_seats),
            Datum::Count(level.waiting),
            Datum::Count(level.dispatched),
            Datum::Count(level.rejected),
        ]
    });
    Grid { name: "flow control", columns: LEVEL_COLUMNS, rows: rows.collect(), note: figures.as_ref().err().cloned() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::reading::{self, HealthReport};

    const METRICS: &str = r#"
process_resident_memory_bytes 104857600
process_cpu_seconds_total 10
process_start_time_seconds 1000
process_open_fds 20
process_max_fds 20000
cache_connections 4
cache_objects{resource="pods"} 7130
cache_watchers{resource="pods",state="live"} 2
cache_watchers{resource="pods",state="parked"} 1
cache_window_events{resource="pods"} 500
cache_window_bytes{resource="pods"} 2097152
cache_window_seconds{resource="pods"} 80.5
cache_events_total{resource="pods"} 1000
cache_epochs_total{resource="pods"} 2
cache_watches_expired_total{resource="pods"} 3
apiserver_request_duration_seconds_sum{verb="LIST",resource="pods"} 0.5
apiserver_request_duration_seconds_count{verb="LIST",resource="pods"} 10
apiserver_watch_list_duration_seconds_sum{resource="pods"} 0.02
apiserver_watch_list_duration_seconds_count{resource="pods"} 4
cache_sent_bytes_total{verb="WATCH",group="",resource="pods"} 4096
apiserver_flowcontrol_current_executing_seats{priority_level="system",flow_schema="nodes"} 1
apiserver_flowcontrol_current_limit_seats{priority_level="system"} 117
apiserver_flowcontrol_current_inqueue_requests{priority_level="system",flow_schema="nodes"} 6
"#;

    const WATCHES: &str = r#"{"open": 3, "watches": [
{"user": "system:node:a", "userAgent": "kubelet", "resource": "pods", "state": "live", "waitsFor": "events",
 "fieldSelector": "spec.nodeName=a", "resourceVersion": 77, "since": "1970-01-01T00:20:00Z", "bytesSent": 2048},
{"user": "slow", "userAgent": "agent/1", "resource": "pods", "state": "parked", "waitsFor": "socket",
 "eventsBehind": 120, "bytesQueued": 65536, "resourceVersion": 12, "since": "1970-01-01T00:33:20Z"}]}"#;

    const WINDOWS: &str = r#"[{"resource": "pods", "holders": 2,
"oldest": [{"kind": "list", "user": "slow", "eventsHeld": 120}, {"kind": "page", "eventsHeld": 7}]}]"#;

    /// A server with three watches, of which two are listed, at 2,400 s of Unix time and `later` seconds after it.
    pub(crate) fn reading(later: u32) -> ServerReading {
        let mut watches = ListedWatches::default();
        assert_eq!(watches.add(WATCHES.as_bytes()), Ok(None));
        let mut figures = Figures::read(METRICS);
        figures.cpu_seconds += 0.5 * f64::from(later);
        figures.types.get_mut("pods").expect("a type").events += 20 * u64::from(later);
        ServerReading {
            at: 2_400.0 + f64::from(later),
            health: Ok(HealthReport::read(200, "[+]ping ok\n[+]upstream degraded: 4 s\nreadyz check passed\n")),
            figures: Ok(figures),
            watches: Ok(watches),
            windows: reading::windows(WINDOWS.as_bytes()),
        }
    }

    #[test]
    fn a_frame_has_everything_that_runs_in_a_server() {
        let mut history = ReadingHistory::default();
        history.add(reading(0));
        let text = history.frame("http://a:1", None).text();
        let expected = "\
cache-server at http://a:1, up 23m20s
health   ready, 2 checks: upstream degraded: 4 s
process  100.0 MiB resident, 4 connections, 20 of 20,000 files
watches  3: 2 live, 0 catching up, 0 initial, 1 parked, 4.0 KiB sent
lag      0: 1, 1-9: 0, 10-99: 0, 100-999: 1, 1000+: 0 events
lists    10, mean 50ms, 0 B sent
streams  4, mean 5ms
relists  history restarted 1, watch expired 3
flow     1 seats in use, 6 requests waiting, 0 refused

TYPES
TYPE  OBJECTS  WATCHES  CHANGES/S  WINDOW    BYTES  COVERS     SENT  HELD BY
pods    7,130        3          -     500  2.0 MiB     80s  4.0 KiB  2 (list of slow: 120 events)

WATCHES
the oldest 2 of 3
USER           TYPE  STATE   WAITS FOR           BEHIND     AGE     SENT  EVENTS    QUEUED  AGENT    VERSION  PEER  \
SELECTS
system:node:a  pods  live    events                   0  20m00s  2.0 KiB       0       0 B  kubelet  77             \
spec.nodeName=a
slow           pods  parked  its client to read     120   6m40s      0 B       0  64.0 KiB  agent/1  12

FLOW CONTROL
PRIORITY LEVEL  SEATS  LIMIT  WAITING  SERVED  REFUSED
system              1    117        6       0        0
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn two_readings_have_rates() {
        let mut history = ReadingHistory::default();
        history.add(reading(0));
        history.add(reading(2));
        let frame = history.frame("http://a:1", None);
        assert_eq!(frame.tables[0].rows[0][3], Datum::Rate(20.0));
        assert!(frame.lines[1].1.starts_with("50 % CPU, "), "{:?}", frame.lines[1]);
        assert_eq!(frame.memory, [100 << 20; 2]);
        for later in 0..2 * u32::try_from(MEMORY_READINGS_MAX).expect("small") {
            history.add(reading(later));
        }
        assert_eq!(history.frame("http://a:1", None).memory.len(), MEMORY_READINGS_MAX);
    }

    /// Goal: a caller without rights learns which ones, and sees the rest. Method: each refused part alone.
    #[test]
    fn a_refused_part_is_said_and_the_rest_is_shown() {
        let no = |path: &str| format!("403: needs the right to get {path}");
        let text = |reading: ServerReading| {
            let mut history = ReadingHistory::default();
            history.add(reading);
            history.frame("http://a:1", None).text()
        };
        let without = text(ServerReading { watches: Err(no("/debug/watches")), ..reading(0) });
        assert!(without.contains("WATCHES\n403: needs the right to get /debug/watches\n"), "{without}");
        assert!(without.contains("watches  3: 2 live") && without.contains("pods    7,130"), "{without}");
        let without = text(ServerReading { windows: Err(no("/debug/snapshots")), ..reading(0) });
        assert!(without.contains("HELD BY: 403") && without.contains("pods    7,130"), "{without}");
        let without = text(ServerReading { figures: Err(no("/metrics")), ..reading(0) });
        assert!(without.contains("metrics  403: needs the right to get /metrics\n"), "{without}");
        assert!(without.contains("health   ready") && without.contains("system:node:a"), "{without}");
    }
}
