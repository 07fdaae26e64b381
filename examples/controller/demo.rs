//! The demo: starts a server and two replicas in this process, and acts on them like users.
//!
//! INVARIANT: ends by itself, and fails if the copies are wrong.

use std::time::Duration;

use informer::{Cluster, lease::Election};
use k8s_openapi::api::{core::v1::Namespace, events::v1::Event};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    Failure, LEASE, Replica,
    bundle::Bundle,
    stage::{PATIENCE, Stage, TRUST},
};

/// Name of the Bundle, of its original and of its copies.
const BUNDLE: &str = "roots";

/// Time after which a follower takes over from a leader that does not renew: long, for a busy machine.
const LEASE_TIME: Duration = Duration::from_secs(20);

/// An election with a short pause between attempts, so that a hand-over takes no time.
fn election(stage: &Stage, identity: &str) -> Election {
    Election::new(stage.client.clone(), TRUST, LEASE, identity).timing(|timing| {
        timing.lease = LEASE_TIME;
        timing.renew_deadline = Duration::from_secs(15);
        timing.retry = Duration::from_millis(100);
    })
}

/// A replica in a task of this process.
struct ReplicaTask {
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), Failure>>,
}

/// Starts the server, runs the replicas while users act, and stops all of them.
pub(crate) async fn run() -> Result<(), Failure> {
    let stage = Stage::start().await?;
    let first = ReplicaTask::start(&stage, "replica-1");
    act(&stage).await?;
    let second = ReplicaTask::start(&stage, "replica-2");
    hand_over(&stage, first).await?;
    stage.delete_bundle(BUNDLE).await?;
    println!("deleted, and its copies before it");
    second.stop().await?;
    stage.close().await?;
    println!("all copies were as they should be");
    Ok(())
}

async fn act(stage: &Stage) -> Result<(), Failure> {
    stage.set(TRUST, BUNDLE, "first").await?;
    stage.create_bundle(BUNDLE).await?;
    let bundle = stage.until_copied(BUNDLE, &[("team-a", "first"), ("team-b", "first")]).await?;
    println!("namespaces with the label have copies: {}", bundle.synced().map_or("", |condition| &condition.message));
    check_event(stage).await?;

    stage.set(TRUST, BUNDLE, "second").await?;
    stage.until_copied(BUNDLE, &[("team-a", "second"), ("team-b", "second")]).await?;
    println!("copies follow the original");

    stage.set("team-a", BUNDLE, "edited").await?;
    stage.delete_copy("team-b", BUNDLE).await?;
    stage.until_copied(BUNDLE, &[("team-a", "second"), ("team-b", "second")]).await?;
    println!("edits and deletions are undone");

    let unlabelled = Patch::Merge(json!({"metadata": {"labels": {"trust": null}}}));
    let namespaces = Api::<Namespace>::all(stage.client.clone());
    namespaces.patch("team-a", &PatchParams::default(), &unlabelled).await?;
    stage.create_namespace("team-c", json!({"trust": "wanted"})).await?;
    stage.until_copied(BUNDLE, &[("team-b", "second"), ("team-c", "second")]).await?;
    println!("the label decides");
    Ok(())
}

/// Checks the event about the first copies, which is published before the status is written.
async fn check_event(stage: &Stage) -> Result<(), Failure> {
    let events = Api::<Event>::all(stage.client.clone()).list(&ListParams::default()).await?;
    let event = events.items.iter().find(|event| event.reason.as_deref() == Some("CopiesEqual"));
    let event = event.ok_or("there is no event about the copies")?;
    println!("event: {}", event.note.as_deref().unwrap_or_default());
    Ok(())
}

/// Stops the leader: the follower takes over without waiting for the lease, with the next term.
async fn hand_over(stage: &Stage, first: ReplicaTask) -> Result<(), Failure> {
    let term = |bundle: &Bundle| bundle.status.as_ref().map(|status| status.term);
    let before = stage.until_copied(BUNDLE, &[("team-b", "second"), ("team-c", "second")]).await?;
    first.stop().await?;
    let handing = async {
        loop {
            stage.set(TRUST, BUNDLE, "third").await?;
            let after = stage.until_copied(BUNDLE, &[("team-b", "third"), ("team-c", "third")]).await?;
            if term(&after) > term(&before) {
                println!("the next leader follows the original");
                return Ok::<_, Failure>(());
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LEASE_TIME / 2, handing).await?
}

impl ReplicaTask {
    fn start(stage: &Stage, identity: &str) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let replica = Replica {
            cluster: Cluster::new(stage.client.clone()),
            trust_namespace: TRUST.to_owned(),
            identity: identity.to_owned(),
            election: election(stage, identity),
        };
        Self { stop, running: tokio::spawn(replica.run(async { drop(stopped.await) })) }
    }

    async fn stop(self) -> Result<(), Failure> {
        drop(self.stop);
        timeout(PATIENCE, self.running).await??
    }
}
