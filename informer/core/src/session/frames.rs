//! Frames of a response: reads the metadata of each object and hands it to the reflector.

use crate::{
    ResourceVersion, limits,
    object::Meta,
    reflector::{Input, ObservedKind, ObservedObject},
    time::Time,
    wire::{
        framer::{Frame, SkippedObject},
        marks,
        watch_event::EventKind,
    },
};

use super::{BadFrame, Order, Session, SessionReport, Sink, UnreadableCause, VerdictTable};

/// The object just received, for the orders the reflector gives about it.
#[derive(Clone, Copy)]
pub(super) struct ReceivedObject<'a> {
    // For a skipped object, JSON of its names only.
    json: &'a [u8],
    meta: &'a Meta<'a>,
    is_skipped: bool,
    /// True if another shard has it: only its position counts.
    pub(super) is_elsewhere: bool,
}

/// The object that the reflector orders something about.
pub(super) const fn given(object: Option<ReceivedObject<'_>>) -> ReceivedObject<'_> {
    object.expect("the reflector orders this about the object just handed in")
}

impl<'a> ReceivedObject<'a> {
    pub(super) const fn init_apply(self) -> Order<'a> {
        if self.is_skipped { Order::Skip(self.json, self.meta) } else { Order::InitApply(self.json, self.meta) }
    }

    pub(super) const fn apply(self) -> Order<'a> {
        if self.is_skipped { Order::Skip(self.json, self.meta) } else { Order::Apply(self.json, self.meta) }
    }

    pub(super) const fn delete(self) -> Order<'a> {
        Order::Delete(self.json, self.meta)
    }
}

impl<S: Sink, V: VerdictTable> Session<S, V> {
    /// Handles one complete frame of the open response. Afterwards drain [`Self::poll_action`]; after an action that
    /// drops the response, the rest of it must not be handed in.
    ///
    /// # Errors
    /// The error the frame carries, or a violation of the protocol. Report it with
    /// [`SessionInput::Ended`](super::SessionInput::Ended).
    pub fn handle_frame(&mut self, now: Time, frame: Frame<'_>) -> Result<(), BadFrame> {
        match frame {
            Frame::Item(object) => self.on_object(now, ObservedKind::Item, object),
            Frame::Skipped(skipped) => self.on_skipped(now, &skipped)?,
            Frame::Event { kind, object } => match kind {
                EventKind::Added => self.on_object(now, ObservedKind::Added, object),
                EventKind::Modified => self.on_object(now, ObservedKind::Modified, object),
                EventKind::Deleted => self.on_object(now, ObservedKind::Deleted, object),
                EventKind::Bookmark => self.on_bookmark(now, object),
                EventKind::Error => return Err(BadFrame::read(object)),
                EventKind::Other => self.tell(now, Input::Ignored),
            },
            Frame::ListEnd(end) => {
                self.is_sign = true;
                let resource_version = &end.resource_version;
                let continue_token = end.continue_token.as_deref();
                self.reflector.handle(now, Input::PageEnd { resource_version, continue_token });
                if !self.follow(now, None).has_request {
                    // The list is complete and no request follows it now.
                    self.close();
                    self.give_back();
                }
            }
            Frame::Status(status) => return Err(BadFrame::read(status)),
        }
        self.confirm(now);
        Ok(())
    }

    fn on_object(&mut self, now: Time, change: ObservedKind, object: &[u8]) {
        self.on_any_object();
        let meta = match Meta::read_lenient(object) {
            Ok(meta) if !meta.name.is_empty() => meta,
            Ok(meta) => return self.on_nameless(now, meta.key()),
            Err(_) => return self.on_nameless(now, String::new()),
        };
        self.is_sign = true;
        meta.write_key(&mut self.key);
        if ResourceVersion::parse(&meta.resource_version).is_err() {
            self.unreadable(self.key.clone(), UnreadableCause::Unversioned);
        }
        let is_elsewhere = self.observe(now, change, &meta);
        self.key.shrink_to(limits::KEY_KEEP_BYTES);
        self.follow(now, Some(ReceivedObject { json: object, meta: &meta, is_skipped: false, is_elsewhere }));
    }

