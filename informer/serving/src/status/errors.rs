//! Constructors of kube-apiserver's errors: code, reason, message and details of each.
//!
//! Names and texts come from apimachinery's `api/errors`. A resource is passed as its group (empty for core) and its
//! plural, a kind as its group and its name.

use std::collections::HashSet;

use informer_core::wire::status::{CauseReason, Reason, Status, StatusCause, TOO_LARGE};

use super::cause::{CauseExt as _, Causes};
use crate::go::quote;

/// The parts of a Status, added one by one.
trait StatusParts {
    fn failure(code: u16, reason: Reason, message: impl Into<String>) -> Self;
    fn about(self, group: &str, kind: &str, name: &str) -> Self;
    fn with_causes(self, causes: Vec<StatusCause>) -> Self;
    fn after_seconds(self, seconds: u32) -> Self;
}

impl StatusParts for Status {
    fn failure(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self { status: "Failure".into(), message: message.into(), reason, code, ..Self::default() }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        details.group = group.into();
        details.kind = kind.into();
        details.name = name.into();
        self
    }

    fn with_causes(mut self, causes: Vec<StatusCause>) -> Self {
        self.details.get_or_insert_default().causes = causes;
        self
    }

    fn after_seconds(mut self, seconds: u32) -> Self {
        if seconds > 0 {
            self.details.get_or_insert_default().retry_after_seconds = seconds;
        }
        self
    }
}

/// Kubernetes' errors as kube-apiserver makes them: `Status::not_found("", "pods", "web-0")`.
///
/// A trait, because [`Status`] belongs to `informer-core`, whose clients only read errors. The constructors have bodies
/// here, so that each signature is written once.
pub trait StatusExt: From<Status> {
    /// Returns the HTTP status code of the response that carries it: 200 if `code` is 0.
    #[must_use]
    fn http_code(&self) -> u16;

