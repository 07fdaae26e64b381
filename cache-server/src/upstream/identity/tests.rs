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
    client.send(request).await.map(|answer| answer.status()).map_err(|error| causes(&error))
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
    assert_eq!(identity.reached().await, ClusterName::Uid("ours".into()));
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
    identity.reached().await;
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

/// Goal: where the identity cannot be read, addresses are used, and the first uid that can be read counts. Method: refusals
/// and a server without the namespace; then the right is there.
#[tokio::test(start_paused = true)]
async fn an_identity_that_cannot_be_read_refuses_nothing() {
    let (refusing, empty) = (cluster("ours").fail_next(1, 403), FakeApiServer::new());
    let addresses = [&refusing, &empty].map(|server| TestAddress::new(&[server]));
    let (identity, _) = identity(&addresses.each_ref());
    assert_eq!(identity.reached().await, ClusterName::Unreadable);
    let clients = identity.clients();
    assert_eq!(read(&clients[1]).await, Ok(StatusCode::OK));
    identity.check_all().await;
    assert_eq!(uid(&identity).as_deref(), Some("ours"));
    assert_eq!([read(&clients[0]).await, read(&clients[1]).await], [Ok(StatusCode::OK), Ok(StatusCode::OK)]);
}

/// Goal: a server that hangs is found out by a check of this server's own, and found back by the next. Method: a server that
/// answers nothing for a while.
#[tokio::test(start_paused = true)]
async fn silence_is_noticed_and_its_end() {
    let server = cluster("ours");
    let address = TestAddress::new(&[&server]);
    let (identity, last_answer) = identity(&[&address]);
    identity.reached().await;
    let checking = tokio::spawn(keep_checking(Arc::downgrade(&identity), Arc::clone(&last_answer)));
    assert_eq!(last_answer.silent_for(), None);
    sleep(IDENTITY_WAIT / 2).await;
    server.refuse_connections();
    last_answer.doubt();
    sleep(IDENTITY_WAIT).await;
    assert!(last_answer.silent_for() >= Some(IDENTITY_WAIT));
    assert!(identity.admit(0).await.is_ok(), "it was the right one, and fails requests by itself");
    server.recover();
    sleep(IDENTITY_WAIT).await;
    assert_eq!(last_answer.silent_for(), None);
    checking.abort();
}
