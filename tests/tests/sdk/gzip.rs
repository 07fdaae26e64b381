//! Lists that the server compresses for the SDK.

#![expect(clippy::unwrap_used, reason = "a step that fails here fails the test")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::header;
use informer::{Cluster, Informer, InitialList};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use tests::{objects::pod, process::Server};
use tokio::time::timeout;

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
/// Timeout of every step, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(60);

/// True for watches, and the encoding of the response.
type Encodings = Arc<Mutex<Vec<(bool, String)>>>;

/// A client that records the encoding of each response.
fn recorded(server: &Server) -> (kube::Client, Encodings) {
    let config = kube::Config::new(format!("http://{}", server.address()).parse().unwrap());
    let (client, encodings) = (informer::client_from(config).unwrap(), Encodings::default());
    let kept = Arc::clone(&encodings);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, encodings) = (client.clone(), Arc::clone(&encodings));
        async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let response = client.send(request).await?;
            let encoding = response.headers().get(header::CONTENT_ENCODING);
            let encoding = encoding.map_or("", |encoding| encoding.to_str().unwrap()).to_owned();
            encodings.lock().unwrap().push((is_watch, encoding));
            Ok::<_, kube::Error>(response)
        }
    });
    (kube::Client::new(service, "default"), kept)
}

fn contents(pods: &Informer<Pod>) -> Vec<Vec<u8>> {
    pods.store().snapshot().iter().map(|pod| pod.json().into_owned()).collect()
}

/// Goal: the copy from a compressed list equals the one from a plain list, and is kept in step by a plain watch. Method:
/// 200 pods, about 1 MB.
#[tokio::test]
async fn a_compressed_list_gives_an_equal_copy() {
    let server = Server::start(BINARY, &["--populate", "pods=200,nodes=3"]).await;
    let (client, encodings) = recorded(&server);
    let cluster = Cluster::new(client);
    let declared = || cluster.informer::<Pod>().initial_list(InitialList::Unpaged);
    let plain = declared().start().unwrap();
    plain.ready(PATIENCE).await.unwrap();
    assert!(encodings.lock().unwrap().iter().all(|(_, encoding)| encoding.is_empty()), "only who asks gets gzip");

    let compressed = declared().config(|config| config.gzip_lists = true).start().unwrap();
    compressed.ready(PATIENCE).await.unwrap();
    assert!(encodings.lock().unwrap().contains(&(false, "gzip".to_owned())));
    assert_eq!(contents(&compressed), contents(&plain));

    server.client().create(&pod("later")).await;
    for pods in [&plain, &compressed] {
        let has_it = pods.wait_until(|snapshot| snapshot.len() == 201);
        timeout(PATIENCE, has_it).await.unwrap().unwrap();
    }
    assert!(encodings.lock().unwrap().iter().all(|(is_watch, encoding)| !is_watch || encoding.is_empty()));
}
