//! Drives one reflector against a server that answers every request in one way, and records its requests and their
//! times.

use std::{collections::VecDeque, time::Duration};

use informer_core::{
    Read, Time,
    reflector::{self, Action, Input, Reflector},
};

use super::wire::tell_fact;
use crate::api::Fact;

/// Bound on the recorded requests.
const REQUESTS_MAX: usize = 1_000;

/// A request of the reflector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReflectorRequest {
    /// A list or a watch.
    Read(Read),
    /// One stored object, to prove a position.
    Object,
}

impl ReflectorRequest {
    /// Returns true if it requests initial state.
    pub const fn is_initial(&self) -> bool {
        match self {
            Self::Read(read) => read.is_initial(),
            Self::Object => false,
        }
    }
}

/// Requests that `config` sends during `span`, with their times. `answer` gives the facts for each request, each after
/// a pause. Ends early at a thousand requests (`REQUESTS_MAX`), which no test allows.
pub fn requests(
    config: reflector::Config,
    span: Duration,
    answer: impl Fn(&ReflectorRequest) -> Vec<(Duration, Fact)>,
) -> Vec<(Time, ReflectorRequest)> {
    let mut reflector = Reflector::new(config);
    let mut now = Time::ZERO;
    let mut sent = Vec::new();
    let mut facts: VecDeque<(Time, Fact)> = VecDeque::new();
    reflector.handle(now, Input::Start);
    while now <= Time(span) && sent.len() < REQUESTS_MAX {
        while let Some(action) = reflector.poll_action() {
            let asked = match action {
                Action::Send(read) => ReflectorRequest::Read(read),
                Action::Prove { .. } => ReflectorRequest::Object,
                Action::Close => {
                    facts.clear();
                    continue;
                }
                Action::Init { .. }
                | Action::Refuse
                | Action::Restored
                | Action::InitApply
                | Action::InitDone(_)
                | Action::Apply
                | Action::Delete
                | Action::Bookmark(_)
                | Action::Abandon
                | Action::Report(_) => continue,
            };
            let mut at = now;
            facts.clear();
            facts.extend(answer(&asked).into_iter().map(|(pause, fact)| {
                at = at + pause;
                (at, fact)
            }));
            sent.push((now, asked));
        }
        let Some(due) = reflector.poll_timeout() else { break };
        match facts.pop_front() {
            Some((at, fact)) if at <= due => {
                now = at;
                tell_fact(&mut reflector, now, &fact, true);
            }
            later => {
                if let Some(later) = later {
                    facts.push_front(later);
                }
                now = due;
                reflector.handle(now, Input::TimedOut);
            }
        }
    }
    sent
}
