//! An API server as a source under test. Writes come from its other clients.

use std::{sync::Arc, time::Duration};

use cache_server::{
    UpstreamSource,
    storage::{Source, Store, coalesced::CoalescedSource},
};
use futures::{FutureExt as _, future::BoxFuture};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tests::{
    genuine::{ADMIN, CACHE, Genuine},
    http::Client,
    objects::namespace,
    process::Server,
    relay::Relay,
};

use super::http::HttpWriter;
use crate::{
    BINARY,
    contract::{Features, Lasting, ObjectWriter, Storage},
};

/// An API server, and a relay between it and the source.
pub(crate) struct ApiServer {
    writer: Client,
    relay: Relay,
    /// Client of a source, through the relay.
    reader: kube::Client,
    _server: Option<Server>,
}

impl ApiServer {
    /// A stock kube-apiserver. Rows need namespaces of their own.
    pub(crate) async fn genuine(genuine: &Genuine, row_namespace: &str) -> Self {
        let relay = Relay::start(genuine.address()).await;
        let file = Kubeconfig::read_from(genuine.kubeconfig_at(CACHE, relay.address())).unwrap();
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        let reader = client(config);
        let writer = genuine.client(ADMIN);
        writer.create(&namespace(row_namespace)).await;
        Self { writer, relay, reader, _server: None }
    }

    /// This server as an API server.
    pub(crate) async fn own() -> Self {
        let server = Server::start(BINARY, &[]).await;
        let relay = Relay::start(server.address()).await;
        let url = format!("http://{}", relay.address());
        let reader = client(kube::Config::new(url.parse().unwrap()));
        let writer = server.client();
        writer.create(&namespace("n")).await;
        Self { writer, relay, reader, _server: Some(server) }
    }
}

/// A client as the server has it: it does not retry.
fn client(mut config: kube::Config) -> kube::Client {
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

impl Storage for ApiServer {
    fn features(&self) -> Features {
        Features {
            // One cache follows a type.
            streams: 1,
            resumes: true,
            lasts: Lasting::Objects,
            parts: true,
            flood: 512,
            patience: Duration::from_secs(30),
        }
    }

    /// As the server shares it between its readers.
    fn source(&self) -> Arc<dyn Source> {
        CoalescedSource::new(Arc::new(UpstreamSource::of(self.reader.clone())))
    }

    fn store(&self) -> Option<Arc<dyn Store>> {
        None
    }

    fn writers(&self) -> Vec<Arc<dyn ObjectWriter>> {
        vec![Arc::new(HttpWriter(self.writer))]
    }

    /// Only the cache is a process of ours: it opens another source.
    fn reopen(&self) -> BoxFuture<'_, ()> {
        self.relay.cut();
        std::future::ready(()).boxed()
    }

    fn part(&self, is_parted: bool) {
        if is_parted { self.relay.part() } else { self.relay.rejoin() }
    }
}
