//! Whole programs: several components on one type, many types, and lists over a slow link.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    Failure,
    client::{Kind, Report, Section, ServerAddress},
    client_go,
    parts::Part,
    report,
    run::{Options, runtime},
    targets::{self, Target},
    types,
};

/// Pods of the servers for components and for lists.
pub(crate) const PODS: usize = 7_130;

/// Number of pods on the server of the measurement with many types, which compares connections and not stores.
pub(crate) const FEW_PODS: usize = 1_000;

/// Objects of each type that change in turn.
const CHANGED_PER_TYPE: u32 = 20;

/// Results of a program.
pub(crate) struct Program {
    pub(crate) kind: Kind,
    pub(crate) sync: Report,
    /// CPU microseconds per change, of the client and of the server. The server's has the write.
    pub(crate) steady_us: f64,
    pub(crate) server_us: f64,
}

/// Measures components of one program that follow the same pods.
pub(crate) fn components(options: &Options) -> Result<Vec<Target>, Failure> {
    let kinds = options.kinds(Section::Components);
    if kinds.is_empty() {
        return Ok(Vec::new());
    }
    let (server, address) = Part::server(PODS)?;
    let pods = [ApiResource::erase::<Pod>(&())];
    let churn = || runtime()?.block_on(change_in_turn(options, &address, &pods));
    let programs =
        kinds.into_iter().map(|kind| started(kind, &server, &address, churn)).collect::<Result<Vec<_>, _>>()?;
    report::components(&programs);
    Ok(targets::of_components(&programs))
}

/// Measures one program that follows many types over TLS.
pub(crate) fn types(options: &Options) -> Result<Vec<Target>, Failure> {
    let kinds = options.kinds(Section::Types);
    if kinds.is_empty() {
        return Ok(Vec::new());
    }
    let folder = tempfile::tempdir()?;
    let (server, address) = Part::server_over_tls(FEW_PODS, folder.path())?;
    let types = runtime()?.block_on(async { types::all(address.client()?).await })?;
    let churn = || runtime()?.block_on(change_in_turn(options, &address, &types));
    let programs =
        kinds.into_iter().map(|kind| started(kind, &server, &address, churn)).collect::<Result<Vec<_>, _>>()?;
    report::types(&programs);
    Ok(targets::of_types(&programs))
}

/// Measures programs with client-go, the informer beside them, and a bare socket as the floor of both. Without Go the
/// rows of client-go are left out, with the reason.
pub(crate) fn client_go(options: &Options) -> Result<Vec<Target>, Failure> {
    let kinds = options.kinds(Section::ClientGo);
    if kinds.is_empty() {
        return Ok(Vec::new());
    }
    let go = client_go::built()?;
    let (server, address) = Part::server(PODS)?;
    let pods = [ApiResource::erase::<Pod>(&())];
    let churn = || runtime()?.block_on(change_in_turn(options, &address, &pods));
    let mut programs = Vec::new();
    for kind in kinds.into_iter().chain([Kind::Informer, Kind::InformerComponents]) {
        let client = match (client_go::arguments(kind), &go) {
            (Some(_), None) => continue,
            (Some(arguments), Some(go)) => Part::program(go, &[address.flags(), arguments].concat())?,
            (None, _) => Part::client(kind, &address)?,
        };
        programs.push(program(kind, client, &server, churn)?);
    }
    report::client_go(&programs);
    Ok(targets::of_client_go(&programs))
}

fn started(
    kind: Kind,
    server: &Part,
    address: &ServerAddress,
    churn: impl Fn() -> Result<u64, Failure>,
) -> Result<Program, Failure> {
    program(kind, Part::client(kind, address)?, server, churn)
}

fn program(
    kind: Kind,
    mut client: Part,
    server: &Part,
    churn: impl Fn() -> Result<u64, Failure>,
) -> Result<Program, Failure> {
    eprintln!("{}", kind.name());
    let sync = client.ask("sync")?;
    let (before, server_before) = (client.ask("now")?, server.cpu_seconds()?);
    let changes = churn()?;
    let (after, server_after) = (client.ask("now")?, server.cpu_seconds()?);
    if after.events - before.events < changes * 99 / 100 {
        return Err(format!("{} of {changes} changes arrived", after.events - before.events).into());
    }
    let each = |seconds: f64| seconds * 1e6 / changes.max(1) as f64;
    let (steady_us, server_us) = (each(after.cpu_s - before.cpu_s), each(server_after - server_before));
    Ok(Program { kind, sync, steady_us, server_us })
}

/// Changes a label of some objects of each type, one after the other. Returns the number of changes.
///
/// Without deletions, in contrast to [`Part::churn`]: a subscriber of kube's shared reflector stops for ever at an object
/// that is deleted before the subscriber is polled.
async fn change_in_turn(options: &Options, address: &ServerAddress, types: &[ApiResource]) -> Result<u64, Failure> {
    let client = address.client()?;
    let mut objects = Vec::new();
    for of in types {
        let all = Api::<DynamicObject>::all_with(client.clone(), of);
        for object in all.list_metadata(&ListParams::default().limit(CHANGED_PER_TYPE)).await?.items {
            let api = match &object.metadata.namespace {
                Some(namespace) => Api::<DynamicObject>::namespaced_with(client.clone(), namespace, of),
                None => all.clone(),
            };
            objects.push((api, object.metadata.name.unwrap_or_default()));
        }
    }
    let mut ticks = interval(Duration::from_secs(1) / options.steady_rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let changes = u64::from(options.steady_rate * options.steady_seconds);
    let mark = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
    for (number, (api, name)) in (0..changes).zip(objects.iter().cycle()) {
        ticks.tick().await;
        let patch = Patch::Merge(json!({"metadata": {"labels": {"rivals": format!("{mark}-{number}")}}}));
        api.patch_metadata(name, &PatchParams::default(), &patch).await?;
    }
    Ok(changes)
}

/// Results of one list.
pub(crate) struct ListRead {
    pub(crate) kind: Kind,
    /// 1 for the first client that reads this form, whose parts the server may have to compress.
    pub(crate) read: usize,
    pub(crate) sync: Report,
    pub(crate) server_cpu_s: f64,
}

/// Measures lists, plain and compressed, each read by two clients one after the other.
pub(crate) fn lists(options: &Options) -> Result<(), Failure> {
    let kinds = options.kinds(Section::Lists);
    if kinds.is_empty() {
        return Ok(());
    }
    let (server, address) = Part::server(PODS)?;
    let mut lists = Vec::new();
    for kind in kinds {
        for read in 1..=2 {
            eprintln!("{}, read {read}", kind.name());
            let mut client = Part::client(kind, &address)?;
            let before = server.cpu_seconds()?;
            let sync = client.ask("sync")?;
            lists.push(ListRead { kind, read, sync, server_cpu_s: server.cpu_seconds()? - before });
        }
    }
    report::lists(&lists);
    Ok(())
}
