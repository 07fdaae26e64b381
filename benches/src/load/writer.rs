//! Writes for the watchers: creates objects once, then marks them at a given pace, each object by one connection only.
//!
//! INVARIANT: writes to an object are sequential, so their numbers increase with their resourceVersions.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use hdrhistogram::Histogram;
use http::Method;
use serde_json::Value;
use tokio::{task::JoinSet, time::Instant};

use super::{
    client::{Ask, Connection, Http, JSON, Target},
    failure::{Failure, Failures, Kind},
    fanout::{marks::Mark, subject::Subject},
};

const MERGE_PATCH: &str = "application/merge-patch+json";
/// Maximum bytes of the response to a write, which is the whole object.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Mark of the write that measures the size of an unpadded object.
const FIRST: Mark = Mark { number: u32::MAX, nanos: 0 };

/// Rate and duration of the writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Writes per second.
    pub(crate) rate: f64,
    /// Number of writes that are due at the same time.
    pub(crate) burst: u32,
    pub(crate) time: Duration,
}

impl Pace {
    /// Number of writes for the whole duration, in whole bursts.
    pub(crate) fn writes(&self) -> u32 {
        let bursts = (self.rate * self.time.as_secs_f64() / f64::from(self.burst)).round().max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and far below 2^32")]
        let bursts = bursts as u32;
        bursts * self.burst
    }

    /// Due time of a write, relative to the start.
    fn due(&self, number: u32) -> Duration {
        let burst = number / self.burst;
        Duration::from_secs_f64(f64::from(burst) * f64::from(self.burst) / self.rate)
    }
}

/// The connections that write and the objects they write.
pub(crate) struct Writer {
    subject: Arc<Subject>,
    lanes: Vec<Connection>,
    /// Size of an object as the server sends it.
    bytes: usize,
}

/// Results of the writes.
pub(crate) struct Written {
    /// Numbers of the successful writes.
    pub(crate) numbers: Vec<u32>,
    /// Time from the first write's due time to the last response.
    pub(crate) time: Duration,
    /// Microseconds from sending a write to its response.
    pub(crate) latency: Histogram<u64>,
    pub(crate) failures: Failures,
}

impl Writer {
    /// Connects, creates missing objects, and pads each object to `bytes` bytes as the server sends it.
    pub(crate) async fn prepare(
        target: &Target,
        mut subject: Subject,
        lanes: usize,
        bytes: usize,
    ) -> Result<Self, Failure> {
        let mut first = target.connect().await?;
        for namespace in subject.namespaces() {
            let json = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#);
            create(&mut first, "/api/v1/namespaces", json).await?;
        }
        // Measure the size without padding, since the server adds fields that are unknown here.
        create(&mut first, &subject.collection(&subject.namespace(0)), subject.json(0, false)).await?;
        let bare = patch(&mut first, &subject.path(0), FIRST).await?;
        delete(&mut first, &subject.path(0)).await?;
        subject.padding = bytes.saturating_sub(bare);
        let subject = Arc::new(subject);
        let mut connections = vec![first];
        for _ in 1..lanes {
            let shared = if target.http() == Http::Two { connections[0].another() } else { None };
            connections.push(match shared {
                Some(shared) => shared,
                None => target.connect().await?,
            });
        }
        let mut writer = Self { subject, lanes: connections, bytes: bytes.max(bare) };
        writer.create_all().await?;
        Ok(writer)
    }

    pub(crate) const fn subject(&self) -> &Arc<Subject> {
        &self.subject
    }

