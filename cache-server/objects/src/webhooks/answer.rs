//! The meaning of a webhook's answer.

use std::fmt;

use api_rules::{
    limits::{UNREAD_BYTES_MAX, WEIGHT_UNREAD},
    object::{
        Object,
        options::FieldValidation,
        patch::{Patch, PatchType},
        weight::{Size, Weight},
    },
    registry::ResourceType,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use informer_serving::{
    go::quote,
    status::{Status, StatusExt as _},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    configuration::{AdmissionWebhook, WebhookKind},
    request::AdmissionRequest,
};

/// Why a webhook does not let a write pass.
#[derive(Debug)]
pub enum WebhookFailure {
    /// It did not answer the question. A webhook whose failures are ignored lets the write pass.
    Call(CallFailure),
    /// The Status to answer with.
    Refused(Box<Status>),
}

/// A question without an answer.
#[derive(Debug)]
pub struct CallFailure {
    /// For logs.
    pub cause: CallFailureCause,
    /// For the client, in the words of kube-apiserver. May repeat parts of the answer.
    pub reason: String,
}

/// The class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailureCause {
    /// No answer in time.
    Timeout,
    /// No process listens at its address.
    Refused,
    /// No connection, or one that broke.
    Connection,
    /// An answer with this code.
    Code(u16),
    /// An answer that is too long, or no review.
    Unreadable,
    /// No question that it understands.
    Version,
}

impl fmt::Display for CallFailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "timeout",
            Self::Refused => "connection refused",
            Self::Connection => "connection failed",
            Self::Code(code) => return write!(f, "status code {code}"),
            Self::Unreadable => "unreadable answer",
            Self::Version => "no common version",
        })
    }
}

impl CallFailure {
    /// The failure of a webhook that understands none of the reviews of this server.
    #[must_use]
    pub fn no_version() -> Self {
        let reason = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, \
                      v1beta1)";
        Self { cause: CallFailureCause::Version, reason: reason.to_owned() }
    }

    /// The failure of an answer with another code than 2xx.
    #[must_use]
    pub fn of_code(code: u16, body: &[u8]) -> Self {
        Self { cause: CallFailureCause::Code(code), reason: refused(code, body) }
    }
}

/// Bytes of an answer that a message repeats.
const SHOWN_BYTES_MAX: usize = 2_048;

/// The message of kube-apiserver's client for a code.
fn refused(code: u16, body: &[u8]) -> String {
    let text = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        415 => "the body of the request was in an unknown format - accepted media types include: ",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
            return format!(
                "an error on the server ({}) has prevented the request from succeeding",
                quote(text.trim())
            );
        }
        _ => return format!("the server responded with the status code {code} but did not return more details"),
    };
    text.to_owned()
}

