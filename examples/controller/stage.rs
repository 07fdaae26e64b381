//! A cluster for the demo and the tests: a server in this process, and users who act on it.

use std::{net::SocketAddr, time::Duration};

use cache_server::{Server, config};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, CustomResourceExt as _, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, from_value, json};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{Failure, bundle::Bundle, control::COPY_OF};

/// Timeout that is ample even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Namespace of the originals.
pub(crate) const TRUST: &str = "trust";

/// A server, and the client of its users.
pub(crate) struct Stage {
    pub(crate) client: Client,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

/// Contents of the copies of one Bundle, by namespace.
pub(crate) type Copies = Vec<(String, String)>;

impl Stage {
    /// Starts a server with the definition of Bundle, and with the namespaces of two teams and of another one.
    pub(crate) async fn start() -> Result<Self, Failure> {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind(config::Config { listen, ..config::Config::default() }).await?;
        let client = Client::try_from(kube::Config::new(format!("http://{}", server.local_addr()).parse()?))?;
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server.serve(async { drop(stopped.await) }));
        let stage = Self { client, stop, serving };
        let definitions = Api::<CustomResourceDefinition>::all(stage.client.clone());
        for definition in [Bundle::crd(), from_value(events())?] {
            definitions.create(&PostParams::default(), &definition).await?;
        }
        for (name, labels) in [
            (TRUST, json!({})),
            ("other", json!({})),
            ("team-a", json!({"trust": "wanted"})),
            ("team-b", json!({"trust": "wanted"})),
        ] {
            stage.create_namespace(name, labels).await?;
        }
        Ok(stage)
    }

    /// Stops the server.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        drop(self.stop);
        timeout(PATIENCE, self.serving).await??;
        Ok(())
    }

    pub(crate) async fn create_namespace(&self, name: &str, labels: Value) -> Result<(), Failure> {
        let namespace: Namespace = from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(())
    }

    /// Creates a Bundle of the original of its own name, for the namespaces with the label `trust: wanted`.
    pub(crate) async fn create_bundle(&self, name: &str) -> Result<(), Failure> {
        let spec = json!({"source": name, "namespaceLabels": {"trust": "wanted"}});
        let bundle = Bundle::new(name, from_value(spec)?);
        self.bundles().create(&PostParams::default(), &bundle).await?;
        Ok(())
    }

    /// Sets the contents of a ConfigMap, and creates it if necessary.
    pub(crate) async fn set(&self, namespace: &str, name: &str, content: &str) -> Result<(), Failure> {
        let data = json!({"data": {"ca.pem": content}});
        let maps = self.maps(namespace);
        if maps.get_opt(name).await?.is_some() {
            maps.patch(name, &PatchParams::default(), &Patch::Merge(data)).await?;
        } else {
            let map: ConfigMap = from_value(json!({"metadata": {"name": name}, "data": data["data"]}))?;
            maps.create(&PostParams::default(), &map).await?;
        }
        Ok(())
    }

    pub(crate) async fn delete_copy(&self, namespace: &str, name: &str) -> Result<(), Failure> {
        self.maps(namespace).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until exactly these namespaces have copies, with this content, and the status says so.
    pub(crate) async fn until_copied(&self, name: &str, expected: &[(&str, &str)]) -> Result<Bundle, Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (copies, bundle) = (self.copies(name).await?, self.bundles().get_opt(name).await?);
            let found = copies.iter().map(|(namespace, content)| (&**namespace, &**content));
            let is_right = found.eq(expected.iter().copied());
            if let Some(bundle) = bundle.filter(|bundle| is_right && is_reported(bundle)) {
                return Ok(bundle);
            }
            if Instant::now() > deadline {
                return Err(format!("waited in vain for {expected:?}: {copies:?}").into());
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Deletes a Bundle, and waits until it and its copies no longer exist.
    pub(crate) async fn delete_bundle(&self, name: &str) -> Result<(), Failure> {
        self.bundles().delete(name, &DeleteParams::default()).await?;
        let deadline = Instant::now() + PATIENCE;
        while self.bundles().get_opt(name).await?.is_some() {
            if Instant::now() > deadline {
                return Err(format!("waited in vain for the end of {name}").into());
            }
            sleep(Duration::from_millis(10)).await;
        }
        let copies = self.copies(name).await?;
        if copies.is_empty() { Ok(()) } else { Err(format!("the finalizer left copies behind: {copies:?}").into()) }
    }

    pub(crate) async fn copies(&self, name: &str) -> Result<Copies, Failure> {
        let of_bundle = ListParams::default().labels(&format!("{COPY_OF}={name}"));
        let copies = Api::<ConfigMap>::all(self.client.clone()).list(&of_bundle).await?;
        let content = |copy: ConfigMap| {
            let namespace = copy.namespace().unwrap_or_default();
            (namespace, copy.data.unwrap_or_default().remove("ca.pem").unwrap_or_default())
        };
        Ok(copies.into_iter().map(content).collect())
    }

    pub(crate) fn bundles(&self) -> Api<Bundle> {
        Api::all(self.client.clone())
    }

    fn maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// True if the status says that the copies of this generation equal the original.
fn is_reported(bundle: &Bundle) -> bool {
    let condition = bundle.synced().filter(|condition| condition.status == "True");
    condition.is_some_and(|condition| condition.observed_generation == bundle.metadata.generation)
}

/// The server stores events of `v1` only, and kube's recorder writes those of `events.k8s.io/v1`: as a custom resource,
/// they are stored, too.
fn events() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let metadata = json!({
        "name": "events.events.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for a demo"},
    });
    let names = json!({"plural": "events", "kind": "Event"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {"group": "events.k8s.io", "scope": "Namespaced", "names": names, "versions": [version]},
    })
}