    /// 404: `pods "x" not found`.
    #[must_use]
    fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {} not found", qualified(group, plural), quote(name));
        Status::failure(404, Reason::NotFound, message).about(group, plural, name).into()
    }

    /// 409: `pods "x" already exists`.
    #[must_use]
    fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {} already exists", qualified(group, plural), quote(name));
        Status::failure(409, Reason::AlreadyExists, message).about(group, plural, name).into()
    }

    /// 409: `Operation cannot be fulfilled on pods "x": text`.
    #[must_use]
    fn conflict(group: &str, plural: &str, name: &str, text: &str) -> Self {
        let what = qualified(group, plural);
        let message = format!("Operation cannot be fulfilled on {what} {}: {text}", quote(name));
        Status::failure(409, Reason::Conflict, message).about(group, plural, name).into()
    }

    /// 409 for a stale resourceVersion, with the text that clients match.
    #[must_use]
    fn modified(group: &str, plural: &str, name: &str) -> Self {
        let text = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, plural, name, text)
    }

    /// 422: `Pod "x" is invalid: field: text`, or `[first, second]` for several causes, each distinct one once. Beyond
    /// [`CAUSES_MAX`](crate::limits::CAUSES_MAX) causes it appends the number of the others.
    #[must_use]
    fn invalid(group: &str, kind: &str, name: &str, causes: impl Into<Causes>) -> Self {
        let (causes, more) = causes.into().into_parts();
        let mut seen = HashSet::new();
        let mut texts: Vec<String> = Vec::new();
        for cause in causes.iter().filter(|cause| seen.insert((&cause.field, &cause.message))) {
            texts.push(format!("{}: {}", cause.field, cause.message));
        }
        if more > 0 {
            texts.push(format!("and {more} more"));
        }
        let what = format!("{} {} is invalid", qualified(group, kind), quote(name));
        let message = match texts.as_slice() {
            [] => what,
            [text] => format!("{what}: {text}"),
            _ => format!("{what}: [{}]", texts.join(", ")),
        };
        Status::failure(422, Reason::Invalid, message).about(group, kind, name).with_causes(causes).into()
    }

    /// 422 for query options: `ListOptions.meta.k8s.io "" is invalid: …`.
    #[must_use]
    fn invalid_options(kind: &str, causes: impl Into<Causes>) -> Self {
        Self::invalid("meta.k8s.io", kind, "", causes)
    }

    /// 422 without a field: the request as a whole is invalid (a failed JSON patch).
    #[must_use]
    fn generic_invalid() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Status::failure(422, Reason::Invalid, message).about("", "", "").into()
    }

    /// 400 with `text`.
    #[must_use]
    fn bad_request(text: impl Into<String>) -> Self {
        Status::failure(400, Reason::BadRequest, text).into()
    }

    /// 401.
    #[must_use]
    fn unauthorized() -> Self {
        Status::failure(401, Reason::Unauthorized, "Unauthorized").into()
    }

    /// 403: `pods "x" is forbidden: text`.
    #[must_use]
    fn forbidden(group: &str, plural: &str, name: &str, text: &str) -> Self {
        let message = format!("{} {} is forbidden: {text}", qualified(group, plural), quote(name));
        Status::failure(403, Reason::Forbidden, message).about(group, plural, name).into()
    }

    /// 405: `watch is not supported on resources of kind "pods"`.
    #[must_use]
    fn method_not_supported(group: &str, plural: &str, verb: &str) -> Self {
        let what = qualified(group, plural);
        let message = format!("{verb} is not supported on resources of kind {}", quote(&what));
        Status::failure(405, Reason::MethodNotAllowed, message).about(group, plural, "").into()
    }

    /// 405 for a method without a handler.
    #[must_use]
    fn generic_method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Status::failure(405, Reason::MethodNotAllowed, message).about("", "", "").into()
    }

    /// 404 for a path inside a served group and version, with empty details.
    #[must_use]
    fn generic_not_found() -> Self {
        let message = "the server could not find the requested resource";
        Status::failure(404, Reason::NotFound, message).about("", "", "").into()
    }

    /// 406: the media types of this server, joined by `, `.
    #[must_use]
    fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Status::failure(406, Reason::NotAcceptable, message).into()
    }

    /// 415: the media types accepted for a body.
    #[must_use]
    fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Status::failure(415, Reason::UnsupportedMediaType, message).into()
    }

    /// 415 for a media type that no handler of the path accepts.
    #[must_use]
    fn generic_unsupported_media_type() -> Self {
        let message = "415: Unsupported Media Type";
        Status::failure(415, Reason::UnsupportedMediaType, message).about("", "", "").into()
    }

    /// 410 Gone with `text`.
    #[must_use]
    fn gone(text: impl Into<String>) -> Self {
        Status::failure(410, Reason::Gone, text).into()
    }

    /// 410 Expired with `text`.
    #[must_use]
    fn expired(text: impl Into<String>) -> Self {
        Status::failure(410, Reason::Expired, text).into()
    }

    /// In-stream 410: `oldest` is the oldest resourceVersion a watch may start from.
    #[must_use]
    fn expired_watch(requested: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {requested} ({oldest})"))
    }

    /// 410 for a watch from a resourceVersion ahead of the server's history, which must belong to another history.
    #[must_use]
    fn unknown_position(requested: u64, current: u64) -> Self {
        Self::expired(format!("unknown resource version: {requested}, current: {current}"))
    }

    /// 410 for a watch from a resourceVersion that the server's history has passed without ever being there.
    #[must_use]
    fn foreign_position(requested: u64) -> Self {
        Self::expired(format!("unknown resource version: {requested}"))
    }

    /// 410 for a list at an exact resourceVersion that is no longer available.
    #[must_use]
    fn expired_list() -> Self {
        Self::expired("The resourceVersion for the provided list is too old.")
    }

    /// 410 for a page; `metadata.continue` is `inconsistent_token`.
    #[must_use]
    fn expired_continue(inconsistent_token: impl Into<String>) -> Self {
        let mut status = Status::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of \
             the results. Continuing with the provided token results in an inconsistent list - objects that were \
             created, modified, or deleted between the time the first chunk was returned and now may show up in the \
             list.",
        );
        status.metadata.continue_token = inconsistent_token.into();
        status.into()
    }

    /// 504: `Timeout: text`.
    #[must_use]
    fn timeout(text: &str, retry_after_seconds: u32) -> Self {
        let timeout = Status::failure(504, Reason::Timeout, format!("Timeout: {text}"));
        timeout.about("", "", "").after_seconds(retry_after_seconds).into()
    }

    /// 504 for a resourceVersion that the server did not reach in time.
    #[must_use]
    fn too_large_resource_version(requested: u64, current: u64) -> Self {
        let timeout = Status::timeout(&format!("{TOO_LARGE}: {requested}, current: {current}"), 1);
        timeout.with_causes(vec![StatusCause::new(CauseReason::ResourceVersionTooLarge, "", TOO_LARGE)]).into()
    }

    /// 429 with `text`.
    #[must_use]
    fn too_many_requests(text: impl Into<String>, retry_after_seconds: u32) -> Self {
        Status::failure(429, Reason::TooManyRequests, text).after_seconds(retry_after_seconds).into()
    }

    /// 500: `Internal error occurred: text`.
    #[must_use]
    fn internal(text: &str) -> Self {
        let cause = StatusCause { message: text.into(), ..StatusCause::default() };
        let internal = Status::failure(500, Reason::InternalError, format!("Internal error occurred: {text}"));
        internal.with_causes(vec![cause]).into()
    }

    /// 500 that asks to retry: `The list operation against pods could not be completed at this time, please try again.`
    #[must_use]
    fn server_timeout(group: &str, plural: &str, verb: &str) -> Self {
        let what = qualified(group, plural);
        let message =
            format!("The {verb} operation against {what} could not be completed at this time, please try again.");
        Status::failure(500, Reason::ServerTimeout, message).about(group, plural, "").into()
    }

    /// 500 with `text` and neither reason nor details: errors that kube-apiserver does not map.
    #[must_use]
    fn unmapped(text: impl Into<String>) -> Self {
        Status::failure(500, Reason::Unknown, text).into()
    }

    /// 503 with `text`.
    #[must_use]
    fn unavailable(text: impl Into<String>) -> Self {
        Status::failure(503, Reason::ServiceUnavailable, text).into()
    }

    /// 507 with `text`. Kubernetes has no reason for it: a full etcd gets a 500.
    #[must_use]
    fn insufficient_storage(text: impl Into<String>) -> Self {
        Status::failure(507, Reason::Unknown, text).into()
    }

    /// 413: `Request entity too large: text`.
    #[must_use]
    fn request_entity_too_large(text: &str) -> Self {
        Status::failure(413, Reason::RequestEntityTooLarge, format!("Request entity too large: {text}")).into()
    }

    /// 200 after a delete that returns no object.
    #[must_use]
    fn deleted(group: &str, plural: &str, name: &str, uid: &str) -> Self {
        let mut status = Status { status: "Success".into(), ..Status::default() }.about(group, plural, name);
        status.details.get_or_insert_default().uid = uid.into();
        status.into()
    }
}

impl StatusExt for Status {
    fn http_code(&self) -> u16 {
        if self.code == 0 { 200 } else { self.code }
    }
}

/// Returns `pods` or `deployments.apps`: a resource or a kind as in messages.
#[must_use]
pub fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}
