//! The controllers, on one copy of the ConfigMaps: `render` owns its output, and `count` follows what anyone writes.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt as _, channel::oneshot, future::select};
use informer::{
    Cluster, ConfigError, Informer, ObjectRef, Readiness,
    controller::{Controller, ControllerMetrics, Requeue},
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    core::PartialObjectMeta,
};
use serde_json::json;

use crate::Failure;

/// Label of ConfigMaps that are templates.
pub(crate) const TEMPLATE: &str = "manager.example.dev/template";

/// Label of namespaces whose ConfigMaps are counted.
pub(crate) const COUNTED: &str = "manager.example.dev/counted";

/// Annotation of a namespace: the number of its ConfigMaps.
pub(crate) const CONFIG_MAPS: &str = "manager.example.dev/config-maps";

/// Time in which changes of a namespace's ConfigMaps become one write.
const COUNTED_TOGETHER: Duration = Duration::from_millis(50);

/// Both controllers, and the copies that they read.
pub(crate) struct Controllers {
    cluster: Cluster,
    metrics: ControllerMetrics,
    maps: Informer<ConfigMap>,
    namespaces: Informer<PartialObjectMeta<Namespace>>,
}

impl Controllers {
    /// Starts one watch of each type, but no controller. Must be called inside a tokio runtime.
    pub(crate) fn new(cluster: &Cluster, metrics: ControllerMetrics) -> Result<Self, ConfigError> {
        let maps = cluster.informer::<ConfigMap>().start_shared()?;
        let namespaces = cluster.informer::<Namespace>().labels(COUNTED).metadata_only().start_shared()?;
        Ok(Self { cluster: cluster.clone(), metrics, maps, namespaces })
    }

    pub(crate) fn copies(&self) -> [Readiness; 2] {
        [self.maps.readiness(), self.namespaces.readiness()]
    }

    /// Runs the controllers until `stop` resolves or one fails, and the reconciles of both have ended. A second signal
    /// aborts these. Needs copies that are ready.
    pub(crate) async fn run(&self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), Failure> {
        // Filtered out of the copy: no request.
        let templates = self.cluster.informer::<ConfigMap>().labels(TEMPLATE).start_shared()?;
        let (fail, failed) = oneshot::channel::<()>();
        let stop = select(stop.boxed(), failed).map(drop).shared();
        let context = Arc::new((self.cluster.client(), self.maps.clone()));
        let rendering = Controller::new(&templates)
            .name("render")
            .owns(&self.maps)
            .metrics(&self.metrics)
            .graceful_shutdown_on(stop.clone())
            .shutdown_on_signal()
            .run(render, |failure| failure.backoff(), Arc::clone(&context));
        let counting = Controller::new(&self.namespaces)
            .name("count")
            // Updates of a ConfigMap change no count.
            .watches_when(&self.maps, |_, _| false, |map| Some(ObjectRef::new(map.namespace())))
            .debounce(COUNTED_TOGETHER)
            .metrics(&self.metrics)
            .graceful_shutdown_on(stop)
            .shutdown_on_signal()
            .run(count, |failure| failure.backoff(), context);
        let (outcome, other) = select(rendering.boxed(), counting.boxed()).await.factor_first();
        drop(fail);
        Ok(outcome.and(other.await)?)
    }
}

/// Client of both controllers, and the copy of the ConfigMaps.
type Context = (Client, Informer<ConfigMap>);

/// Applies the ConfigMap `NAME-rendered`, which its template owns. An apply that changes nothing makes no new version.
///
/// # Errors
/// 409 if the ConfigMap is not the template's: an apply would overwrite it, and the template's deletion would delete it.
async fn render(template: Arc<ConfigMap>, context: Arc<Context>) -> Result<Requeue, kube::Error> {
    let Some(owner) = template.controller_owner_ref(&()).filter(|_| template.metadata.deletion_timestamp.is_none())
    else {
        return Ok(Requeue::await_change());
    };
    let (client, maps) = &*context;
    let (name, namespace) = (format!("{}-rendered", template.name_any()), template.namespace().unwrap_or_default());
    let found = maps.store().snapshot().get(&format!("{namespace}/{name}")).and_then(|found| found.decode().ok());
    let is_owned = found.is_some_and(|found| found.owner_references().contains(&owner));
    let metadata =
        ObjectMeta { name: Some(name.clone()), owner_references: Some(vec![owner]), ..ObjectMeta::default() };
    let mut output = ConfigMap { metadata, ..ConfigMap::default() };
    let outputs = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    if !is_owned {
        outputs.create(&PostParams::default(), &output).await?;
    }
    let data = template.data.iter().flatten();
    output.data = Some(data.map(|(key, text)| (key.clone(), text.replace("$NAMESPACE", &namespace))).collect());
    outputs.patch(&name, &PatchParams::apply("manager").force(), &Patch::Apply(&output)).await?;
    Ok(Requeue::await_change())
}

/// Writes the number of ConfigMaps into the metadata of their namespace.
async fn count(namespace: Arc<PartialObjectMeta<Namespace>>, context: Arc<Context>) -> Result<Requeue, kube::Error> {
    let ((client, maps), name) = (&*context, namespace.name_any());
    let count = maps.store().snapshot().namespace(&name).count().to_string();
    if namespace.annotations().get(CONFIG_MAPS) != Some(&count) {
        let annotation = Patch::Merge(json!({"metadata": {"annotations": {CONFIG_MAPS: count}}}));
        Api::<Namespace>::all(client.clone()).patch(&name, &PatchParams::default(), &annotation).await?;
    }
    Ok(Requeue::await_change())
}
