//! One HTTP/1.1 connection that asks and reads: as little as it takes, so that it costs the machine little.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use flate2::read::GzDecoder;

/// How long one answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// Bytes of the longest line of a head or a chunk's size.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// One read, and what it must find.
#[derive(Debug)]
pub(crate) struct Read<'a> {
    pub(crate) path: String,
    pub(crate) accept: &'a str,
    /// Whether it may be compressed; then it must be.
    pub(crate) gzip: bool,
    pub(crate) objects: usize,
}

/// A connection that is kept. A stream ends it, since nobody says when it is over: the next read has a new one.
pub(crate) struct Client {
    address: SocketAddr,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(ANSWER_WAIT))?;
        stream.set_nodelay(true)?;
        Ok(Self { address, reader: BufReader::with_capacity(256 << 10, stream) })
    }

    /// A whole body.
    pub(crate) fn get(&mut self, path: &str, accept: &str, gzip: bool) -> io::Result<Vec<u8>> {
        let length = self.ask(path, accept, gzip)?;
        let mut body = Vec::new();
        match length {
            Some(length) => {
                body.resize(length, 0);
                self.reader.read_exact(&mut body)?;
            }
            None => while self.chunk(&mut body)? {},
        }
        Ok(body)
    }

    /// Asks, checks how many objects came, and says how many bytes that took.
    pub(crate) fn read(&mut self, read: &Read<'_>) -> io::Result<usize> {
        let body = if read.path.contains("watch=true") {
            let body = self.initial_events(&read.path, read.accept)?;
            *self = Self::connect(self.address)?;
            body
        } else {
            self.get(&read.path, read.accept, read.gzip)?
        };
        let bytes = body.len();
        let body = if read.gzip {
            let mut text = Vec::new();
            GzDecoder::new(&*body).read_to_end(&mut text)?;
            text
        } else {
            body
        };
        // Every object has one, bookmarks and lists have none.
        let found = memchr::memmem::find_iter(&body, br#""creationTimestamp":""#).count();
        let owned = memchr::memmem::find_iter(&body, br#""uid":""#).count();
        // Owners have one too.
        if found != read.objects || owned < read.objects {
            let path = &read.path;
            return Err(io::Error::other(format!("{path}: {found} objects, not {}", read.objects)));
        }
        Ok(bytes)
    }

    fn initial_events(&mut self, path: &str, accept: &str) -> io::Result<Vec<u8>> {
        self.ask(path, accept, false)?;
        let mut body = Vec::new();
        while !body.ends_with(b"}\n") || memchr::memmem::rfind(&body, b"k8s.io/initial-events-end").is_none() {
            if !self.chunk(&mut body)? {
                return Err(io::Error::other("the stream ended before its initial state"));
            }
        }
        Ok(body)
    }

    /// Sends a request and reads the head of its answer; the length of a body that has one.
    fn ask(&mut self, path: &str, accept: &str, gzip: bool) -> io::Result<Option<usize>> {
        let gzip = if gzip { "Accept-Encoding: gzip\r\n" } else { "" };
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: {accept}\r\n{gzip}\r\n", self.address);
        self.reader.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?;
        if !status.starts_with("HTTP/1.1 200") {
            return Err(io::Error::other(format!("{path}: {status}")));
        }
        let mut length = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok(length);
            }
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().ok();
            }
        }
    }

    /// Adds a chunk; `false` at the end.
    fn chunk(&mut self, body: &mut Vec<u8>) -> io::Result<bool> {
        let size = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
        let start = body.len();
        body.resize(start + size, 0);
        self.reader.read_exact(&mut body[start..])?;
        self.line()?;
        Ok(size > 0)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}
