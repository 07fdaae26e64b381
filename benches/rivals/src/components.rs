//! Components of one program that need the same pods: each with a reflector of its own, or one copy for all of them.
//!
//! Every component reads each change: the name of the object and its node.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;
use informer::{Cluster, Event, Representation};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    runtime::{WatchStreamExt as _, reflector, watcher},
};

use crate::{Failure, client::Copy};

/// Components of the program.
pub(crate) const COMPONENTS: usize = 5;

/// Objects that wait for the slowest subscriber of kube's shared reflector.
const SHARED_BUFFER: usize = 256;

/// Counts of one component.
#[derive(Default)]
struct Component {
    syncs: AtomicU64,
    events: AtomicU64,
}

impl Component {
    fn read(&self, pod: &Pod) {
        std::hint::black_box((pod.name_any(), pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())));
        self.events.fetch_add(1, Ordering::SeqCst);
    }

    fn watched(&self, event: &watcher::Event<Pod>) {
        match event {
            watcher::Event::Apply(pod) | watcher::Event::Delete(pod) => self.read(pod),
            watcher::Event::InitDone => drop(self.syncs.fetch_add(1, Ordering::SeqCst)),
            watcher::Event::Init | watcher::Event::InitApply(_) => {}
        }
    }
}

/// A program is in sync, and has seen a change, once all of its components have.
fn copy(components: Vec<Arc<Component>>, objects: impl Fn() -> usize + 'static) -> Copy {
    let least = move |count: fn(&Component) -> &AtomicU64| {
        components.iter().map(|component| count(component).load(Ordering::SeqCst)).min().unwrap_or_default()
    };
    let events = least.clone();
    Copy {
        syncs: Box::new(move || least(|component| &component.syncs)),
        events: Box::new(move || events(|component| &component.events)),
        first: Box::new(|| Duration::ZERO),
        objects: Box::new(objects),
    }
}

/// A reflector for each component, as kube's documentation has it.
pub(crate) fn kube(client: &kube::Client) -> Copy {
    let (mut components, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..COMPONENTS {
        let (reader, writer) = reflector::store();
        let component = Arc::<Component>::default();
        let source = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default().streaming_lists());
        let stream = reflector(writer, source).default_backoff();
        readers.push(reader);
        components.push(Arc::clone(&component));
        tokio::spawn(stream.for_each(move |event| {
            event.iter().for_each(|event| component.watched(event));
            std::future::ready(())
        }));
    }
    copy(components, move || readers.iter().map(reflector::Store::len).sum())
}

/// One reflector whose stored objects go to a subscriber in each component. Deletions reach no subscriber.
pub(crate) fn kube_shared(client: kube::Client) -> Result<Copy, Failure> {
    let (reader, writer) = reflector::store_shared(SHARED_BUFFER);
    let mut components = Vec::new();
    for _ in 0..COMPONENTS {
        let component = Arc::<Component>::default();
        components.push(Arc::clone(&component));
        let subscriber = writer.subscribe().ok_or("the store is not shared")?;
        tokio::spawn(subscriber.for_each(move |pod| {
            component.read(&pod);
            std::future::ready(())
        }));
    }
    let source = watcher(Api::<Pod>::all(client), watcher::Config::default().streaming_lists());
    let all = components.clone();
    tokio::spawn(source.default_backoff().reflect_shared(writer).for_each(move |event| {
        if matches!(event, Ok(watcher::Event::InitDone)) {
            for component in &all {
                component.syncs.fetch_add(1, Ordering::SeqCst);
            }
        }
        std::future::ready(())
    }));
    Ok(copy(components, move || reader.len()))
}

/// A shared informer, declared by each component, with a subscription that delivers every change.
pub(crate) fn informer(client: kube::Client, representation: Representation) -> Result<Copy, Failure> {
    let cluster = Cluster::new(client);
    let (mut components, mut informers) = (Vec::new(), Vec::new());
    for _ in 0..COMPONENTS {
        let pods = cluster.informer::<Pod>().store(representation).start_shared()?;
        let mut changes = pods.subscribe_all(SHARED_BUFFER);
        let component = Arc::<Component>::default();
        informers.push(pods);
        components.push(Arc::clone(&component));
        tokio::spawn(async move {
            while let Some(event) = changes.next().await {
                let pod = match &event {
                    Event::Added(pod) | Event::Updated { new: pod, .. } | Event::Deleted { last_known: pod, .. } => pod,
                    Event::Synced(_) => {
                        component.syncs.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    Event::Reset | _ => continue,
                };
                match pod.typed() {
                    Some(pod) => component.read(pod),
                    None => {
                        std::hint::black_box((pod.name(), pod.field("spec.nodeName")));
                        component.events.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        });
    }
    Ok(copy(components, move || informers[0].store().snapshot().len()))
}
