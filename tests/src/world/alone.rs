//! Drives one session, as shipped, against a server that answers every request in one way, and records its requests and
//! their times.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use informer_core::{
    Read, Time,
    endpoints::{self, Endpoints},
    object::Meta,
    reflector::{self, Proof, Testimony, Verdict},
    session::{Session, SessionAction, SessionInput},
    store,
};

use super::{
    node::Verdicts,
    replica::Replica,
    wire::{Told, json, told},
};
use crate::{api::Fact, model::Object};

/// Bound on the recorded requests.
const REQUESTS_MAX: usize = 1_000;

/// A request of the session.
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
/// a pause. A saved position comes with one stored object, and each proof finds that object unchanged. Ends early at a
/// thousand requests (`REQUESTS_MAX`), which no test allows.
pub fn requests(
    config: reflector::Config,
    span: Duration,
    answer: impl Fn(&ReflectorRequest) -> Vec<(Duration, Fact)>,
) -> Vec<(Time, ReflectorRequest)> {
    let mut client = LoneClient::new(config);
    client.session.handle(client.now, SessionInput::Start);
    while client.now <= Time(span) && client.sent.len() < REQUESTS_MAX {
        client.obey(&answer);
        if !client.step() {
            break;
        }
    }
    client.sent
}

/// The object that comes with a position saved at this version.
pub fn saved_object(version: u64) -> Object {
    Object { key: "prod/pod-0".into(), uid: "0".into(), version, written_in: 0 }
}

/// A session with the response that it reads.
struct LoneClient {
    session: Session<Replica, Verdicts>,
    now: Time,
    sent: Vec<(Time, ReflectorRequest)>,
    /// The rest of the open response.
    facts: VecDeque<(Time, Fact)>,
    /// The object of the open proof.
    witness: Option<Arc<store::Entry>>,
}

impl LoneClient {
    fn new(config: reflector::Config) -> Self {
        let endpoints = Endpoints::new(1, endpoints::Config::default(), config.seed);
        let verdicts = Verdicts(vec![Verdict::default()]);
        let saved = config.resume.clone();
        let mut session = Session::new(config, None, endpoints, verdicts, Replica::default());
        if let Some(position) = saved {
            let version = position.as_u64().expect("a saved position of a test is a number");
            let object = json(&saved_object(version));
            let meta = Meta::read(&object).expect("a valid object");
            session.sink_mut().store.restore([(meta, object.as_slice())], Some(position));
        }
        Self { session, now: Time::ZERO, sent: Vec::new(), facts: VecDeque::new(), witness: None }
    }

    /// Carries out the session's actions. The relist budget always has a permit.
    fn obey(&mut self, answer: &impl Fn(&ReflectorRequest) -> Vec<(Duration, Fact)>) {
        while let Some(action) = self.session.poll_action() {
            match action {
                SessionAction::Queue { .. } => self.session.handle(self.now, SessionInput::Granted),
                SessionAction::Send { read, .. } => self.send(ReflectorRequest::Read(read), answer),
                SessionAction::Prove { witness, .. } => {
                    self.send(ReflectorRequest::Object, answer);
                    self.witness = Some(witness);
                }
                SessionAction::Close => self.facts.clear(),
                SessionAction::Release | SessionAction::Report(_) => {}
            }
        }
    }

    fn send(&mut self, asked: ReflectorRequest, answer: &impl Fn(&ReflectorRequest) -> Vec<(Duration, Fact)>) {
        let mut at = self.now;
        self.facts = answer(&asked)
            .into_iter()
            .map(|(pause, fact)| {
                at = at + pause;
                (at, fact)
            })
            .collect();
        self.sent.push((self.now, asked));
    }

    /// Moves to the next fact or timer and tells the session. Returns false if there is neither.
    fn step(&mut self) -> bool {
        let Some(due) = self.session.poll_timeout() else { return false };
        match self.facts.pop_front_if(|(at, _)| *at <= due) {
            Some((at, fact)) => {
                self.now = at;
                self.hear(&fact);
            }
            None => {
                self.now = due;
                self.session.handle(due, SessionInput::TimedOut);
            }
        }
        true
    }

    fn hear(&mut self, fact: &Fact) {
        match told(fact) {
            Told::Input(input) => self.session.handle(self.now, input),
            Told::Frame(frame) => self.session.handle_frame(self.now, frame.borrow()).expect("a valid frame"),
            Told::Found(_) => {
                let witness = self.witness.take().expect("only what was requested is found");
                let testimony = Testimony { proof: Proof::Same, key: witness.key(), uid: witness.uid() };
                self.session.handle(self.now, SessionInput::Proved(testimony));
            }
        }
    }
}
