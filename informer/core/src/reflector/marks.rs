//! Resume points ("marks") of a stream of initial state. The rules are in `docs/resuming.md`.
//!
//! INVARIANT: a mark belongs to the state that the stage holds, which does not change. INVARIANT: an incomplete state
//! never passes for a complete one: objects behind a mark count only if the response announced that it resumes there.

use super::listing::Landmark;
use crate::{semantics, wire::marks::is_token};

/// Responses in a row without a new mark before the stage is dropped.
const FRUITLESS_MAX: u32 = 3;

/// Resume points of all responses that fill one stage.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct ResumePoints {
    /// True if the client requests marks.
    enabled: bool,
    /// The last mark: everything before it is in the stage.
    last: Option<Box<str>>,
    /// True if the open request contained the last mark.
    is_resuming: bool,
    answer: ResponseMarks,
    /// True if the open response has sent an object.
    has_objects: bool,
    /// True if the open response has sent a new mark.
    progressed: bool,
    /// Responses in a row that sent no new mark.
    fruitless: u32,
    /// A mark seen earlier, to detect a server whose marks repeat.
    landmark: Landmark,
}

/// Kind of the open response, as its headers and events announce it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseMarks {
    /// No headers yet.
    Awaited,
    /// Without marks.
    Plain,
    /// Starts from the beginning, with marks.
    Begins,
    /// Resumes behind the mark in the request.
    GoesOn,
    /// Its marks are useless, because the state changes while it is sent.
    Moving,
}

/// Result of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkResult {
    /// The stream can resume here.
    Noted,
    /// Ignored.
    Ignored,
    /// The response is the unannounced rest of a state, or its marks repeat.
    Unusable,
}

impl ResumePoints {
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            last: None,
            is_resuming: false,
            answer: ResponseMarks::Awaited,
            has_objects: false,
            progressed: false,
            fruitless: 0,
            landmark: Landmark::default(),
        }
    }

    /// Prepares a request. Returns the marks to request.
    pub(super) fn ask(&mut self) -> semantics::Marks {
        self.is_resuming = self.last.is_some();
        (self.answer, self.has_objects, self.progressed) = (ResponseMarks::Awaited, false, false);
        match &self.last {
            _ if !self.enabled => semantics::Marks::Unrequested,
            None => semantics::Marks::New,
            Some(mark) => semantics::Marks::After(mark.to_string()),
        }
    }

    /// Returns true if the open request contained a mark.
    pub(super) const fn is_resuming(&self) -> bool {
        self.is_resuming
    }

    /// Returns true if the open response has sent anything.
    pub(super) const fn is_answered(&self) -> bool {
        !matches!(self.answer, ResponseMarks::Awaited)
    }

    /// Returns true if the open response has sent a new mark.
    pub(super) const fn has_progressed(&self) -> bool {
        self.progressed
    }

    /// Notes a response that starts from the beginning, so its state is not the last mark's.
    pub(super) fn begin(&mut self, with_marks: bool) {
        self.forget();
        self.answer = if with_marks && self.enabled { ResponseMarks::Begins } else { ResponseMarks::Plain };
    }

    /// Notes a response that announces that it resumes. Returns true if the request contained a mark.
    pub(super) const fn go_on(&mut self) -> bool {
        self.answer = ResponseMarks::GoesOn;
        self.is_resuming
    }

    /// Notes an object. One that is not `added` shows that the state changes while it is sent.
    pub(super) fn object(&mut self, added: bool) {
        self.has_objects = true;
        if !added {
            self.forget();
            self.answer = ResponseMarks::Moving;
        }
    }

    pub(super) fn take(&mut self, token: &str) -> MarkResult {
        let opens = !self.has_objects && !self.progressed;
        match self.answer {
            // A resumed response begins with the mark it resumes from; no other response begins with a mark.
            ResponseMarks::GoesOn if opens && self.last.as_deref() == Some(token) => return MarkResult::Ignored,
            ResponseMarks::Awaited | ResponseMarks::Plain | ResponseMarks::Begins | ResponseMarks::GoesOn if opens => {
                return MarkResult::Unusable;
            }
            ResponseMarks::Awaited | ResponseMarks::Plain | ResponseMarks::Moving => return MarkResult::Ignored,
            ResponseMarks::GoesOn | ResponseMarks::Begins if !is_token(token) => return MarkResult::Ignored,
            ResponseMarks::GoesOn | ResponseMarks::Begins => {}
        }
        if self.landmark.is_met_by(token) {
            return MarkResult::Unusable;
        }
        self.last = Some(token.into());
        self.progressed = true;
        MarkResult::Noted
    }

    /// Notes the end of a response after which another one may bring more.
    pub(super) fn end(&mut self) {
        self.fruitless = if self.progressed { 0 } else { self.fruitless + 1 };
        if self.fruitless >= FRUITLESS_MAX {
            self.forget();
        }
    }

    /// Returns true if there is a mark to resume from.
    pub(super) const fn is_known(&self) -> bool {
        self.last.is_some()
    }

    /// Drops the marks: the next response starts from the beginning.
    pub(super) fn forget(&mut self) {
        self.last = None;
        self.progressed = false;
        self.fruitless = 0;
        self.landmark = Landmark::default();
    }
}
