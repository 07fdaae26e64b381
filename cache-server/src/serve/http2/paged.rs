//! Splits a response body into pages, each of which is one frame, one TLS record and one write.
//!
//! INVARIANT: paging does not change the bytes, and available bytes are never held back to fill a page.
//!
//! hyper writes each frame by itself, with few I/O vectors per write. Therefore many small slices are copied into one,
//! which costs a microsecond, and a few large ones are sent as they are.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Buf as _;
use http_body::{Body, Frame, SizeHint};
use watch_cache::Slices;

use crate::http::body::BodyError;

/// Bytes of a full page. With its frame head it is the largest TLS record, and every client accepts frames of this
/// size.
pub(super) const PAGE_BYTES: usize = (16 << 10) - FRAME_HEAD_BYTES;

/// Length of a frame head.
const FRAME_HEAD_BYTES: usize = 9;

/// Slices per write: `bytes::Take`, which holds the payload of a frame, passes at most this many on.
const SLICES_MAX: usize = 16;

/// A body in pages.
pub(super) struct PagedBody<B = crate::http::body::Body> {
    body: B,
    /// Bytes of the body that are in no page yet.
    rest: Slices,
}

impl<B> PagedBody<B> {
    pub(super) const fn new(body: B) -> Self {
        Self { body, rest: Slices::new() }
    }
}

impl<B: Body<Data = Slices, Error = BodyError> + Unpin> Body for PagedBody<B> {
    type Data = Slices;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BodyError>>> {
        let Self { body, rest } = &mut *self;
        while rest.bytes() < PAGE_BYTES && !body.is_end_stream() {
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
        let page = (!rest.is_empty()).then(|| Ok(Frame::data(page(rest))));
        Poll::Ready(page)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.body.size_hint().exact();
        length.map_or_else(SizeHint::default, |length| SizeHint::with_exact(length + self.rest.bytes() as u64))
    }
}

/// Splits the next page off `rest`.
fn page(rest: &mut Slices) -> Slices {
    let bytes = rest.bytes().min(PAGE_BYTES);
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
        PagedBody::new(Script { turns: turns.iter().copied().collect(), given: Vec::new() })
    }

    fn poll(paged: &mut PagedBody<Script>) -> Poll<Option<Result<Slices, BodyError>>> {
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
                    seen.push((page.bytes(), page.len()));
                    got.extend_from_slice(&page.copy_to_bytes(page.bytes()));
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

    #[test]
    fn a_body_that_is_cut_ends_with_nothing_more() {
        let mut paged = paged(&[Turn::Slices(1, 10), Turn::Cut]);
        assert!(matches!(poll(&mut paged), Poll::Ready(Some(Err(BodyError::Cut)))));
    }
}
