//! `staleness`: delay of an event through this server beyond that of a direct watch.

use std::{sync::Arc, thread, time::Duration};

use tokio::{
    sync::{Barrier, watch},
    time::timeout,
};

use super::{
    Failure, LoadSizes,
    front::{self, FrontServer},
    metrics,
    row::{SideRow, percentile},
};
use crate::{
    load::{
        client::{Ask, Connection, Target},
        failure::{Failure as LoadFailure, Kind},
        fanout::{
            marks::Scanner,
            subject::{Kind as ObjectKind, Scope},
        },
        writer::{Writer, nanos},
    },
    numbers::{amount, case::Unit, server::runtime, stock::Cluster},
};

/// Events per second.
const RATE: f64 = 500.0;
/// Connections that write.
const LANES: usize = 32;
const OBJECTS: usize = 100;
const OBJECT_BYTES: usize = 3_000;
const OPEN_WAIT: Duration = Duration::from_secs(60);
/// Time for the last events to arrive.
const LATE_WAIT: Duration = Duration::from_secs(2);
/// Maximum bytes of one read.
const READ_BYTES: usize = 64 << 10;
const STREAMS: usize = 3;

pub(super) fn method(sizes: &LoadSizes) -> String {
    format!(
        "{} pods; {} writes/s of pods of 3 KB for {} s, directly to kube-apiserver; one thread reads three watches of all pods: \
         one through us, two directly. Alone: the second direct watch beside the first",
        amount(f64::from(sizes.incident.pods)),
        amount(RATE),
        sizes.seconds
    )
}

/// Arrival of one write's event at one watch.
#[derive(Clone, Copy)]
struct Arrival {
    /// Time of the write in nanoseconds since 1970.
    sent: u64,
    /// Time of the event.
    arrived: u64,
}

pub(super) fn run(cluster: &Cluster, sizes: &LoadSizes) -> Result<Vec<SideRow>, Failure> {
    let stock = cluster.serve()?;
    let front = FrontServer::start(&stock, "pods")?;
    let (direct, through) = (stock.endpoint().target()?, front.endpoint().target()?);
    let pace = front::pace(RATE, sizes.seconds);
    let runtime = runtime()?;
    let mut writer = runtime.block_on(async {
        let subject = front::subject(ObjectKind::Pods, Scope::All, OBJECTS, 1);
        Writer::prepare(&direct, subject, LANES, OBJECT_BYTES).await
    })?;
    let watched = writer.subject().watched(0);
    let path = front::watch_path(&watched, &runtime.block_on(front::position(&through, &watched))?);
    let (stop, stopped) = watch::channel(false);
    let (targets, open) = ([direct.clone(), direct, through], Arc::new(Barrier::new(STREAMS + 1)));
    let watching = thread::spawn({
        let open = Arc::clone(&open);
        move || watch_all(&targets, &path, pace.writes(), &open, &stopped)
    });
    runtime.block_on(async { timeout(OPEN_WAIT, open.wait()).await.map(drop) }).map_err(|_| not_open())?;
    let written = runtime.block_on(writer.write(pace, 0));
    thread::sleep(LATE_WAIT);
    // An error means that the watches have ended; their result has the reason.
    let _ = stop.send(true);
    let [first, second, through] =
        watching.join().map_err(|_| Failure::Load("the thread of watches failed".to_owned()))??;
    runtime.block_on(writer.clean())?;
    if written.failures.total() > 0 {
        return Err(Failure::Load(written.failures.lines().collect::<Vec<_>>().join("; ")));
    }
    let mut rows = rows(&first, &second, &through)?;
    rows.push(metrics::reviews_row(stock.endpoint())?);
    Ok(rows)
}

