//! Load for a running server: patches, creates and deletes pods at a steady rate.
//!
//! INVARIANT: every successful write is exactly one event of a watch on pods, and counted exactly once in the summary.
//! INVARIANT: a pod has at most one write in flight, so two writes of churn never conflict.
//! INVARIANT: writes missed during a stall are not made up for: at most one [`TICK`]'s worth is sent at once.

mod latency;
mod pods;

use std::{
    fmt,
    pin::pin,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use self::{
    latency::Latencies,
    pods::{PodWrite, Pods},
};
use super::client::{ClientError, Connection, ServerUrl};
use crate::limits::{CHURN_DRAIN, CHURN_RATE_MAX, CLIENT_CONNECTIONS};

/// Settings of a churn run.
#[derive(Clone, Debug)]
pub struct ChurnSettings {
    /// The server to write to.
    pub server: ServerUrl,
    /// The rate of writes.
    pub rate: Rate,
    /// Length of the run; `None` runs until `stop` resolves.
    pub duration: Option<Duration>,
    /// Equal seeds on equal pods make equal writes, as long as responses arrive in the same order.
    pub seed: u64,
}

/// Writes per second or per minute. Text form: `100/s`, `30/m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
}

/// The text is not a usable rate: one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a rate from 1/m to {CHURN_RATE_MAX}/s; for example 100/s")]
pub struct RateError;

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (count, unit) = text.split_once('/').ok_or(RateError)?;
        let unit = match unit {
            "s" => Unit::Second,
            "m" => Unit::Minute,
            _ => return Err(RateError),
        };
        let count = count.parse().ok().filter(|count| (1..=CHURN_RATE_MAX).contains(count)).ok_or(RateError)?;
        Ok(Self { count, unit })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Second => 's',
            Unit::Minute => 'm',
        };
        write!(f, "{}/{unit}", self.count)
    }
}

impl Rate {
    /// Time between two writes.
    fn pause(self) -> Duration {
        let unit = match self.unit {
            Unit::Second => Duration::from_secs(1),
            Unit::Minute => Duration::from_secs(60),
        };
        unit / self.count
    }
}

/// Shortest time between two ticks. At high rates a tick sends several writes, because timers have millisecond
/// resolution.
const TICK: Duration = Duration::from_millis(10);

/// A token bucket in units of time: each tick earns time, a write spends it, and at most one tick's worth is kept.
struct TokenBucket {
    /// Time between two writes.
    pause: Duration,
    /// Time earned and not yet spent.
    earned: Duration,
}

impl TokenBucket {
    fn new(rate: Rate) -> Self {
        Self { pause: rate.pause(), earned: Duration::ZERO }
    }

    /// Time between two calls of [`Self::earn`].
    fn tick(&self) -> Duration {
        self.pause.max(TICK)
    }

    fn earn(&mut self) {
        let tick = self.tick();
        // Carry over less than one write, so that rates whose pause does not divide the tick are still met on average.
        let left = self.earned.min(self.pause.saturating_sub(Duration::from_nanos(1)));
        self.earned = left + tick;
    }

    const fn is_due(&self) -> bool {
        self.earned.as_nanos() >= self.pause.as_nanos()
    }

    fn spend(&mut self) {
        self.earned -= self.pause;
    }
}

/// Counts and latencies of a run. Displays as one line.
#[derive(Clone, Debug)]
pub struct Summary {
    updated: u64,
    created: u64,
    deleted: u64,
    failed: u64,
    first_failure: Option<String>,
    rate: Rate,
    took: Duration,
    latencies: Latencies,
}

impl Summary {
    fn new(rate: Rate) -> Self {
        let (took, latencies) = (Duration::ZERO, Latencies::new());
        Self { updated: 0, created: 0, deleted: 0, failed: 0, first_failure: None, rate, took, latencies }
    }

