//! The bare server: the least that any server of these loads does, for the floors beside the numbers.
//!
//! `numbers bare` reads requests, keeps written objects as bytes, and writes prepared bytes to clients, with one thread
//! that waits for its sockets by `epoll`. It has no routes, no checks, no JSON, no flow control, no history and no log.
//! Its costs are system calls, copies and encryption: a floor of a case is what the bare server needs for that load.
//!
//! It understands the requests of [`load`](crate::load) only: writes of ConfigMaps, Leases and Pods over HTTP/1.1,
//! watches of all objects or of the pods of one node, and watch-lists of synthetic pods.

mod connection;
mod link;
mod objects;
mod request;

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use cache_server::{
    limits::{LISTEN_BACKLOG, SOCKET_SEND_BYTES},
    populate::PopulateSpec,
};
use clap::Parser;
use mio::{Events, Interest, Poll, Token, net::TcpListener};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use self::{connection::Connection, link::Link, objects::Objects};

const LISTENER: Token = Token(usize::MAX);
/// Sockets that one `epoll_wait` returns, as in tokio.
const EVENTS: usize = 1_024;
/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;

/// Reads requests and writes prepared bytes.
#[derive(Debug, Parser)]
#[command(name = "bare")]
struct Flags {
    /// Address to listen on.
    #[arg(long)]
    listen: SocketAddr,
    /// Synthetic objects, whose pods are the answer to a watch-list.
    #[arg(long)]
    populate: Option<PopulateSpec>,
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    #[arg(long)]
    tls_key: Option<PathBuf>,
}

/// Runs the bare server until it is killed.
pub(crate) fn main_of(arguments: impl Iterator<Item = String>) -> ExitCode {
    match serve(&Flags::parse_from(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bare: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the address, as the measured server prints it")]
fn serve(flags: &Flags) -> io::Result<()> {
    let tls = match (&flags.tls_cert, &flags.tls_key) {
        (Some(certificate), Some(key)) => Some(tls(certificate, key)?),
        (Some(_), None) | (None, _) => None,
    };
    let mut listener = listen(flags.listen)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut server = Bare { connections: Vec::new(), objects: Objects::new(flags.populate.as_ref()), tls };
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    println!("listening on {scheme}://{}", listener.local_addr()?);
    io::stdout().flush()?;
    let (mut events, mut scratch) = (Events::with_capacity(EVENTS), vec![0; READ_BYTES]);
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                server.accept(&listener, &poll)?;
            } else {
                server.advance(event.token().0, &mut scratch);
            }
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_send_buffer_size(SOCKET_SEND_BYTES as usize)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(LISTEN_BACKLOG).map_err(io::Error::other)?)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// TLS with the cipher that the measured server prefers.
fn tls(certificate: &PathBuf, key: &PathBuf) -> io::Result<Arc<ServerConfig>> {
    let other = io::Error::other::<rustls::pki_types::pem::Error>;
    let chain = CertificateDer::pem_file_iter(certificate).map_err(other)?.collect::<Result<_, _>>().map_err(other)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(other)?;
    let mut provider = ring::default_provider();
    provider.cipher_suites = vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256];
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).map_err(io::Error::other)?))
}

/// All connections, by their token, and all objects.
struct Bare {
    connections: Vec<Option<Connection>>,
    objects: Objects,
    tls: Option<Arc<ServerConfig>>,
}

impl Bare {
    /// Accepts all that wait.
    fn accept(&mut self, listener: &TcpListener, poll: &Poll) -> io::Result<()> {
        loop {
            let mut socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            socket.set_nodelay(true)?;
            let token = Token(self.connections.len());
            poll.registry().register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
            self.connections.push(Some(Connection::new(Link::new(socket, self.tls.clone())?)));
        }
    }

    /// Reads and writes what a connection has and takes, and closes it at its end.
    fn advance(&mut self, index: usize, scratch: &mut [u8]) {
        let Self { connections, objects, .. } = self;
        // The connection is taken out because a change goes to others.
        let Some(mut connection) = connections.get_mut(index).and_then(Option::take) else { return };
        let is_open = connection.advance(index, objects, scratch, |written| {
            for watcher in written.watchers {
                if let Some(watcher) = connections.get_mut(watcher).and_then(Option::as_mut) {
                    // If it is closed, its own event tells.
                    let _ = watcher.write(&written.chunk);
                }
            }
        });
        if matches!(is_open, Ok(true)) {
            connections[index] = Some(connection);
        } else {
            objects.forget(index);
        }
    }
}
