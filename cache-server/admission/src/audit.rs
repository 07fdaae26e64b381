//! Audit log: a record of each request at each stage, written by a thread of its own.
//!
//! INVARIANT: a request that arrived has a last record however it ends: answered, refused, its client gone in any phase, or
//! its handler panicked. INVARIANT: neither a slow nor a full disk stops the server: records that cannot be written are
//! counted. INVARIANT: bodies with credentials are not recorded (`access_rules::audit::body`).
//!
//! Without a log, a request costs one branch.
//!
//! Differences from kube-apiserver, on purpose: records are written after the response, at most [`AUDIT_QUEUE_BYTES_MAX`]
//! later; of lists, watches and forwarded requests no body is recorded.

mod file;
mod queue;

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use access_rules::{
    audit::{
        body,
        event::{self, AuditEvent, MicroTime, ObjectIdentity, ObjectReference, ResponseStatus},
        level::{AuditLevel, AuditStage},
        policy::{AuditDecision, AuditPolicy},
    },
    decision::AccessDecision,
    request_info::RequestInfo,
    user::User,
};
use api_rules::object::{
    Object,
    body::{Encoding, media_type, read_object},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header, request::Parts};
use informer_serving::status::Status;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;

use self::{
    file::{AuditOutput, LostLines, RotatedFile},
    queue::AuditQueue,
};
use super::{RequestContext, RequestedUri, authenticate::Caller, is_long_running};
use crate::{
    clock,
    config::AuditConfig,
    limits::{AUDIT_BODY_BYTES_MAX, BODY_PIECEMEAL_BYTES},
    metrics::AuditCounters,
    registry::{Registry, ResourceType},
};

#[cfg(doc)]
use crate::limits::AUDIT_QUEUE_BYTES_MAX;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Pause between two log lines about records that were lost.
const LOSS_LOGGED_EVERY: Duration = Duration::from_secs(10);

/// The audit log of a server. The writer's thread ends after it was dropped.
pub struct AuditLog {
    policy: AuditPolicy,
    queue: Arc<AuditQueue>,
    counters: AuditCounters,
}

impl AuditLog {
    /// Opens the file, and starts the writer's thread.
    ///
    /// # Errors
    /// Error of the operating system.
    pub fn open(config: &AuditConfig, counters: AuditCounters) -> io::Result<Arc<Self>> {
        let output = match &config.file {
            None => AuditOutput::Stdout,
            Some(path) => AuditOutput::File(RotatedFile::open(path, config.file_bytes_max, config.backups_max)?),
        };
        let queue = Arc::new(AuditQueue::new());
        let (lines, errors) = (Arc::clone(&queue), counters.clone());
        thread::Builder::new().name("audit-log".to_owned()).spawn(move || keep_writing(&lines, output, &errors))?;
        Ok(Arc::new(Self { policy: config.policy.clone(), queue, counters }))
    }

    /// Begins the records of a request that just arrived. Waits for the writer if it is behind.
    pub async fn begin(self: &Arc<Self>, parts: &Parts, context: &RequestContext) -> Box<AuditRecord> {
        let record = Box::new(AuditRecord::new(self, parts, context));
        self.queue.room().await;
        record
    }

    /// Resolves once all records so far are written.
    pub async fn flushed(&self) {
        self.queue.flushed().await;
    }

