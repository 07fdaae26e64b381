//! Splits a response body into pages, each of which is one frame to h2.
//!
//! INVARIANT: paging does not change the bytes, and available bytes are never held back to fill a page. INVARIANT: the
//! pages of one connection that h2 holds have at most [`HTTP2_UNSENT_BYTES`] and two small pages for each stream; all pages are
//! small while the unread responses of all connections are many.
//!
//! A page shows h2 filler bytes in the place of its slices, see [`super::gather`].

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use watch_cache::Slices;

use super::{gather::Outbox, overdue};
use crate::{
    body::BodyError,
    limits::{BATCH_BYTES, HTTP2_SMALL_PAGE_BYTES, HTTP2_UNSENT_BYTES},
    shares::UnreadStream,
};

/// Bytes of a full page, while few are unsent: a batch. Each page costs two polls of tasks.
const PAGE_BYTES: usize = BATCH_BYTES;

/// Bytes of a page once an eighth of [`HTTP2_UNSENT_BYTES`] is unsent, so that many streams share them.
pub const SHARED_PAGE_BYTES: usize = 16 << 10;

/// Length of a frame head.
pub const FRAME_HEAD_BYTES: usize = 9;

/// Bytes that h2 sees in the place of a page's own.
static FILLER: [u8; 2 * PAGE_BYTES] = [0; 2 * PAGE_BYTES];

/// Returns the size of the next page of a connection that has so many unsent bytes.
const fn page_bytes(unsent: usize) -> usize {
    match unsent {
        HTTP2_UNSENT_BYTES.. => HTTP2_SMALL_PAGE_BYTES,
        SHARED_FROM.. => SHARED_PAGE_BYTES,
        _ => PAGE_BYTES,
    }
}

/// Unsent bytes from which streams share them.
const SHARED_FROM: usize = HTTP2_UNSENT_BYTES / 8;

/// One page. Its bytes count as unsent until h2 has written or dropped them.
pub struct DataPage {
    slices: Slices,
    outbox: Outbox,
    /// The stream that ends with this page.
    _stream: Option<UnreadStream>,
}

impl DataPage {
    fn new(slices: Slices, outbox: &Outbox, stream: Option<UnreadStream>) -> Self {
        outbox.add(slices.bytes());
        Self { slices, outbox: outbox.clone(), _stream: stream }
    }
}

impl Drop for DataPage {
    fn drop(&mut self) {
        self.outbox.remove(self.slices.bytes());
    }
}

/// The page as h2 sees it: filler of the page's length. Advancing sends the page's bytes.
impl Buf for DataPage {
    fn remaining(&self) -> usize {
        self.slices.bytes()
    }

    fn chunk(&self) -> &[u8] {
        &FILLER[..self.remaining().min(FILLER.len())]
    }

    fn advance(&mut self, count: usize) {
        self.outbox.remove(count);
        self.outbox.pass(self.slices.split_to(count));
    }
}

/// A body in pages.
pub struct PagedBody<B> {
    body: B,
    /// Bytes of the body that are in no page yet.
    rest: Slices,
    outbox: Outbox,
}

impl<B> PagedBody<B> {
    pub const fn new(body: B, outbox: Outbox) -> Self {
        Self { body, rest: Slices::new(), outbox }
    }
}

