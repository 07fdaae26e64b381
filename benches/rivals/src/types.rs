//! One program that follows many types: a reflector or an informer for each.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;
use informer::Cluster;
use kube::{
    Api,
    core::{ApiResource, DynamicObject},
    discovery::{Discovery, verbs},
    runtime::{WatchStreamExt as _, reflector, watcher},
};

use crate::{Failure, client::Copy};

/// Types that are followed.
pub(crate) const TYPES: usize = 30;

/// The first types of the server that can be listed and watched, core types first.
pub(crate) async fn all(client: kube::Client) -> Result<Vec<ApiResource>, Failure> {
    let discovery = Discovery::new(client).run().await?;
    let is_followed =
        |verb| move |(_, can): &(ApiResource, kube::discovery::ApiCapabilities)| can.supports_operation(verb);
    let types = discovery.groups().flat_map(|group| group.recommended_resources());
    let mut types: Vec<_> =
        types.filter(is_followed(verbs::LIST)).filter(is_followed(verbs::WATCH)).map(|(of, _)| of).collect();
    types.sort_by(|one, other| (&one.group, &one.plural).cmp(&(&other.group, &other.plural)));
    types.truncate(TYPES);
    if types.len() < TYPES {
        return Err(format!("the server has {} types", types.len()).into());
    }
    Ok(types)
}

/// A reflector for each type.
pub(crate) fn kube(client: &kube::Client, types: &[ApiResource]) -> Copy {
    let (syncs, events) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let mut readers = Vec::new();
    for of in types {
        let writer = reflector::store::Writer::<DynamicObject>::new(of.clone());
        readers.push(writer.as_reader());
        let source = watcher(Api::all_with(client.clone(), of), watcher::Config::default().streaming_lists());
        let (syncs, events) = (Arc::clone(&syncs), Arc::clone(&events));
        tokio::spawn(reflector(writer, source).default_backoff().for_each(move |event| {
            match event {
                Ok(watcher::Event::InitDone) => drop(syncs.fetch_add(1, Ordering::SeqCst)),
                Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => drop(events.fetch_add(1, Ordering::SeqCst)),
                Ok(watcher::Event::Init | watcher::Event::InitApply(_)) | Err(_) => {}
            }
            std::future::ready(())
        }));
    }
    Copy {
        syncs: Box::new(move || syncs.load(Ordering::SeqCst) / TYPES as u64),
        events: Box::new(move || events.load(Ordering::SeqCst)),
        first: Box::new(|| Duration::ZERO),
        objects: Box::new(move || readers.iter().map(reflector::Store::len).sum()),
    }
}

/// An informer for each type.
pub(crate) fn informer(client: kube::Client, types: &[ApiResource]) -> Result<Copy, Failure> {
    let cluster = Cluster::new(client);
    let informers: Result<Vec<_>, _> =
        types.iter().map(|of| cluster.informer_for::<DynamicObject>(of).start()).collect();
    let informers = Arc::new(informers?);
    let (syncs, events) = (Arc::clone(&informers), Arc::clone(&informers));
    Ok(Copy {
        syncs: Box::new(move || syncs.iter().map(|of| of.stats().reflector.syncs).min().unwrap_or_default()),
        events: Box::new(move || events.iter().map(|of| of.stats().reflector.live_objects).sum()),
        first: Box::new(|| Duration::ZERO),
        objects: Box::new(move || informers.iter().map(|of| of.store().snapshot().len()).sum()),
    })
}
