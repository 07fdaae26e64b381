//! `docs/limits.md` has every limit that a client can meet, with its default.

use std::{collections::BTreeMap, fs};

use crate::cargo::root;

const FILES: [&str; 5] = [
    "cache-server/caches/src/limits.rs",
    "cache-server/api/src/limits.rs",
    "cache-server/core/src/limits.rs",
    "cache-server/objects/src/limits.rs",
    "cache-server/caches/src/limits/audit.rs",
];

/// Limits that no client or operator of the server meets: of costs within a request, of the commands, and of internal
/// queues.
const INTERNAL: &[&str] = &[
    // Lengths of error texts.
    "ALLOWED_BYTES_MAX",
    "ALLOWED_VALUES_MAX",
    // Costs of one step of work, and choices between two ways with equal results.
    "APART_BYTES",
    "BATCH_BYTES",
    "BYTES_PER_STEP",
    "CELLS_KEPT_MAX",
    "CONDITIONS_PER_OBJECT",
    "CONVERSION_PAUSE",
    "CONVERTED_AT_ONCE",
    "CONVERTED_BYTES",
    "DELETION_MARK_BYTES_MAX",
    "HEAVY_OBJECTS_MAX",
    "HTTP2_BYTES_PER_CONTROL_FRAME",
    "KEEPALIVE_EVERY",
    "KEEPALIVE_TRIES",
    "LONG_SELECTOR_WEIGHT",
    "EVENTS_PER_LOCK",
    "EVICTED_PER_LOCK",
    "EXACT_STATES_KEPT",
    "FILTERS_SHARED_MAX",
    "GROUP_BYTES",
    "GROUP_BYTES_MAX",
    "GZIP_BYTES_MIN",
    "HTTP2_READ_SHORT",
    "HTTP2_RECEIVE_BYTES_MAX",
    "HTTP2_SMALL_PAGE_BYTES",
    "HTTP2_STREAMS_STARTED",
    "HTTP2_STREAM_BYTES",
    "KEYS_SEARCHED_MAX",
    "LARGE_BYTES_MIN",
    "LARGE_DECODED_BYTES_MIN",
    "LIST_KEYS_MAX",
    "LONG_CELLS_BYTES_MAX",
    "LOOKED_AT_PER_STEP",
    "LOOKS_PER_TURN",
    "OPENAPI_BYTES_MAX",
    "PATTERN_BYTES_MAX",
    "PATTERN_CACHE_BYTES",
    "PATTERN_STATES",
    "PIECES_BYTES_MAX",
    "QUOTA_TURNS_MAX",
    "STORED_TYPES_UNSWEPT",
    "READ_PER_STEP",
    "READ_TURN_BYTES",
    "REQUIREMENTS_SKETCHED_MAX",
    "ROW_APART_BYTES",
    "ROW_BYTES_MIN",
    "ROW_EFFORT",
    "ROW_LOOKS_MIN",
    "ROW_LOOKS_PER_BYTE",
    "SHARED_BYTES_MIN",
    "SHARED_PART_MIN",
    "SLICES_MAX",
    "SOCKET_SEND_BYTES",
    "STATES_PER_STEP",
    "STEPS_PER_VALUE",
    "TLS_UNSENT_BYTES_MAX",
    "UNDO_INLINE_MAX",
    "UNREAD_BYTES_MAX",
    "VALUES_SKETCHED_MAX",
    "VERDICTS_KEPT",
    "WEIGHT_UNREAD",
    // Rules of schemas, in tests.
    "CALL_STEPS_MAX",
    "CONDITIONS_STEPS_MAX",
    "DIGITS_MAX",
    "EXPRESSIONS_BYTES_MAX",
    "EXPRESSION_BYTES_MAX",
    "EXPRESSION_DEPTH_MAX",
    "OBJECT_STEPS_MAX",
    "PATTERN_STEPS",
    "POLICY_PARAMETERS_MAX",
    "POLICY_STEPS_MAX",
    "RULE_MESSAGE_BYTES_MAX",
    "STEP_BYTES",
    "VALIDATION_STEPS_MAX",
    "VALUE_LEVELS_MAX",
    // Other admission, in tests.
    "RANGE_DEFAULTS_MAX",
    // Admission webhooks, in tests.
    "WEBHOOKS_AT_ONCE",
    "WEBHOOK_ANSWER_BYTES_MAX",
    "WEBHOOK_CALL_BYTES_MIN",
    "WEBHOOK_IDLE_CONNECTIONS_MAX",
    "WEBHOOK_LONG_ANSWERS_MAX",
    "WEBHOOK_SHORT_ANSWER_BYTES_MAX",
    // Files, tasks and memory of the process.
    "ARENA_FREE_END_MAX",
    "DISK_CACHE_BYTES",
    "DISK_QUEUE_CHECK_EVERY",
    "DISK_REOPEN_PAUSE",
    "DISK_REWRITE_BYTES",
    "DURABLE_BATCH_BYTES_MAX",
    "DURABLE_BATCH_MAX",
    "DURABLE_REMOVALS_MAX",
    "ENDS_SPREAD",
    "FILES_RESERVED",
    "HISTORY_TRIMMED_MAX",
    "HISTORY_TRIMMED_WHEN_FULL",
    "HISTORY_TRIMS_WHEN_FULL",
    "LOGGED_CHARS_MAX",
    "WATCH_ENDS_LOGGED",
    "POSITION_GAPS_MAX",
    "READER_CHARS_MAX",
    "RESTART_PAUSE",
    "RESTART_PAUSE_MAX",
    "SAVED_EVERY",
    "SAVED_FILE_WAIT",
    "SAVED_FOLDER_CHECK_EVERY",
    "SAVED_GROWTH_MIN",
    "SAVED_QUEUE_BYTES_MAX",
    "SAVED_QUEUE_MAX",
    "SAVED_RETRY",
    "SAVED_RETRY_MAX",
    "SEAT_CHECK_EVERY",
    "SEAT_CHECK_EVERY_HELD",
    "TRIM_BYTES",
    "TRIM_EVERY",
    "UPGRADE_ANSWERS_WAIT",
    "UPGRADE_CHECK_EVERY",
    "UPGRADE_WAIT",
    "UPGRADE_WARM_WAIT",
    // Connections to the upstream, and what is kept of its answers.
    "DENIAL_AGE_MIN",
    "DOUBTED_RIGHT_RETRY_MAX",
    "EXPIRED_TOKEN_LEEWAY",
    "EXPIRY_MARGIN",
    "EXPLAINED_RIGHT_ASKED_EVERY",
    "IDENTITY_CHECKED_EVERY",
    "IDENTITY_WAIT",
    "MIRROR_BYTES_MAX",
    "MIRROR_DOCUMENTS_MAX",
    "MIRROR_DOCUMENT_BYTES_MAX",
    "MIRROR_FILLS_MAX",
    "MIRROR_KEY_BYTES_MAX",
    "REASONS_WAIT",
    "RECHECKED_AGE",
    "RECHECKS_MAX",
    "RECHECK_EVERY",
    "RECHECK_PAUSE",
    "REVIEW_TEXT_BYTES_MAX",
    "RIGHT_ASKED_EVERY",
    "RIGHT_RETRY",
    "ROLES_SILENT_MAX",
    "START_RETRY_PAUSE",
    "TUNNEL_BYTES",
    "UPSTREAM_HTTP2_WINDOW_BYTES",
    "UPSTREAM_IDLE_MAX",
    "UPSTREAM_IDLE_WAIT",
    "UPSTREAM_KEEPALIVE_EVERY",
    "UPSTREAM_KEEPALIVE_TRIES",
    "UPSTREAM_PIECE_BYTES",
    "UPSTREAM_READ_BYTES",
    "UPSTREAM_RECEIVE_BYTES",
    "UPSTREAM_RETRY_AFTER_SECONDS",
    "UPSTREAM_UNSENT_BYTES_MAX",
    "WITHDRAWN_END_WAIT",
    // Of the commands populate, churn and storage, and of loading at the start.
    "CHURN_DRAIN",
    "CHURN_PAGE",
    "CHURN_RATE_MAX",
    "CLIENT_ANSWER_BYTES_MAX",
    "CLIENT_ANSWER_WAIT",
    "CLIENT_CONNECTIONS",
    "CLIENT_CONNECT_WAIT",
    "CLIENT_MESSAGE_CHARS_MAX",
    "IMPORT_BATCH_BYTES_MAX",
    "IMPORT_BATCH_MAX",
    "MANIFEST_BYTES_MAX",
    "MANIFEST_DEPTH_MAX",
    "POPULATE_BATCH",
    "POPULATE_BATCHES",
    "POPULATE_MAX",
];

