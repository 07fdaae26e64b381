//! The seats of one request.

use std::{sync::Arc, time::Duration};

use access_rules::flow::{
    levels::LevelId,
    queues::{FlowTicket, RefusalReason, SeatGrant},
};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{
    FlowControl,
    hold::SeatTerms,
    rules::{FlowHeaders, SchemaRules},
};

/// Outcome of a request's arrival.
pub enum FlowAdmission {
    /// It has its seats.
    Seated(Seat),
    /// It waits for them.
    Waits(SeatWait),
    /// It is refused.
    Refused(Box<(Arc<SchemaRules>, RefusalReason)>),
}

/// The answer to a request that got no seats.
#[derive(Debug)]
pub struct FlowRefusal {
    /// Seconds after which the client may try again.
    pub retry_after: u64,
    pub headers: FlowHeaders,
}

/// The seats of a request, given back when it is dropped.
pub struct Seat {
    flow: Arc<FlowControl>,
    schema: Arc<SchemaRules>,
    /// Seats, and the time at which they were granted; `None` for exempt requests, and after the seats were given back.
    grant: Option<(LevelId, SeatGrant, Instant)>,
    width: u32,
}

impl Seat {
    pub(super) fn exempt(flow: &Arc<FlowControl>, schema: &Arc<SchemaRules>) -> Self {
        schema.measures.begin(1);
        Self { flow: Arc::clone(flow), schema: Arc::clone(schema), grant: None, width: 1 }
    }

    /// Seats that were granted after `waited`.
    pub(super) fn granted(
        flow: &Arc<FlowControl>,
        schema: &Arc<SchemaRules>,
        level: LevelId,
        grant: SeatGrant,
        waited: Duration,
    ) -> Self {
        let width = grant.width();
        schema.measures.begin(width);
        schema.measures.waited(waited, true);
        let (flow, schema) = (Arc::clone(flow), Arc::clone(schema));
        Self { flow, schema, grant: Some((level, grant, Instant::now())), width }
    }

    /// Returns true if the request needs no seats.
    pub const fn is_exempt(&self) -> bool {
        self.grant.is_none()
    }

    /// Returns the headers of the response.
    pub fn headers(&self) -> FlowHeaders {
        self.schema.headers.clone()
    }

    pub(super) const fn flow(&self) -> &Arc<FlowControl> {
        &self.flow
    }

    /// Returns what is needed to take the seats again; `None` for exempt requests.
    pub(super) fn terms(&self) -> Option<SeatTerms> {
        let (level, grant, _) = self.grant.as_ref()?;
        Some(SeatTerms { schema: Arc::clone(&self.schema), level: *level, flow: grant.flow(), width: self.width })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let measures = &self.schema.measures;
        measures.end(self.width);
        match self.grant.take() {
            Some((level, grant, since)) => {
                measures.executed(since.elapsed());
                self.flow.finish(level, grant);
            }
            // Not timed: the clock and the histogram cost more than all else.
            None => self.flow.exempt.end(),
        }
    }
}

/// A request that waits for seats. Leaves its queue when it is dropped.
pub struct SeatWait {
    flow: Arc<FlowControl>,
    schema: Arc<SchemaRules>,
    key: (LevelId, FlowTicket),
    width: u32,
    since: Instant,
    /// `None` once the grant was received.
    granted: Option<oneshot::Receiver<SeatGrant>>,
}

impl SeatWait {
    pub(super) fn new(
        flow: &Arc<FlowControl>,
        schema: &Arc<SchemaRules>,
        key: (LevelId, FlowTicket),
        width: u32,
        granted: oneshot::Receiver<SeatGrant>,
    ) -> Self {
        schema.measures.enqueued(width);
        let (flow, schema, since) = (Arc::clone(flow), Arc::clone(schema), Instant::now());
        Self { flow, schema, key, width, since, granted: Some(granted) }
    }

    /// Waits for the seats, at most for `limit`.
    ///
    /// # Errors
    /// The refusal of a request that waited too long.
    pub async fn seated(mut self, limit: Duration) -> Result<Seat, FlowRefusal> {
        let granted = match &mut self.granted {
            Some(granted) => timeout(limit, granted).await,
            None => unreachable!("the grant is received once"),
        };
        match granted {
            Ok(Ok(grant)) => {
                self.granted = None;
                Ok(Seat::granted(&self.flow, &self.schema, self.key.0, grant, self.since.elapsed()))
            }
            // Only the cancellation of `self` drops the sender.
            Ok(Err(_)) | Err(_) => Err(self.flow.refuse(&self.schema, RefusalReason::TimeOut)),
        }
    }
}

impl Drop for SeatWait {
    fn drop(&mut self) {
        self.schema.measures.dequeued(self.width);
        let Some(granted) = &mut self.granted else { return };
        self.schema.measures.waited(self.since.elapsed(), false);
        if !self.flow.cancel(self.key)
            && let Ok(grant) = granted.try_recv()
        {
            self.flow.finish(self.key.0, grant);
        }
    }
}
