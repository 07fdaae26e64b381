//! A connection whose sockets are in memory, for tests.

use std::io;

use http::{Request, Uri};
use tokio::io::DuplexStream;
use tower::{BoxError, util::BoxCloneSyncService};

use super::{
    connections::{ConnectionPool, PooledRequestBody},
    pipe::NegotiatedPipe,
};
use crate::connection::ServerConnection;

/// A connection with the pool of kube's adapters. `open` opens one socket.
pub(crate) fn piped_connection<O, F>(open: O) -> ServerConnection
where
    O: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = io::Result<DuplexStream>> + Send + 'static,
{
    let connector = BoxCloneSyncService::new(tower::service_fn(move |_: Uri| {
        let opening = open();
        async move { Ok::<_, BoxError>(NegotiatedPipe::boxed(opening.await?)) }
    }));
    let pool = ConnectionPool::new(Uri::from_static("https://server"), connector);
    ServerConnection::new(tower::service_fn(move |request: Request<()>| {
        let (mut parts, ()) = request.into_parts();
        parts.uri = format!("https://server{}", parts.uri).parse().expect("an absolute URI");
        pool.clone().send(Request::from_parts(parts, PooledRequestBody::default()))
    }))
}
