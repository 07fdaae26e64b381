//! Flags of the scenarios. Errors are one line, before any request is sent.

use std::{fmt::Write as _, fs, path::PathBuf, time::Duration};

use clap::Args;

use super::{
    client::{Access, Buffers, Http, JSON, PROTOBUF, Target, Trust},
    sampler::Memory,
};

/// Open files besides connections.
const OTHER_FILES: u64 = 64;

/// The server, its clients and how they connect.
#[derive(Clone, Debug, Args)]
pub(super) struct Server {
    /// The server: http://HOST[:PORT] or https://HOST[:PORT].
    #[arg(long, value_name = "URL")]
    pub(super) server: String,

    /// Clients.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) clients: u32,

    /// HTTP version: 1 is HTTP/1.1, 2 is HTTP/2.
    #[arg(long, value_name = "1|2", default_value = "1", value_parser = http)]
    http: Http,

    /// PEM file with the certificates of the authorities that may sign the server's.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,

    /// Accept any certificate.
    #[arg(long)]
    insecure: bool,

    /// File with a bearer token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// PEM file with the client's certificate, and those that sign it.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,

    /// PEM file with the key of the client's certificate.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,

    /// Process ID of the server, on this machine: its memory, CPU and sockets are part of the result.
    #[arg(long, value_name = "PID")]
    pub(super) pid: Option<u32>,

    /// Print the result as one line of JSON on stdout; the summary is on stderr either way.
    #[arg(long)]
    pub(super) json: bool,

    /// Maximum of new connections per second.
    #[arg(long, value_name = "N", default_value_t = 2_000.0, value_parser = positive)]
    pub(super) connect_rate: f64,

    /// Size of a socket's receive buffer: bytes, or with kB, MB, KiB, MiB. Left out: chosen by the kernel.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    receive_buffer: Option<u32>,

    /// Threads of this program. Left out: half of the cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,
}

impl Server {
    /// The target. If a receive buffer is given, HTTP/2 stream windows are no larger than it.
    pub(super) fn target(&self, streams: u32) -> Result<Target, String> {
        let trust = match (&self.ca, self.insecure) {
            (Some(file), _) => Some(Trust::Authority(file.clone())),
            (None, true) => Some(Trust::Anybody),
            (None, false) => None,
        };
        let token = self.token_file.as_ref().map(|file| {
            let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            let token = text.trim();
            let plain = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
            if plain { Ok(token.to_owned()) } else { Err(format!("{} holds no token", file.display())) }
        });
        let mut buffers = Buffers { receive_bytes: self.receive_buffer, ..Buffers::default() };
        if let Some(bytes) = self.receive_buffer {
            buffers.stream_window = bytes;
            buffers.connection_window = bytes.saturating_mul(streams).min(i32::MAX.cast_unsigned());
        }
        Target::new(&Access {
            server: self.server.clone(),
            http: self.http,
            trust,
            certificate: self.client_cert.clone().zip(self.client_key.clone()),
            token: token.transpose()?,
            buffers,
        })
    }

    /// Checks that the server's process exists, and raises this process's limit of open files to what it needs.
    pub(super) fn check(&self, streams: u32) -> Result<(), String> {
        if let Some(pid) = self.pid {
            Memory::of(pid).map_err(|error| format!("--pid {pid}: {error}"))?;
        }
        if streams > 1 && self.http == Http::One {
            return Err("--streams needs --http 2".to_owned());
        }
        let needed = u64::from(self.clients.div_ceil(streams)) + OTHER_FILES;
        let limit = rlimit::increase_nofile_limit(u64::MAX).map_err(|error| format!("no limit of files: {error}"))?;
        if limit < needed {
            return Err(format!("{} clients need {needed} open files, and {limit} are allowed", self.clients));
        }
        Ok(())
    }

    /// Sets the receive buffer, unless the flag is given.
    pub(super) fn with_receive_buffer(mut self, bytes: u32) -> Self {
        self.receive_buffer.get_or_insert(bytes);
        self
    }
}

/// Flags of scenarios that read.
#[derive(Clone, Debug, Args)]
pub(super) struct Reading {
    #[command(flatten)]
    pub(super) server: Server,

    /// Path to read, with an optional query. In the path and in selectors {i} is the number of the client, {i%N} that
    /// number modulo N.
    #[arg(long, value_name = "PATH", default_value = "/api/v1/pods", value_parser = path)]
    pub(super) path: String,

    /// Only objects whose labels match. Left out: all.
    #[arg(long, value_name = "SELECTOR")]
    label_selector: Option<String>,

    /// Only objects whose fields match. Left out: all.
    #[arg(long, value_name = "SELECTOR")]
    field_selector: Option<String>,

    /// Request gzip. Compressed responses are decompressed here, at the cost of this program's CPU time.
    #[arg(long)]
    pub(super) gzip: bool,

