//! The controller's informers and triggers: four watches, and one copy of each type.

use std::sync::Arc;

use informer::{
    Cluster, ConfigError, Index, Informer, ListSemantic, ObjectRef,
    controller::{Controller, ControllerError, changed},
    index,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::core::PartialObjectMeta;

use crate::{
    bundle::Bundle,
    reconcile::{self, Context},
};

/// Label of the copies; its value is the name of their Bundle.
pub(crate) const COPY_OF: &str = "copies.example.dev/bundle";

/// The informers of the controller. Cheap to clone. Followers run them too, so that a new leader starts with warm caches.
#[derive(Clone)]
pub(crate) struct Informers {
    pub(crate) bundles: Informer<Bundle>,
    by_source: Index<Bundle>,
    pub(crate) namespaces: Informer<PartialObjectMeta<Namespace>>,
    pub(crate) copies: Informer<ConfigMap>,
    pub(crate) by_bundle: Index<ConfigMap>,
    pub(crate) sources: Informer<ConfigMap>,
    pub(crate) trust_namespace: String,
}

impl Informers {
    /// Starts the informers. Must be called inside a tokio runtime.
    pub(crate) fn start(cluster: &Cluster, trust_namespace: &str) -> Result<Self, ConfigError> {
        let mut bundles = cluster.informer::<Bundle>();
        let by_source = bundles.index(|bundle| bundle.field("spec.source"));
        // A restarted controller must not overlook copies that it made just before.
        let mut copies = cluster.informer::<ConfigMap>().labels(COPY_OF).list_semantic(ListSemantic::MostRecent);
        let by_bundle = copies.index(index::label(COPY_OF));
        Ok(Self {
            bundles: bundles.start()?,
            by_source,
            namespaces: cluster.informer::<Namespace>().metadata_only().start()?,
            copies: copies.start()?,
            by_bundle,
            sources: cluster.informer::<ConfigMap>().namespace(trust_namespace).start()?,
            trust_namespace: trust_namespace.to_owned(),
        })
    }

    /// Stops every informer.
    pub(crate) async fn shutdown(&self) {
        self.bundles.clone().stop().await;
        self.namespaces.clone().stop().await;
        self.copies.clone().stop().await;
        self.sources.clone().stop().await;
    }
}

/// Runs the controller until `stop` resolves and the running reconciles have ended. Dropping the future aborts them.
pub(crate) async fn control(
    informers: &Informers,
    context: Context,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ControllerError> {
    let (bundles, by_source) = (informers.bundles.store().clone(), informers.by_source.clone());
    let all_bundles = bundles.clone();
    Controller::new(&informers.bundles)
        // Its own writes of the status need no answer.
        .when(|old, new| changed::generation(old, new) || changed::finalizers(old, new))
        .owns(&informers.copies)
        .watches(&informers.sources, move |source| -> Vec<ObjectRef<Bundle>> {
            let bundles = bundles.snapshot();
            bundles.by(&by_source, source.name()).map(|bundle| ObjectRef::new(bundle.name())).collect()
        })
        .watches_when(&informers.namespaces, changed::labels, move |_| -> Vec<ObjectRef<Bundle>> {
            all_bundles.snapshot().iter().map(|bundle| ObjectRef::new(bundle.name())).collect()
        })
        .graceful_shutdown_on(stop)
        .run(reconcile::reconcile, |failure| failure.backoff(), Arc::new(context))
        .await
}