/// Limits in another place than a row of their own: the page, and a text there that has the value.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("AUDIT_BACKUPS", "audit.md", "`--audit-log-maxbackup N` | 100 |"),
    ("AUDIT_BODY_BYTES_MAX", "audit.md", "a body of more than 100 KiB"),
    ("AUDIT_FILE_BYTES", "audit.md", "`--audit-log-maxsize MIB` | 100 MiB |"),
    ("AUDIT_QUEUE_BYTES_MAX", "audit.md", "At most 8 MiB wait"),
    ("AUDIT_WAIT_MAX", "audit.md", "waits for the disk, at most 1 s"),
    ("BODY_PIECEMEAL_BYTES", "limits.md", "long bodies (above 256 KiB)"),
    ("BODY_RATE_AFTER", "limits.md", "504 after 3 s"),
    ("DISK_RESERVE_BYTES_MIN", "limits.md", "until 2 MiB of it are free"),
    ("FILE_CHECK_EVERY", "access.md", "are read again every 2 s"),
    ("HISTORY_AGE", "storage.md", "changes of the last 10 minutes"),
    ("HISTORY_BYTES_MAX", "storage.md", "256 MiB of superseded versions"),
    ("HISTORY_CHANGES_MAX", "storage.md", "500,000 changes"),
    ("HTTP2_PING_EVERY", "limits.md", "after 1 min of silence"),
    ("JWKS_AGE", "access.md", "fetched every 5 minutes"),
    ("JWKS_FETCH_PAUSE", "access.md", "unknown key ids at most every 10 s"),
];

