//! Addresses of other clusters, of clusters that change, and of servers that do not tell.

use std::sync::atomic::{AtomicUsize, Ordering};

use informer::testing::FakeApiServer;
use serde_json::json;
use tokio::time::advance;

use super::*;

/// An API server of the cluster with this uid.
fn cluster(uid: &str) -> FakeApiServer {
    let metadata = json!({"name": NAMESPACE, "uid": uid});
    FakeApiServer::new().put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
}

/// An address behind which one of several servers answers.
#[derive(Clone)]
struct TestAddress {
    servers: Arc<Vec<FakeApiServer>>,
    at: Arc<AtomicUsize>,
}

impl TestAddress {
    fn new(servers: &[&FakeApiServer]) -> Self {
        Self { servers: Arc::new(servers.iter().map(|server| (*server).clone()).collect()), at: Arc::default() }
    }

    fn turn_to(&self, server: usize) {
        self.at.store(server, Ordering::SeqCst);
    }

    fn client(&self) -> kube::Client {
        let address = self.clone();
        let answering = move |request: Request<Body>| {
            let server = address.servers[address.at.load(Ordering::SeqCst)].clone();
            async move { server.respond(request).await }
        };
        kube::Client::new(service_fn(answering), "default")
    }
}

fn identity(addresses: &[&TestAddress]) -> (Arc<UpstreamIdentity>, Arc<LastAnswer>) {
    let last_answer = Arc::<LastAnswer>::default();
    let named = addresses.iter().enumerate().map(|(at, address)| (format!("https://{at}"), address.client()));
    (UpstreamIdentity::new(named, Arc::clone(&last_answer)), last_answer)
}

/// Sends a read through the client of an address.
async fn read(client: &kube::Client) -> Result<StatusCode, String> {
    let request = Request::get("/api/v1/configmaps").body(Body::empty()).unwrap();
    client.send(request).await.map(|answer| answer.status()).map_err(|error| Chain(&error).to_string())
}

/// Number of requests other than questions for the identity.
fn reads(server: &FakeApiServer) -> usize {
    server.requests().iter().filter(|request| !request.request.contains(NAMESPACE)).count()
}

fn uid(identity: &UpstreamIdentity) -> Option<String> {
    identity.cluster().and_then(|cluster| cluster.uid().map(str::to_owned))
}

/// Goal: an address of another cluster is never used, from its first request on. Method: a second address with another uid,
/// and one without an answer, which is used once it has the right one.
#[tokio::test(start_paused = true)]
async fn an_address_of_another_cluster_is_never_used() {
    let (ours, other, later) = (cluster("ours"), cluster("other"), cluster("ours"));
    let addresses = [&ours, &other, &later].map(|server| TestAddress::new(&[server]));
    later.refuse_connections();
    let (identity, _) = identity(&addresses.each_ref());
    let clients = identity.clients();
    assert_eq!(identity.reached(|_| false).await, ClusterName::Uid("ours".into()));
    assert_eq!(read(&clients[0]).await, Ok(StatusCode::OK));
    assert_eq!(read(&clients[1]).await.unwrap_err(), "ServiceError: the address is another cluster's");
    assert!(read(&clients[2]).await.unwrap_err().contains("has not answered yet"));
    assert_eq!((reads(&other), reads(&later)), (0, 0));
    later.recover();
    advance(MISSED_AGE).await;
    assert_eq!(read(&clients[2]).await, Ok(StatusCode::OK));
    identity.check_all().await;
    assert_eq!((uid(&identity).as_deref(), reads(&other)), (Some("ours"), 0), "one wrong address does not take over");
}

/// Goal: a cluster that is replaced at an address gets no request of the old one, and is followed once no address has the old
/// one. Method: two addresses that turn one after the other, after their connections broke.
#[tokio::test(start_paused = true)]
async fn the_cluster_changes_with_the_last_address() {
    let (old, new) = (cluster("old"), cluster("new"));
    let addresses = [TestAddress::new(&[&old, &new]), TestAddress::new(&[&old, &new])];
    let (identity, last_answer) = identity(&addresses.each_ref());
    let clients = identity.clients();
    let mut changes = identity.changes();
    identity.reached(|_| false).await;
    changes.borrow_and_update();
    assert_eq!([read(&clients[0]).await, read(&clients[1]).await], [Ok(StatusCode::OK), Ok(StatusCode::OK)]);
    addresses[0].turn_to(1);
    last_answer.break_off();
    assert!(read(&clients[0]).await.is_err(), "checked before the request");
    assert_eq!((read(&clients[1]).await, reads(&new)), (Ok(StatusCode::OK), 0));
    assert!(!changes.has_changed().unwrap());
    addresses[1].turn_to(1);
    identity.check_all().await;
    assert!(changes.has_changed().unwrap());
    assert_eq!(uid(&identity).as_deref(), Some("new"));
    assert_eq!([read(&clients[0]).await, read(&clients[1]).await], [Ok(StatusCode::OK), Ok(StatusCode::OK)]);
}

