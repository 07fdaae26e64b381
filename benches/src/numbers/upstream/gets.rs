//! `gets`: agents that read single objects by name without a resourceVersion.

use std::{sync::Arc, time::Duration};

use http::Method;
use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Failure, LoadSizes,
    front::{self, FrontServer},
    metrics,
    row::{SideRow, float, percentile},
};
use crate::{
    load::{
        client::Target,
        failure::{Failure as LoadFailure, Kind},
        fanout::subject::{Kind as ObjectKind, Scope},
        sampler::Sampler,
        writer::{self, Writer},
    },
    numbers::{
        amount,
        case::Unit,
        server::{runtime, settle},
        stock::Cluster,
    },
};

/// GETs per second.
const RATE: u32 = 2_000;
/// Connections that they use in turns.
const CONNECTIONS: u32 = 32;
/// Writes of pods per second.
const WRITES: f64 = 50.0;
const LANES: usize = 8;
const OBJECTS: usize = 100;
const OBJECT_BYTES: usize = 3_000;
/// Pods of one page of the list that has their names.
const PAGE: u32 = 500;
/// Warm-up: the API server reviews the callers' rights before the measurement begins.
const WARM_UP_SECONDS: u64 = 2;
const REQUESTS: &str = "apiserver_request_total";

/// Costs of the GETs.
struct GetCosts {
    /// Seconds of each GET.
    times: Vec<f64>,
    /// Requests per second that kube-apiserver answered, without the writes.
    requests: f64,
    cpu: f64,
    our_cpu: Option<f64>,
}

pub(super) fn method(sizes: &LoadSizes) -> String {
    format!(
        "{} GETs/s of pods without resourceVersion over TLS for {} s, on {CONNECTIONS} connections, each of the {} pods in \
         turn; {} writes/s of other pods of 3 KB, directly to kube-apiserver on both sides; each side with a kube-apiserver \
         started anew",
        amount(f64::from(RATE)),
        sizes.seconds,
        amount(f64::from(sizes.incident.pods)),
        amount(WRITES)
    )
}

pub(super) fn run(cluster: &Cluster, sizes: &LoadSizes) -> Result<Vec<SideRow>, Failure> {
    let (alone, with_us) = (measure(cluster, sizes, false)?, measure(cluster, sizes, true)?);
    let both = |what: &str, unit, of: fn(&GetCosts) -> f64| SideRow::new(what, unit, of(&with_us), of(&alone));
    let median = |costs: &GetCosts| percentile(&costs.times, 50);
    Ok(vec![
        both("requests that kube-apiserver answers, without the writes", Unit::PerSecond, |costs| costs.requests)
            .at_most(200.0),
        both("… CPU", Unit::CpuSeconds, |costs| costs.cpu),
        both("GET of one object, median", Unit::Millis, |costs| percentile(&costs.times, 50)),
        SideRow::new("… more than directly", Unit::Millis, median(&with_us) - median(&alone), None).at_most(2.0),
        both("… 99th percentile", Unit::Millis, |costs| percentile(&costs.times, 99)),
        SideRow::new("CPU of this server", Unit::CpuSeconds, with_us.our_cpu, None),
    ])
}

/// Costs to a new kube-apiserver, and to this server if the GETs are there.
fn measure(cluster: &Cluster, sizes: &LoadSizes, is_through: bool) -> Result<GetCosts, Failure> {
    let stock = cluster.serve()?;
    let front = if is_through { Some(FrontServer::start(&stock, "pods")?) } else { None };
    let server = front.as_ref().map_or_else(|| stock.endpoint(), FrontServer::endpoint).target()?;
    let (runtime, direct) = (runtime()?, stock.endpoint().target()?);
    let paths = Arc::new(runtime.block_on(paths(&direct))?);
    let subject = front::subject(ObjectKind::Pods, Scope::All, OBJECTS, 1);
    let mut writer = runtime.block_on(Writer::prepare(&direct, subject, LANES, OBJECT_BYTES))?;
    settle(stock.endpoint().pid)?;
    runtime.block_on(gets(&server, &paths, WARM_UP_SECONDS))?;
    let requests_before = metrics::read(stock.endpoint(), REQUESTS)?;
    let sampler = Sampler::without_sockets(stock.endpoint().pid)?;
    let ours = front.as_ref().map(|front| Sampler::without_sockets(front.pid())).transpose()?;
    let before = sampler.sample()?.cpu_seconds;
    let ours_before = ours.as_ref().map(|ours| Ok::<_, Failure>(ours.sample()?.cpu_seconds)).transpose()?;
    let (times, written) = runtime.block_on(async {
        let pace = front::pace(WRITES, sizes.seconds);
        tokio::join!(gets(&server, &paths, sizes.seconds), writer.write(pace, 0))
    });
    let cpu = sampler.cpu()?.as_secs_f64() - before;
    let our_cpu = match (&ours, ours_before) {
        (Some(ours), Some(before)) => Some(ours.cpu()?.as_secs_f64() - before),
        _ => None,
    };
    if written.failures.total() > 0 {
        return Err(Failure::Load(written.failures.lines().collect::<Vec<_>>().join("; ")));
    }
    let answered = metrics::read(stock.endpoint(), REQUESTS)? - requests_before;
    runtime.block_on(writer.clean())?;
    let requests = answered / float(sizes.seconds) - WRITES;
    Ok(GetCosts { times: times?, requests, cpu, our_cpu })
}

/// Paths of all pods.
async fn paths(server: &Target) -> Result<Vec<String>, LoadFailure> {
    let (mut connection, mut paths, mut token) = (server.connect().await?, Vec::new(), String::new());
    loop {
        let page = format!("/api/v1/pods?limit={PAGE}&continue={token}");
        let body = writer::send(&mut connection, Method::GET, &page, None).await?;
        let list: Value = serde_json::from_slice(&body).map_err(|error| LoadFailure::new(Kind::Protocol, error))?;
        let path = |pod: &Value| {
            let text = |name: &str| pod["metadata"][name].as_str().unwrap_or_default().to_owned();
            format!("/api/v1/namespaces/{}/pods/{}", text("namespace"), text("name"))
        };
        paths.extend(list["items"].as_array().into_iter().flatten().map(path));
        token = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            return Ok(paths);
        }
    }
}

/// Sends GETs at the rate. Returns the seconds of each.
async fn gets(server: &Target, paths: &Arc<Vec<String>>, seconds: u64) -> Result<Vec<f64>, Failure> {
    let (begun, mut lanes) = (Instant::now(), JoinSet::new());
    let all = RATE * u32::try_from(seconds).unwrap_or(u32::MAX / RATE);
    for lane in 0..CONNECTIONS {
        let (mut connection, paths) = (server.connect().await?, Arc::clone(paths));
        lanes.spawn(async move {
            let mut times = Vec::new();
            for number in (lane..all).step_by(CONNECTIONS as usize) {
                sleep_until(begun + Duration::from_secs(1) * number / RATE).await;
                let sent = Instant::now();
                let path = &paths[number as usize % paths.len()];
                writer::send(&mut connection, Method::GET, path, None).await?;
                times.push(sent.elapsed().as_secs_f64());
            }
            Ok::<_, LoadFailure>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(lane) = lanes.join_next().await {
        times.extend(lane.map_err(|error| Failure::Load(error.to_string()))??);
    }
    Ok(times)
}
