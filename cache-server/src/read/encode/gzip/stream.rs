//! Gzip encoding of a watch that begins with the state.
//!
//! Objects of the state are compressed groups that all clients share. Events behind them are stored blocks, so a watch
//! has no compressor. INVARIANT: the stream is a single member, which ends with the watch. kube-apiserver 1.37 begins a
//! member at each flush, and some decoders refuse all but the first.

use std::task::{Context, Poll, ready};

use futures::{FutureExt as _, future::BoxFuture};
use watch_cache::{Cursor, ObjectGroup, Slices, Step};

use super::{GroupContent, GzipMember, HEADER};
use crate::{limits::GZIP_BYTES_MIN, read::aside};

/// Encoder of one compressed watch.
pub(crate) struct GzipStream {
    member: GzipMember,
    /// The next objects of the state; `None` behind it, and while a blocking thread has them.
    group: Option<ObjectGroup>,
    /// Step of the cursor behind a group that is being encoded or was encoded aside.
    deferred: Option<Step>,
    slow: Option<BoxFuture<'static, Option<(ObjectGroup, GroupContent)>>>,
    /// Content of the group, if it was encoded aside.
    encoded: Option<GroupContent>,
    /// True until the state was written.
    is_initial: bool,
    /// True if the last step compressed objects.
    has_compressed: bool,
    /// Objects in `out`.
    count: u64,
    /// Bytes to send.
    out: Slices,
}

impl GzipStream {
    /// Creates an encoder; `None` if the state of `cursor` is short, and for rows, whose text depends on the time.
    pub(crate) fn of(cursor: &Cursor) -> Option<Self> {
        let group = ObjectGroup::of_added(cursor.form()).filter(|_| cursor.has_initial_bytes(GZIP_BYTES_MIN))?;
        let (mut out, deferred, slow, encoded) = (Slices::new(), None, None, None);
        out.push_static(HEADER);
        let (member, group, is_initial, has_compressed) = (GzipMember::default(), Some(group), true, false);
        Some(Self { member, group, deferred, slow, encoded, is_initial, has_compressed, count: 0, out })
    }

    /// True until the state was written.
    pub(crate) const fn is_initial(&self) -> bool {
        self.is_initial
    }

    /// Returns pending while objects are encoded aside, and once after some were compressed here, so that other tasks
    /// get their turn. Call before [`Self::step`].
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(slow) = &mut self.slow {
            (self.group, self.encoded) = ready!(slow.poll_unpin(cx)).unzip();
            self.slow = None;
        }
        if std::mem::take(&mut self.has_compressed) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Writes the next objects of the state, like [`Cursor::step`].
    pub(crate) fn step(&mut self, cursor: &mut Cursor) -> Step {
        // The thread panicked.
        let Some(group) = &mut self.group else { return Step::EpochEnded };
        let step = self.deferred.take().unwrap_or_else(|| {
            let step = cursor.visit_initial(|entry| !group.push(entry));
            if matches!(step, Step::InitialDone(_)) && !group.objects().is_empty() {
                group.complete();
            }
            self.deferred = (group.is_complete() && group.is_slow()).then_some(step);
            step
        });
        if self.deferred.is_some() {
            self.slow = self.group.take().map(encoded_aside);
            return Step::Sent;
        }
        if group.is_complete() {
            self.write_group(cursor);
        }
        if matches!(step, Step::InitialDone(_)) {
            (self.is_initial, self.group) = (false, None);
        }
        step
    }

    fn write_group(&mut self, cursor: &mut Cursor) {
        let Self { member, group: Some(group), encoded, has_compressed, out, .. } = self else { return };
        let content = encoded.take().unwrap_or_else(|| GroupContent::of(group, has_compressed));
        if matches!(content, GroupContent::Stored(_, false)) {
            // The cursor learns which object failed.
            let mut text = Slices::new();
            group.objects().iter().for_each(|entry| cursor.push_initial(entry, &mut text));
        }
        member.group(content, out);
        self.count += group.objects().len() as u64;
        group.clear();
    }

    /// Returns true if objects were written since [`Self::take`].
    pub(crate) const fn has_output(&self) -> bool {
        0 < self.count
    }

    /// Returns the bytes to send: those of the state, then `events`, and the end of the member if the watch is over; and
    /// the number of objects of the state in them.
    pub(crate) fn take(&mut self, events: &Slices, is_over: bool) -> (Slices, u64) {
        let mut out = std::mem::take(&mut self.out);
        if !events.is_empty() {
            self.member.stored(events, &mut out);
            GzipMember::flush(&mut out);
        }
        if is_over {
            self.member.end(&mut out);
        }
        (out, std::mem::take(&mut self.count))
    }
}

/// Encodes a group with a long object on another thread.
fn encoded_aside(group: ObjectGroup) -> BoxFuture<'static, Option<(ObjectGroup, GroupContent)>> {
    let encode = move || {
        let content = GroupContent::of(&group, &mut false);
        (group, content)
    };
    aside::run(encode).boxed()
}