fn rows(
    first: &[Option<Arrival>],
    second: &[Option<Arrival>],
    through: &[Option<Arrival>],
) -> Result<Vec<SideRow>, Failure> {
    let (later, noise) = (later(through, first)?, later(second, first)?);
    let [ours, theirs] = [since_write(through)?, since_write(first)?];
    let both = |what: &str, percent: usize, ours: &[f64], theirs: &[f64]| {
        SideRow::new(what, Unit::Millis, percentile(ours, percent), percentile(theirs, percent))
    };
    Ok(vec![
        both("an event after the same one at a direct watch, median", 50, &later, &noise).at_most(5.0),
        both("… 99th percentile", 99, &later, &noise).at_most(20.0),
        both("… largest", 100, &later, &noise),
        both("from sending the write to the event, median", 50, &ours, &theirs),
        both("… 99th percentile", 99, &ours, &theirs),
    ])
}

/// Seconds by which each event arrived later at one watch than at another.
fn later(one: &[Option<Arrival>], other: &[Option<Arrival>]) -> Result<Vec<f64>, Failure> {
    let pairs = one.iter().zip(other).map(|(one, other)| {
        let (one, other) = (one.ok_or_else(lost)?, other.ok_or_else(lost)?);
        Ok(seconds_between(other.arrived, one.arrived))
    });
    pairs.collect()
}

/// Seconds from each write to its event.
fn since_write(arrivals: &[Option<Arrival>]) -> Result<Vec<f64>, Failure> {
    arrivals.iter().map(|arrival| arrival.ok_or_else(lost).map(|at| seconds_between(at.sent, at.arrived))).collect()
}

/// Seconds from one time to another, both in nanoseconds since 1970.
#[expect(clippy::cast_precision_loss, reason = "times of a run are far below 2^52 ns apart")]
const fn seconds_between(from: u64, to: u64) -> f64 {
    (to.cast_signed() - from.cast_signed()) as f64 / 1e9
}

fn not_open() -> Failure {
    Failure::Load("a watch did not open".to_owned())
}

fn lost() -> Failure {
    Failure::Load("an event was lost".to_owned())
}

/// Reads all streams on one thread until it is stopped. Returns the arrivals by number of the write.
fn watch_all(
    targets: &[Target; STREAMS],
    path: &str,
    writes: u32,
    open: &Barrier,
    stopped: &watch::Receiver<bool>,
) -> Result<[Vec<Option<Arrival>>; STREAMS], Failure> {
    let one = |target: &Target| {
        let (target, stopped) = (target.clone(), stopped.clone());
        async move {
            let mut connection = target.connect().await?;
            connection.send_well(&Ask::get(path)).await?;
            open.wait().await;
            arrivals(connection, writes, stopped).await
        }
    };
    let [first, second, third] = targets;
    let (first, second, third) =
        runtime()?.block_on(async { tokio::try_join!(one(first), one(second), one(third)) })?;
    Ok([first, second, third])
}

async fn arrivals(
    mut connection: Connection,
    writes: u32,
    mut stopped: watch::Receiver<bool>,
) -> Result<Vec<Option<Arrival>>, LoadFailure> {
    let mut scanner = Scanner::new();
    let mut found = vec![None; writes as usize];
    loop {
        let more = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => return Ok(found),
            more = connection.bytes(READ_BYTES, |piece| {
                let arrived = nanos();
                scanner.feed(piece, |mark| {
                    if let Some(place) = found.get_mut(mark.number as usize) {
                        *place = Some(Arrival { sent: mark.nanos, arrived });
                    }
                });
            }) => more?,
        };
        if !more {
            return Err(LoadFailure::new(Kind::Ended, "a watch ended"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(arrived: u64) -> Option<Arrival> {
        Some(Arrival { sent: 1_000_000_000, arrived })
    }

    #[test]
    fn an_event_may_arrive_earlier_and_must_not_be_lost() {
        let (one, other) = ([at(1_000_000_000), at(3_000_000_000)], [at(1_500_000_000), at(2_000_000_000)]);
        assert_eq!(later(&one, &other).unwrap(), [-0.5, 1.0]);
        assert_eq!(since_write(&one).unwrap(), [0.0, 2.0]);
        assert!(later(&one, &[at(1), None]).is_err());
    }
}
