//! Requests that etcd gets for a client's, counted by etcd itself.

use serde_json::{Value, json};
use tests::{etcd::EtcdCluster, genuine::Counters, http::Client};

use super::serve;

/// Replacements that are counted: more than the requests of the server's own tasks meanwhile.
const WRITES: u64 = 100;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// Goal: a replacement reads the stored object once. Method: renewals of a Lease, as kubelets send them, one after the
/// other; etcd's counters of reads and transactions.
#[tokio::test]
async fn a_replacement_costs_one_read_and_one_transaction() {
    let Some(etcd) = EtcdCluster::start("etcd costs").await else { return };
    let server = serve(&etcd, &["--etcd-compaction-interval", "0s"]).await;
    let client = server.client();
    let mut lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "node-1", "namespace": "default"},
        "spec": {"holderIdentity": "node-1", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    lease = client.post(LEASES, &lease).await.with_code(201).json();
    let (reads, writes) = requests(&etcd).await;
    for number in 1..=WRITES {
        lease["spec"]["renewTime"] = Value::from(format!("2026-01-01T00:00:00.{number:06}Z"));
        lease = client.put(&format!("{LEASES}/node-1"), &lease).await.with_code(200).json();
    }
    let (reads_after, writes_after) = requests(&etcd).await;
    let (reads, writes) = (reads_after - reads, writes_after - writes);
    eprintln!("{WRITES} replacements: {reads} reads and {writes} transactions");
    assert!((WRITES..WRITES * 5 / 4).contains(&writes), "{writes} transactions");
    assert!(reads < WRITES * 5 / 4, "{reads} reads for {WRITES} replacements");
}

/// Ranges and transactions that etcd has begun.
async fn requests(etcd: &EtcdCluster) -> (u64, u64) {
    let text = Client::new(etcd.address(0)).get("/metrics").await.with_code(200);
    let counters = Counters::parse(text.text());
    let begun = |method| counters.sum("grpc_server_started_total", &[("grpc_method", method)]);
    (begun("Range"), begun("Txn"))
}
