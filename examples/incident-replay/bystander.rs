//! The honest bystander: a node that renews its lease, and a probe of the server's health, ten times a second each.
//!
//! INVARIANT: has a thread and a runtime of its own, and begins each request on time whatever became of earlier ones, so
//! that slow answers are counted as often as they would occur.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use http::Method;
use measured::Failure;
use serde_json::{Value, json};
use tokio::{
    sync::oneshot,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    http::{Target, Wire, drain},
    identities::{NODE, OPERATOR},
    latency::Latencies,
};

/// Pause between two requests of a kind.
const EVERY: Duration = Duration::from_millis(100);
/// Timeout of a request, as of a kubelet that renews its lease.
const TIMEOUT: Duration = Duration::from_secs(10);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    Lease,
    Health,
}

/// A request that has ended.
#[derive(Debug, Clone)]
pub(crate) struct DutyRecord {
    duty: Duty,
    begun: Instant,
    ended: Instant,
    /// Reason of a failure.
    failure: Option<Arc<str>>,
}

/// Requests of one kind within some time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DutySummary {
    pub(crate) latencies: Latencies,
    pub(crate) failed: usize,
    /// Reason of the first failure.
    pub(crate) reason: Option<Arc<str>>,
}

impl DutySummary {
    /// 99th percentile in milliseconds, in which a failure counts as much as the timeout. `None` without any request.
    pub(crate) fn p99(&self) -> Option<f64> {
        let failures = std::iter::repeat_n(TIMEOUT.as_secs_f64() * 1e3, self.failed);
        self.latencies.iter().chain(failures).collect::<Latencies>().quantile(0.99)
    }
}

/// The running bystander; ends on drop.
pub(crate) struct Bystander {
    records: Arc<Mutex<Vec<DutyRecord>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Bystander {
    /// Creates the lease, and starts the thread.
    pub(crate) fn start(target: Target) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(create_lease(&target))?;
        let records = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = oneshot::channel();
        let all = Arc::clone(&records);
        let thread = thread::Builder::new().name("bystander".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = perform(Duty::Lease, &target, &all) => {}
                    () = perform(Duty::Health, &target, &all) => {}
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Self { records, stop: Some(stop), thread: Some(thread) })
    }

    /// All requests so far that have ended.
    pub(crate) fn records(&self) -> Vec<DutyRecord> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sums up the requests of a kind that began between two times while a server was ready. A request that was in flight
/// when the server was killed counts only if it was answered before.
pub(crate) fn summary(
    records: &[DutyRecord],
    duty: Duty,
    (from, to): (Instant, Instant),
    away: &[(Instant, Instant)],
) -> DutySummary {
    let mut found = DutySummary::default();
    for record in records.iter().filter(|record| record.duty == duty && from <= record.begun && record.begun < to) {
        if away.iter().any(|&(left, back)| record.begun < back && left <= record.ended) {
            continue;
        }
        match &record.failure {
            None => found.latencies.push(record.ended.duration_since(record.begun).as_secs_f64() * 1e3),
            Some(reason) => {
                found.failed += 1;
                found.reason.get_or_insert_with(|| Arc::clone(reason));
            }
        }
    }
    found
}

async fn create_lease(target: &Target) -> Result<(), Failure> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}});
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node-0"},
        "spec": {"holderIdentity": "node-0", "leaseDurationSeconds": 40},
    });
    for (collection, object) in [("/api/v1/namespaces", namespace), (LEASES, lease)] {
        let mut wire = target.connect(OPERATOR).await?;
        let answer = wire.send(Method::POST, collection, &object).await?;
        let code = answer.status().as_u16();
        // 409: it exists.
        if !answer.status().is_success() && code != 409 {
            return Err(format!("{collection}: HTTP {code}").into());
        }
    }
    Ok(())
}

/// Begins a request of a kind at each tick.
async fn perform(duty: Duty, target: &Target, records: &Arc<Mutex<Vec<DutyRecord>>>) {
    let idle: Arc<Mutex<Vec<Wire>>> = Arc::default();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in 0_u64.. {
        let begun = ticks.tick().await.into_std();
        let (target, idle, records) = (target.clone(), Arc::clone(&idle), Arc::clone(records));
        tokio::spawn(async move {
            let reused = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let answer =
                timeout(TIMEOUT, request(duty, number, &target, reused)).await.unwrap_or_else(|late| Err(late.into()));
            let failure = match answer {
                Ok(wire) => {
                    idle.lock().unwrap_or_else(PoisonError::into_inner).push(wire);
                    None
                }
                Err(error) => Some(error.to_string().into()),
            };
            let record = DutyRecord { duty, begun, ended: Instant::now(), failure };
            records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        });
    }
}

/// Sends a request over a kept connection, and over a new one if that fails: the kept one may have been closed meanwhile.
/// Returns the connection.
async fn request(duty: Duty, number: u64, target: &Target, reused: Option<Wire>) -> Result<Wire, Failure> {
    if let Some(wire) = reused.filter(Wire::is_open)
        && let Ok(wire) = send(duty, number, wire).await
    {
        return Ok(wire);
    }
    send(duty, number, target.connect(NODE).await?).await
}

async fn send(duty: Duty, number: u64, mut wire: Wire) -> Result<Wire, Failure> {
    let answer = match duty {
        // Each renewal changes the lease, as a kubelet's.
        Duty::Lease => {
            let renewed = json!({"spec": {"renewTime": format!("2026-01-01T00:00:00.{:06}Z", number % 1_000_000)}});
            wire.send(Method::PATCH, &format!("{LEASES}/node-0"), &renewed).await?
        }
        Duty::Health => wire.send(Method::GET, "/livez", &Value::Null).await?,
    };
    let code = answer.status();
    drain(answer.into_body()).await?;
    if code.is_success() { Ok(wire) } else { Err(format!("HTTP {code}").into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_a_server_do_not_count() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let record = |duty, begun, ended, is_answered: bool| DutyRecord {
            duty,
            begun: at(begun),
            ended: at(ended),
            failure: (!is_answered).then(|| "refused".into()),
        };
        let records = [
            record(Duty::Lease, 0, 5, true),
            record(Duty::Lease, 10, 11, false),
            record(Duty::Health, 10, 11, true),
            // In flight while the server was killed, and begun before it was ready again.
            record(Duty::Lease, 15, 25, false),
            record(Duty::Lease, 25, 35, true),
            record(Duty::Lease, 31, 38, true),
            record(Duty::Lease, 40, 41, true),
        ];
        let found = summary(&records, Duty::Lease, (at(0), at(40)), &[(at(20), at(30))]);
        assert_eq!((found.failed, found.reason.as_deref()), (1, Some("refused")));
        assert_eq!(found.latencies, [5.0, 7.0].into_iter().collect());
        assert_eq!(found.p99(), Some(10_000.0), "a failure is as bad as a timeout");
    }
}
