//! One connection with many watches: TLS and HTTP/2 over a socket that never blocks.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use mio::{Interest, Registry, Token, net::TcpStream};
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};

use super::{
    super::failure::{Failure, Kind},
    frames::{self, Fields, Frame, FrameReader},
};

/// Begin of a watch's ERROR event.
const ERROR_EVENT: &[u8] = br#"{"type":"ERROR""#;

/// Results of reading.
#[derive(Debug, Default)]
pub(super) struct ReadOutcome {
    /// Times from a request to its answer with status 200.
    pub(super) opened: Vec<Duration>,
    /// Watches that were refused or have ended.
    pub(super) lost: Vec<Failure>,
    /// Frames of open watches.
    pub(super) frames: u64,
    /// True once the request that was last sent has its answer.
    pub(super) is_answered: bool,
}

/// A client. One request of it is sent at a time.
pub(super) struct WatchConnection {
    socket: TcpStream,
    tls: ClientConnection,
    reader: FrameReader,
    /// Requests so far.
    pub(super) requested: u32,
    /// Time of the request that has no answer.
    sent: Option<Instant>,
    /// Streams whose request was refused, until the end of their answer.
    refused: Vec<u32>,
}

/// The server as connections reach it.
pub(super) struct TlsServer {
    pub(super) address: SocketAddr,
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl WatchConnection {
    /// Begins to connect from the address `from`; the requests are sent once it has connected.
    pub(super) fn connect(server: &TlsServer, from: IpAddr, registry: &Registry, token: Token) -> io::Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::for_address(server.address), socket2::Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
        match socket.connect(&server.address.into()) {
            Err(error) if error.raw_os_error() != Some(IN_PROGRESS) => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut socket = TcpStream::from_std(socket.into());
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        let mut tls =
            ClientConnection::new(Arc::clone(&server.config), server.name.clone()).map_err(io::Error::other)?;
        let mut preface = Vec::new();
        frames::put_preface(&mut preface);
        tls.writer().write_all(&preface)?;
        Ok(Self { socket, tls, reader: FrameReader::default(), requested: 0, sent: None, refused: Vec::new() })
    }

    /// Sends a request for the next watch.
    pub(super) fn request(&mut self, fields: &Fields<'_>, path: &str) -> Result<(), Failure> {
        let mut request = Vec::new();
        let is_first = self.requested == 0;
        self.requested += 1;
        fields.put_get(&mut request, newest_stream(self.requested), path, is_first);
        self.sent = Some(Instant::now());
        self.tls.writer().write_all(&request).map_err(broken)?;
        self.flush()
    }

    /// True while a request has no answer.
    pub(super) const fn awaits_answer(&self) -> bool {
        self.sent.is_some()
    }

    /// Writes what waits, and reads what has arrived. An error ends the connection with all its watches.
    pub(super) fn advance(&mut self, scratch: &mut [u8], outcome: &mut ReadOutcome) -> Result<(), Failure> {
        self.flush()?;
        while let Some(read) = some(self.tls.read_tls(&mut self.socket)).map_err(broken)? {
            if read == 0 {
                return Err(Failure::new(Kind::Reset, "the server closed the connection"));
            }
            self.tls.process_new_packets().map_err(|error| Failure::new(Kind::Tls, error))?;
            while let Some(read @ 1..) = some(self.tls.reader().read(scratch)).map_err(broken)? {
                self.take(&scratch[..read], outcome)?;
            }
            self.flush()?;
        }
        Ok(())
    }

    /// Handles the frames that these bytes complete.
    fn take(&mut self, bytes: &[u8], outcome: &mut ReadOutcome) -> Result<(), Failure> {
        let Self { reader, requested, sent, refused, .. } = self;
        let newest = newest_stream(*requested);
        let (mut answers, mut goodbye) = (Vec::new(), None);
        let fed = reader.feed(bytes, |frame| {
            let mut lose = |kind, message: &str| outcome.lost.push(Failure::new(kind, message));
            match frame {
                Frame::Settings => frames::put_settings_answer(&mut answers),
                Frame::Ping(ping) => frames::put_pong(&mut answers, ping),
                Frame::GoAway(code) => goodbye = Some(code),
                // Its watch is lost already.
                Frame::Reset(stream, _) if refused.contains(&stream) => refused.retain(|known| *known != stream),
                Frame::Reset(stream, code) => {
                    outcome.is_answered |= stream == newest && sent.take().is_some();
                    lose(Kind::Reset, &format!("RST_STREAM with code {code}"));
                }
                Frame::Answer(stream, status, ends) => {
                    let sent = if stream == newest { sent.take() } else { None };
                    outcome.is_answered |= sent.is_some();
                    match (status, sent) {
                        (Some(200), Some(sent)) if !ends => outcome.opened.push(sent.elapsed()),
                        (Some(200), _) => lose(Kind::Ended, "a watch without a body, or trailers"),
                        (status, _) => {
                            lose(status.map_or(Kind::Protocol, Kind::Status), "refused");
                            refused.extend((!ends).then_some(stream));
                        }
                    }
                }
                Frame::Data(stream, _, ends) if refused.contains(&stream) => {
                    refused.retain(|known| !ends || *known != stream);
                }
                Frame::Data(_, _, true) => lose(Kind::Ended, "the stream ended"),
                Frame::Data(_, event, false) if event.starts_with(ERROR_EVENT) => {
                    lose(Kind::ErrorEvent(0), &String::from_utf8_lossy(event));
                }
                Frame::Data(..) => outcome.frames += 1,
            }
        });
        fed.map_err(|error| Failure::new(Kind::Protocol, error))?;
        if let Some(code) = goodbye {
            return Err(Failure::new(Kind::Reset, format!("GOAWAY with code {code}")));
        }
        self.tls.writer().write_all(&answers).map_err(broken)
    }

    /// Writes encrypted bytes as far as the socket takes them.
    fn flush(&mut self) -> Result<(), Failure> {
        while self.tls.wants_write() {
            if some(self.tls.write_tls(&mut self.socket)).map_err(broken)?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// The stream of the last of so many requests.
const fn newest_stream(requested: u32) -> u32 {
    (2 * requested).saturating_sub(1)
}

/// EINPROGRESS: the connection is being made.
const IN_PROGRESS: i32 = 115;

fn broken(error: io::Error) -> Failure {
    Failure::new(Kind::Reset, error)
}

/// A number of bytes, or `None` if the socket is not ready.
fn some(moved: io::Result<usize>) -> io::Result<Option<usize>> {
    match moved {
        Ok(moved) => Ok(Some(moved)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
