//! The attacker's process: it knows only the server's address, and the credentials that an attacker has.
//!
//! The attacker is this test program once more, with the lowest priority: it stands for other machines, whose CPU is not the
//! server's.

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tests::{http::Client, tls::Trust};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    process::{Child, Command},
};

use super::{ATTACKS, Size};

/// Environment variable with the attacker's order. The test of the attacker's name does nothing without it.
const ORDER: &str = "ATTACK_ORDER";

/// The protocol of an attacker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) http2: bool,
    pub(crate) tls: bool,
}

pub(crate) const WAYS: [Way; 4] = [
    Way { name: "HTTP/1.1", http2: false, tls: false },
    Way { name: "HTTP/2", http2: true, tls: false },
    Way { name: "HTTP/1.1, TLS", http2: false, tls: true },
    Way { name: "HTTP/2, TLS", http2: true, tls: true },
];

/// A server under attack, as the attacker sees it.
#[derive(Clone, Debug)]
pub(crate) struct Victim {
    address: SocketAddr,
    pub(crate) way: Way,
    /// Certificate of the server, followed by its authority's, if it uses TLS.
    certificate: Option<PathBuf>,
    /// Tokens of the attackers; empty without credentials.
    tokens: Vec<String>,
    clients: Vec<Client>,
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Victim {
    pub(crate) fn new(address: SocketAddr, way: Way, certificate: Option<&Path>, tokens: Vec<String>) -> Self {
        let client = Client::new(address);
        let client = certificate.map_or(client, |certificate| client.over_tls(Trust::of_issuer(certificate)));
        let clients = match &*tokens {
            [] => vec![client],
            tokens => tokens.iter().map(|token| client.with_token(token)).collect(),
        };
        Self { address, way, certificate: certificate.map(Path::to_owned), tokens, clients }
    }

    /// Like it, with the first attacker only.
    pub(crate) fn alone(&self) -> Self {
        let (tokens, clients) = (self.tokens[..1].to_vec(), self.clients[..1].to_vec());
        Self { tokens, clients, ..self.clone() }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client of the first attacker, over HTTP/1.1.
    pub(crate) fn client(&self) -> Client {
        self.clients[0]
    }

    /// A client of each attacker, over HTTP/1.1.
    pub(crate) fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// The header with the first attacker's credentials.
    pub(crate) fn authorization(&self) -> Option<&'static str> {
        self.client().authorization()
    }

    pub(crate) async fn connect(&self) -> Option<Box<dyn Stream>> {
        let alpn = if self.way.http2 { "h2" } else { "http/1.1" };
        Some(match &self.certificate {
            Some(certificate) => Box::new(Trust::of_issuer(certificate).connect(self.address, &[alpn]).await.ok()?),
            None => Box::new(TcpStream::connect(self.address).await.ok()?),
        })
    }

    /// Sends one request on a new connection. Returns the code of the answer; `None` if the server closes first.
    pub(crate) async fn ask<B>(&self, method: Method, path: &str, headers: &[(&str, &str)], body: B) -> Option<u16>
    where
        B: Body<Data = Bytes, Error = std::convert::Infallible> + Send + Unpin + 'static,
    {
        let io = TokioIo::new(self.connect().await?);
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(authorization) = self.authorization() {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let answer = if self.way.http2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.ok()?;
            tokio::spawn(connection);
            let scheme = if self.way.tls { "https" } else { "http" };
            let uri = format!("{scheme}://{}{path}", self.address);
            sender.send_request(request.uri(uri).body(body).unwrap()).await
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.ok()?;
            tokio::spawn(connection);
            let request = request.uri(path).header(header::HOST, self.address.to_string());
            sender.send_request(request.body(body).unwrap()).await
        };
        let (head, mut body) = answer.ok()?.into_parts();
        while let Some(Ok(_)) = body.frame().await {}
        Some(head.status.as_u16())
    }

    /// Starts the attacker of this name. It is killed when dropped.
    pub(crate) fn attack(&self, name: &str, size: Size) -> Child {
        let way = WAYS.iter().position(|way| *way == self.way);
        let order = json!({"name": name, "full": size == Size::Full, "address": self.address.to_string(), "way": way,
            "certificate": self.certificate, "tokens": self.tokens});
        let program = env::current_exe().unwrap();
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(program).args(["attacks::victim::attacker", "--exact", "--nocapture"]);
        command.env(ORDER, order.to_string()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true).spawn().unwrap()
    }
}

/// The attacker's process. Without an order, it is a test that passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacker() {
    let Ok(order) = env::var(ORDER) else { return };
    rlimit::increase_nofile_limit(64 << 10).unwrap();
    let order: Value = serde_json::from_str(&order).unwrap();
    let way = WAYS[usize::try_from(order["way"].as_u64().unwrap()).unwrap()];
    let certificate = order["certificate"].as_str().map(Path::new);
    let tokens = order["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap().to_owned()).collect();
    let victim = Victim::new(order["address"].as_str().unwrap().parse().unwrap(), way, certificate, tokens);
    let size = if order["full"] == true { Size::Full } else { Size::Small };
    let attack = ATTACKS.iter().find(|attack| attack.name == order["name"]).unwrap();
    (attack.run)(&victim, size).await;
}