impl<B: Body<Data = Slices, Error = BodyError> + Unpin> Body for PagedBody<B> {
    type Data = DataPage;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<DataPage>, BodyError>>> {
        let Self { body, rest, outbox } = &mut *self;
        overdue::note_polled();
        let page_bytes = if overdue::is_short() { HTTP2_SMALL_PAGE_BYTES } else { page_bytes(outbox.unsent()) };
        while rest.bytes() < page_bytes && !body.is_end_stream() {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Our bodies have no trailers.
                    if let Ok(slices) = frame.into_data() {
                        rest.append(slices);
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => break,
                Poll::Pending if rest.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if rest.is_empty() {
            return Poll::Ready(None);
        }
        overdue::note_given(rest.bytes());
        // Up to twice the size: a batch ends with the event that reaches its size.
        let page = rest.split_to(if rest.bytes() < 2 * page_bytes { rest.bytes() } else { page_bytes });
        let is_last = rest.is_empty() && body.is_end_stream();
        let stream = is_last.then(overdue::last_stream).flatten();
        Poll::Ready(Some(Ok(Frame::data(DataPage::new(page, outbox, stream)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.body.size_hint().exact();
        length.map_or_else(SizeHint::default, |length| SizeHint::with_exact(length + self.rest.bytes() as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bytes::Bytes;
    use futures::task::noop_waker_ref;

    use super::*;

    /// One poll of the scripted body: returns this many slices of this length, is pending, or fails.
    #[derive(Clone, Copy)]
    enum Turn {
        Slices(usize, usize),
        Wait,
        Cut,
    }

    struct Script {
        turns: VecDeque<Turn>,
        given: Vec<u8>,
    }

    impl Body for Script {
        type Data = Slices;
        type Error = BodyError;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BodyError>>> {
            match self.turns.pop_front() {
                None => Poll::Ready(None),
                Some(Turn::Wait) => Poll::Pending,
                Some(Turn::Cut) => Poll::Ready(Some(Err(BodyError::Cut))),
                Some(Turn::Slices(count, length)) => {
                    let mut slices = Slices::new();
                    for _ in 0..count {
                        let at = self.given.len();
                        let slice: Vec<u8> = (at..at + length).map(|byte| byte.to_le_bytes()[0]).collect();
                        self.given.extend_from_slice(&slice);
                        slices.push(Bytes::from(slice));
                    }
                    Poll::Ready(Some(Ok(Frame::data(slices))))
                }
            }
        }

        fn is_end_stream(&self) -> bool {
            self.turns.is_empty()
        }
    }

    fn paged(turns: &[Turn]) -> PagedBody<Script> {
        PagedBody::new(Script { turns: turns.iter().copied().collect(), given: Vec::new() }, Outbox::default())
    }

    fn poll(paged: &mut PagedBody<Script>) -> Poll<Option<Result<DataPage, BodyError>>> {
        let mut cx = Context::from_waker(noop_waker_ref());
        let frame = Pin::new(paged).poll_frame(&mut cx);
        frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.into_data().ok().expect("data"))))
    }

    /// Returns (bytes, slices) of each page; a pending poll is (0, 0).
    fn pages(turns: &[Turn]) -> Vec<(usize, usize)> {
        let (mut paged, mut seen, mut got) = (paged(turns), Vec::new(), Vec::new());
        while !paged.is_end_stream() {
            match poll(&mut paged) {
                Poll::Pending => seen.push((0, 0)),
                Poll::Ready(Some(Ok(mut page))) => {
                    seen.push((page.slices.bytes(), page.slices.len()));
                    page.slices.iter().for_each(|slice| got.extend_from_slice(slice));
                    page.advance(page.remaining());
                }
                Poll::Ready(Some(Err(_)) | None) => panic!("neither fails nor ends"),
            }
        }
        assert!(got == paged.body.given, "other bytes");
        seen
    }

    #[test]
    fn pages_are_full_while_there_is_more() {
        use Turn::{Slices, Wait};
        let small = PAGE_BYTES / 100;
        for (turns, expected) in [
            (&[][..], &[][..]),
            (&[Slices(1, 10)], &[(10, 1)]),
            (&[Slices(2, PAGE_BYTES)], &[(PAGE_BYTES, 1), (PAGE_BYTES, 1)]),
            (&[Slices(2, PAGE_BYTES - 1)], &[(2 * PAGE_BYTES - 2, 2)]),
            (&[Slices(3, PAGE_BYTES - 1)], &[(PAGE_BYTES, 2), (2 * PAGE_BYTES - 3, 2)]),
            (&[Slices(100, small), Slices(100, small)], &[(200 * small, 200)]),
            (&[Slices(16, 10)], &[(160, 16)]),
            (&[Slices(17, 10)], &[(170, 17)]),
            (&[Slices(1, 10), Wait, Slices(1, 20)], &[(10, 1), (20, 1)]),
            (&[Wait, Slices(2, 10)], &[(0, 0), (20, 2)]),
        ] {
            assert_eq!(pages(turns), expected);
        }
    }

    /// Goal: many streams whose windows are nearly closed hold little memory. Method: a thousand bodies that give their
    /// first page, and none that is sent.
    #[test]
    fn the_unsent_pages_of_a_connection_are_bounded() {
        let outbox = Outbox::default();
        let mut held = Vec::new();
        for _ in 0..1_000 {
            let script = Script { turns: [Turn::Slices(4, PAGE_BYTES)].into(), given: Vec::new() };
            let mut body = PagedBody::new(script, outbox.clone());
            let Poll::Ready(Some(Ok(page))) = poll(&mut body) else { panic!("gives a page") };
            held.push(page);
        }
        let bytes: usize = held.iter().map(Buf::remaining).sum();
        assert!(bytes < HTTP2_UNSENT_BYTES + PAGE_BYTES + 2_000 * HTTP2_SMALL_PAGE_BYTES, "{bytes} bytes");
        assert_eq!(bytes, outbox.unsent());
        drop(held);
        assert_eq!((outbox.unsent(), page_bytes(outbox.unsent())), (0, PAGE_BYTES));
    }

    #[test]
    fn a_body_that_is_cut_ends_with_nothing_more() {
        let mut paged = paged(&[Turn::Slices(1, 10), Turn::Cut]);
        assert!(matches!(poll(&mut paged), Poll::Ready(Some(Err(BodyError::Cut)))));
    }
}
