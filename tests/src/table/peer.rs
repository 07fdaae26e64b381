//! Starts the implementations under test with one interface.

use hyper_util::rt::TokioIo;
use informer::testing::FakeApiServer;
use tokio::net::TcpListener;

use super::Who;
use crate::{http::Client, process::Server};

/// One running implementation. Its history begins at position 1000.
pub struct Peer {
    client: Client,
    /// Stopped with the peer; the fake server lives as long as the runtime.
    _server: Option<Server>,
}

impl Peer {
    /// Starts an implementation. `binary` is the caller's `env!("CARGO_BIN_EXE_tests-cache-server")`.
    pub async fn start(who: Who, binary: &str) -> Self {
        match who {
            Who::CacheServer => {
                let server = Server::start(binary, &["--first-revision", "1000"]).await;
                Self { client: server.client(), _server: Some(server) }
            }
            Who::Model => panic!("the model has no socket: `run_model` runs its rows"),
            Who::Fake => Self { client: listen(FakeApiServer::new().at(1_000).expire_at(999)).await, _server: None },
        }
    }

    /// A client of it.
    pub const fn client(&self) -> Client {
        self.client
    }
}

/// Starts a listener in front of a fake server.
async fn listen(server: FakeApiServer) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener has an address");
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let server = server.clone();
            let service = hyper::service::service_fn(move |request| {
                let server = server.clone();
                async move { server.respond(request).await }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    Client::new(address)
}

/// Defines two tests for each function that takes a [`Client`](crate::http::Client): with the server and with the fake
/// server.
#[macro_export]
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            use tests::table::{Peer, Who};

            #[tokio::test]
            async fn cache_server() {
                let peer = Peer::start(Who::CacheServer, env!("CARGO_BIN_EXE_tests-cache-server")).await;
                super::$name(peer.client()).await;
            }

            #[tokio::test]
            async fn fake_server() {
                let peer = Peer::start(Who::Fake, env!("CARGO_BIN_EXE_tests-cache-server")).await;
                super::$name(peer.client()).await;
            }
        })+
    };
}