    fn on_any_object(&mut self) {
        if !self.has_first_object {
            self.has_first_object = true;
            self.report(SessionReport::FirstObject);
        }
    }

    /// Reported as a sign of life: an object without a name must not stop the others. It confirms no state.
    fn on_nameless(&mut self, now: Time, key: String) {
        self.unreadable(key, UnreadableCause::Nameless);
        self.tell(now, Input::Ignored);
    }

    /// Hands the object named by `self.key` to the reflector. Returns true if another shard has it.
    fn observe(&mut self, now: Time, change: ObservedKind, meta: &Meta<'_>) -> bool {
        let is_elsewhere = self.shard.as_ref().is_some_and(|shard| !shard.matches(&meta.uid, &meta.namespace));
        let resource_version = &*meta.resource_version;
        let mut observed = ObservedObject { change, key: &self.key, uid: &meta.uid, resource_version, is_news: true };
        if self.reflector.is_behind(resource_version) {
            // The copy has no object of another shard, and so cannot tell whether this one is news.
            observed.is_news = !is_elsewhere && self.sink.is_news(&observed);
        }
        self.reflector.handle(now, Input::Object(observed));
        is_elsewhere
    }

    /// Handles an object the framer skipped. If its position is readable, the reflector advances to it as with any
    /// other object; only the names of the object stay, because its stored state is stale.
    fn on_skipped(&mut self, now: Time, skipped: &SkippedObject) -> Result<(), BadFrame> {
        let change = match skipped.kind {
            None => ObservedKind::Item,
            Some(EventKind::Added) => ObservedKind::Added,
            Some(EventKind::Modified) => ObservedKind::Modified,
            Some(EventKind::Deleted) => ObservedKind::Deleted,
            Some(EventKind::Error) => return Err(BadFrame::Malformed),
            Some(EventKind::Bookmark | EventKind::Other) => {
                self.tell(now, Input::Ignored);
                return Ok(());
            }
        };
        self.on_any_object();
        let meta = skipped.meta();
        let (at, reason) = (skipped.at, skipped.reason);
        if meta.name.is_empty() {
            let is_known = matches!(change, ObservedKind::Modified | ObservedKind::Deleted);
            self.unreadable(meta.key(), UnreadableCause::Skipped { reason, at, is_stale: !is_known });
            if is_known {
                // Which stored object is stale is unknown, so the response cannot be trusted from here on.
                return Err(BadFrame::Unidentified { at });
            }
            self.tell(now, Input::Ignored);
            return Ok(());
        }
        self.is_sign = true;
        meta.write_key(&mut self.key);
        // An object whose uid was not readable may be of this shard, and its stored state stale.
        let is_elsewhere = self.observe(now, change, &meta) && !meta.uid.is_empty();
        let json = skipped.json();
        let object = ReceivedObject { json: json.as_bytes(), meta: &meta, is_skipped: true, is_elsewhere };
        let is_stale = self.follow(now, Some(object)).has_stale_object;
        self.unreadable(meta.key(), UnreadableCause::Skipped { reason, at, is_stale });
        Ok(())
    }

    fn unreadable(&mut self, key: String, cause: UnreadableCause) {
        self.report(SessionReport::Unreadable { key, cause });
    }

    /// Returns true if a stored object is stale now.
    pub(super) fn give_object(&mut self, now: Time, order: Order<'_>) -> bool {
        let is_stale = matches!(order, Order::Skip(..));
        self.give(now, order);
        is_stale
    }

    pub(super) fn give(&mut self, now: Time, order: Order<'_>) {
        let meta = order.meta();
        if let Err(error) = self.sink.take(now, order) {
            self.unreadable(meta.map(Meta::key).unwrap_or_default(), UnreadableCause::Dropped(error));
        }
    }

    fn on_bookmark(&mut self, now: Time, object: &[u8]) {
        self.is_sign = true;
        match Meta::read(object) {
            Ok(meta) => match marks::token(object, &meta) {
                Some(token) => self.tell(now, Input::Mark { token: &token }),
                None => {
                    let initial_events_end = meta.initial_events_end;
                    let resource_version = &meta.resource_version;
                    self.tell(now, Input::Bookmark { resource_version, initial_events_end });
                }
            },
            Err(_) => self.tell(now, Input::Ignored),
        }
    }
}
