//! This server in front of a stock kube-apiserver.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use http::Method;
use serde_json::Value;

use super::Failure;
use crate::{
    load::{
        client::{Connection, JSON, Target},
        failure::{Failure as LoadFailure, Kind},
        fanout::subject::{Kind as ObjectKind, Scope, Subject},
        writer::{self, Pace},
    },
    numbers::{
        case::Setup,
        server::{Endpoint, Server, ready, settle},
        stock::Stock,
    },
};

/// Timeout of a start, until all types are cached.
const READY_WAIT: Duration = Duration::from_secs(180);

/// A running `cache-server serve --upstream`.
pub(super) struct FrontServer {
    server: Server,
    /// With the token of the load's user.
    endpoint: Endpoint,
    /// Time from the start of the process until it was ready, with all named types cached.
    pub(super) ready_after: Duration,
}

impl FrontServer {
    /// Starts it in front of `stock` with these types cached, and waits until it is ready and has settled. Its clients
    /// use TLS.
    pub(super) fn start(stock: &Stock, resources: &str) -> Result<Self, Failure> {
        Self::start_over(stock, resources, true)
    }

    /// Like [`start`](Self::start), with or without TLS for its clients.
    pub(super) fn start_over(stock: &Stock, resources: &str, tls: bool) -> Result<Self, Failure> {
        let server = Server::launch(&Setup { tls, flags: flags(stock.endpoint(), resources), ..Setup::default() })?;
        let token_file = stock.endpoint().token_file.clone();
        let endpoint = Endpoint { token_file, ..server.endpoint().clone() };
        ready(&endpoint, READY_WAIT)?;
        let ready_after = server.begun.elapsed();
        settle(endpoint.pid)?;
        Ok(Self { server, endpoint, ready_after })
    }

    pub(super) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) const fn pid(&self) -> u32 {
        self.server.endpoint().pid
    }
}

fn flags(upstream: &Endpoint, resources: &str) -> Vec<String> {
    let text = |file: &Option<PathBuf>| file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
    let flags = [
        ("upstream", upstream.url.clone()),
        ("upstream-ca", text(&upstream.ca)),
        ("upstream-token-file", text(&upstream.token_file)),
        ("resources", resources.to_owned()),
    ];
    flags.map(|(name, value)| format!("--{name}={value}")).into()
}

/// Objects for the load's writer, with names that no other case uses.
pub(super) fn subject(kind: ObjectKind, scope: Scope, objects: usize, groups: usize) -> Subject {
    let run = format!("{:x}", writer::nanos() / 1_000_000);
    Subject { kind, scope, objects, groups, run, padding: 0 }
}

/// Single writes at a rate.
pub(super) const fn pace(rate: f64, seconds: u64) -> Pace {
    Pace { rate, burst: 1, time: Duration::from_secs(seconds) }
}

/// Path and query of a watch of a whole type after a position.
pub(super) fn watch_path(watched: &str, position: &str) -> String {
    format!("{watched}watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion={position}")
}

/// A position that the server has, from a consistent list. `watched` ends with `?` or `&`.
pub(super) async fn position(server: &Target, watched: &str) -> Result<String, LoadFailure> {
    let mut connection = server.connect().await?;
    let body = writer::send(&mut connection, Method::GET, &format!("{watched}limit=1"), None).await?;
    let list: Value = serde_json::from_slice(&body).map_err(|error| LoadFailure::new(Kind::Protocol, error))?;
    let position = list["metadata"]["resourceVersion"].as_str();
    position.map(str::to_owned).ok_or_else(|| LoadFailure::new(Kind::Protocol, "a list without a resourceVersion"))
}

/// Two connections with requests that alternate: one directly to kube-apiserver, one through this server.
pub(super) struct RequestPair {
    direct: Connection,
    through: Connection,
    /// True if the next request goes through this server first.
    is_turned: bool,
    /// Seconds of each request.
    pub(super) times: PairTimes,
}

/// Seconds of the requests of each side.
#[derive(Debug, Default)]
pub(super) struct PairTimes {
    pub(super) direct: Vec<f64>,
    pub(super) through: Vec<f64>,
}

impl RequestPair {
    pub(super) async fn connect(direct: &Target, through: &Target) -> Result<Self, LoadFailure> {
        let (direct, through) = (direct.connect().await?, through.connect().await?);
        Ok(Self { direct, through, is_turned: false, times: PairTimes::default() })
    }

    /// Sends a request to each side, in turns first to one or the other.
    pub(super) async fn send(
        &mut self,
        method: &Method,
        path: &str,
        body: Option<(&str, &str)>,
    ) -> Result<(), LoadFailure> {
        self.send_after(|| Duration::ZERO, method, path, body).await
    }

    /// Like [`send`](Self::send), with a pause before each of the two.
    pub(super) async fn send_after(
        &mut self,
        pause: impl Fn() -> Duration,
        method: &Method,
        path: &str,
        body: Option<(&str, &str)>,
    ) -> Result<(), LoadFailure> {
        for is_through in [self.is_turned, !self.is_turned] {
            let connection = if is_through { &mut self.through } else { &mut self.direct };
            let body = body.map(|(kind, text)| (kind, text.to_owned()));
            let pause = pause();
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let begun = Instant::now();
            let answer = writer::send(connection, method.clone(), path, body).await?;
            let seconds = begun.elapsed().as_secs_f64();
            if answer.is_empty() {
                return Err(LoadFailure::new(Kind::Protocol, format!("an empty answer to {path}")));
            }
            if is_through { &mut self.times.through } else { &mut self.times.direct }.push(seconds);
        }
        self.is_turned = !self.is_turned;
        Ok(())
    }
}

/// Creates an object of JSON through kube-apiserver.
pub(super) async fn create(target: &Target, collection: &str, json: String) -> Result<(), LoadFailure> {
    let mut connection = target.connect().await?;
    writer::send(&mut connection, Method::POST, collection, Some((JSON, json))).await.map(drop)
}
