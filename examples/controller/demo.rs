//! The demo: starts a server in this process and acts on it like users.
//!
//! INVARIANT: ends by itself, and fails if the copies are wrong.

use std::{net::SocketAddr, time::Duration};

use cache_server::{Server, config};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, from_value, json};
use tokio::{sync::oneshot, time::timeout};

use crate::{Failure, WANTED, control, streams};

/// Timeout that is ample even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts the server, runs the controller while users act, and stops both.
pub(crate) async fn run() -> Result<(), Failure> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::bind(config::Config { listen, ..config::Config::default() }).await?;
    let url = format!("http://{}", server.local_addr());
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(async { drop(stopped.await) }));

    let client = Client::try_from(kube::Config::new(url.parse()?))?;
    let users = Users { client: client.clone() };
    users.prepare().await?;
    let (done, is_done) = oneshot::channel::<()>();
    let streams = streams(client, "trust", "bundle");
    let controlling =
        tokio::spawn(control(streams, |controller| controller.graceful_shutdown_on(async { drop(is_done.await) })));
    let outcome = users.act().await;

    // Both stop when their sender is dropped.
    drop(done);
    timeout(PATIENCE, controlling).await??;
    drop(stop);
    timeout(PATIENCE, serving).await??;
    outcome?;
    println!("all copies are as they should be");
    Ok(())
}

/// Actions of users in a cluster.
struct Users {
    client: Client,
}

impl Users {
    async fn prepare(&self) -> Result<(), Failure> {
        for (name, labels) in [("trust", json!({})), ("team-a", wanted()), ("team-b", wanted()), ("plain", json!({}))] {
            self.create_namespace(name, labels).await?;
        }
        let original = json!({"metadata": {"name": "bundle"}, "data": {"ca.pem": "first"}});
        self.maps("trust").create(&PostParams::default(), &from_value(original)?).await?;
        Ok(())
    }

    async fn act(&self) -> Result<(), Failure> {
        self.until("namespaces that ask for a copy get one", &[("team-a", "first"), ("team-b", "first")]).await?;

        self.patch(&self.maps("trust"), json!({"data": {"ca.pem": "second"}})).await?;
        self.until("copies follow the original", &[("team-a", "second"), ("team-b", "second")]).await?;

        self.patch(&self.maps("team-a"), json!({"data": {"ca.pem": "edited"}})).await?;
        self.maps("team-b").delete("bundle", &DeleteParams::default()).await?;
        self.until("edits and deletes are undone", &[("team-a", "second"), ("team-b", "second")]).await?;

        let namespaces = Api::<Namespace>::all(self.client.clone());
        let unlabelled = json!({"metadata": {"labels": {(WANTED.0): null}}});
        namespaces.patch("team-a", &PatchParams::default(), &Patch::Merge(unlabelled)).await?;
        self.create_namespace("team-c", wanted()).await?;
        self.until("the label is what counts", &[("team-b", "second"), ("team-c", "second")]).await
    }

    /// Waits until exactly these namespaces have copies, with this content.
    async fn until(&self, what: &str, expected: &[(&str, &str)]) -> Result<(), Failure> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let mut found = Vec::new();
            for name in ["team-a", "team-b", "team-c", "plain"] {
                let copy = self.maps(name).get_opt("bundle").await?;
                found.extend(
                    copy.map(|copy| (name, copy.data.unwrap_or_default().remove("ca.pem").unwrap_or_default())),
                );
            }
            if found.iter().map(|(name, content)| (*name, &**content)).eq(expected.iter().copied()) {
                println!("{what}: {found:?}");
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                return Err(format!("waited in vain until {what}: {found:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn create_namespace(&self, name: &str, labels: Value) -> Result<(), Failure> {
        let namespace: Namespace = from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(())
    }

    async fn patch(&self, maps: &Api<ConfigMap>, change: Value) -> Result<(), Failure> {
        maps.patch("bundle", &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }

    fn maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

fn wanted() -> Value {
    json!({(WANTED.0): WANTED.1})
}
