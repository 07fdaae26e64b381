//! History proof: reads one stored object again to learn whether the server still has the known history. INVARIANT:
//! memory is bounded by one object.

use std::{sync::Arc, time::Duration};

use informer_core::{
    Request, Resource, ResourceVersion,
    object::Meta,
    proof,
    reflector::{Proof, ProofBy},
    session::BadFrame,
    store::Entry,
    wire::framer::{Frame, FrameError, Framer, FramerConfig, Shape},
};
use tokio::time::timeout;

use crate::{
    error::{Error, Kind},
    transport::{Answer, ResponseForm, Transport},
};

/// The object to read, and the position to judge the response against.
pub(super) struct Question {
    pub(super) witness: Arc<Entry>,
    /// The position whose history is in question.
    pub(super) at: ResourceVersion,
    pub(super) by: ProofBy,
    pub(super) object_bytes_max: usize,
    /// Longest time for the response's body.
    pub(super) patience: Duration,
}

impl Question {
    pub(super) fn request(&self, resource: &Resource) -> Request {
        let (namespace, name) = (self.witness.namespace(), self.witness.name());
        match self.by {
            ProofBy::Get => Request::object(resource, namespace, name, &self.at),
            ProofBy::List => Request::named(resource, namespace, name, &self.at),
        }
    }

    /// Sends `request` and judges the response. Returns the witness with the proof.
    pub(super) async fn ask(self, transport: Transport, request: Request) -> Result<(Proof, Arc<Entry>), Error> {
        let proof = self.answer(transport, request).await?;
        Ok((proof, self.witness))
    }

    async fn answer(&self, transport: Transport, request: Request) -> Result<Proof, Error> {
        let form = match self.by {
            ProofBy::Get => ResponseForm::Object,
            ProofBy::List => ResponseForm::List,
        };
        let answer = match transport.send(request.clone(), form).await {
            Ok(answer) => answer,
            Err(error) if error.code() == Some(404) => return Ok(proof::compare(&self.witness, &self.at, None)),
            Err(error) => return Err(error),
        };
        match timeout(self.patience, self.check(answer)).await {
            Ok(proof) => proof,
            Err(_) => Err(Error::new(Kind::Silent, Some(&request))),
        }
    }

    async fn check(&self, mut answer: Answer) -> Result<Proof, Error> {
        match self.by {
            ProofBy::Get => self.check_object(&mut answer).await,
            ProofBy::List => self.check_list(&mut answer).await,
        }
    }

    async fn check_object(&self, answer: &mut Answer) -> Result<Proof, Error> {
        let mut object = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            if object.len() + chunk.len() > self.object_bytes_max {
                let error = FrameError::TooLarge { limit: self.object_bytes_max };
                return Err(Error::new(Kind::Frame(error), Some(answer.request())));
            }
            object.extend_from_slice(&chunk);
        }
        self.check_found(&object).map_err(|kind| Error::new(kind, Some(answer.request())))
    }

    /// Judges the first item of a list. The server may ignore `limit=1`; the rest is not read.
    async fn check_list(&self, answer: &mut Answer) -> Result<Proof, Error> {
        let mut framer = Framer::new(FramerConfig {
            shape: Shape::List,
            cut: Vec::new(),
            object_bytes_max: self.object_bytes_max,
            type_meta: None,
        });
        let judged = loop {
            let Some(chunk) = answer.chunk().await? else {
                break Err(framer.finish().map_or_else(Kind::Frame, |()| Kind::Malformed));
            };
            match framer.next(&mut &chunk[..]) {
                Ok(None) => {}
                Ok(Some(Frame::Item(object))) => break self.check_found(object),
                // The proof reads names and versions only, which a skipped object still has.
                Ok(Some(Frame::Skipped(skipped))) => break self.check_found(skipped.json().as_bytes()),
                Ok(Some(Frame::ListEnd(_))) => break Ok(proof::compare(&self.witness, &self.at, None)),
                Ok(Some(Frame::Status(status))) => break Err(BadFrame::read(status).into()),
                Ok(Some(Frame::Event { .. })) => break Err(Kind::Malformed),
                Err(error) => break Err(Kind::Frame(error)),
            }
        };
        judged.map_err(|kind| Error::new(kind, Some(answer.request())))
    }

    fn check_found(&self, object: &[u8]) -> Result<Proof, Kind> {
        let meta = Meta::read(object).map_err(|_| Kind::Malformed)?;
        Ok(proof::compare(&self.witness, &self.at, Some(&meta)))
    }
}