    /// Size of an object as the server sends it.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    async fn create_all(&mut self) -> Result<(), Failure> {
        let mut tasks = JoinSet::new();
        let lanes = std::mem::take(&mut self.lanes);
        let step = lanes.len();
        for (lane, mut connection) in lanes.into_iter().enumerate() {
            let subject = Arc::clone(&self.subject);
            tasks.spawn(async move {
                for index in (lane..subject.objects).step_by(step) {
                    let collection = subject.collection(&subject.namespace(index));
                    create(&mut connection, &collection, subject.json(index, true)).await?;
                }
                Ok(connection)
            });
        }
        while let Some(connection) = tasks.join_next().await {
            self.lanes.push(connection.map_err(|error| Failure::new(Kind::Client, error))??);
        }
        Ok(())
    }

    /// The current resourceVersion. A watch from it receives all later writes.
    pub(crate) async fn position(&mut self) -> Result<String, Failure> {
        let path = format!("{}limit=1", self.subject.watched(0));
        let body = send(&mut self.lanes[0], Method::GET, &path, None).await?;
        let list: Value = serde_json::from_slice(&body).map_err(|error| Failure::new(Kind::Protocol, error))?;
        let version = list["metadata"]["resourceVersion"].as_str();
        version.map(str::to_owned).ok_or_else(|| Failure::new(Kind::Protocol, "a list without a resourceVersion"))
    }

    /// Marks objects at this pace, with numbers starting at `from`.
    pub(crate) async fn write(&mut self, pace: Pace, from: u32) -> Written {
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        let lanes = std::mem::take(&mut self.lanes);
        let count = lanes.len();
        for (lane, mut connection) in lanes.into_iter().enumerate() {
            let subject = Arc::clone(&self.subject);
            tasks.spawn(async move {
                let mut written = Written::none();
                for number in (0..pace.writes()).filter(|number| subject.object_of(*number) % count == lane) {
                    tokio::time::sleep_until(start + pace.due(number)).await;
                    written.one(&mut connection, &subject, from + number).await;
                }
                (connection, written)
            });
        }
        let mut all = Written::none();
        while let Some(lane) = tasks.join_next().await {
            match lane {
                Ok((connection, written)) => {
                    self.lanes.push(connection);
                    all.add(written);
                }
                Err(error) => all.failures.add(Failure::new(Kind::Client, error)),
            }
        }
        all.time = start.elapsed();
        all
    }

    /// Deletes the created objects, so that the next run finds the server in the same state.
    pub(crate) async fn clean(&mut self) -> Result<(), Failure> {
        for index in 0..self.subject.objects {
            delete(&mut self.lanes[0], &self.subject.path(index)).await?;
        }
        Ok(())
    }
}

impl Written {
    fn none() -> Self {
        // Three significant digits, up to a minute.
        let latency = Histogram::new_with_max(60_000_000, 3).expect("constant bounds are valid");
        Self { numbers: Vec::new(), time: Duration::ZERO, latency, failures: Failures::default() }
    }

    async fn one(&mut self, connection: &mut Connection, subject: &Subject, number: u32) {
        let sent = Instant::now();
        let path = subject.path(subject.object_of(number));
        match patch(connection, &path, Mark { number, nanos: nanos() }).await {
            Ok(_) => {
                self.numbers.push(number);
                self.latency.saturating_record(u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX));
            }
            Err(failure) => self.failures.add(failure),
        }
    }

    fn add(&mut self, other: Self) {
        self.numbers.extend(other.numbers);
        // Cannot fail: the histograms have equal bounds.
        let _ = self.latency.add(other.latency);
        self.failures.merge(other.failures);
    }
}

/// The current time in nanoseconds since 1970, as in marks.
pub(crate) fn nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Creates an object, unless it exists.
pub(crate) async fn create(connection: &mut Connection, collection: &str, json: String) -> Result<(), Failure> {
    match send(connection, Method::POST, collection, Some((JSON, json))).await {
        Err(failure) if failure.kind != Kind::Status(409) => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Marks an object and returns its new size.
async fn patch(connection: &mut Connection, path: &str, mark: Mark) -> Result<usize, Failure> {
    Ok(send(connection, Method::PATCH, path, Some((MERGE_PATCH, Subject::patch(mark)))).await?.len())
}

/// Deletes an object without a grace period, which pods would otherwise wait for.
async fn delete(connection: &mut Connection, path: &str) -> Result<(), Failure> {
    send(connection, Method::DELETE, &format!("{path}?gracePeriodSeconds=0"), None).await.map(drop)
}

/// Sends a request and returns the whole body of a 2xx response.
pub(crate) async fn send(
    connection: &mut Connection,
    method: Method,
    path: &str,
    body: Option<(&str, String)>,
) -> Result<Vec<u8>, Failure> {
    let body = body.map(|(kind, body)| (kind, Bytes::from(body)));
    connection.send_well(&Ask { method, body, ..Ask::get(path) }).await?;
    connection.collect(ANSWER_BYTES_MAX).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_due_together_and_the_rate_is_kept() {
        let pace = Pace { rate: 200.0, burst: 100, time: Duration::from_secs(3) };
        assert_eq!(pace.writes(), 600);
        let due: Vec<Duration> = [0, 99, 100, 599].map(|number| pace.due(number)).to_vec();
        assert_eq!(due, [0, 0, 500, 2_500].map(Duration::from_millis));
    }

    #[test]
    fn a_run_has_whole_bursts_and_at_least_one() {
        let writes = |rate, burst| Pace { rate, burst, time: Duration::from_secs(1) }.writes();
        assert_eq!((writes(10.0, 100), writes(10.0, 4)), (100, 12));
    }
}
