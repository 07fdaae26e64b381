//! Tests that abort the controller before and after each of its requests and at each poll, and a leader that works.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use http_body_util::BodyExt as _;
use informer::{Cluster, lease::Election};
use kube::{Client, client::Body, runtime::events::Recorder};
use tokio::{
    select,
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use crate::{
    Failure, Replica,
    control::{Informers, control},
    reconcile::Context,
    stage::{Stage, TRUST},
};

/// Point at which the controller is aborted: before or after one of its requests.
struct CrashPoint {
    /// Points left before the crash.
    left: AtomicUsize,
    died: Notify,
}

impl CrashPoint {
    fn new(points: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(points), died: Notify::new() })
    }

    async fn pass(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// A client whose requests stop at this point.
    fn client(self: &Arc<Self>, client: &Client) -> Client {
        let (point, client) = (Arc::clone(self), client.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (point, client) = (Arc::clone(&point), client.clone());
            async move {
                point.pass().await;
                let response = client.send(request).await;
                point.pass().await;
                response
            }
        });
        Client::new(service, "default")
    }
}

/// Poll at which the controller stops: of its loop, or of one of its requests. From then on neither makes progress.
struct CrashPoll {
    /// Polls left before the crash.
    left: AtomicUsize,
    died: Notify,
}

/// A future whose polls count.
struct MortalFuture<F> {
    inner: Pin<Box<F>>,
    point: Arc<CrashPoll>,
}

impl CrashPoll {
    fn new(polls: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(polls), died: Notify::new() })
    }

    fn watch<F: Future>(self: &Arc<Self>, future: F) -> MortalFuture<F> {
        MortalFuture { inner: Box::pin(future), point: Arc::clone(self) }
    }

    /// A client whose requests count, up to the last byte of their responses.
    fn client(self: &Arc<Self>, client: &Client) -> Client {
        let (point, client) = (Arc::clone(self), client.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let client = client.clone();
            point.watch(async move {
                let (parts, body) = client.send(request).await?.into_parts();
                let bytes = body.collect().await?.to_bytes();
                Ok::<_, Failure>(http::Response::from_parts(parts, Body::from(bytes)))
            })
        });
        Client::new(service, "default")
    }
}

impl<F: Future> Future for MortalFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<F::Output> {
        let left = self.point.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_err() {
            self.point.died.notify_one();
            return Poll::Pending;
        }
        self.inner.as_mut().poll(cx)
    }
}

/// Runs the controller. Its writes go through `client`; its watches do not.
fn controller(stage: &Stage, client: Client, term: i32) -> impl Future<Output = ()> + Send + 'static {
    let reads = stage.client.clone();
    async move {
        let informers = Informers::start(&Cluster::new(reads), TRUST).expect("valid informers");
        let recorder = Recorder::new(client.clone(), "controller".into());
        let context = Context { client, informers: informers.clone(), recorder, term };
        control(&informers, context, std::future::pending()).await.expect("it runs until it is killed");
    }
}

/// The life of a Bundle from creation to deletion, with the copies expected after each step.
async fn use_bundle(stage: &Stage, name: &str) -> Result<(), Failure> {
    stage.set(TRUST, name, "first").await?;
    stage.create_bundle(name).await?;
    stage.until_copied(name, &[("team-a", "first"), ("team-b", "first")]).await?;
    stage.set(TRUST, name, "second").await?;
    stage.until_copied(name, &[("team-a", "second"), ("team-b", "second")]).await?;
    stage.delete_copy("team-a", name).await?;
    stage.until_copied(name, &[("team-a", "second"), ("team-b", "second")]).await?;
    stage.delete_bundle(name).await
}

