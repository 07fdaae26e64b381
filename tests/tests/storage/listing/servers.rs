//! A server for each storage, with many pods that its caches do not have yet if they come from elsewhere.

use std::{any::Any, net::SocketAddr};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http1 as client,
    server::conn::http1 as server,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tests::{etcd::EtcdCluster, http::Client, process::Server};
use tokio::net::{TcpListener, TcpStream};

use super::populate;
use crate::BINARY;

/// The server that is measured.
pub(super) struct MeasuredServer {
    pub(super) name: &'static str,
    pub(super) server: Server,
    /// The server that takes the writes, if that is another one.
    origin: Option<Server>,
    /// Dropped with the servers.
    _kept: Box<dyn Any + Send>,
}

impl MeasuredServer {
    /// Returns a client of the server that takes the writes.
    pub(super) fn written(&self) -> Client {
        self.origin.as_ref().unwrap_or(&self.server).client()
    }
}

/// Its objects are in memory from the start.
pub(super) async fn memory() -> MeasuredServer {
    let server = Server::start(BINARY, &[&populate()]).await;
    server.forget_peak();
    MeasuredServer { name: "memory", server, origin: None, _kept: Box::new(()) }
}

/// It reads its objects from the file of an earlier process.
pub(super) async fn durable() -> MeasuredServer {
    let folder = tempfile::tempdir().unwrap();
    let data = ["--data-dir", folder.path().to_str().unwrap()];
    let filled = Server::start(BINARY, &[&data[..], &[&populate()]].concat()).await;
    filled.terminate();
    filled.ended().await;
    let server = Server::start(BINARY, &data).await;
    MeasuredServer { name: "redb", server, origin: None, _kept: Box::new(folder) }
}

/// It lists another server.
pub(super) async fn upstream() -> MeasuredServer {
    let origin = Server::start(BINARY, &[&populate()]).await;
    let url = format!("--upstream=http://{}", allowing(origin.address()).await);
    let server = Server::start(BINARY, &[&url, "--resources", "pods"]).await;
    MeasuredServer { name: "upstream", server, origin: Some(origin), _kept: Box::new(()) }
}

/// It lists an etcd; `None`, with one line, if that was not built.
pub(super) async fn etcd() -> Option<MeasuredServer> {
    let etcd = EtcdCluster::start("listing").await?;
    let endpoints = format!("--etcd-endpoints={}", etcd.endpoints());
    let filled = Server::start(BINARY, &[&endpoints, &populate()]).await;
    filled.terminate();
    filled.ended().await;
    let server = Server::start(BINARY, &[&endpoints]).await;
    Some(MeasuredServer { name: "etcd", server, origin: None, _kept: Box::new(etcd) })
}

/// Address of an API server that allows everything: this server, which has no rights, behind a proxy that answers
/// questions about them.
async fn allowing(origin: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let serve = service_fn(move |request| answer(request, origin));
            tokio::spawn(server::Builder::new().serve_connection(TokioIo::new(stream), serve));
        }
    });
    address
}

type AnswerBody = BoxBody<Bytes, hyper::Error>;

async fn answer(request: Request<Incoming>, origin: SocketAddr) -> Result<Response<AnswerBody>, hyper::Error> {
    if request.uri().path() == REVIEWS {
        let body = Full::from(ALLOWED).map_err(|never| match never {}).boxed();
        let answer = Response::builder().status(StatusCode::CREATED).header("content-type", "application/json");
        return Ok(answer.body(body).unwrap());
    }
    let stream = TcpStream::connect(origin).await.unwrap();
    let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?.map(|body| body.boxed()))
}

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const ALLOWED: &str =
    r#"{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}"#;
