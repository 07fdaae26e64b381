//! The one request of a driver, from waiting for its turn to the end of its answer.

use std::{future::pending, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use informer_core::{Read, Request, reflector::Proof, store::Entry, wire::framer::Framer};
use tokio::sync::{AcquireError, OwnedSemaphorePermit};
use tracing::{Instrument as _, Span};

use crate::{
    error::Error,
    transport::{Answer, Form, Transport},
};

pub(super) enum Link {
    /// Nothing is asked.
    Closed,
    /// A read of initial state waits for the cluster's relist budget.
    Queued {
        read: Read,
        permit: BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>,
        /// The answer before, for its connection.
        finished: Option<Answer>,
    },
    /// Sent, and no headers yet.
    Sent(BoxFuture<'static, Result<Answer, Error>>),
    /// Accepted.
    Open { answer: Box<Answer>, framer: Box<Framer> },
    /// One object is read, to prove a history.
    Proving(BoxFuture<'static, Result<(Proof, Arc<Entry>), Error>>),
}

/// What the network did.
pub(super) enum Happened {
    Granted(OwnedSemaphorePermit),
    Answered(Result<Answer, Error>),
    Chunk(Result<Option<Bytes>, Error>),
    Proved(Result<(Proof, Arc<Entry>), Error>),
}

impl Link {
    pub(super) fn sent(
        transport: Transport,
        request: Request,
        form: Form,
        finished: Option<Answer>,
        span: &Span,
    ) -> Self {
        let sent = async move {
            if let Some(answer) = finished {
                answer.drain().await;
            }
            transport.send(request, form).await
        };
        Self::Sent(Box::pin(sent.instrument(span.clone())))
    }

    /// The next thing that happens; never, when nothing is asked. Cancel safe.
    pub(super) async fn next(&mut self) -> Happened {
        match self {
            Self::Closed => pending().await,
            Self::Queued { permit, .. } => Happened::Granted(permit.await.expect("the relist budget is never closed")),
            Self::Sent(answer) => Happened::Answered(answer.await),
            Self::Open { answer, .. } => Happened::Chunk(answer.chunk().await),
            Self::Proving(proof) => Happened::Proved(proof.await),
        }
    }

    /// The answer, when it is a list that was read to its end: a few bytes more, and its connection can be used again.
    pub(super) fn finished(self) -> Option<Answer> {
        match self {
            Self::Open { answer, mut framer } if answer.form() == Form::List => {
                framer.finish().is_ok().then_some(*answer)
            }
            Self::Closed | Self::Queued { .. } | Self::Sent(_) | Self::Open { .. } | Self::Proving(_) => None,
        }
    }
}
