//! One reflector against a server that answers each request in the same way: what it asks for, and when.

use std::{collections::VecDeque, time::Duration};

use informer_core::{
    Read, Time,
    reflector::{self, Action, Input, Reflector},
};

use super::wire::tell_fact;
use crate::api::Fact;

/// Requests at which counting ends.
const REQUESTS_MAX: usize = 1_000;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A list or a watch.
    Read(Read),
    /// One stored object, to prove a position.
    Object,
}

impl Asked {
    /// Whether it asks for initial state.
    pub const fn is_initial(&self) -> bool {
        match self {
            Self::Read(read) => read.is_initial(),
            Self::Object => false,
        }
    }
}

/// What `config` asks for during `span` of a server that answers each request with the same facts, each after a pause;
/// and when. Ends early at a thousand requests, which no test allows.
pub fn requests(
    config: reflector::Config,
    span: Duration,
    answer: impl Fn(&Asked) -> Vec<(Duration, Fact)>,
) -> Vec<(Time, Asked)> {
    let mut reflector = Reflector::new(config);
    let mut now = Time::ZERO;
    let mut sent = Vec::new();
    let mut facts: VecDeque<(Time, Fact)> = VecDeque::new();
    reflector.handle(now, Input::Start);
    while now <= Time(span) && sent.len() < REQUESTS_MAX {
        while let Some(action) = reflector.poll_action() {
            let asked = match action {
                Action::Send(read) => Asked::Read(read),
                Action::Prove { .. } => Asked::Object,
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
