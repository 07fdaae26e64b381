//! Clusters of kube's clients and configurations, and the types that they know.

use std::{any::TypeId, convert::Infallible};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Empty;

use super::{
    Types,
    client::client_from,
    credentials::with_authority_file,
    kube::{
        self, Client, Config, Resource,
        client::Body,
        core::{ApiResource, ClusterResourceScope},
        discovery,
    },
};
use crate::{
    checkpoint,
    cluster::ClusterOf,
    connection::ServerConnection,
    error::{Error, Kind},
    resource_kind::{HasResourceKind, ResourceKind, ResourceScope},
};

impl ClusterOf<Types> {
    /// Creates a cluster from `KUBECONFIG` or `~/.kube/config`, else from the in-cluster configuration. Its connections
    /// are those of `client_from`, and new ones trust the CA file as it is then. Needs a tokio runtime.
    ///
    /// # Errors
    /// No such configuration exists, or kube rejects it.
    pub async fn try_default() -> Result<Self, Error> {
        let config = Config::infer().await;
        let invalid = |error| Error::new(Kind::Client(kube::Error::InferConfig(error).into()), None);
        with_authority_file(config.map_err(invalid)?).try_into()
    }
}

impl ClusterOf<Types> {
    /// Returns a client of the preferred endpoint, for everything that informers do not do: writes, single reads,
    /// events, leader election. Cheap. It shares the connections, credentials and certificates of the watches, if the
    /// cluster made its client itself ([`try_default`](Self::try_default), `try_from` a configuration).
    ///
    /// On a cluster of a [`ServerConnection`] that was no client of this kube, it only reads, and each call starts a
    /// task.
    ///
    /// # Panics
    /// Outside a tokio runtime, on a cluster of such a connection.
    #[must_use]
    pub fn client(&self) -> Client {
        let connection = self.state().connections().first().expect("a cluster has at least one connection");
        connection.client().unwrap_or_else(|| reading_client(connection.clone()))
    }
}

/// A client of a connection that takes only GETs.
fn reading_client(connection: ServerConnection) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let connection = connection.clone();
        async move {
            if request.method() != Method::GET {
                return Err("the connection of this cluster only reads".into());
            }
            connection.send(request.map(|_| ())).await
        }
    });
    Client::new(service, "default")
}

impl TryFrom<Config> for ClusterOf<Types> {
    type Error = Error;

    /// Creates a cluster with a client of its own, `client_from` this configuration. Needs a tokio runtime.
    ///
    /// # Errors
    /// As of `client_from`.
    fn try_from(config: Config) -> Result<Self, Error> {
        let server = without_credentials(&config.cluster_url);
        let authority = config.root_cert.as_ref().map(|certificates| checkpoint::digest(&certificates.concat()));
        let authority = authority.map_or_else(String::new, |digest| format!("{digest:016x}"));
        Ok(Self::builder(client_from(config)?).identity(server).authority(authority).build())
    }
}

impl From<Client> for ClusterOf<Types> {
    fn from(client: Client) -> Self {
        Self::new(client)
    }
}

impl From<Client> for ServerConnection {
    /// Sends the requests through this client, with its authentication, TLS and proxy, but without its retries.
    fn from(client: Client) -> Self {
        let origin = client.clone();
        let connection = Self::new(tower::service_fn(move |request: Request<()>| {
            let client = client.clone();
            async move {
                let (parts, ()) = request.into_parts();
                client.send(Request::from_parts(parts, uncloneable_body().await?)).await
            }
        }));
        connection.with_client(origin)
    }
}

/// An empty body. kube's client retries 429, 503 and 504 by itself, fifteen times from 5 ms, and hides them from
/// informers. It can retry only requests whose body it can clone: the body of a response cannot be cloned.
async fn uncloneable_body() -> Result<Body, kube::Error> {
    let empty = tower::service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())));
    Ok(Client::new(empty, "").send(Request::new(Body::empty())).await?.into_body())
}

impl<K> HasResourceKind<Types> for K
where
    K: Resource<DynamicType = ()>,
    K::Scope: 'static,
{
    fn resource_kind() -> ResourceKind {
        let is_cluster = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        let scope = if is_cluster { ResourceScope::Cluster } else { ResourceScope::Namespaced };
        ResourceKind::from(&ApiResource::erase::<K>(&())).scope(scope)
    }
}

impl From<&ApiResource> for ResourceKind {
    /// An `ApiResource` lacks the scope, so the type counts as namespaced.
    fn from(resource: &ApiResource) -> Self {
        Self::new(&resource.api_version, &resource.kind, &resource.plural)
    }
}

impl From<&discovery::Scope> for ResourceScope {
    fn from(scope: &discovery::Scope) -> Self {
        match scope {
            discovery::Scope::Cluster => Self::Cluster,
            discovery::Scope::Namespaced => Self::Namespaced,
        }
    }
}

/// Strips user name and password from a URL, so that it can be logged and stored.
fn without_credentials(url: &http::Uri) -> String {
    let host = url.authority().map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default());
    format!("{}://{host}{}", url.scheme_str().unwrap_or_default(), url.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_of_a_url_has_no_password() {
        for (url, expected) in [
            ("https://user:hunter2@k8s.example:6443/prefix", "https://k8s.example:6443/prefix"),
            ("http://[::1]:8001", "http://[::1]:8001/"),
        ] {
            assert_eq!(without_credentials(&url.parse().expect("a URL")), expected);
        }
    }
}
