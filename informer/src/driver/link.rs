//! The single request of a driver, from waiting for its permit to the end of its response.

use std::{future::pending, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use informer_core::{Request, reflector::Proof, store::Entry, wire::framer::Framer};
use tokio::sync::{AcquireError, OwnedSemaphorePermit};
use tracing::{Instrument as _, Span};

use crate::{
    error::Error,
    transport::{Answer, ResponseForm, Transport},
};

pub(super) enum Link {
    /// No request is open.
    Closed,
    /// A read of initial state waits for a permit of the cluster's relist budget.
    Queued {
        permit: BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>,
        /// The previous response, to be drained so that its connection can be reused.
        finished: Option<Answer>,
    },
    /// Sent; headers are outstanding.
    Sent(BoxFuture<'static, Result<Answer, Error>>),
    /// Accepted; the body is being read.
    Open { answer: Box<Answer>, framer: Box<Framer> },
    /// A stored object is being read to prove the history.
    Proving(BoxFuture<'static, Result<(Proof, Arc<Entry>), Error>>),
}

/// A network event.
pub(super) enum NetworkEvent {
    Granted(OwnedSemaphorePermit),
    Answered(Result<Answer, Error>),
    Chunk(Result<Option<Bytes>, Error>),
    Proved(Result<(Proof, Arc<Entry>), Error>),
}

impl Link {
    pub(super) fn sent(
        transport: Transport,
        request: Request,
        form: ResponseForm,
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

    /// Waits for the next network event; for ever if no request is open. Cancel safe.
    pub(super) async fn next(&mut self) -> NetworkEvent {
        match self {
            Self::Closed => pending().await,
            Self::Queued { permit, .. } => {
                NetworkEvent::Granted(permit.await.expect("the relist budget is never closed"))
            }
            Self::Sent(answer) => NetworkEvent::Answered(answer.await),
            Self::Open { answer, .. } => NetworkEvent::Chunk(answer.chunk().await),
            Self::Proving(proof) => NetworkEvent::Proved(proof.await),
        }
    }

    /// Returns the response if it is a list read to its end, or the one that was when a read was queued: draining the
    /// last bytes makes its connection reusable.
    pub(super) fn finished(self) -> Option<Answer> {
        match self {
            Self::Open { answer, mut framer } if answer.form() == ResponseForm::List => {
                framer.finish().is_ok().then_some(*answer)
            }
            Self::Queued { finished, .. } => finished,
            Self::Closed | Self::Sent(_) | Self::Open { .. } | Self::Proving(_) => None,
        }
    }
}