/// Goal: where the identity can be read nowhere, addresses are used. Method: a refusal and a server without the namespace.
#[tokio::test(start_paused = true)]
async fn an_identity_that_can_be_read_nowhere_refuses_nothing() {
    let (refusing, empty) = (cluster("ours").fail_next(1, 403), FakeApiServer::new());
    let addresses = [&refusing, &empty].map(|server| TestAddress::new(&[server]));
    let (identity, _) = identity(&addresses.each_ref());
    assert_eq!(identity.reached(|_| false).await, ClusterName::Unreadable);
    let clients = identity.clients();
    assert_eq!(read(&clients[1]).await, Ok(StatusCode::OK));
    assert_eq!(read(&clients[0]).await, Ok(StatusCode::OK));
}

/// Goal: the first uid that can be read counts, and an address that tells none is not used beside it. Method: the right to
/// read it comes at the first address; the second has no namespace.
#[tokio::test(start_paused = true)]
async fn an_address_without_a_uid_is_not_used_beside_one_with_a_uid() {
    let (late, empty) = (cluster("ours").fail_next(1, 403), FakeApiServer::new());
    let addresses = [&late, &empty].map(|server| TestAddress::new(&[server]));
    let (identity, _) = identity(&addresses.each_ref());
    let clients = identity.clients();
    assert_eq!(identity.reached(|_| false).await, ClusterName::Unreadable);
    assert_eq!(read(&clients[1]).await, Ok(StatusCode::OK));
    identity.check_all().await;
    assert_eq!(uid(&identity).as_deref(), Some("ours"));
    advance(MISSED_AGE).await;
    assert_eq!(read(&clients[0]).await, Ok(StatusCode::OK));
    assert!(read(&clients[1]).await.unwrap_err().contains("does not tell its cluster"));
}

/// Goal: a cluster that refuses our credentials is never used as ours. Method: a second address that answers 401, one that
/// answers 401 after it was found to be another cluster's, and the first one, whose connections break before it answers 401.
#[tokio::test(start_paused = true)]
async fn a_refusal_proves_no_address_and_takes_no_uid_back() {
    let (ours, refusing, other) = (cluster("ours"), cluster("other").fail_next(usize::MAX, 401), cluster("other"));
    let first = TestAddress::new(&[&ours, &refusing]);
    let addresses = [&first, &TestAddress::new(&[&refusing]), &TestAddress::new(&[&other, &refusing])];
    let (identity, last_answer) = identity(&addresses);
    let clients = identity.clients();
    identity.reached(|_| false).await;
    identity.check_all().await;
    addresses[2].turn_to(1);
    for _ in 0..3 {
        assert!(read(&clients[1]).await.unwrap_err().contains("does not tell its cluster"));
        assert!(read(&clients[2]).await.unwrap_err().contains("another cluster's"));
        assert_eq!(read(&clients[0]).await, Ok(StatusCode::OK));
        advance(MISSED_AGE).await;
        identity.check_all().await;
    }
    first.turn_to(1);
    identity.check_all().await;
    last_answer.break_off();
    assert!(read(&clients[0]).await.unwrap_err().contains("does not tell its cluster"));
    assert_eq!((reads(&refusing), reads(&other), uid(&identity).as_deref()), (0, 0, Some("ours")));
    first.turn_to(0);
    advance(MISSED_AGE).await;
    assert_eq!(read(&clients[0]).await, Ok(StatusCode::OK), "it tells its cluster again");
}

/// Goal: a wrong second address decides nothing while the first one restarts. Method: a first address without an answer at the
/// start, with saved states that are another cluster's than the second one's, and without.
#[tokio::test(start_paused = true)]
async fn the_first_address_corrects_what_a_later_one_has_told() {
    for is_doubted in [true, false] {
        let (ours, other) = (cluster("ours"), cluster("other"));
        let addresses = [&ours, &other].map(|server| TestAddress::new(&[server]));
        let (identity, _) = identity(&addresses.each_ref());
        let clients = identity.clients();
        ours.refuse_connections();
        let starting = timeout(Duration::from_secs(60), identity.reached(|_| is_doubted)).await;
        assert_eq!(starting.is_err(), is_doubted, "it waits for the first one");
        ours.recover();
        advance(MISSED_AGE).await;
        if is_doubted {
            assert_eq!(identity.reached(|_| is_doubted).await, ClusterName::Uid("ours".into()));
        }
        identity.check_all().await;
        assert_eq!(uid(&identity).as_deref(), Some("ours"), "doubted: {is_doubted}");
        assert_eq!(read(&clients[0]).await, Ok(StatusCode::OK));
        assert!(read(&clients[1]).await.unwrap_err().contains("another cluster's"));
        assert_eq!(reads(&other), 0);
    }
}

