//! Leader election: one leader at a time, whatever happens to replicas, connections and clocks.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use informer::{
    Cluster,
    controller::{Controller, Requeue},
    lease::{Election, Leadership},
    testing::FakeApiServer,
};
use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, advance, sleep, timeout},
};
use tracing::Dispatch;

use crate::{controllers::deployment, fixture::until, logs::RecordedLog};

const SECOND: Duration = Duration::from_secs(1);

fn server() -> FakeApiServer {
    FakeApiServer::new().serve::<Lease>().serve::<Deployment>()
}

fn election(server: &FakeApiServer, identity: &str) -> Election {
    Election::new(server.client(), "a", "controller", identity)
}

fn leases(server: &FakeApiServer) -> Api<Lease> {
    Api::namespaced(server.client(), "a")
}

async fn merge(leases: &Api<Lease>, patch: serde_json::Value) {
    leases.patch("controller", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Gives the Lease another version.
async fn annotate(leases: &Api<Lease>, number: usize) {
    merge(leases, json!({"metadata": {"annotations": {"number": number.to_string()}}})).await;
}

/// Creates a Lease of another holder, which began to lead at that time.
async fn held_by_another(leases: &Api<Lease>, seconds: u32, time: &str) {
    let spec = json!({"holderIdentity": "skewed", "leaseDurationSeconds": seconds, "leaseTransitions": 7,
        "acquireTime": time, "renewTime": time});
    let lease = serde_json::from_value(json!({"metadata": {"name": "controller"}, "spec": spec})).unwrap();
    leases.create(&PostParams::default(), &lease).await.unwrap();
}

/// Goal: a leader that ends in order hands over at once, a crashed one after its Lease, and terms grow. Method: three
/// replicas in turn; the second is dropped without a release.
#[tokio::test(start_paused = true)]
async fn one_replica_leads_and_hands_over() {
    let server = server();
    let first = election(&server, "one").lead().await;
    assert!(first.is_held() && first.term() == 0);
    let second = tokio::spawn(async move { election(&server, "two").lead().await });
    sleep(3600 * SECOND).await;
    assert!(first.is_held() && !second.is_finished(), "it renews its Lease");
    let released = Instant::now();
    first.release().await;
    let second = second.await.unwrap();
    assert!(second.term() == 1 && released.elapsed() <= 3 * SECOND, "{:?}", released.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_crashed_leader_is_replaced_after_its_lease() {
    let server = server();
    drop(election(&server, "one").lead().await);
    let crashed = Instant::now();
    let second = election(&server, "two").lead().await;
    assert_eq!(second.term(), 1);
    assert!((15..=18).contains(&crashed.elapsed().as_secs()), "{:?}", crashed.elapsed());
    drop(second);
    // Its old name does not make it the leader of its old term.
    assert_eq!(election(&server, "two").lead().await.term(), 2);
}

/// Goal: clocks of other machines do not matter. Method: holders whose clocks are a day ahead or behind; one that
/// renews keeps its Lease, and one that stops loses it as fast as any.
#[tokio::test(start_paused = true)]
async fn clocks_of_other_machines_do_not_matter() {
    for time in ["2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let server = server();
        let leases = leases(&server);
        held_by_another(&leases, 15, time).await;
        let other = tokio::spawn({
            let server = server.clone();
            async move { election(&server, "other").lead().await }
        });
        for renewal in 0..30 {
            sleep(10 * SECOND).await;
            annotate(&leases, renewal).await;
        }
        assert!(!other.is_finished(), "{time}");
        let stopped = Instant::now();
        assert_eq!(other.await.unwrap().term(), 8);
        assert!((15..=18).contains(&stopped.elapsed().as_secs()), "{:?}", stopped.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_lasts_as_long_as_its_holder_wrote() {
    let (server, start) = (server(), Instant::now());
    held_by_another(&leases(&server), 30, "2026-01-01T00:00:00.000000Z").await;
    assert_eq!(election(&server, "one").lead().await.term(), 8);
    assert!((30..=33).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

/// Goal: a release frees only the leadership that ends. Method: before it, the Lease gets another holder, or another
/// term of the holder, as after a restart with its name.
#[tokio::test(start_paused = true)]
async fn a_release_frees_no_lease_of_another_leadership() {
    for (holder, term) in [("other", 0), ("one", 1)] {
        let server = server();
        let leadership = election(&server, "one").lead().await;
        merge(&leases(&server), json!({"spec": {"holderIdentity": holder, "leaseTransitions": term}})).await;
        leadership.release().await;
        let spec = leases(&server).get("controller").await.unwrap().spec.unwrap();
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some(holder), Some(term)));
    }
}

/// Goal: a leader without a connection stops before the next one starts. Method: only its own connection breaks.
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_leads() {
    let server = server();
    let own = server.replica();
    let first = election(&own, "one").lead().await;
    let second = tokio::spawn(async move { election(&server, "two").lead().await });
    sleep(60 * SECOND).await;
    own.refuse_connections();
    let broken = Instant::now();
    first.lost().await;
    assert!(!first.is_held() && (8..=10).contains(&broken.elapsed().as_secs()), "{:?}", broken.elapsed());
    assert!(!second.is_finished());
    assert_eq!(second.await.unwrap().term(), 1);
    // The time runs from the last renewal, up to a retry before the outage.
    assert!((13..=18).contains(&broken.elapsed().as_secs()), "{:?}", broken.elapsed());
}

/// Goal: reconciles of a leader that lost its Lease end before they write. Method: another holder takes the Lease while
/// a controller reconciles; then one deletes the Lease.
#[tokio::test(start_paused = true)]
async fn a_lease_lost_during_a_reconcile_ends_it() {
    let server = server().put(deployment("x", 1, 0));
    let deployments = Cluster::new(server.client()).informer::<Deployment>().start().unwrap();
    let takes_over = json!({"spec": {"holderIdentity": "other", "leaseTransitions": 9}});
    for is_deleted in [false, true] {
        let (started, written) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (Arc::clone(&started), Arc::clone(&written));
        let reconcile = move |_: Arc<Deployment>, _: Arc<()>| {
            let (started, written) = counts.clone();
            async move {
                started.fetch_add(1, Ordering::SeqCst);
                sleep(60 * SECOND).await;
                written.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Infallible>(Requeue::await_change())
            }
        };
        let leadership = election(&server, "one").lead().await;
        let term = leadership.term();
        let work = Controller::new(&deployments).run(reconcile, |failure| failure.backoff(), Arc::new(()));
        let running = tokio::spawn(leadership.run(work));
        until("the reconcile", || started.load(Ordering::SeqCst) == 1).await;
        if is_deleted {
            leases(&server).delete("controller", &DeleteParams::default()).await.unwrap();
        } else {
            merge(&leases(&server), takes_over.clone()).await;
        }
        let lost = Instant::now();
        assert_eq!(running.await.unwrap().unwrap_err().term, term);
        assert!(lost.elapsed() <= 2 * SECOND, "{:?}", lost.elapsed());
        sleep(600 * SECOND).await;
        assert_eq!(written.load(Ordering::SeqCst), 0);
    }
}

/// Treatment of a request by a faulty connection.
enum Fault {
    None,
    /// The server answers, and the response is lost.
    ResponseLost,
    /// The request does not arrive.
    RequestLost,
    /// The response never comes.
    NoResponse,
    /// Another client writes the Lease first.
    Outrun,
    /// The response comes after this time.
    Slow(Duration),
    /// The clock is this much later when the response comes, and no timer has fired since.
    Suspended(Duration),
}

/// A client whose requests are treated by the number of PUTs until then.
fn faulty(server: &FakeApiServer, fault: impl Fn(&http::Method, usize) -> Fault + Copy + Send + 'static) -> Client {
    counted(server, fault, Arc::default())
}

/// Like [`faulty`], and counts the PUTs.
fn counted(
    server: &FakeApiServer,
    fault: impl Fn(&http::Method, usize) -> Fault + Copy + Send + 'static,
    puts: Arc<AtomicUsize>,
) -> Client {
    let (client, writer) = (server.client(), leases(server));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, writer, puts) = (client.clone(), writer.clone(), Arc::clone(&puts));
        async move {
            let is_put = request.method() == http::Method::PUT;
            let number = puts.fetch_add(usize::from(is_put), Ordering::SeqCst) + usize::from(is_put);
            let lost = Err(kube::Error::LinesCodecMaxLineLengthExceeded);
            match fault(request.method(), number) {
                Fault::None => client.send(request).await,
                Fault::ResponseLost => client.send(request).await.and(lost),
                Fault::RequestLost => lost,
                Fault::NoResponse => std::future::pending().await,
                Fault::Outrun => {
                    annotate(&writer, number).await;
                    client.send(request).await
                }
                Fault::Slow(time) => {
                    let response = client.send(request).await;
                    sleep(time).await;
                    response
                }
                Fault::Suspended(time) => {
                    let response = client.send(request).await;
                    _ = advance(time).now_or_never();
                    response
                }
            }
        }
    });
    Client::new(service, "default")
}

/// Goal: a lost response costs no leadership and no term. Method: every third renewal is stored without a response, for
/// ten minutes.
#[tokio::test(start_paused = true)]
async fn a_renewal_whose_response_was_lost_ends_no_leadership() {
    let server = server();
    let is_lost = |method: &http::Method, puts: usize| method == http::Method::PUT && puts.is_multiple_of(3);
    let every_third = move |method: &http::Method, puts: usize| match is_lost(method, puts) {
        true => Fault::ResponseLost,
        false => Fault::None,
    };
    let leader = Election::new(faulty(&server, every_third), "a", "controller", "one").lead().await;
    sleep(600 * SECOND).await;
    assert!(leader.is_held() && timeout(SECOND, leader.lost()).await.is_err());
    assert_eq!(leases(&server).get("controller").await.unwrap().spec.unwrap().lease_transitions, Some(0));
}

/// Goal: a renewal that was stored without a response does not keep a leader beyond the time that others wait. Method:
/// the renewal of second 62 loses its response, the one of second 68 finds that version, and then nothing arrives.
#[tokio::test(start_paused = true)]
async fn a_renewal_found_later_does_not_extend_the_leadership() {
    let (server, start) = (server(), Instant::now());
    let faults = |_: &http::Method, puts: usize| match puts {
        ..=30 | 34 => Fault::None,
        31 => Fault::ResponseLost,
        _ => Fault::RequestLost,
    };
    let first = Election::new(faulty(&server, faults), "a", "controller", "one").lead().await;
    let eager = election(&server, "two").timing(|timing| timing.retry = SECOND / 10);
    let second = tokio::spawn(async move { (eager.lead().await, Instant::now()) });
    first.lost().await;
    let lost = Instant::now();
    let (second, taken) = second.await.unwrap();
    assert_eq!((lost - start).as_secs(), 70, "ten seconds after the last renewal with a response");
    assert!((taken - start).as_secs() == 77 && second.term() == 1, "{:?}", taken - start);
}

/// Goal: one lost response ends no leadership. Method: the third renewal hangs, with pauses and response times whose sum
/// is at most 3 s.
#[tokio::test(start_paused = true)]
async fn a_renewal_without_a_response_leaves_time_for_another() {
    for (retry, response_time) in [(2 * SECOND, Duration::ZERO), (2 * SECOND, SECOND), (3 * SECOND, Duration::ZERO)] {
        let server = server();
        let third_hangs =
            move |_: &http::Method, puts: usize| if puts == 3 { Fault::NoResponse } else { Fault::Slow(response_time) };
        let election = Election::new(faulty(&server, third_hangs), "a", "controller", "one");
        let leader = election.timing(|timing| timing.retry = retry).lead().await;
        sleep(60 * SECOND).await;
        assert!(leader.is_held(), "{retry:?} {response_time:?}");
    }
}

/// Goal: no renewal is sent once the deadline is over, for others would wait for it. Method: a conflict, and then the
/// machine is suspended while the Lease is read.
#[tokio::test(start_paused = true)]
async fn no_renewal_follows_a_suspension_beyond_the_deadline() {
    let (server, puts) = (server(), Arc::<AtomicUsize>::default());
    let faults = |method: &http::Method, puts: usize| match (method, puts) {
        (&http::Method::PUT, 3) => Fault::Outrun,
        (_, 3) => Fault::Suspended(20 * SECOND),
        _ => Fault::None,
    };
    let leader = Election::new(counted(&server, faults, Arc::clone(&puts)), "a", "controller", "one").lead().await;
    leader.lost().await;
    assert_eq!(puts.load(Ordering::SeqCst), 3);
}

/// Goal: a client that writes the Lease all the time causes few requests, and its conflicts can be seen. Method: it
/// writes before each renewal, then before each attempt at a release.
#[tokio::test(start_paused = true)]
async fn conflicts_are_logged_and_cost_two_attempts_a_pause() {
    let recorded = RecordedLog::default();
    let guard = tracing::subscriber::set_default(recorded.clone());
    // With a single dispatcher, tracing caches the interest of whichever thread reaches a line first.
    let second = Dispatch::new(recorded.clone());
    for (is_release, puts_expected, lines) in [(false, 8, 4), (true, 2, 1)] {
        let (server, puts, start) = (server(), Arc::<AtomicUsize>::default(), Instant::now());
        let outrun =
            |method: &http::Method, _: usize| if method == http::Method::PUT { Fault::Outrun } else { Fault::None };
        let client = counted(&server, outrun, Arc::clone(&puts));
        let leader = Election::new(client, "a", "controller", "one").lead().await;
        let before = recorded.lines("lease request failed").len();
        if is_release {
            leader.release().await;
        } else {
            leader.lost().await;
            assert_eq!(start.elapsed().as_secs(), 10);
        }
        assert_eq!(puts.load(Ordering::SeqCst), puts_expected);
        assert_eq!(recorded.lines("lease request failed").len() - before, lines);
    }
    drop((guard, second));
}

#[tokio::test]
#[should_panic(expected = "a lease needs whole seconds, and lease > renew_deadline > retry > 0")]
async fn times_that_contradict_each_other_are_refused() {
    drop(election(&server(), "one").timing(|timing| timing.lease = timing.renew_deadline));
}

#[tokio::test]
#[should_panic(expected = "a Lease needs a namespace, a name and an identity")]
async fn an_election_without_an_identity_is_refused() {
    drop(election(&server(), ""));
}

/// The leadership of a replica; `None` while it is a candidate.
type Position = Arc<Mutex<Option<Leadership>>>;

/// A replica that stands again after each loss.
fn replica(server: &FakeApiServer, identity: String, position: Position) -> JoinHandle<()> {
    let election = election(server, &identity);
    tokio::spawn(async move {
        loop {
            let leadership = election.lead().await;
            *position.lock().unwrap() = Some(leadership);
            while position.lock().unwrap().as_ref().is_some_and(Leadership::is_held) {
                sleep(SECOND / 10).await;
            }
            position.lock().unwrap().take();
        }
    })
}

/// Goal: two replicas never lead at once, and terms grow, through random faults. Method: for each seed, three replicas
/// whose connections break and whose tasks crash at random, looked at every 100 ms for ten minutes.
#[tokio::test(start_paused = true)]
async fn no_two_replicas_lead_at_once() {
    for seed in 0..20 {
        let (mut random, server) = (fastrand::Rng::with_seed(seed), server());
        let own: Vec<_> = (0..3).map(|_| server.replica()).collect();
        let start =
            |number: usize, position: &Position| replica(&own[number], format!("r{number}"), Arc::clone(position));
        let mut replicas: Vec<(Position, JoinHandle<()>)> = Vec::new();
        for number in 0..3 {
            let position = Position::default();
            let task = start(number, &position);
            replicas.push((position, task));
        }
        let (mut last, mut led) = (-1, 0);
        for _ in 0..6_000 {
            let number = random.usize(0..3);
            match random.u32(0..400) {
                0 => drop(own[number].refuse_connections()),
                1..=3 => drop(own[number].recover()),
                4 => {
                    // It crashes, and is started again with its name.
                    let (position, task) = &mut replicas[number];
                    task.abort();
                    *position = Position::default();
                    *task = start(number, position);
                }
                _ => {}
            }
            sleep(SECOND / 10).await;
            let is_leader = |position: &Position| {
                let position = position.lock().unwrap();
                position.as_ref().filter(|leadership| leadership.is_held()).map(Leadership::term)
            };
            let leaders: Vec<i32> = replicas.iter().filter_map(|(position, _)| is_leader(position)).collect();
            assert!(leaders.len() <= 1, "seed {seed}: {leaders:?}");
            if let [term] = leaders[..] {
                assert!(term >= last, "seed {seed}: term {term} after {last}");
                (last, led) = (term, led + 1);
            }
        }
        assert!(led > 3_000 && last > 0, "seed {seed}: a leader in {led} of 6,000 looks, and {last} terms");
        replicas.iter().for_each(|(_, task)| task.abort());
    }
}
