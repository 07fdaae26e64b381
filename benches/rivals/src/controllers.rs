//! The same controller twice: on kube's runtime as it comes, and on the informer's store.
//!
//! Pods are reconciled; ConfigMaps are owned, and Nodes watched. The reconciler reads its object and does nothing else.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use futures::StreamExt as _;
use informer::{
    Cluster,
    controller::{self, Requeue},
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{
    Api, ResourceExt as _,
    runtime::{Controller, controller::Action, reflector::ObjectRef, watcher},
};

use crate::{Failure, client::Copy};

/// Counts reconciles.
#[derive(Default)]
struct Reconciles {
    count: AtomicU64,
    first: std::sync::OnceLock<std::time::Duration>,
}

impl Reconciles {
    fn add(&self, pod: &Pod, start: Instant) {
        std::hint::black_box(pod.name_any());
        self.first.get_or_init(|| start.elapsed());
        self.count.fetch_add(1, Ordering::SeqCst);
    }
}

/// kube's controller. Its initial states are counted by reconciles: each reconciles every object.
pub(crate) fn kube(client: kube::Client) -> Copy {
    let (reconciles, start) = (Arc::<Reconciles>::default(), Instant::now());
    let config = || watcher::Config::default().streaming_lists();
    let controller = Controller::new(Api::<Pod>::all(client.clone()), config())
        .owns(Api::<ConfigMap>::all(client.clone()), config())
        .watches(Api::<Node>::all(client), config(), |_| None::<ObjectRef<Pod>>);
    let store = controller.store();
    let run = controller.run(
        move |pod, reconciles: Arc<Reconciles>| async move {
            reconciles.add(&pod, start);
            Ok::<_, Infallible>(Action::await_change())
        },
        |_, _, _| Action::await_change(),
        Arc::clone(&reconciles),
    );
    tokio::spawn(run.for_each(|_| async {}));
    let (syncs, events, first) = (Arc::clone(&reconciles), Arc::clone(&reconciles), reconciles);
    let pods = store.clone();
    Copy {
        // The store is empty until its initial state is complete.
        syncs: Box::new(move || syncs.count.load(Ordering::SeqCst).checked_div(pods.len() as u64).unwrap_or_default()),
        events: Box::new(move || events.count.load(Ordering::SeqCst)),
        first: Box::new(move || first.first.get().copied().unwrap_or_default()),
        objects: Box::new(move || store.len()),
    }
}

/// The controller on the informer's store. The first sync is complete once every object was reconciled.
pub(crate) fn informer(client: kube::Client) -> Result<Copy, Failure> {
    let (reconciles, start) = (Arc::<Reconciles>::default(), Instant::now());
    let cluster = Cluster::new(client);
    let primary = cluster.informer::<Pod>().start()?;
    let (owned, watched) = (cluster.informer::<ConfigMap>().start()?, cluster.informer::<Node>().start()?);
    let run =
        controller::Controller::new(&primary).owns(&owned).watches(&watched, |_| None::<informer::ObjectRef<Pod>>).run(
            move |pod: Arc<Pod>, reconciles: Arc<Reconciles>| async move {
                reconciles.add(&pod, start);
                Ok::<_, Infallible>(Requeue::await_change())
            },
            |failure| failure.backoff(),
            Arc::clone(&reconciles),
        );
    tokio::spawn(run);
    let (syncs, events, first) = (Arc::clone(&reconciles), Arc::clone(&reconciles), reconciles);
    let informer = primary.clone();
    Ok(Copy {
        syncs: Box::new(move || {
            let is_reconciled = syncs.count.load(Ordering::SeqCst) >= informer.store().snapshot().len() as u64;
            if is_reconciled { informer.stats().reflector.syncs } else { 0 }
        }),
        events: Box::new(move || events.count.load(Ordering::SeqCst)),
        first: Box::new(move || first.first.get().copied().unwrap_or_default()),
        objects: Box::new(move || primary.store().snapshot().len()),
    })
}
