//! Splits a response body into pages, each of which is one frame, one TLS record and one write.
//!
//! INVARIANT: paging does not change the bytes, and available bytes are never held back to fill a page. INVARIANT: the
//! pages of one connection that h2 holds have at most [`HTTP2_UNSENT_BYTES`] and one small page for each stream.
//!
//! hyper writes each frame by itself, with few I/O vectors per write. Therefore many small slices are copied into one,
//! which costs a microsecond, and a few large ones are sent as they are.

use std::{
    io::IoSlice,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use watch_cache::Slices;

use super::overdue;
use crate::{
    http::body::BodyError,
    limits::{HTTP2_SMALL_PAGE_BYTES, HTTP2_UNSENT_BYTES},
};

/// Bytes of a full page. With its frame head it is the largest TLS record, and every client accepts frames of this
/// size.
pub(super) const PAGE_BYTES: usize = (16 << 10) - FRAME_HEAD_BYTES;

/// Length of a frame head.
const FRAME_HEAD_BYTES: usize = 9;

/// Slices per write: `bytes::Take`, which holds the payload of a frame, passes at most this many on.
const SLICES_MAX: usize = 16;

/// Counts the bytes of the pages of one connection that are not sent yet. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(super) struct PageBudget(Arc<AtomicUsize>);

impl PageBudget {
    /// Returns the size of the next page.
    fn page_bytes(&self) -> usize {
        if self.0.load(Ordering::Relaxed) < HTTP2_UNSENT_BYTES { PAGE_BYTES } else { HTTP2_SMALL_PAGE_BYTES }
    }
}

/// One page. Counts as unsent until it is dropped, which h2 does once it is written.
#[derive(Debug)]
pub(super) struct DataPage {
    slices: Slices,
    counted: usize,
    unsent: PageBudget,
}

impl DataPage {
    fn new(slices: Slices, unsent: &PageBudget) -> Self {
        let counted = slices.bytes();
        unsent.0.fetch_add(counted, Ordering::Relaxed);
        Self { slices, counted, unsent: unsent.clone() }
    }
}

impl Drop for DataPage {
    fn drop(&mut self) {
        self.unsent.0.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

impl Buf for DataPage {
    fn remaining(&self) -> usize {
        self.slices.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.slices.chunk()
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        self.slices.chunks_vectored(into)
    }

    fn advance(&mut self, count: usize) {
        self.slices.advance(count);
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        self.slices.copy_to_bytes(count)
    }
}

/// A body in pages.
pub(super) struct PagedBody<B = crate::http::body::Body> {
    body: B,
    /// Bytes of the body that are in no page yet.
    rest: Slices,
    unsent: PageBudget,
}

impl<B> PagedBody<B> {
    pub(super) const fn new(body: B, unsent: PageBudget) -> Self {
        Self { body, rest: Slices::new(), unsent }
    }
}

impl<B: Body<Data = Slices, Error = BodyError> + Unpin> Body for PagedBody<B> {
    type Data = DataPage;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<DataPage>, BodyError>>> {
        let Self { body, rest, unsent } = &mut *self;
        overdue::note_polled();
        let page_bytes = unsent.page_bytes();
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
        overdue::note_given();
        Poll::Ready(Some(Ok(Frame::data(DataPage::new(page(rest, page_bytes), unsent)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.body.size_hint().exact();
        length.map_or_else(SizeHint::default, |length| SizeHint::with_exact(length + self.rest.bytes() as u64))
    }
}

/// Splits the next page off `rest`, of at most `bytes`.
fn page(rest: &mut Slices, bytes: usize) -> Slices {
    let bytes = rest.bytes().min(bytes);
    if rest.len_within(bytes) <= SLICES_MAX {
        return rest.split_to(bytes);
    }
    let mut page = Slices::new();
    // More slices than one write takes: copy them into one.
    page.push(rest.copy_to_bytes(bytes));
    page
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
        PagedBody::new(Script { turns: turns.iter().copied().collect(), given: Vec::new() }, PageBudget::default())
    }

    fn poll(paged: &mut PagedBody<Script>) -> Poll<Option<Result<DataPage, BodyError>>> {
        let mut cx = Context::from_waker(noop_waker_ref());
        let frame = Pin::new(paged).poll_frame(&mut cx);
        frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.into_data().expect("data"))))
    }

    /// Returns (bytes, slices) of each page; a pending poll is (0, 0).
    fn pages(turns: &[Turn]) -> Vec<(usize, usize)> {
        let (mut paged, mut seen, mut got) = (paged(turns), Vec::new(), Vec::new());
        while !paged.is_end_stream() {
            match poll(&mut paged) {
                Poll::Pending => seen.push((0, 0)),
                Poll::Ready(Some(Ok(mut page))) => {
                    seen.push((page.slices.bytes(), page.slices.len()));
                    got.extend_from_slice(&page.copy_to_bytes(page.remaining()));
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
            (&[Slices(3, PAGE_BYTES - 1)], &[(PAGE_BYTES, 2), (PAGE_BYTES, 2), (PAGE_BYTES - 3, 1)]),
            (&[Slices(100, small), Slices(100, small)], &[(PAGE_BYTES, 1), (200 * small - PAGE_BYTES, 1)]),
            (&[Slices(16, 10)], &[(160, 16)]),
            (&[Slices(17, 10)], &[(170, 1)]),
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
        let unsent = PageBudget::default();
        let mut held = Vec::new();
        for _ in 0..1_000 {
            let script = Script { turns: [Turn::Slices(4, PAGE_BYTES)].into(), given: Vec::new() };
            let mut body = PagedBody::new(script, unsent.clone());
            let Poll::Ready(Some(Ok(page))) = poll(&mut body) else { panic!("gives a page") };
            held.push(page);
        }
        let bytes: usize = held.iter().map(Buf::remaining).sum();
        assert!(bytes < HTTP2_UNSENT_BYTES + PAGE_BYTES + 1_000 * HTTP2_SMALL_PAGE_BYTES, "{bytes} bytes");
        assert_eq!(bytes, unsent.0.load(Ordering::Relaxed));
        drop(held);
        assert_eq!((unsent.0.load(Ordering::Relaxed), unsent.page_bytes()), (0, PAGE_BYTES));
    }

    #[test]
    fn a_body_that_is_cut_ends_with_nothing_more() {
        let mut paged = paged(&[Turn::Slices(1, 10), Turn::Cut]);
        assert!(matches!(poll(&mut paged), Poll::Ready(Some(Err(BodyError::Cut)))));
    }
}
