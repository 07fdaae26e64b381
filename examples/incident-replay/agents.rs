//! The agents of acts 1 and 2: each of their informers lists the pods of its node, watches, and lists again after its
//! watch broke, as those of the incident did.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use informer_core::{
    Meta,
    limits::OBJECT_BYTES_MAX,
    wire::{
        framer::{Frame, Framer, FramerConfig, Shape},
        watch_event::EventKind,
    },
};
use measured::Failure;
use tokio::time::sleep;

use crate::{
    board::Board,
    http::{Target, Wire, drain, retry_after},
    identities::AGENT,
    plan::NodePods,
};

/// Range of the pause after a failed connection.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// One informer of an agent.
pub(crate) struct ListingClient {
    pub(crate) target: Target,
    pub(crate) board: Arc<Board>,
    /// Its number on the board.
    pub(crate) copy: usize,
    pub(crate) place: Arc<NodePods>,
    /// Version that lists request exactly. 0: lists request the newest state.
    pub(crate) exact: Arc<AtomicU64>,
}

/// End of a watch.
enum WatchEnd {
    /// The server does not know the position any more, or the connection broke.
    ListAgain,
    /// Refused for the moment.
    Later(Duration),
}

impl ListingClient {
    /// Lists and watches until the task is dropped.
    pub(crate) async fn run(self) {
        loop {
            let begun = Instant::now();
            let (mut wire, version) = self.list().await;
            self.board.answered(begun.elapsed());
            self.board.reach(self.copy, version);
            // An error is a broken watch.
            while let Ok(WatchEnd::Later(pause)) = self.watch(&mut wire, version).await {
                sleep(pause).await;
            }
        }
    }

    /// Lists until an attempt is answered. Returns the connection and the state's version.
    async fn list(&self) -> (Wire, u64) {
        let mut pause = PAUSE_MIN;
        let mut wire = None;
        loop {
            match self.try_list(&mut wire).await {
                Ok(ListOutcome::Complete(version)) => {
                    if let Some(wire) = wire.take() {
                        return (wire, version);
                    }
                }
                Ok(ListOutcome::Later(after)) => {
                    self.board.refused.fetch_add(1, Relaxed);
                    sleep(after + Duration::from_secs(1).mul_f64(fastrand::f64())).await;
                }
                Err(_) => {
                    self.board.broken.fetch_add(1, Relaxed);
                    wire = None;
                    sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn try_list(&self, reused: &mut Option<Wire>) -> Result<ListOutcome, Failure> {
        let mut wire = match reused.take().filter(Wire::is_open) {
            Some(wire) => wire,
            None => self.target.connect(AGENT).await?,
        };
        let exact = match self.exact.load(Relaxed) {
            0 => String::new(),
            version => format!("&resourceVersion={version}&resourceVersionMatch=Exact"),
        };
        let answer =
            wire.get(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}{exact}", self.place.node)).await?;
        if let Some(after) = retry_after(answer.status(), answer.headers()) {
            drain(answer.into_body()).await?;
            *reused = Some(wire);
            return Ok(ListOutcome::Later(after));
        }
        if answer.status() != StatusCode::OK {
            return Err(format!("a list: HTTP {}", answer.status()).into());
        }
        let version = self.read_list(answer.into_body()).await?;
        *reused = Some(wire);
        Ok(ListOutcome::Complete(version))
    }

    /// Counts the items of a list and returns its version.
    async fn read_list(&self, mut body: Incoming) -> Result<u64, Failure> {
        let mut framer = framer(Shape::List);
        let (mut items, mut version) = (0, None);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            self.board.bytes.fetch_add(data.len() as u64, Relaxed);
            let mut chunk = &data[..];
            while let Some(frame) = framer.next(&mut chunk)? {
                match frame {
                    Frame::Item(_) => items += 1,
                    Frame::ListEnd(end) => version = end.resource_version.parse().ok(),
                    Frame::Event { .. } | Frame::Skipped(_) | Frame::Status(_) => return Err("no list".into()),
                }
            }
        }
        framer.finish()?;
        if items != self.place.count {
            let NodePods { node, count, .. } = &*self.place;
            self.board.note_wrong(|| format!("a list of {node} has {items} pods, and should have {count}"));
        }
        version.ok_or_else(|| "a list without a version".into())
    }

    /// Watches from `version` until the watch ends.
    async fn watch(&self, wire: &mut Wire, version: u64) -> Result<WatchEnd, Failure> {
        let path = format!(
            "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion={version}&fieldSelector=spec.nodeName%3D{}",
            self.place.node
        );
        let answer = wire.get(&path).await?;
        if let Some(after) = retry_after(answer.status(), answer.headers()) {
            self.board.refused.fetch_add(1, Relaxed);
            drain(answer.into_body()).await?;
            return Ok(WatchEnd::Later(after));
        }
        if answer.status() != StatusCode::OK {
            return Ok(WatchEnd::ListAgain);
        }
        let (mut framer, mut body) = (framer(Shape::Watch), answer.into_body());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            self.board.bytes.fetch_add(data.len() as u64, Relaxed);
            let mut chunk = &data[..];
            while let Some(frame) = framer.next(&mut chunk)? {
                let Frame::Event { kind, object } = frame else { return Ok(WatchEnd::ListAgain) };
                if kind == EventKind::Error {
                    return Ok(WatchEnd::ListAgain);
                }
                if let Ok(version) = Meta::read(object)?.resource_version.parse() {
                    self.board.reach(self.copy, version);
                }
            }
        }
        Ok(WatchEnd::ListAgain)
    }
}

/// Answer to a list.
enum ListOutcome {
    /// Complete, at a version.
    Complete(u64),
    /// Refused for the moment.
    Later(Duration),
}

fn framer(shape: Shape) -> Framer {
    Framer::new(FramerConfig { shape, cut: vec![], object_bytes_max: OBJECT_BYTES_MAX, type_meta: None })
}
