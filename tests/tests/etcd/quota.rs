//! An etcd whose database is full: writes say so, and everything else goes on.

use tests::{
    etcd::{EtcdCluster, EtcdSettings},
    http::with_query,
    objects::configmap,
};

use super::{
    MAPS, assert_converged,
    follower::{Follower, History},
    serve, until,
};

const QUOTA_BYTES: u64 = 4 << 20;
/// Bytes of each object that fills the database.
const FILLER_BYTES: usize = 400_000;
/// More of them than etcd takes before it measures the database.
const FILLERS_MAX: usize = 1_000;

/// Goal: an object that etcd does not take is refused as too large, and its outcome is known. Method: an object between the
/// limit of etcd and that of a request.
#[tokio::test]
async fn an_object_above_the_limit_of_etcd_is_too_large() {
    let Some(etcd) = EtcdCluster::start("etcd request size").await else { return };
    let server = serve(&etcd, &[]).await;
    for bytes in [1_600_000, 2_500_000] {
        let object = configmap("large").data(&"x".repeat(bytes));
        server.client().post(&object.collection(), object.body()).await.with_code(413);
    }
    server.client().create(&configmap("large").data(&"x".repeat(1_000_000))).await;
    assert_converged(&server.client(), &etcd.keys()).await;
}

/// Goal: a full database refuses writes with 507 and a reason, and nothing else. Method: large objects until etcd raises its
/// alarm; then reads, a watch and a deletion; then the operator's steps against the alarm.
#[tokio::test]
async fn a_full_etcd_refuses_writes_and_answers_reads() {
    let settings = EtcdSettings { quota_bytes: Some(QUOTA_BYTES), ..EtcdSettings::default() };
    let Some(etcd) = EtcdCluster::start_with("etcd quota", settings).await else { return };
    let server = serve(&etcd, &[]).await;
    let client = server.client();
    let before = client.create(&configmap("small")).await;
    let follower = Follower::start(&[client], before, None);
    let filler = "x".repeat(FILLER_BYTES);
    let mut fillers = 0;
    // etcd measures its database a few times a second.
    let refused = loop {
        let object = configmap(&format!("filler-{fillers}")).label("filler", "yes").data(&filler);
        let answer = client.post(&object.collection(), object.body()).await;
        if answer.code != 201 {
            break answer;
        }
        fillers += 1;
        assert!(fillers < FILLERS_MAX, "the database is never full");
    };
    let status = refused.with_code(507).json();
    assert_eq!((&status["kind"], &status["status"]), (&"Status".into(), &"Failure".into()), "{status}");
    assert!(status["message"].as_str().unwrap().contains("full"), "{status}");
    assert!(etcd.keys().has_alarm().await);

    client.put(&configmap("small").path(), configmap("small").data("2").body()).await.with_code(507);
    assert_converged(&client, &etcd.keys()).await;
    client.get(&configmap("small").path()).await.with_code(200);
    client.get("/readyz").await.with_code(200);
    let all = with_query("/api/v1/namespaces/default/configmaps", &[("labelSelector", "filler=yes")]);
    assert_eq!(client.delete(&all).await.with_code(200).keys().len(), fillers);
    client.put(&configmap("small").path(), configmap("small").data("2").body()).await.with_code(507);

    let history = History::read(&etcd.keys(), before).await;
    etcd.keys().free_space().await;
    let mut last = 0;
    until("writes work again", async || {
        let answer = client.put(&configmap("small").path(), configmap("small").data("3").body()).await;
        last = if answer.code == 200 { answer.resource_version() } else { 0 };
        last > 0
    })
    .await;
    assert_eq!(client.get(MAPS).await.with_code(200).resource_version(), last);
    let followed = follower.observed(last).await;
    assert_eq!((followed.watches(), followed.len()), (1, history.len() + 1), "the watch goes on: {followed:?}");
}
