//! One client: its request, the answer that is due to it, and its position in the watch-list.

use std::{
    io::{self, Write as _},
    sync::Arc,
};

use super::{
    link::Link,
    objects::{Objects, Written},
    request::Request,
};

const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
/// Bytes of the watch-list for one write.
const BATCH_BYTES: usize = 64 << 10;

/// A client.
pub(super) struct Connection {
    link: Link,
    /// Bytes of a request that is not whole.
    input: Vec<u8>,
    /// Bytes that the socket did not take.
    output: Vec<u8>,
    /// The watch-list that is sent, and the position in it.
    state: Option<(Arc<[u8]>, usize)>,
}

impl Connection {
    pub(super) const fn new(link: Link) -> Self {
        Self { link, input: Vec::new(), output: Vec::new(), state: None }
    }

    /// Writes what is due and answers what is read; `publish` gets the changes. False once the client has left.
    pub(super) fn advance(
        &mut self,
        index: usize,
        objects: &mut Objects,
        scratch: &mut [u8],
        mut publish: impl FnMut(Written),
    ) -> io::Result<bool> {
        self.link.flush()?;
        self.send()?;
        while let Some(read) = self.link.read(scratch)? {
            if read == 0 {
                return Ok(false);
            }
            let written = self.answer(&scratch[..read], index, objects)?;
            self.send()?;
            written.into_iter().for_each(&mut publish);
            if self.link.is_drained(read, scratch.len()) {
                break;
            }
        }
        Ok(true)
    }

    /// Answers the request that these bytes complete.
    fn answer(&mut self, read: &[u8], index: usize, objects: &mut Objects) -> io::Result<Option<Written>> {
        // Usually one read has a whole request, and nothing is kept of it.
        let whole;
        let bytes = if self.input.is_empty() {
            read
        } else {
            self.input.extend_from_slice(read);
            whole = std::mem::take(&mut self.input);
            &whole
        };
        let Some(request) = Request::find(bytes) else {
            self.input = bytes.to_vec();
            return Ok(None);
        };
        let (mut body, mut written) = (Vec::new(), None);
        match request.method {
            "GET" if request.query.contains("watch=true") => {
                self.write(STREAM_HEAD)?;
                if request.query.contains("sendInitialEvents=true") {
                    self.state = Some((objects.state(), 0));
                } else {
                    objects.watch(request.query, index);
                }
                return Ok(None);
            }
            "GET" => body = objects.list(),
            "DELETE" => objects.delete(request.path),
            _ => written = objects.write(&request, &mut body),
        }
        let mut answer = Vec::with_capacity(body.len() + 128);
        write!(answer, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len())?;
        answer.append(&mut body);
        self.write(&answer)?;
        Ok(written)
    }

    /// Writes bytes; keeps those that the socket does not take.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let taken = if self.output.is_empty() { self.link.write(bytes)? } else { 0 };
        self.output.extend_from_slice(&bytes[taken..]);
        Ok(())
    }

    /// Writes what is kept, and then the watch-list, as far as the socket takes it.
    fn send(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            let taken = self.link.write(&self.output)?;
            if taken == 0 {
                return Ok(());
            }
            self.output.drain(..taken);
        }
        while let Some((state, position)) = &mut self.state {
            let rest = &state[*position..];
            let taken = self.link.write(&rest[..rest.len().min(BATCH_BYTES)])?;
            *position += taken;
            if *position == state.len() {
                self.state = None;
            } else if taken == 0 {
                break;
            }
        }
        Ok(())
    }
}
