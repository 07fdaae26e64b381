//! LIST beyond the rows of the table: what a walk over pages sees while others write.

use tests::{http::with_query, objects::configmap};

use crate::server;

#[tokio::test]
async fn a_walk_over_pages_sees_one_state() {
    let server = server(&[]).await;
    let client = server.client();
    for name in ["a", "b", "c", "d"] {
        client.create(&configmap(name)).await;
    }
    let first = client.get("/api/v1/configmaps?limit=1").await.with_code(200);
    let (at, mut names, mut token) = (first.resource_version(), first.keys(), first.token());
    client.create(&configmap("bb")).await;
    client.remove(&configmap("c")).await;
    while let Some(next) = token {
        let path = with_query("/api/v1/configmaps?limit=1", &[("continue", &next)]);
        let page = client.get(&path).await.with_code(200);
        assert_eq!(page.resource_version(), at);
        names.extend(page.keys());
        token = page.token();
    }
    assert_eq!(names, ["default/a", "default/b", "default/c", "default/d"]);
}
