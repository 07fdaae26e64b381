//! Idle watches in the shape of client-go: over TLS and HTTP/2, with many watches on each connection.

use std::{
    io::{self, BufRead as _, BufReader},
    process::{Command, Stdio},
};

use super::{
    Failure,
    case::{Case, Fields, How, Setup, Take, Target, Unit, amount},
    cases::{case, most, row},
    run,
    server::{Endpoint, Server, resident},
};
use crate::load::density::OPEN;

/// Begin of the names of the cases that `--density` measures.
pub(crate) const NAME: &str = "density";
/// The case that takes too long for a run of all.
pub(crate) const MILLION: &str = "density-million";

/// Connections of [`MILLION`], each with an identity of its own, and the watches of each.
const CONNECTIONS: u32 = 10_000;
const WATCHES: u32 = 100;
/// Connections that renew leases, the leases of each, and renewals a second: the heartbeats of 200,000 nodes.
const RENEWERS: u32 = 64;
const LEASES: u32 = 3_125;
const RENEWALS: u32 = 20_000;
/// Seconds of renewals.
const SECONDS: u32 = 600;
/// Environment variables with other renewals a second, and other seconds.
const RENEWALS_VARIABLE: &str = "DENSITY_RENEWALS";
const SECONDS_VARIABLE: &str = "DENSITY_SECONDS";

/// The cases of this module.
pub(crate) fn cases() -> Vec<Case> {
    vec![steps(), million()]
}

/// The memory of connections with more and more watches.
fn steps() -> Case {
    let rows = vec![
        row(
            "1,000 connections with an idle watch each",
            Unit::KibPerClient,
            Take::Field("connectionBytes.1"),
            most(16.0),
        ),
        row("… with 18", Unit::KibPerClient, Take::Field("connectionBytes.18"), Target::None),
        row("… with 100", Unit::KibPerClient, Take::Field("connectionBytes.100"), Target::None),
        row("… each watch after the first of 18", Unit::KibPerWatch, Take::Field("furtherWatchBytes.18"), most(1.0)),
        row("… each watch after the first of 100", Unit::KibPerWatch, Take::Field("furtherWatchBytes.100"), most(1.0)),
        row("… time to open one of 100, p99", Unit::Millis, Take::Millis("openMillis.p99"), Target::None),
    ];
    let how = How::Load(run::words("density --clients 1000 --watches 1,18,100 --seconds 6 --http 2"));
    let setup = Setup { tls: true, ..Setup::default() };
    Case { is_comparable: true, ..case("density-h2-tls".to_owned(), setup, how, rows) }
}

/// A million watches, and renewals of leases beside them.
fn million() -> Case {
    let (rate, seconds) = (f64::from(rate()), seconds());
    let what = format!(
        "1,000,000 idle watches on 10,000 connections, beside {} renewals a second of 200,000 leases for {seconds} s: resident",
        amount(rate)
    );
    let rows = vec![
        row(&what, Unit::Mib, Take::Field("idle.serverProcess.rssPeakBytes"), most(2_048.0)),
        row("… without the leases and their renewals", Unit::Mib, Take::Field("watchesOnlyBytes"), Target::None),
        row("… watches that are refused or end", Unit::Count, Take::Field("idle.lostWatches"), most(0.0)),
        row("… renewals", Unit::PerSecond, Take::Field("writes.writesPerSecond"), Target::AtLeast(0.995 * rate)),
        row("… renewals that are refused", Unit::Count, Take::Field("refusedRenewals"), most(0.0)),
        row(
            "… time of a renewal since it was due, p99",
            Unit::Millis,
            Take::Millis("writes.dueMillis.p99"),
            most(100.0),
        ),
        row("… since it was sent, p99", Unit::Millis, Take::Millis("writes.writeMillis.p99"), most(100.0)),
        row("… server CPU of one core", Unit::Percent, Take::Field("serverCpuShare"), Target::None),
    ];
    let flags = ["--watches-max=1100000", "--connections-max=16384"].map(str::to_owned).into();
    let setup = Setup { tls: true, identities: CONNECTIONS, flags, ..Setup::default() };
    case(MILLION.to_owned(), setup, How::Run(hold_and_renew), rows)
}

/// Opens the watches, renews leases beside them, and then ends the watches.
fn hold_and_renew(server: &Server) -> Result<Fields, Failure> {
    let endpoint = server.endpoint();
    let watches = format!("--watches {WATCHES} --clients {CONNECTIONS} --addresses 16 --http 2 --until-closed --json");
    let mut child = Command::new(std::env::current_exe()?)
        .args(["load", "density"])
        .args(run::words(&watches))
        // Each connection has its own token.
        .args(Endpoint { token_file: None, ..endpoint.clone() }.flags())
        .arg("--tokens")
        .arg(server.tokens())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (held_open, stdout) = (child.stdin.take(), child.stdout.take());
    let mut lines = BufReader::new(stdout.ok_or_else(|| io::Error::other("a pipe was asked for"))?).lines();
    let mut found = Fields::new();
    let first = lines.next().transpose()?;
    if first.as_deref() == Some(OPEN) {
        found.insert("watchesOnlyBytes".to_owned(), resident(endpoint.pid)?.into());
        let (writes, problem) = run::try_load(endpoint, &renewals())?;
        eprintln!("numbers: renewals: {}", problem.as_deref().unwrap_or("all succeeded"));
        let refused = writes.iter().filter(|(name, _)| name.starts_with("errors."));
        let refused: u64 = refused.filter_map(|(_, count)| count.as_u64()).sum();
        found.insert("refusedRenewals".to_owned(), refused.into());
        found.insert("serverCpuShare".to_owned(), (run::number(&writes, "serverCpuPercent")? / 100.0).into());
        found.extend(writes.into_iter().map(|(name, value)| (format!("writes.{name}"), value)));
    }
    // The end of its stdin ends the load, which then reports.
    drop(held_open);
    let last = lines.last().transpose()?.or(first).unwrap_or_default();
    child.wait()?;
    let idle = run::flat(serde_json::from_str(last.trim())?);
    found.extend(idle.into_iter().map(|(name, value)| (format!("idle.{name}"), value)));
    Ok(found)
}

/// The load that renews.
fn renewals() -> Vec<String> {
    run::words(&format!(
        "writes --kind lease --operation update --keep --clients {RENEWERS} --objects {LEASES} --rate {} --seconds {} --http 1",
        rate(),
        seconds()
    ))
}

/// Renewals a second.
fn rate() -> u32 {
    variable(RENEWALS_VARIABLE).unwrap_or(RENEWALS)
}

/// Seconds of renewals.
fn seconds() -> u32 {
    variable(SECONDS_VARIABLE).unwrap_or(SECONDS)
}

fn variable(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}
