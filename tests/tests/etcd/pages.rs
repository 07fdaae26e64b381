//! Reads of states that the cache no longer has: etcd answers them, until it is compacted.

use tests::{
    etcd::EtcdCluster,
    http::{Client, with_query},
    objects::configmap,
};

use super::{MAPS, listed, serve, stored, until};

/// Objects whose states are read.
const OBJECTS: usize = 20;
/// Bytes of the changes that push the states out of the window, and their number.
const FILLER_BYTES: usize = 20_000;
const FILLERS: usize = 100;
/// Flags of a window that the changes exceed.
const SMALL_WINDOW: [&str; 2] = ["--window-bytes", "512KiB"];

fn exact(at: u64, more: &[(&str, &str)]) -> String {
    let at = at.to_string();
    let query = [("resourceVersion", &*at), ("resourceVersionMatch", "Exact")];
    with_query(MAPS, &[&query, more].concat())
}

/// Reads the remaining pages of a list.
async fn pages(client: &Client, mut token: Option<String>, at: u64) -> Vec<(String, u64)> {
    let mut items = Vec::new();
    while let Some(continues) = token {
        let page = client.get(&with_query(MAPS, &[("limit", "7"), ("continue", &continues)])).await.with_code(200);
        assert_eq!(page.resource_version(), at, "pages of one list are of one position");
        items.extend(listed(&page.json()));
        token = page.token();
    }
    items
}

/// Goal: lists and pages of an old state are exact, although the cache has lost it. Method: a window that later changes
/// exceed; the state in etcd at that revision; then a compaction of etcd.
#[tokio::test]
async fn lists_and_pages_below_the_window_are_those_of_etcd() {
    let Some(etcd) = EtcdCluster::start("etcd pages").await else { return };
    let servers = [serve(&etcd, &SMALL_WINDOW).await, serve(&etcd, &[]).await];
    let client = servers[0].client();
    for number in 0..OBJECTS {
        client.create(&configmap(&format!("m{number:02}")).label("half", ["one", "two"][number % 2]).data("1")).await;
    }
    // From the other server: each keeps the states of its own tokens for a while.
    let first = servers[1].client().get(&with_query(MAPS, &[("limit", "7")])).await.with_code(200);
    let at = first.resource_version();
    let due = stored(&etcd.keys(), at).await;
    assert_eq!(due.len(), OBJECTS);
    client.remove(&configmap("m03")).await;
    client.update(&configmap("m09").data("2")).await;
    client.create(&configmap("m055")).await;
    let filler = "x".repeat(FILLER_BYTES);
    client.create(&configmap("filler")).await;
    for number in 0..FILLERS {
        client.update(&configmap("filler").data(&format!("{number}{filler}"))).await;
    }
    let watch = with_query(MAPS, &[("watch", "1"), ("resourceVersion", &at.to_string())]);
    until("the window has lost the position", async || client.watch(&watch).await.event().await.brief() == "ERROR 410")
        .await;

    let list = client.get(&exact(at, &[])).await.with_code(200).json();
    assert_eq!(listed(&list), due);
    let half = client.get(&exact(at, &[("labelSelector", "half=two")])).await.with_code(200);
    assert_eq!(half.keys().len(), OBJECTS / 2);
    let field = client.get(&exact(at, &[("fieldSelector", "metadata.name=m03")])).await.with_code(200);
    assert_eq!(field.keys(), ["default/m03"], "the deleted object");
    let rest = pages(&client, first.token(), at).await;
    assert_eq!([listed(&first.json()), rest].concat(), due);
    let paged = client.get(&exact(at, &[("limit", "7")])).await.with_code(200);
    assert_eq!([listed(&paged.json()), pages(&client, paged.token(), at).await].concat(), due);

    etcd.keys().compact(etcd.keys().revision().await).await;
    let expired = client.get(&exact(at, &[])).await.with_code(410).json();
    assert_eq!(expired["reason"], "Expired", "{expired}");
    let token = first.token().unwrap();
    let page = client.get(&with_query(MAPS, &[("limit", "7"), ("continue", &token)])).await.with_code(410);
    let fresh = page.token().expect("a token that continues at the present state");
    let next = client.get(&with_query(MAPS, &[("limit", "500"), ("continue", &fresh)])).await.with_code(200);
    let now: Vec<_> = stored(&etcd.keys(), 0).await.into_iter().skip_while(|(key, _)| *key < due[7].0).collect();
    assert_eq!(listed(&next.json()), now);
}

/// Goal: a token of one server is valid at another one on the same etcd. Method: each page is read from another server.
#[tokio::test]
async fn pages_continue_at_another_server() {
    let Some(etcd) = EtcdCluster::start("etcd pages of two servers").await else { return };
    let servers = [serve(&etcd, &[]).await, serve(&etcd, &[]).await];
    let clients = [0, 1].map(|server| servers[server].client());
    for number in 0..OBJECTS {
        clients[0].create(&configmap(&format!("m{number:02}"))).await;
    }
    let first = clients[0].get(&with_query(MAPS, &[("limit", "6")])).await.with_code(200);
    let (at, mut token) = (first.resource_version(), first.token());
    let due = stored(&etcd.keys(), at).await;
    let mut found = listed(&first.json());
    for turn in 1.. {
        let Some(continues) = token else { break };
        clients[turn % 2].create(&configmap(&format!("between-{turn}"))).await;
        let page = with_query(MAPS, &[("limit", "6"), ("continue", &continues)]);
        let page = clients[turn % 2].get(&page).await.with_code(200);
        assert_eq!(page.resource_version(), at);
        found.extend(listed(&page.json()));
        token = page.token();
    }
    assert_eq!(found, due);
}