/// The value of a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Number(u64),
    Milliseconds(u64),
}

/// Goal: an operator finds each limit, and reads the value that holds. Method: the constants of all `limits.rs`, and their
/// rows in the page.
#[test]
fn the_page_of_limits_has_each_of_them() {
    let page = fs::read_to_string(root().join("docs/limits.md")).expect("the page");
    let rows = rows(&page);
    let constants = constants();
    assert!(constants.len() > 150, "{} constants were found", constants.len());
    let mut wrong = Vec::new();
    for (name, value) in &constants {
        let is_elsewhere = ELSEWHERE.iter().any(|(elsewhere, ..)| elsewhere == name);
        let is_internal = is_elsewhere || INTERNAL.contains(&name.as_str());
        match rows.get(name.as_str()) {
            Some(_) if is_internal => wrong.push(format!("{name} is in the page and in the list of internal ones")),
            Some(written) if value.is_some_and(|value| in_its_unit(name, value) != *written) => {
                wrong.push(format!("{name} is {value:?}, and the page has {written}"));
            }
            None if !is_internal => wrong.push(format!("{name} is missing in docs/limits.md")),
            Some(_) | None => {}
        }
    }
    let is_known = |name: &&str| constants.contains_key(*name);
    wrong.extend(INTERNAL.iter().filter(|name| !is_known(name)).map(|name| format!("{name} does not exist")));
    let fields = fs::read_to_string(root().join(FILES[2])).expect("a readable file");
    for name in rows.keys().filter(|name| !is_known(name)) {
        let is_field = fields.contains(&format!("pub {name}: "));
        wrong.extend((!is_field).then(|| format!("{name} of the page does not exist")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Goal: a limit that a page has in its text has that value. Method: the texts of [`ELSEWHERE`], and the constants.
#[test]
fn pages_have_the_limits_in_their_texts() {
    let constants = constants();
    for (name, page, text) in ELSEWHERE {
        let written = fs::read_to_string(root().join("docs").join(page)).expect("a page");
        assert!(written.contains(text), "{name}: docs/{page} has no \"{text}\"");
        let value = constants.get(*name).copied().flatten().expect("a constant with a value");
        let expected = in_its_unit(name, value);
        assert!(text.contains(&expected), "{name} is {expected}: \"{text}\" in docs/{page}");
    }
}

/// The defaults of the page, by the name in the first cell of their rows.
fn rows(page: &str) -> BTreeMap<&str, &str> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let named = cells.filter_map(|(limit, rest)| {
        let name = limit.split_once(": `")?.1.strip_suffix('`')?;
        Some((name, rest.split(" | ").next()?))
    });
    named.collect()
}

/// All constants, with the values of those that are numbers or durations.
fn constants() -> BTreeMap<String, Option<Value>> {
    let mut found = BTreeMap::new();
    for file in FILES {
        let source = fs::read_to_string(root().join(file)).expect("a readable file");
        for line in source.lines().filter_map(|line| line.strip_prefix("pub const ")) {
            let Some((name, (_, text))) =
                line.split_once(": ").and_then(|(name, rest)| Some((name, rest.split_once(" = ")?)))
            else {
                continue;
            };
            let value = value(text.trim_end_matches(';'), &found);
            found.insert(name.to_owned(), value);
        }
    }
    found
}

/// Evaluates a number, a duration, or two numbers with an operator.
fn value(text: &str, known: &BTreeMap<String, Option<Value>>) -> Option<Value> {
    let number = |text: &str| match known.get(text) {
        Some(Some(Value::Number(number))) => Some(*number),
        Some(_) => None,
        None => text.replace('_', "").parse().ok(),
    };
    for (unit, milliseconds) in [("from_millis", 1), ("from_secs", 1_000), ("from_mins", 60_000)] {
        let inner = text.strip_prefix("Duration::").and_then(|text| text.strip_prefix(unit)?.strip_prefix('('));
        if let Some(inner) = inner {
            return Some(Value::Milliseconds(number(inner.strip_suffix(')')?)? * milliseconds));
        }
    }
    let parts: Vec<&str> = text.split(' ').collect();
    match *parts {
        [one] => number(one).map(Value::Number),
        [one, "<<", two] => Some(Value::Number(number(one)? << number(two)?)),
        [one, "*", two] => Some(Value::Number(number(one)? * number(two)?)),
        [one, "/", two] => Some(Value::Number(number(one)? / number(two)?)),
        _ => None,
    }
}

/// The value as pages write it, in the unit that its name has.
fn in_its_unit(name: &str, value: Value) -> String {
    match value {
        Value::Milliseconds(time) if time % 60_000 == 0 => format!("{} min", time / 60_000),
        Value::Milliseconds(time) if time % 1_000 == 0 => format!("{} s", time / 1_000),
        Value::Milliseconds(time) => format!("{time} ms"),
        Value::Number(bytes) if name.contains("BYTES") || name == "BODY_RATE_MIN" => size(bytes),
        Value::Number(number) => grouped(number),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 19) => format!("{}.5 MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => grouped(bytes),
    }
}

/// Writes a number with commas.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
