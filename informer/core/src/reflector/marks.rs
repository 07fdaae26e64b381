//! Where a stream of initial state can go on after it broke. The rules are those of `docs/resuming.md`.
//!
//! INVARIANT: a mark is of the state that the stage is of, and of one that is frozen. INVARIANT: half a state is never
//! taken for a whole one: what follows a mark counts only where the answer said that it goes on behind it.

use super::listing::Landmark;
use crate::{semantics, wire::marks::is_token};

/// Answers in a row without a new mark before the stage is given up.
const FRUITLESS_MAX: u32 = 3;

/// What is known about going on, over all answers that one stage is gathered from.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Marks {
    /// Whether they are asked for at all.
    wanted: bool,
    /// The last one: everything before it is in the stage.
    last: Option<Box<str>>,
    /// Whether the open answer was asked for with it.
    asked: bool,
    answer: Answer,
    /// Whether the open answer has sent an object.
    has_objects: bool,
    /// Whether it has sent a mark that is new.
    progressed: bool,
    /// Answers in a row that have not.
    fruitless: u32,
    /// A mark seen before. A server that goes in circles meets it again.
    landmark: Landmark,
}

/// What the open answer has said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Nothing: no headers yet.
    Awaited,
    /// Nothing about marks.
    Plain,
    /// It begins at the beginning, with marks.
    Begins,
    /// It goes on behind the mark asked with.
    GoesOn,
    /// Its marks are worth nothing: the state moves while it is sent.
    Moving,
}

/// What a mark came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// A place to go on from.
    Noted,
    /// Nothing.
    Ignored,
    /// The answer is the rest of a state that it did not announce, or goes in circles.
    Unusable,
}

impl Marks {
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            last: None,
            asked: false,
            answer: Answer::Awaited,
            has_objects: false,
            progressed: false,
            fruitless: 0,
            landmark: Landmark::default(),
        }
    }

    /// A request goes out. What it asks.
    pub(super) fn ask(&mut self) -> semantics::Marks {
        self.asked = self.last.is_some();
        (self.answer, self.has_objects, self.progressed) = (Answer::Awaited, false, false);
        match &self.last {
            _ if !self.wanted => semantics::Marks::Unwanted,
            None => semantics::Marks::New,
            Some(mark) => semantics::Marks::After(mark.to_string()),
        }
    }

    /// Whether the open answer was asked to go on.
    pub(super) const fn is_asked(&self) -> bool {
        self.asked
    }

    /// Whether the open answer has said anything.
    pub(super) const fn is_answered(&self) -> bool {
        !matches!(self.answer, Answer::Awaited)
    }

    /// Whether the open answer has sent a mark that is new.
    pub(super) const fn has_progressed(&self) -> bool {
        self.progressed
    }

    /// The answer begins at the beginning: of another state than that of the last mark.
    pub(super) fn begin(&mut self, with_marks: bool) {
        self.forget();
        self.answer = if with_marks && self.wanted { Answer::Begins } else { Answer::Plain };
    }

    /// The answer says that it goes on. Whether it was asked to.
    pub(super) const fn go_on(&mut self) -> bool {
        self.answer = Answer::GoesOn;
        self.asked
    }

    /// An object came; one that is not `added` shows that the state moves.
    pub(super) fn object(&mut self, added: bool) {
        self.has_objects = true;
        if !added {
            self.forget();
            self.answer = Answer::Moving;
        }
    }

    pub(super) fn take(&mut self, token: &str) -> Taken {
        let opens = !self.has_objects && !self.progressed;
        match self.answer {
            // The one that opens an answer that goes on, and no other answer has one there.
            Answer::GoesOn if opens && self.last.as_deref() == Some(token) => return Taken::Ignored,
            Answer::Awaited | Answer::Plain | Answer::Begins | Answer::GoesOn if opens => return Taken::Unusable,
            Answer::Awaited | Answer::Plain | Answer::Moving => return Taken::Ignored,
            Answer::GoesOn | Answer::Begins if !is_token(token) => return Taken::Ignored,
            Answer::GoesOn | Answer::Begins => {}
        }
        if self.landmark.is_met_by(token) {
            return Taken::Unusable;
        }
        self.last = Some(token.into());
        self.progressed = true;
        Taken::Noted
    }

    /// The answer ended, and another one could bring more.
    pub(super) fn end(&mut self) {
        self.fruitless = if self.progressed { 0 } else { self.fruitless + 1 };
        if self.fruitless >= FRUITLESS_MAX {
            self.forget();
        }
    }

    /// Whether there is a place to go on from.
    pub(super) const fn is_known(&self) -> bool {
        self.last.is_some()
    }

    /// What follows begins at the beginning.
    pub(super) fn forget(&mut self) {
        self.last = None;
        self.progressed = false;
        self.fruitless = 0;
        self.landmark = Landmark::default();
    }
}