/// The answer of a webhook that lets a write pass.
#[derive(Debug, Default)]
pub struct AllowedWrite {
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Changes of the object.
    pub patch: Option<Patch>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AdmissionReview {
    kind: String,
    api_version: String,
    response: Option<AdmissionResponse>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AdmissionResponse {
    uid: String,
    allowed: bool,
    status: Option<Status>,
    patch: Option<String>,
    patch_type: Option<String>,
    warnings: Option<Vec<String>>,
}

/// The Status of a webhook whose call failed.
#[must_use]
pub fn failed(webhook: &AdmissionWebhook, reason: &str) -> Status {
    Status::internal(&format!("failed calling webhook {}: {reason}", quote(&webhook.name)))
}

/// The Status of a dry run that a webhook does not allow.
#[must_use]
pub fn no_dry_run(webhook: &AdmissionWebhook) -> Status {
    Status::bad_request(format!("admission webhook {} does not support dry run", quote(&webhook.name)))
}

/// Returns the size of a write that decodes an answer: the patch in it may have as many values as a body of its length.
#[must_use]
pub const fn size(body: &[u8]) -> Size {
    if body.len() > UNREAD_BYTES_MAX { Size::Large } else { Size::Small(WEIGHT_UNREAD * body.len()) }
}

/// Reads the answer to the question with `uid`.
///
/// # Errors
/// [`WebhookFailure`].
pub fn read(webhook: &AdmissionWebhook, uid: &str, body: &[u8]) -> Result<AllowedWrite, WebhookFailure> {
    let call = |reason: String| WebhookFailure::Call(CallFailure { cause: CallFailureCause::Unreadable, reason });
    let unread = |error: String| call(format!("failed to call webhook: couldn't get version/kind; {error}"));
    Weight::default().json(body).map_err(|error| unread(error.to_string()))?;
    let review: AdmissionReview =
        serde_json::from_slice(body).map_err(|error| unread(format!("json parse error: {error}")))?;
    let invalid = |problem: String| call(format!("received invalid webhook response: {problem}"));
    let AdmissionReview { kind, api_version, response } = review;
    let Some(response) = response else { return Err(invalid("webhook response was absent".to_owned())) };
    let version = webhook.review_version.unwrap_or_default();
    if version == "v1" {
        if response.uid != uid {
            return Err(invalid(format!("expected response.uid={}, got {}", quote(uid), quote(&response.uid))));
        }
        let (group, found) = api_version.split_once('/').unwrap_or(("", &api_version));
        if (group, found, &*kind) != ("admission.k8s.io", version, "AdmissionReview") {
            return Err(invalid(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{found}, Kind={kind}"
            )));
        }
        check_patch(webhook.kind, &response).map_err(invalid)?;
    }
    if !response.allowed {
        return Err(WebhookFailure::Refused(Box::new(denied(webhook, response.status.unwrap_or_default()))));
    }
    let patch = response.patch.filter(|patch| webhook.kind == WebhookKind::Mutating && !patch.is_empty());
    let patch = patch.map(|patch| decoded(&patch).map_err(call)).transpose()?;
    Ok(AllowedWrite { warnings: response.warnings.unwrap_or_default(), patch })
}

/// Checks that a patch comes with its type, and from a webhook that may change objects.
fn check_patch(kind: WebhookKind, response: &AdmissionResponse) -> Result<(), String> {
    let has_patch = response.patch.as_ref().is_some_and(|patch| !patch.is_empty());
    Err(match (kind, has_patch, response.patch_type.as_deref()) {
        (WebhookKind::Validating, true, _) => "validating webhook may not return response.patch".to_owned(),
        (WebhookKind::Validating, false, Some(_)) => "validating webhook may not return response.patchType".to_owned(),
        (WebhookKind::Mutating, true, None) => "webhook returned response.patch but not response.patchType".to_owned(),
        (WebhookKind::Mutating, false, Some(_)) => {
            "webhook returned response.patchType but not response.patch".to_owned()
        }
        (WebhookKind::Mutating, true, Some("")) => "webhook returned invalid response.patchType of \"\"".to_owned(),
        (WebhookKind::Mutating, true, Some(other)) if other != "JSONPatch" => {
            format!("unsupported patch type {}", quote(other))
        }
        (WebhookKind::Mutating, true, Some(_)) | (_, false, None) => return Ok(()),
    })
}

fn decoded(patch: &str) -> Result<Patch, String> {
    let undecodable = |error: String| format!("received undecodable patch in webhook response: {error}");
    let patch = STANDARD.decode(patch).map_err(|error| undecodable(error.to_string()))?;
    Patch::read(PatchType::Json, &patch, FieldValidation::Ignore).map_err(|status| undecodable(status.message))
}

/// The refusal of a webhook, with its own code and reason.
fn denied(webhook: &AdmissionWebhook, status: Status) -> Status {
    let by = format!("admission webhook {} denied the request", quote(&webhook.name));
    let reason = String::from(status.reason.clone());
    let message = match (&*status.message, &*reason) {
        ("", "") => format!("{by} without explanation"),
        ("", text) | (text, _) => format!("{by}: {text}"),
    };
    let code = status.code.clamp(400, 599);
    Status {
        message,
        code,
        status: "Failure".to_owned(),
        details: status.details,
        reason: status.reason,
        ..Status::default()
    }
}

/// Applies the changes of a webhook to the object of a write, which it got as that of `target`.
///
/// # Errors
/// 500, as in kube-apiserver, for operations that do not apply, and for a result of another kind.
pub fn mutated(request: &AdmissionRequest<'_>, target: &ResourceType, patch: &Patch) -> Result<Object, Status> {
    let (Value::Object(object), _) = request.objects_as(target) else {
        return Err(Status::internal("there is no object"));
    };
    let mut changed = patch.edit(&object, None).map_err(|status| Status::internal(&status.message))?;
    for member in ["kind", "apiVersion"] {
        if changed.get(member) != object.get(member) {
            return Err(Status::internal(&format!("the {member} of the object changed")));
        }
    }
    request.convert(&mut changed, target, request.ty);
    Ok(changed)
}
