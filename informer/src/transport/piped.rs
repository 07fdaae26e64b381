//! A client whose connections are in memory, for tests.

use std::io;

use http::Uri;
use kube::client::ConfigExt as _;
use tokio::io::DuplexStream;
use tower::{BoxError, ServiceBuilder, util::BoxCloneSyncService};

use super::{connections::ConnectionPool, pipe::NegotiatedPipe};

/// A client with the connections of [`client_from`](super::client_from). `open` opens one.
pub(crate) fn piped_client<O, F>(open: O) -> kube::Client
where
    O: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = io::Result<DuplexStream>> + Send + 'static,
{
    let connector = BoxCloneSyncService::new(tower::service_fn(move |_: Uri| {
        let opening = open();
        async move { Ok::<_, BoxError>(NegotiatedPipe::boxed(opening.await?)) }
    }));
    let url = Uri::from_static("https://server");
    let pool = ConnectionPool::new(url.clone(), connector);
    let service = ServiceBuilder::new()
        .layer(kube::Config::new(url).base_uri_layer())
        .service(tower::service_fn(move |request| pool.clone().send(request)));
    kube::Client::new(service, "default")
}