/// The life of a Bundle under a controller that crashes at some point, and under its successor. Returns false if the
/// first one did not crash.
async fn survives(stage: &Stage, point: &str, term: i32, first: JoinHandle<()>, died: &Notify) -> bool {
    let mut users = pin!(use_bundle(stage, point));
    let early = select! {
        () = died.notified() => None,
        outcome = &mut users => Some(outcome),
    };
    first.abort();
    assert!(first.await.expect_err("it was killed").is_cancelled());
    if let Some(outcome) = early {
        outcome.expect("without a crash, all is well");
        return false;
    }
    let second = tokio::spawn(controller(stage, stage.client.clone(), term + 1));
    users.await.unwrap_or_else(|error| panic!("{point}: {error}"));
    second.abort();
    assert!(second.await.expect_err("it was killed").is_cancelled());
    true
}

/// Goal: after a crash at any point, a new controller makes the copies equal to the original, and deletes them with
/// their Bundle. Method: for each request in the life of a Bundle, abort one controller before the request is sent and
/// another before its response is read; then start a new one.
#[tokio::test(flavor = "multi_thread")]
async fn the_copies_are_right_wherever_the_controller_was_killed() {
    let stage = Stage::start().await.expect("a server");
    let (mut points, mut term) = (0, 0);
    loop {
        let point = CrashPoint::new(points);
        let first = tokio::spawn(controller(&stage, point.client(&stage.client), term));
        if !survives(&stage, &format!("killed-at-{points}"), term, first, &point.died).await {
            break;
        }
        (points, term) = (points + 1, term + 2);
    }
    // At least: finalizer, two copies, event, status; two copies; one copy; list, two deletes, finalizer.
    assert!(points >= 24, "{points} points");
    stage.close().await.expect("a clean end");
}

/// Goal: after a crash at any await, a new controller makes the copies equal to the original, and deletes them with
/// their Bundle. Method: like above, for each poll of the controller's loop and of its requests.
#[tokio::test(flavor = "multi_thread")]
async fn the_copies_are_right_at_whatever_poll_the_controller_was_killed() {
    let stage = Stage::start().await.expect("a server");
    let (mut polls, mut term) = (0, 0);
    loop {
        let point = CrashPoll::new(polls);
        let first = tokio::spawn(point.watch(controller(&stage, point.client(&stage.client), term)));
        if !survives(&stage, &format!("killed-before-poll-{polls}"), term, first, &point.died).await {
            break;
        }
        (polls, term) = (polls + 1, term + 2);
    }
    // At least: each of twelve requests is polled when it is sent and when its response comes.
    assert!(polls >= 24, "{polls} polls");
    stage.close().await.expect("a clean end");
}

/// An election whose Lease is short enough to wait for, and long enough for a busy machine.
fn election(stage: &Stage, identity: &str) -> Election {
    Election::new(stage.client.clone(), TRUST, "election", identity).timing(|timing| {
        timing.lease = Duration::from_secs(6);
        timing.renew_deadline = Duration::from_secs(5);
        timing.retry = Duration::from_millis(50);
    })
}

/// Goal: a follower takes over from a leader that crashed, with a larger term. Method: two replicas; the leader's task
/// is aborted, so it does not release the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_takes_over_from_a_killed_leader() {
    let stage = Stage::start().await.expect("a server");
    let replica = |identity: &str| Replica {
        cluster: Cluster::new(stage.client.clone()),
        trust_namespace: TRUST.to_owned(),
        identity: identity.to_owned(),
        election: election(&stage, identity),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let leader = tokio::spawn(replica("a").run(std::future::pending()));
    stage.set(TRUST, "roots", "first").await.expect("an original");
    stage.create_bundle("roots").await.expect("a Bundle");
    let bundle = stage.until_copied("roots", &[("team-a", "first"), ("team-b", "first")]).await.expect("copies");
    assert_eq!(bundle.status.map(|status| status.term), Some(0));
    let follower = tokio::spawn(replica("b").run(async { drop(stopped.await) }));
    leader.abort();
    stage.set(TRUST, "roots", "second").await.expect("an original");
    stage.until_copied("roots", &[("team-a", "second"), ("team-b", "second")]).await.expect("copies");
    stage.delete_bundle("roots").await.expect("it is deleted");
    drop(stop);
    follower.await.expect("no panic").expect("a clean end");
    stage.close().await.expect("a clean end");
}