    /// The media type asked for: JSON or protobuf, or a form of them.
    #[arg(long, value_name = "TYPE", default_value = JSON, value_parser = accept)]
    pub(super) accept: String,

    /// Streams that share a connection, over HTTP/2.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) streams: u32,

    /// Timeout of a client for all that it has to read.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    pub(super) timeout: Duration,

    /// Pause between closing all connections and the last sample of the server.
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    pub(super) settle: Duration,

    /// Objects that each client must find. Left out: all the same number.
    #[arg(long, value_name = "N")]
    pub(super) expect: Option<u64>,

    /// Clients may find different numbers of objects, because something writes meanwhile.
    #[arg(long, conflicts_with = "expect")]
    pub(super) counts_may_differ: bool,
}

impl Reading {
    /// Path and query of client `number`, with the selectors and further parameters.
    pub(super) fn path(&self, number: usize, more: &[(&str, &str)]) -> String {
        let mut out = expand(&self.path, number);
        let selectors = [("labelSelector", &self.label_selector), ("fieldSelector", &self.field_selector)];
        let selectors = selectors.into_iter().filter_map(|(name, value)| Some((name, expand(value.as_ref()?, number))));
        let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
        for (name, value) in selectors.chain(more) {
            out.push(if out.contains('?') { '&' } else { '?' });
            let _ = write!(out, "{name}={}", escaped(&value));
        }
        out
    }

    /// Path and query of a stream that begins with the initial state.
    pub(super) fn watch_list(&self, number: usize) -> String {
        self.path(
            number,
            &[
                ("watch", "true"),
                ("sendInitialEvents", "true"),
                ("resourceVersionMatch", "NotOlderThan"),
                ("allowWatchBookmarks", "true"),
            ],
        )
    }

    /// Path and query of a stream that begins after `position`.
    pub(super) fn watch(&self, number: usize, position: &str) -> String {
        self.path(number, &[("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", position)])
    }
}

/// Replaces `{i}` and `{i%N}` by numbers; other braces stay unchanged.
fn expand(text: &str, number: usize) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{i") {
        let Some((modulus, tail)) = after.split_once('}') else { break };
        let value = match modulus.strip_prefix('%').map(str::parse::<usize>) {
            None if modulus.is_empty() => number,
            Some(Ok(modulus)) if modulus > 0 => number % modulus,
            _ => break,
        };
        let _ = write!(out, "{before}{value}");
        rest = tail;
    }
    out + rest
}

fn escaped(value: &str) -> String {
    value.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

fn http(text: &str) -> Result<Http, String> {
    match text {
        "1" | "1.1" => Ok(Http::One),
        "2" => Ok(Http::Two),
        _ => Err("1 or 2".to_owned()),
    }
}

fn path(text: &str) -> Result<String, String> {
    let good = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if good { Ok(text.to_owned()) } else { Err("must begin with / and be escaped".to_owned()) }
}

fn accept(text: &str) -> Result<String, String> {
    let is_known = text.starts_with(JSON) || text.starts_with(PROTOBUF);
    let good = is_known && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if good { Ok(text.to_owned()) } else { Err(format!("must begin with {JSON} or {PROTOBUF}")) }
}

/// Parses a number above 0.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number > 0.0 && number.is_finite() { Ok(number) } else { Err("must be more than 0".to_owned()) }
}

/// Parses seconds, with an optional fraction.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|_| "not a number of seconds".to_owned())
}

/// Parses bytes with an optional unit, below 2 GiB: the range of sockets and windows.
pub(super) fn size(text: &str) -> Result<u32, String> {
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let units = [("", 1), ("kB", 1_000), ("MB", 1_000_000), ("KiB", 1 << 10), ("MiB", 1 << 20)];
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let bytes = factor.and_then(|factor| digits.parse::<u32>().ok()?.checked_mul(factor));
    bytes
        .filter(|bytes| (1..1 << 31).contains(bytes))
        .ok_or_else(|| "not a size; write bytes, or a number with kB, MB, KiB or MiB, below 2 GiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_clients_are_filled_in() {
        for (text, expected) in [
            ("node-{i}", "node-83"),
            ("node-{i%80}", "node-3"),
            ("{i}/{i%2}", "83/1"),
            ("{i%0} {i", "{i%0} {i"),
            ("{in}", "{in}"),
        ] {
            assert_eq!(expand(text, 83), expected);
        }
    }

    #[test]
    fn sizes_are_positive_and_fit_a_socket() {
        for (text, bytes) in [("1", 1), ("64KiB", 65_536), ("2MB", 2_000_000), ("2047MiB", 2_047 << 20)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "-1", "1.5MB", "2048MiB", "5000MiB", "1GB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_of_a_query_are_escaped() {
        assert_eq!(escaped("app in (a,b),x!=y"), "app%20in%20%28a%2Cb%29%2Cx%21%3Dy");
    }
}