    fn write(&self, event: &AuditEvent<'_>) {
        self.counters.recorded();
        if !self.queue.push(&event.line()) {
            self.counters.lost(1);
        }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Writes the lines of `queue` until it is closed.
fn keep_writing(queue: &AuditQueue, mut output: AuditOutput, counters: &AuditCounters) {
    let mut reported: Option<Instant> = None;
    let mut batch = Vec::new();
    while let Some(lines) = queue.take(batch) {
        if let Err(LostLines { count, error }) = output.write(&lines) {
            counters.lost(count);
            if reported.is_none_or(|at| at.elapsed() >= LOSS_LOGGED_EVERY) {
                reported = Some(Instant::now());
                tracing::error!(%error, count, "audit records lost");
            }
        }
        batch = lines;
    }
}

/// The records of one request. Its last one is made when it is dropped.
pub struct AuditRecord {
    log: Arc<AuditLog>,
    /// The part that does not change.
    request: AuditedRequest,
    /// `None` before the caller is known, or refused.
    decision: Option<AuditDecision>,
    caller: Option<Arc<Caller>>,
    /// The caller as the user that it acts as.
    impersonated: Option<Arc<Caller>>,
    annotations: BTreeMap<&'static str, String>,
    noted: Mutex<NotedBody>,
    response: Option<ResponseStatus>,
    response_object: Option<Value>,
    is_complete: bool,
}

/// The head of a request.
struct AuditedRequest {
    id: HeaderValue,
    info: Arc<RequestInfo>,
    uri: String,
    user_agent: String,
    source_ips: Vec<IpAddr>,
    received: MicroTime,
}

/// Facts from the body of a request.
#[derive(Default)]
struct NotedBody {
    identity: ObjectIdentity,
    object: Option<Value>,
    /// True if a body is missing that the level would have.
    is_truncated: bool,
    /// True if the object has credentials without being of a type that does.
    has_credentials: bool,
    /// True if `object` is a part of an object that was not seen: it may be the part with the credentials.
    is_unexplained: bool,
}

impl AuditRecord {
    fn new(log: &Arc<AuditLog>, parts: &Parts, context: &RequestContext) -> Self {
        let header =
            |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let uri = RequestedUri::of(parts);
        let request = AuditedRequest {
            id: context.id.clone(),
            info: Arc::clone(&context.info),
            uri: uri.path_and_query().map_or_else(|| uri.to_string(), ToString::to_string),
            user_agent: event::user_agent(header(header::USER_AGENT)).into_owned(),
            source_ips: event::source_ips(
                header(FORWARDED_FOR),
                header(REAL_IP),
                context.peer.address.map(|peer| peer.ip()),
            ),
            received: MicroTime(clock::unix_micros()),
        };
        Self {
            log: Arc::clone(log),
            request,
            decision: None,
            caller: None,
            impersonated: None,
            annotations: BTreeMap::new(),
            noted: Mutex::default(),
            response: None,
            response_object: None,
            is_complete: false,
        }
    }

    /// Decides what is recorded, and records the arrival. `caller` is `None` if its credentials were refused.
    pub fn authenticated(&mut self, caller: Option<&Arc<Caller>>) {
        self.caller = caller.map(Arc::clone);
        let info = &self.request.info;
        let mut decision = self.log.policy.decide(self.caller.as_deref().map(|caller| &caller.user), info);
        let chosen = decision.level;
        decision.level = body::lowered(chosen, info);
        self.log.counters.decided(decision.level.as_str());
        self.decision = Some(decision);
        self.record(AuditStage::RequestReceived);
    }

    /// Notes that the caller acts as another user, `caller`.
    pub fn impersonates(&mut self, caller: &Arc<Caller>) {
        self.impersonated = Some(Arc::clone(caller));
    }

    /// Adds the outcome of the authorization to all further records.
    pub fn authorized(&mut self, decision: &AccessDecision) {
        let outcome = if decision.is_allowed() { "allow" } else { "forbid" };
        self.annotations.insert(event::DECISION, outcome.to_owned());
        self.annotations.insert(event::REASON, decision.reason().to_owned());
    }

    /// Notes the body of a write. Cost: parses it; of a long one only the metadata is kept.
    pub async fn note_sent(&self, sent: SentBody) {
        let Some(decision) = self.decision.filter(|decision| decision.level >= AuditLevel::Metadata) else { return };
        let wants_object = decision.level >= AuditLevel::Request;
        if sent.body.is_empty() || !(wants_object || sent.is_object) {
            return;
        }
        let keeps_object = wants_object && sent.body.len() <= AUDIT_BODY_BYTES_MAX;
        let info = &self.request.info;
        let needs_whole = body::is_part(info) && (sent.ty.custom.is_some() || body::embeds_objects(info));
        let (identity, object) = sent.parsed(keeps_object).await;
        let is_read = object.is_some();
        let object = object.and_then(|object| body::recorded(object, decision.omits_managed_fields));
        let mut noted = self.noted.lock();
        noted.is_truncated |= wants_object && object.is_none();
        noted.has_credentials |= is_read && object.is_none();
        noted.is_unexplained = object.is_some() && needs_whole;
        (noted.identity, noted.object) = (identity, object);
    }

    /// Notes the object before the change of which the request has a part. The part stays unexplained: with others of the
    /// request, it may make credentials of what is none yet. Cost: like [`note_whole`](Self::note_whole).
    pub fn note_before(&self, object: &Object) {
        self.note_object(object, false);
    }

    /// Notes the object after the change of which the request has a part. Cost: a walk through it, if the part is to be
    /// recorded.
    pub fn note_whole(&self, object: &Object) {
        self.note_object(object, true);
    }

    /// Returns true if the record depends on the object before and after the change.
    pub fn reads_objects(&self) -> bool {
        body::is_part(&self.request.info) && self.decision.is_some_and(|decision| decision.level >= AuditLevel::Request)
    }

    fn note_object(&self, object: &Object, explains: bool) {
        if !self.reads_objects() {
            return;
        }
        let mut noted = self.noted.lock();
        noted.is_unexplained &= !explains;
        if body::has_embedded_credentials(object) {
            (noted.object, noted.has_credentials, noted.is_truncated) = (None, true, true);
        }
    }

    /// Notes that the bodies of the request are not read here.
    pub fn note_forwarded(&self) {
        let wants_object = |decision: AuditDecision| decision.level >= AuditLevel::Request;
        self.noted.lock().is_truncated |= self.decision.is_some_and(wants_object);
    }

    /// Notes the head of the response, and `status` if that is its body. Records the start of a response that lasts long.
    pub fn answered(&mut self, code: StatusCode, status: Option<&Status>) {
        let info = &self.request.info;
        let has_credentials = self.noted.lock().has_credentials;
        self.response = Some(match status {
            Some(status) => {
                let status = body::recorded_status(status, info, has_credentials);
                ResponseStatus::of_status(code.as_u16(), status)
            }
            None => ResponseStatus::of_code(code.as_u16()),
        });
        if is_long_running(info) {
            self.record(AuditStage::ResponseStarted);
        }
    }

    /// True if the record is to hold the body of the response.
    pub fn wants_response(&self) -> bool {
        self.decision.is_some_and(|decision| decision.level == AuditLevel::RequestResponse)
            && self.request.info.resource.is_some()
    }

    /// Notes the body of the response: `None` if it is not one short document.
    pub fn note_response(&mut self, content_type: Option<&str>, text: Option<&[u8]>) {
        let is_yaml = media_type(content_type).is_some_and(|media_type| media_type.ends_with("yaml"));
        let encoding = if is_yaml { Encoding::Yaml } else { Encoding::Json };
        let omits = self.decision.is_some_and(|decision| decision.omits_managed_fields);
        // The object before the change had credentials: the one after it may still hold them.
        let has_credentials = self.noted.lock().has_credentials;
        let text = text.filter(|_| body::is_single(&self.request.info) && !has_credentials);
        let object = text.and_then(|text| encoding.decode(text).ok());
        self.response_object = object.and_then(|object| body::recorded(object, omits));
        self.noted.lock().is_truncated |= self.response_object.is_none();
    }

    /// Notes that the client was given the whole response.
    pub const fn note_complete(&mut self) {
        self.is_complete = true;
    }

    /// Makes the record of a stage.
    fn record(&self, stage: AuditStage) {
        let Some(decision) = self.decision else { return };
        if decision.level == AuditLevel::None || decision.omitted.contains(stage) {
            return;
        }
        let (request, noted, unknown) = (&self.request, self.noted.lock(), User::default());
        let mut annotations = self.annotations.clone();
        let sent = noted.object.as_ref().filter(|_| !noted.is_unexplained);
        let is_truncated = noted.is_truncated || sent.is_none() && noted.object.is_some();
        if is_truncated && stage != AuditStage::RequestReceived {
            annotations.insert(event::TRUNCATED, "true".to_owned());
        }
        let user = self.caller.as_deref().map_or(&unknown, |caller| &caller.user);
        let now = if stage == AuditStage::RequestReceived { request.received } else { MicroTime(clock::unix_micros()) };
        let id = request.id.to_str().unwrap_or_default();
        self.log.write(&AuditEvent {
            request_uri: &request.uri,
            verb: &request.info.verb,
            impersonated_user: self.impersonated.as_deref().map(|caller| &caller.user),
            source_ips: &request.source_ips,
            user_agent: &request.user_agent,
            object_ref: request.info.resource.as_ref().map(|of| ObjectReference::new(of, &noted.identity)),
            response_status: self.response.as_ref(),
            request_object: sent,
            response_object: self.response_object.as_ref(),
            stage_timestamp: now,
            ..AuditEvent::new(decision.level, stage, id, user, &annotations, request.received)
        });
    }
}

impl Drop for AuditRecord {
    fn drop(&mut self) {
        if self.decision.is_none() {
            // The client left before its credentials were checked.
            self.authenticated(None);
        }
        if thread::panicking() && self.response.is_none() {
            self.response = Some(ResponseStatus::panicked());
            return self.record(AuditStage::Panic);
        }
        let is_long_running = is_long_running(&self.request.info);
        match &self.response {
            None => {
                self.annotations.insert(event::CLIENT_LEFT, "before-response".to_owned());
                self.response = Some(ResponseStatus::closed_early());
                if is_long_running {
                    self.record(AuditStage::ResponseStarted);
                }
            }
            // A client ends its watch by leaving.
            Some(_) if !self.is_complete && !is_long_running => {
                self.annotations.insert(event::CLIENT_LEFT, "during-response".to_owned());
            }
            Some(_) => {}
        }
        self.record(AuditStage::ResponseComplete);
    }
}

/// The body of a write.
pub struct SentBody {
    pub body: Bytes,
    pub content_type: Option<String>,
    pub ty: Arc<ResourceType>,
    pub registry: Arc<Registry>,
    /// False for patches and options, which have no metadata of an object.
    pub is_object: bool,
}

/// The part of an object that identifies it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectHead {
    metadata: ObjectHeadMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectHeadMetadata {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

impl From<ObjectHead> for ObjectIdentity {
    fn from(ObjectHead { metadata }: ObjectHead) -> Self {
        let ObjectHeadMetadata { namespace, name, uid, resource_version } = metadata;
        Self { namespace, name, uid, resource_version }
    }
}

impl SentBody {
    /// Parses the body: a long one beside the runtime, one at a time.
    async fn parsed(self, keeps_object: bool) -> (ObjectIdentity, Option<Value>) {
        static TURN: Semaphore = Semaphore::const_new(1);
        if self.body.len() <= BODY_PIECEMEAL_BYTES {
            return self.parse(keeps_object);
        }
        let turn = TURN.acquire().await.expect("the semaphore is never closed");
        let parsing = tokio::task::spawn_blocking(move || {
            let _until_it_ends = turn;
            self.parse(keeps_object)
        });
        parsing.await.unwrap_or_default()
    }

    /// Returns nothing for a body that is no document.
    fn parse(&self, keeps_object: bool) -> (ObjectIdentity, Option<Value>) {
        if self.is_object && Encoding::of(&self.ty, self.content_type.as_deref()).is_err() {
            return Default::default();
        }
        let media_type = media_type(self.content_type.as_deref()).unwrap_or_default();
        let document = match &*media_type {
            "application/vnd.kubernetes.protobuf" => {
                let content_type = self.content_type.as_deref();
                read_object(&self.registry, &self.ty, content_type, &self.body).ok().map(Value::Object)
            }
            yaml if yaml.ends_with("yaml") => Encoding::Yaml.decode(&self.body).ok(),
            _ if keeps_object => Encoding::Json.decode(&self.body).ok(),
            _ => {
                let head: Option<ObjectHead> = serde_json::from_slice(&self.body).ok();
                return (head.map(ObjectIdentity::from).unwrap_or_default(), None);
            }
        };
        let head = document.as_ref().filter(|_| self.is_object).and_then(|object| ObjectHead::deserialize(object).ok());
        (head.map(ObjectIdentity::from).unwrap_or_default(), document.filter(|_| keeps_object))
    }
}
