//! A minimal HTTP/1.1 client, cheap so that it takes little CPU from the server.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use flate2::read::GzDecoder;

/// Timeout of one read from the socket.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// Maximum length of a line in a response head or of a chunk size.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// A read request and its expected result.
#[derive(Debug)]
pub(crate) struct Read<'a> {
    pub(crate) path: String,
    pub(crate) accept: &'a str,
    /// True to request gzip; the response must then be compressed.
    pub(crate) gzip: bool,
    pub(crate) objects: usize,
}

/// A keep-alive connection. A watch cannot be ended in any other way, so `read` reconnects after a stream.
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

    /// Returns the whole body.
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

    /// Sends a read, checks the number of objects and returns the number of body bytes.
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
        // Every object has a creationTimestamp; bookmarks and lists have none.
        let found = memchr::memmem::find_iter(&body, br#""creationTimestamp":""#).count();
        let owned = memchr::memmem::find_iter(&body, br#""uid":""#).count();
        // Owner references have a uid too, so there may be more.
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

    /// Sends a request and reads the response head. Returns the content-length, if there is one.
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

    /// Reads a chunk; returns false after the last one.
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
