//! `held`: memory of requests that this server passes on, while their clients do not read or do not finish writing.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    thread,
    time::Duration,
};

use super::{
    Failure,
    front::FrontServer,
    metrics,
    row::{SideRow, float},
};
use crate::{
    load::{
        client::{Access, Ask, Buffers, Target},
        sampler::Sampler,
    },
    numbers::{
        case::Unit,
        large,
        server::{Endpoint, runtime, settle},
        stock::Cluster,
    },
};

/// Requests at the same time.
const REQUESTS: usize = 64;
/// Secrets of a megabyte: an answer of 16 MB.
const SECRETS: u32 = 16;
const ANSWER: &str = "/api/v1/namespaces/default/secrets";
const SMALL_ANSWER: &str = "/api/v1/namespaces/default/secrets?limit=1&fieldSelector=metadata.name%3Dno";
const BODY: &str = "/api/v1/namespaces/default/configmaps";
/// Announced length of a body, and the part of it that is sent: kube-apiserver reads at most 3 MiB.
const BODY_BYTES: usize = 4 << 20;
const BODY_SENT: usize = 2_900 << 10;
/// Receive buffer of a client that does not read.
const RECEIVE_BYTES: u32 = 64 << 10;
/// Time for which all requests are held.
const HOLD: Duration = Duration::from_secs(4);
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// Requests of one kind.
struct HeldKind {
    what: &'static str,
    path: &'static str,
    /// Announced bytes of the body; 0 without one.
    body: usize,
    has_target: bool,
}

const KINDS: [HeldKind; 3] = [
    HeldKind { what: "answers of 16 MB that are not read, peak", path: ANSWER, body: 0, has_target: true },
    HeldKind { what: "bodies of 4 MiB that are not finished, peak", path: BODY, body: BODY_BYTES, has_target: true },
    HeldKind { what: "answers of some bytes, connections kept, peak", path: SMALL_ANSWER, body: 0, has_target: false },
];

pub(super) fn method() -> String {
    format!(
        "{REQUESTS} requests at once, each on a connection of its own, held for {} s; resident memory over that before the \
         connections, divided by {REQUESTS}: so both connections of a request count; answers: a LIST of {SECRETS} MB of \
         Secrets, which are not cached, whose clients stop reading after the first bytes; bodies: 2.8 MiB of an announced \
         4 MiB; clients over plain HTTP, kube-apiserver over TLS; a server started anew for each kind. Alone: kube-apiserver \
         under the same requests",
        HOLD.as_secs()
    )
}

pub(super) fn run(cluster: &Cluster) -> Result<Vec<SideRow>, Failure> {
    let stock = cluster.serve()?;
    large::fill(stock.endpoint(), SECRETS)?;
    let each = |grown: f64| grown / REQUESTS as f64;
    let mut rows = Vec::new();
    for HeldKind { what, path, body, has_target } in KINDS {
        let front = FrontServer::start_over(&stock, "pods", false)?;
        let server = PlainServer::new(front.endpoint())?;
        // Without its first requests, a process lacks parts that are made once.
        server.hold(SMALL_ANSWER, 1, 0)?;
        let peak = server.hold(path, REQUESTS, body)?;
        let row = SideRow::new(what, Unit::KibPerRequest, each(peak), None);
        rows.push(if has_target { row.at_most(64.0) } else { row });
    }
    let through = hold_over_tls(FrontServer::start(&stock, "pods")?.endpoint())?;
    let alone = hold_over_tls(stock.endpoint())?;
    rows.push(SideRow::new(
        "answers of 16 MB that are not read, clients over TLS, peak",
        Unit::KibPerRequest,
        each(through),
        each(alone),
    ));
    rows.push(metrics::reviews_row(stock.endpoint())?);
    Ok(rows)
}

/// Bytes of the peak beyond those before. An error if the process has ended.
fn growth(sampler: &Sampler, before: u64) -> Result<f64, Failure> {
    sampler.sample()?;
    Ok(float(sampler.peaks().rss_bytes) - float(before))
}

/// A server whose clients use plain HTTP.
struct PlainServer {
    pid: u32,
    address: String,
    token: String,
}

impl PlainServer {
    fn new(endpoint: &Endpoint) -> Result<Self, Failure> {
        let token = endpoint.token_file.as_ref().map(fs::read_to_string).transpose()?.unwrap_or_default();
        let address = endpoint.url.trim_start_matches("http://").to_owned();
        Ok(Self { pid: endpoint.pid, address, token })
    }

    /// Bytes by which the server grows at most while these requests are held. With a body, all but its end is sent; without
    /// one, only the first bytes of the answer are read.
    fn hold(&self, path: &str, requests: usize, body: usize) -> Result<f64, Failure> {
        let (before, sampler) = (settle(self.pid)?, Sampler::without_sockets(self.pid)?);
        let mut held = Vec::new();
        for _ in 0..requests {
            let mut socket = TcpStream::connect(&self.address)?;
            socket.set_read_timeout(Some(ANSWER_WAIT))?;
            socket.write_all(self.head(path, body).as_bytes())?;
            held.push(socket);
        }
        for socket in &mut held {
            if body > 0 {
                socket.write_all(&vec![b' '; BODY_SENT])?;
            } else {
                let mut first = [0; 15];
                socket.read_exact(&mut first)?;
                if !first.starts_with(b"HTTP/1.1 200") {
                    return Err(Failure::Load(format!("{path}: {}", String::from_utf8_lossy(&first))));
                }
            }
        }
        thread::sleep(HOLD);
        growth(&sampler, before)
    }

    fn head(&self, path: &str, body: usize) -> String {
        let Self { address, token, .. } = self;
        let (method, more) = match body {
            0 => ("GET", String::new()),
            bytes => ("POST", format!("Content-Type: application/json\r\nContent-Length: {bytes}\r\n")),
        };
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n{more}\r\n"
        )
    }
}

/// Bytes by which a server grows while its clients do not read large answers over TLS.
fn hold_over_tls(server: &Endpoint) -> Result<f64, Failure> {
    let buffers = Buffers { receive_bytes: Some(RECEIVE_BYTES), ..Buffers::default() };
    let target = Target::new(&Access { buffers, ..server.access() }).map_err(Failure::Server)?;
    runtime()?.block_on(async {
        target.connect().await?.send_well(&Ask::get(SMALL_ANSWER)).await?;
        let (before, sampler) = (settle(server.pid)?, Sampler::without_sockets(server.pid)?);
        let mut held = Vec::new();
        for _ in 0..REQUESTS {
            let mut connection = target.connect().await?;
            connection.send_well(&Ask::get(ANSWER)).await?;
            held.push(connection);
        }
        tokio::time::sleep(HOLD).await;
        growth(&sampler, before)
    })
}
