//! Slow readers of a busy type: their positions must still be resumable at the end.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::{
    Failure,
    case::{Case, Fields, How, Row, Setup, Take, Target, Unit},
    run,
    server::Server,
};

/// Clients that each read all pods, about 40 MB, at 1 MB/s.
const CLIENTS: u32 = 8;
const READING: &str = "slow-readers --rate 1MB --seconds 75 --counts-may-differ --http 1";
const WRITES: &str = "200/s";

/// The cases of this module.
pub(crate) fn cases() -> Vec<Case> {
    let rows = vec![
        Row {
            what: "8 clients read 38 MB at 1 MB/s under 200 writes/s: those that resume from their bookmark".to_owned(),
            unit: Unit::Count,
            take: Take::Field("resumed"),
            target: Target::AtLeast(f64::from(CLIENTS)),
        },
        Row {
            what: "… memory growth, all in all".to_owned(),
            unit: Unit::Mib,
            take: Take::Field("serverProcess.rssGrowthBytes"),
            target: Target::None,
        },
    ];
    vec![Case {
        name: "busy".to_owned(),
        setup: Setup { pods: 7_130, nodes: 80, ..Setup::default() },
        before: None,
        how: How::Run(read_slowly),
        rows,
        is_comparable: false,
        has_floor: false,
        is_quick: false,
    }]
}

fn read_slowly(server: &Server) -> Result<Fields, Failure> {
    let endpoint = server.endpoint();
    let mut churn = Command::new(std::env::current_exe()?)
        .args(["churn", "--server", &endpoint.url, "--rate", WRITES])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let words = READING.split_whitespace().map(str::to_owned);
    let arguments: Vec<String> = words.chain(["--clients".to_owned(), CLIENTS.to_string()]).collect();
    let found = run::load(endpoint, &arguments);
    // If churn has ended by itself, there were no writes during the read.
    let is_writing = churn.try_wait()?.is_none();
    let _ = churn.kill();
    let _ = churn.wait();
    let mut found = found?;
    if !is_writing {
        return Err(Failure::Load("the writes ended before the reading".to_owned()));
    }
    found.entry("resumed").or_insert(Value::from(0));
    Ok(found)
}