    fn failed(&mut self, count: u64, why: impl fmt::Display) {
        if count > 0 {
            self.failed += count;
            self.first_failure.get_or_insert_with(|| why.to_string());
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { updated, created, deleted, failed, first_failure, rate, took, latencies } = self;
        #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
        let done = (updated + created + deleted) as f64;
        let seconds = took.as_secs_f64();
        let achieved = if seconds > 0.0 { done / seconds } else { 0.0 };
        let millis = |percent| latencies.percentile(percent).as_secs_f64() * 1e3;
        write!(
            f,
            "updated {updated}, created {created}, deleted {deleted}, failed {failed} in {seconds:.1} s: \
             {achieved:.1}/s of {rate}, p50 {:.2} ms, p99 {:.2} ms",
            millis(50),
            millis(99)
        )?;
        match first_failure {
            Some(why) => write!(f, "; first failure: {why}"),
            None => Ok(()),
        }
    }
}

/// Writes by `plan` until its duration is over or `stop` resolves. Failed writes are counted and never retried.
///
/// # Errors
/// The pods cannot be listed; no write was sent.
pub async fn run(plan: &ChurnSettings, stop: impl Future<Output = ()>) -> Result<Summary, ClientError> {
    let mut stop = pin!(stop);
    let mut idle: Vec<Connection> = (0..CLIENT_CONNECTIONS).map(|_| Connection::new(plan.server.clone())).collect();
    let mut pods = Pods::new(plan.seed, run_mark());
    tokio::select! {
        listed = pods.list(&mut idle[0]) => listed?,
        () = &mut stop => return Ok(Summary::new(plan.rate)),
    }
    let mut churn = ChurnRun { pods, summary: Summary::new(plan.rate) };
    let mut pace = TokenBucket::new(plan.rate);
    let mut ticks = interval(pace.tick());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut over = pin!(async {
        match plan.duration {
            Some(duration) => sleep(duration).await,
            None => std::future::pending().await,
        }
    });
    let mut open = FuturesUnordered::new();
    let begun = Instant::now();
    loop {
        tokio::select! {
            // The end of the run takes precedence over further writes.
            biased;
            () = &mut stop => break,
            () = &mut over => break,
            Some(done) = open.next() => idle.push(churn.settle(done)),
            _ = ticks.tick() => pace.earn(),
        }
        while pace.is_due()
            && let Some(connection) = idle.pop()
        {
            pace.spend();
            open.push(send(connection, churn.pods.next_write()));
        }
    }
    let drained = async {
        while let Some(done) = open.next().await {
            churn.settle(done);
        }
    };
    let _ = timeout(CHURN_DRAIN, drained).await;
    churn.summary.took = begun.elapsed();
    churn.summary.failed(open.len() as u64, format!("no answer within {} s after the end", CHURN_DRAIN.as_secs()));
    Ok(churn.summary)
}

/// Differs between runs, so that no patch repeats the value of an earlier run, which would be a no-op.
fn run_mark() -> String {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis().to_string()
}

struct ChurnRun {
    pods: Pods,
    summary: Summary,
}

/// A finished write and its response.
struct FinishedWrite {
    connection: Connection,
    write: PodWrite,
    answer: Result<Bytes, ClientError>,
    took: Duration,
}

async fn send(mut connection: Connection, write: PodWrite) -> FinishedWrite {
    let begun = Instant::now();
    let answer = connection.send(write.ask()).await;
    FinishedWrite { connection, write, answer, took: begun.elapsed() }
}

impl ChurnRun {
    /// Counts a write and makes its pod available again.
    fn settle(&mut self, FinishedWrite { connection, write, answer, took }: FinishedWrite) -> Connection {
        let summary = &mut self.summary;
        match &answer {
            Ok(_) => {
                summary.latencies.add(took);
                *match write {
                    PodWrite::Update { .. } => &mut summary.updated,
                    PodWrite::Create { .. } => &mut summary.created,
                    PodWrite::Delete { .. } => &mut summary.deleted,
                } += 1;
            }
            Err(error) => summary.failed(1, format_args!("cannot {write}: {error}")),
        }
        self.pods.settle(write, &answer);
        connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn rates_are_counts_in_a_time() {
        for (text, pause) in
            [("100/s", Duration::from_millis(10)), ("1/s", Duration::from_secs(1)), ("30/m", Duration::from_secs(2))]
        {
            assert_eq!((rate(text).pause(), rate(text).to_string()), (pause, text.to_owned()));
        }
        for text in ["", "100", "/s", "0/s", "-1/s", "1.5/s", "100/h", "100/", "100/s/s", "99999999/s", "99999999999/s"]
        {
            assert_eq!(text.parse::<Rate>(), Err(RateError), "{text}");
        }
    }

    /// Number of writes sent in each of `ticks` ticks, if at most `room` writes can be sent per tick.
    fn writes(text: &str, ticks: usize, room: usize) -> Vec<usize> {
        let mut pace = TokenBucket::new(rate(text));
        let turn = |_| {
            pace.earn();
            let mut sent = 0;
            while pace.is_due() && sent < room {
                pace.spend();
                sent += 1;
            }
            sent
        };
        (0..ticks).map(turn).collect()
    }

    #[test]
    fn a_pace_is_steady() {
        assert_eq!(writes("100/s", 5, 9), [1; 5]);
        assert_eq!(writes("5/s", 5, 9), [1; 5], "a tick is longer then");
        assert_eq!(writes("150/s", 6, 9), [1, 2, 1, 2, 1, 2]);
        for (text, expected) in [("333/s", 333), ("999/s", 999), ("10000/s", 10_000)] {
            let sent: usize = writes(text, 100, 1_000).iter().sum();
            assert!((expected - 1..=expected + 1).contains(&sent), "{text}: {sent}");
        }
    }

    #[test]
    fn what_was_missed_is_not_made_up_for() {
        let mut pace = TokenBucket::new(rate("1000/s"));
        (0..1_000).for_each(|_| pace.earn());
        let mut burst = 0;
        while pace.is_due() {
            pace.spend();
            burst += 1;
        }
        assert_eq!(burst, 10);
    }

    #[test]
    fn a_summary_is_one_line() {
        let mut summary = Summary::new(rate("100/s"));
        assert_eq!(
            summary.to_string(),
            "updated 0, created 0, deleted 0, failed 0 in 0.0 s: 0.0/s of 100/s, p50 0.00 ms, p99 0.00 ms"
        );
        (summary.updated, summary.took) = (150, Duration::from_millis(1_500));
        summary.latencies.add(Duration::from_micros(1_000));
        summary.failed(2, "no");
        summary.failed(1, "never");
        assert_eq!(
            summary.to_string(),
            "updated 150, created 0, deleted 0, failed 3 in 1.5 s: 100.0/s of 100/s, p50 1.02 ms, p99 1.02 ms; first \
             failure: no"
        );
    }
}
