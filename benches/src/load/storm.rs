//! `load reconnect-storm`: all clients lose their connections at once, objects are written, and all clients return at
//! once.
//!
//! With `resume` each client watches from its old position and must receive exactly the writes it missed. With
//! `watch-list` each client requests a new initial state, and must receive the last write of each object and an end
//! bookmark.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    failure::{Failure, Kind},
    fanout::{
        Common, Flags as Writes, blank, check, concerned,
        crowd::{Crowd, Plan},
        failed, plan, quantiles, sampler,
        subject::Subject,
    },
    report::{Looks, Report},
    sampler::{Sampler, own_cpu},
    writer::{Pace, Writer},
};

/// Timeout for all clients to be back and to have received what they missed.
const BACK_WAIT: Duration = Duration::from_secs(120);
const REST: Duration = Duration::from_millis(1_500);

/// Way in which clients return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Return {
    /// Watch from the old position.
    Resume,
    /// Request a new initial state.
    WatchList,
}

/// Flags of `reconnect-storm`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// Way in which clients return.
    #[arg(long = "return", value_name = "HOW", value_enum, default_value_t = Return::Resume)]
    pub(crate) way: Return,

    /// Over TLS, return with the session tickets of the first connections.
    #[arg(long)]
    pub(crate) tickets: bool,

    /// The writes while clients are away.
    #[command(flatten)]
    pub(crate) writes: Writes,
}

impl Flags {
    /// Checks combinations of flags for writes of this duration. The error is one line.
    pub(super) fn check(&self, time: Duration) -> Result<(), String> {
        if self.writes.warm_up.is_some() {
            return Err("--warm-up is only for fanout".to_owned());
        }
        self.writes.check(time)
    }
}

/// Runs the scenario.
///
/// # Errors
/// The server cannot be set up or reached at all; later failures are in the report.
pub(crate) async fn run(common: &Common, flags: &Flags) -> Result<Report, Failure> {
    let target = if flags.tickets { common.target.clone().with_tickets() } else { common.target.clone() };
    let common = &Common { target, ..common.clone() };
    let Common { target, pid, clients, .. } = common;
    let writes = &flags.writes;
    let subject = writes.subject(*clients);
    let mut writer = Writer::prepare(target, subject, writes.writers as usize, writes.bytes).await?;
    let mut report = blank("reconnect-storm", common);
    report.path = writer.subject().watched(0).trim_end_matches(['?', '&']).to_owned();
    let sampler = sampler(*pid, target)?;
    let sample = || sampler.as_ref().and_then(|sampler| sampler.sample().ok()).unwrap_or_default();
    tokio::time::sleep(REST).await;
    let mut looks = Looks { idle: sample(), ..Looks::default() };

    let position = writer.position().await?;
    let first = plan(common, writes, writer.subject(), &position);
    let before = Crowd::start(&first).map_err(failed)?;
    let closed = before.opened(*clients as usize, BACK_WAIT).await;
    tokio::time::sleep(REST).await;
    looks.connected = sample();
    looks.held = Some(looks.connected);
    // Close the sockets of all clients before any of them returns.
    let lost = before.stop()?;
    report.failures.merge(lost.failures);
    let pace = Pace { rate: writes.rate, burst: writes.burst, time: common.time };
    let written = writer.write(pace, 0).await;
    // Sample again, so that only the cost of the return is measured.
    looks.connected = sample();

    let client_before = own_cpu().unwrap_or_default();
    let away = Instant::now();
    let crowd = Crowd::start(&returning(flags.way, first, writer.subject())).map_err(failed)?;
    let missing = crowd.opened(*clients as usize, BACK_WAIT).await;
    report.connect_seconds = away.elapsed().as_secs_f64();
    let expected = concerned(writer.subject(), *clients, &written.numbers);
    // An initial state has only the last version of each object.
    let newest = newest(flags.way, writer.subject().objects, &written.numbers);
    let all = if flags.way == Return::Resume { expected } else { concerned(writer.subject(), *clients, &newest) };
    let never = crowd.delivered(all, BACK_WAIT).await;
    let partial = if flags.way == Return::Resume { 0 } else { crowd.synced(*clients as usize, BACK_WAIT).await };
    report.seconds = away.elapsed().as_secs_f64();
    looks.ended = sample();
    looks.peaks = sampler.as_ref().map(Sampler::peaks).unwrap_or_default();
    report.client_cpu_seconds = (own_cpu().unwrap_or_default() - client_before).as_secs_f64();
    report.bytes = crowd.bytes();
    let sight = crowd.stop()?;
    tokio::time::sleep(REST).await;
    looks.after = sample();

    report.server_process = pid.map(|pid| looks.report(pid, u64::from(*clients)));
    report.requests = 2 * u64::from(*clients);
    report.events = all;
    for _ in 0..closed + missing {
        report.failures.add(Failure::new(Kind::Timeout, "a watch did not open"));
    }
    for _ in 0..partial {
        report.failures.add(Failure::new(Kind::Short, "no end bookmark"));
    }
    report.add("neverDelivered", never);
    report.add("backMillis", quantiles(&sight.opening));
    if let Some(server) = &report.server_process {
        report.add("serverCpuSecondsPerClient", server.cpu_seconds / f64::from(*clients));
    }
    check(&mut report, writer.subject(), &newest, sight);
    report.failures.merge(written.failures);
    writer.clean().await.err().into_iter().for_each(|failure| report.failures.add(failure));
    Ok(report)
}

/// The plan of the returning clients, without a limit on the connection rate.
fn returning(way: Return, first: Plan, subject: &Subject) -> Plan {
    let initial = way == Return::WatchList;
    let paths = match way {
        Return::Resume => first.paths,
        Return::WatchList => {
            let rest = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
            Arc::new((0..first.paths.len()).map(|watcher| format!("{}{rest}", subject.watched(watcher))).collect())
        }
    };
    Plan { paths, connect_rate: f64::INFINITY, initial, ..first }
}

/// The writes that returning clients must receive: all of them, or the last one of each object.
fn newest(way: Return, objects: usize, numbers: &[u32]) -> Vec<u32> {
    if way == Return::Resume {
        return numbers.to_vec();
    }
    let mut last = BTreeMap::<usize, u32>::new();
    for number in numbers {
        let of = last.entry(*number as usize % objects).or_default();
        *of = (*of).max(*number);
    }
    last.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_resumes_finds_all_and_whoever_lists_the_last() {
        assert_eq!(newest(Return::Resume, 2, &[0, 1, 2, 3, 4]), [0, 1, 2, 3, 4]);
        assert_eq!(newest(Return::WatchList, 2, &[0, 1, 2, 3, 4]), [4, 3]);
    }
}
