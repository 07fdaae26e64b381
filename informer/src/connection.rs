//! The connection to one endpoint: any service that sends HTTP requests.

use std::{any::Any, error::Error as StdError, fmt, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

/// Body of a response.
pub(crate) type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// Connection to one endpoint of a cluster, for [`Cluster::new`](crate::Cluster::new) and
/// [`ClusterBuilder::fallback`](crate::ClusterBuilder::fallback). Cheap to clone.
///
/// Clients of kube convert into it (in `kube5` and its siblings), and so does the fake API server (feature `testing`).
#[derive(Clone)]
pub struct ServerConnection {
    service: BoxCloneSyncService<Request<()>, Response<ResponseBody>, BoxError>,
    /// Client behind the service, if kube made it.
    #[cfg_attr(
        not(any(feature = "kube-1", feature = "kube-3", feature = "kube-4", feature = "kube-5")),
        expect(dead_code, reason = "no kube")
    )]
    client: Option<Arc<dyn Any + Send + Sync>>,
}

impl ServerConnection {
    /// Creates a connection of a service that adds the server's address, TLS and authentication.
    ///
    /// Requests are GETs without a body. Their URIs have path and query only, such as
    /// `/api/v1/pods?watch=true&…`. The service must not retry, and must pass a response on while it arrives: watches
    /// last for minutes. Dropping the future of a request, or the body of its response, has to cancel it.
    ///
    /// ```
    /// # use informer::ServerConnection;
    /// # use bytes::Bytes;
    /// # use http_body_util::Full;
    /// let service = tower::service_fn(|request: http::Request<()>| async move {
    ///     println!("{}", request.uri());      // hand it to an HTTP client
    ///     Ok::<_, std::io::Error>(http::Response::new(Full::new(Bytes::new())))
    /// });
    /// let connection = ServerConnection::new(service);
    /// ```
    pub fn new<S, B>(service: S) -> Self
    where
        S: Service<Request<()>, Response = Response<B>, Error: Into<BoxError>, Future: Send + 'static>,
        S: Clone + Send + Sync + 'static,
        B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        let erased =
            service.map_response(|response: Response<B>| response.map(|body| body.map_err(Into::into).boxed_unsync()));
        Self { service: BoxCloneSyncService::new(erased.map_err(Into::into)), client: None }
    }

    /// Remembers the client that the connection was made of.
    #[cfg(any(feature = "kube-1", feature = "kube-3", feature = "kube-4", feature = "kube-5"))]
    pub(crate) fn with_client(self, client: impl Any + Send + Sync) -> Self {
        Self { client: Some(Arc::new(client)), ..self }
    }

    /// The client that the connection was made of, if it is a `C`.
    #[cfg(any(feature = "kube-1", feature = "kube-3", feature = "kube-4", feature = "kube-5"))]
    pub(crate) fn client<C: Clone + 'static>(&self) -> Option<C> {
        self.client.as_ref()?.downcast_ref().cloned()
    }

    /// Sends one request and waits for the headers of its response.
    pub(crate) async fn send(&self, request: Request<()>) -> Result<Response<ResponseBody>, BoxError> {
        self.service.clone().oneshot(request).await
    }
}

impl fmt::Debug for ServerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConnection").finish_non_exhaustive()
    }
}
