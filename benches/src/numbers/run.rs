//! Runs a case: starts a server, runs the load as a child process and reads its JSON.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Map, Value};

use super::{
    Failure,
    case::{Case, Fields, How, Setup},
    large,
    server::{Endpoint, Server, resident, settle},
    stock::Cluster,
};
use crate::load::sampler::Sampler;

/// Runs a case against a new server.
pub(crate) fn case(case: &Case) -> Result<Fields, Failure> {
    case_with(case, Server::start)
}

/// Runs a case against a new bare server: its results are floors.
pub(crate) fn floor(case: &Case) -> Result<Fields, Failure> {
    case_with(case, Server::start_bare)
}

fn case_with(case: &Case, start: fn(&Setup) -> Result<Server, Failure>) -> Result<Fields, Failure> {
    let Case { setup, before, how, .. } = case;
    if let How::Inside(run) = how {
        return run();
    }
    let server = start(setup)?;
    large::fill(server.endpoint(), setup.large_secrets)?;
    if let Some(before) = before {
        put(&server, before)?;
        settle(server.endpoint().pid)?;
    }
    put(&server, how)
}

fn put(server: &Server, how: &How) -> Result<Fields, Failure> {
    match how {
        How::Idle => idle(server.endpoint()),
        How::Load(arguments) => load(server.endpoint(), arguments),
        How::Run(run) => run(server),
        How::Inside(run) => run(),
    }
}

/// Runs a case's load against a newly started stock kube-apiserver.
pub(crate) fn stock_case(cluster: &Cluster, case: &Case) -> Result<Fields, Failure> {
    let stock = cluster.serve()?;
    match &case.how {
        How::Idle => idle(stock.endpoint()),
        How::Load(arguments) => {
            let etcd = Sampler::without_sockets(cluster.etcd().pid)?;
            let before = etcd.cpu()?;
            let found = load(stock.endpoint(), arguments)?;
            Ok(with_etcd(found, etcd.cpu()?.saturating_sub(before)))
        }
        How::Run(_) | How::Inside(_) => Err(Failure::Server("only our own can be measured so".to_owned())),
    }
}

/// Adds the CPU time of etcd to the costs of a write: etcd's time in the whole load, divided by the requests of the whole
/// load.
fn with_etcd(mut found: Fields, etcd: Duration) -> Fields {
    let name = "allCpuSecondsPerWrite";
    if let (Some(own), Ok(sent)) = (found.get(name).and_then(Value::as_f64), number(&found, "requestsSent")) {
        found.insert(name.to_owned(), (own + etcd.as_secs_f64() / sent).into());
    }
    found
}

/// Samples an idle server.
fn idle(endpoint: &Endpoint) -> Result<Fields, Failure> {
    let mut found = Fields::new();
    found.insert("rssBytes".to_owned(), resident(endpoint.pid)?.into());
    Ok(found)
}

/// Runs the load tool.
pub(crate) fn load(endpoint: &Endpoint, arguments: &[String]) -> Result<Fields, Failure> {
    match try_load(endpoint, arguments)? {
        (found, None) => Ok(found),
        (_, Some(problem)) => Err(Failure::Load(problem)),
    }
}

/// Runs the load tool. Returns its fields also if requests failed, and then the reason.
pub(crate) fn try_load(endpoint: &Endpoint, arguments: &[String]) -> Result<(Fields, Option<String>), Failure> {
    let output = Command::new(std::env::current_exe()?)
        .arg("load")
        .args(arguments)
        .args(endpoint.flags())
        .arg("--json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?
        .wait_with_output()?;
    let (line, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let problem = (!output.status.success()).then(|| {
        let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let failed: Vec<&str> = lines.iter().copied().filter(|line| line.starts_with("FAILED")).collect();
        if failed.is_empty() { lines.last().copied().unwrap_or("no word").to_owned() } else { failed.join("; ") }
    });
    match problem {
        Some(problem) if line.trim().is_empty() => Err(Failure::Load(problem)),
        problem => Ok((flat(serde_json::from_str(line.trim())?), problem)),
    }
}

/// Splits arguments at spaces.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// A number that the load tool reported.
pub(crate) fn number(found: &Fields, name: &str) -> Result<f64, Failure> {
    let number = found.get(name).and_then(Value::as_f64);
    number.ok_or_else(|| Failure::Load(format!("it reports no {name}")))
}

/// Flattens nested objects into fields with dotted names.
pub(crate) fn flat(value: Value) -> Fields {
    let mut fields = Fields::new();
    if let Value::Object(members) = value {
        flatten(&mut fields, "", members);
    }
    fields
}

fn flatten(fields: &mut Fields, before: &str, members: Map<String, Value>) {
    for (name, value) in members {
        let name = format!("{before}{name}");
        if let Value::Object(members) = value {
            flatten(fields, &format!("{name}."), members);
        } else {
            fields.insert(name, value);
        }
    }
}

/// Starts a server without a load, for curves.
pub(crate) fn with_server<T>(setup: &Setup, run: impl FnOnce(&Endpoint) -> Result<T, Failure>) -> Result<T, Failure> {
    let server = Server::start(setup)?;
    run(server.endpoint())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_lies_inside_gets_a_name_with_a_dot() {
        let fields = flat(json!({"clients": 3, "server": {"cpu": {"seconds": 1.5}}, "list": [1]}));
        assert_eq!(fields["clients"], 3);
        assert_eq!(fields["server.cpu.seconds"], 1.5);
        assert_eq!(fields["list"], json!([1]));
    }
}
