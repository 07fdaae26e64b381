//! The controllers, on one copy of the ConfigMaps: `render` owns its output, and `count` follows what anyone writes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use informer::{
    Cluster, ConfigError, Informer, ObjectRef, Readiness,
    controller::{Controller, ControllerMetrics, Requeue},
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams},
    core::PartialObjectMeta,
};
use serde_json::json;
use tokio::try_join;

use crate::Failure;

/// Label of ConfigMaps that are templates.
pub(crate) const TEMPLATE: &str = "manager.example.dev/template";

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
        let namespaces = cluster.informer::<Namespace>().metadata_only().start_shared()?;
        Ok(Self { cluster: cluster.clone(), metrics, maps, namespaces })
    }

    pub(crate) fn copies(&self) -> [Readiness; 2] {
        [self.maps.readiness(), self.namespaces.readiness()]
    }

    /// Runs the controllers until `stop` resolves and their reconciles have ended. Needs copies that are ready.
    pub(crate) async fn run(&self, stop: impl Future<Output = ()> + Clone + Send + 'static) -> Result<(), Failure> {
        // Filtered out of the copy: no request.
        let templates = self.cluster.informer::<ConfigMap>().labels(TEMPLATE).start_shared()?;
        let rendering = Controller::new(&templates)
            .name("render")
            .owns(&self.maps)
            .metrics(&self.metrics)
            .graceful_shutdown_on(stop.clone())
            .run(render, |failure| failure.backoff(), Arc::new(self.cluster.client()));
        let counting = Controller::new(&self.namespaces)
            .name("count")
            // Updates of a ConfigMap change no count.
            .watches_when(&self.maps, |_, _| false, |map| Some(ObjectRef::new(map.namespace())))
            .debounce(COUNTED_TOGETHER)
            .metrics(&self.metrics)
            .graceful_shutdown_on(stop)
            .run(count, |failure| failure.backoff(), Arc::new((self.cluster.client(), self.maps.clone())));
        try_join!(rendering, counting)?;
        Ok(())
    }
}

/// Applies the ConfigMap `NAME-rendered`, which its template owns. An apply that changes nothing makes no new version.
async fn render(template: Arc<ConfigMap>, client: Arc<Client>) -> Result<Requeue, kube::Error> {
    if template.metadata.deletion_timestamp.is_some() {
        return Ok(Requeue::await_change());
    }
    let (name, namespace) = (template.name_any(), template.namespace().unwrap_or_default());
    let data = template.data.iter().flatten();
    let data: BTreeMap<_, _> = data.map(|(key, text)| (key.clone(), text.replace("$NAMESPACE", &namespace))).collect();
    let metadata = ObjectMeta {
        name: Some(format!("{name}-rendered")),
        owner_references: Some(template.controller_owner_ref(&()).into_iter().collect()),
        ..ObjectMeta::default()
    };
    let output = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
    let outputs = Api::<ConfigMap>::namespaced(Client::clone(&client), &namespace);
    let params = PatchParams::apply("manager").force();
    outputs.patch(&output.name_any(), &params, &Patch::Apply(&output)).await?;
    Ok(Requeue::await_change())
}

/// Writes the number of ConfigMaps into the metadata of their namespace.
async fn count(
    namespace: Arc<PartialObjectMeta<Namespace>>,
    context: Arc<(Client, Informer<ConfigMap>)>,
) -> Result<Requeue, kube::Error> {
    let ((client, maps), name) = (&*context, namespace.name_any());
    let count = maps.store().snapshot().namespace(&name).count().to_string();
    if namespace.annotations().get(CONFIG_MAPS) != Some(&count) {
        let annotation = Patch::Merge(json!({"metadata": {"annotations": {CONFIG_MAPS: count}}}));
        Api::<Namespace>::all(client.clone()).patch(&name, &PatchParams::default(), &annotation).await?;
    }
    Ok(Requeue::await_change())
}