/// Goal: no request reaches the cluster that takes over an address. Method: reads without a pause while the address has no
/// server for some seconds and then one of another cluster; the checks continue meanwhile.
#[tokio::test(start_paused = true)]
async fn after_a_gap_an_address_is_used_only_once_it_is_proved() {
    for busy in [false, true] {
        let (old, new) = (cluster("old"), cluster("new"));
        let starting = cluster("new").fail_next(usize::MAX, 503);
        let (address, lasting) = (TestAddress::new(&[&old, &starting, &new]), TestAddress::new(&[&old]));
        let (identity, last_answer) = identity(&[&address, &lasting]);
        let clients = identity.clients();
        identity.reached(|_| false).await;
        let checking = tokio::spawn(keep_checking(Arc::downgrade(&identity), Arc::clone(&last_answer)));
        assert_eq!(read(&clients[0]).await, Ok(StatusCode::OK));
        let reading = async {
            loop {
                let _ = read(&clients[0]).await;
                sleep(Duration::from_millis(10)).await;
            }
        };
        let turning = async {
            old.refuse_connections();
            if busy {
                sleep(MISSED_AGE).await;
                address.turn_to(1);
            }
            sleep(MISSED_AGE * 3).await;
            address.turn_to(2);
            sleep(MISSED_AGE * 3).await;
        };
        tokio::select! {
            () = reading => {}
            () = turning => {}
        }
        assert_eq!((reads(&starting), reads(&new)), (0, 0), "busy: {busy}");
        checking.abort();
    }
}

/// Goal: breaks do not line requests up one behind the other's check. Method: an address that answers after a while; many
/// requests at once, and connections that break all the time.
#[tokio::test(start_paused = true)]
async fn requests_share_a_check_that_began_after_them() {
    let server = cluster("ours");
    let answering = server.clone();
    let client = kube::Client::new(
        service_fn(move |request: Request<Body>| {
            let server = answering.clone();
            async move {
                sleep(Duration::from_millis(100)).await;
                server.respond(request).await
            }
        }),
        "default",
    );
    let last_answer = Arc::<LastAnswer>::default();
    let identity = UpstreamIdentity::new([("https://0".to_owned(), client)].into_iter(), Arc::clone(&last_answer));
    identity.reached(|_| false).await;
    let breaking = Arc::clone(&last_answer);
    let breaking = tokio::spawn(async move {
        loop {
            breaking.break_off();
            sleep(Duration::from_millis(5)).await;
        }
    });
    sleep(Duration::from_millis(1)).await;
    let begun = Instant::now();
    let admitted = join_all((0..100).map(|number| {
        let identity = &identity;
        async move {
            sleep(Duration::from_millis(2) * number).await;
            identity.admit(0).await
        }
    }))
    .await;
    assert!(admitted.iter().all(Result::is_ok), "{admitted:?}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    breaking.abort();
}

/// Goal: a server that hangs is found out by a check of this server's own, and found back by the next. Method: a server that
/// answers nothing for a while.
#[tokio::test(start_paused = true)]
async fn silence_is_noticed_and_its_end() {
    let server = cluster("ours");
    let address = TestAddress::new(&[&server]);
    let (identity, last_answer) = identity(&[&address]);
    identity.reached(|_| false).await;
    let checking = tokio::spawn(keep_checking(Arc::downgrade(&identity), Arc::clone(&last_answer)));
    assert_eq!(last_answer.silent_for(), None);
    sleep(IDENTITY_WAIT / 2).await;
    server.refuse_connections();
    last_answer.doubt();
    sleep(IDENTITY_WAIT).await;
    assert!(last_answer.silent_for() >= Some(IDENTITY_WAIT));
    assert_eq!(
        identity.admit(0).await,
        Ok(()),
        "no connection broke: it is the right one, and fails requests by itself"
    );
    last_answer.break_off();
    assert_eq!(identity.admit(0).await, Err(RefusedAddress::Unanswered));
    server.recover();
    sleep(IDENTITY_WAIT).await;
    assert_eq!(last_answer.silent_for(), None);
    checking.abort();
}
