//! Errors of requests as a Status. With `status` of `cache-server-caches`, which has those of caches and storages, the
//! only file that maps errors to HTTP.

use std::borrow::Cow;

use cache_server_caches::status::forbidden;
use http::{Method, StatusCode};
use informer_serving::status::{Details, Status, StatusCause, StatusExt as _};

use crate::{limits::MESSAGE_BYTES_MAX, registry::ResourceType};

/// Returns the status with each text cut to [`MESSAGE_BYTES_MAX`], and only the causes that fit into that size
/// together: these texts repeat client input. `None` if the status is short already.
pub(crate) fn bounded(status: &Status) -> Option<Status> {
    let length = |cause: &StatusCause| cause.message.len() + cause.field.len();
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes[..]);
    let name = status.details.as_ref().map_or(0, |details| details.name.len());
    let longest = status.message.len().max(name).max(causes.iter().map(length).sum());
    if longest <= MESSAGE_BYTES_MAX {
        return None;
    }
    let mut short = status.clone();
    cut(&mut short.message);
    if let Some(details) = &mut short.details {
        cut(&mut details.name);
        let mut taken = 0;
        details.causes.retain(|cause| {
            taken += length(cause);
            taken <= MESSAGE_BYTES_MAX
        });
    }
    Some(short)
}

/// Returns the text of an error for logs: the message, or for an invalid object the fields and reasons, because messages
/// quote values.
pub(crate) fn logged(status: &Status) -> Cow<'_, str> {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes[..]);
    if status.code != StatusCode::UNPROCESSABLE_ENTITY.as_u16() || causes.is_empty() {
        return Cow::Borrowed(&status.message);
    }
    let causes: Vec<_> = causes.iter().map(|cause| format!("{} ({})", cause.field, cause.reason)).collect();
    Cow::Owned(format!("invalid: {}", causes.join(", ")))
}

fn cut(text: &mut String) {
    if text.len() > MESSAGE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(MESSAGE_BYTES_MAX));
        text.push('…');
    }
}

/// Error for a request body longer than `limit` bytes.
pub(crate) fn body_too_large(limit: usize) -> Status {
    Status::request_entity_too_large(&format!("limit is {limit}"))
}

/// Error if the client accepts only unknown media types. `available` are the media types of this server.
pub(crate) fn no_representation(available: &[&str]) -> Status {
    let message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
    Status { message, details: Some(Details::default()), ..Status::not_acceptable(&[]) }
}

/// Error for the metadata form of one object where the answer is a list, or the other way round. `go_type` names the
/// answer's type.
pub(crate) fn not_that_form(form: &str, what_it_is: &str, go_type: &str) -> Status {
    let message = format!("you requested {form}, but the requested object {what_it_is} ({go_type})");
    Status { message, ..Status::not_acceptable(&[]) }
}

/// Error for a create while the type's definition is being deleted.
pub(crate) fn terminating(ty: &ResourceType, name: &str) -> Status {
    let why = "create not allowed while custom resource definition is terminating";
    Status::forbidden(&ty.group, &ty.plural, name, why)
}

/// Error of custom resources for a method that a path does not support.
pub(crate) fn method_not_supported(ty: &ResourceType, method: &Method) -> Status {
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    };
    Status::method_not_supported(&ty.group, &ty.plural, verb)
}

/// Error for a request whose Host header names another server.
pub(crate) fn foreign_host() -> Status {
    forbidden("the Host header names another server")
}

/// Error for a write or a WebSocket that a page of another site may have sent.
pub(crate) fn foreign_origin() -> Status {
    forbidden("requests of pages of another origin are not served")
}

/// Error for logs, exec and other requests that need a kubelet. Clients do not repeat a request after 405, and do not
/// conclude that the pod was deleted.
pub(crate) fn runs_no_pods() -> Status {
    let message = "this server keeps objects and runs no pods: there are no logs, and no process to connect to".into();
    Status { message, ..Status::generic_method_not_allowed() }
}

/// Error for a path that may be that of a custom resource, while the definitions are not known. Clients take 404 for the
/// deletion of the type, and repeat the request after this one.
///
/// # Source
/// apiserver `pkg/util/notfoundhandler`.
pub(crate) fn definitions_unknown() -> Status {
    let text = "the request has been made before all known HTTP paths have been installed, please try again";
    let details = Some(Details { retry_after_seconds: DEFINITIONS_RETRY_SECONDS, ..Details::default() });
    Status { details, ..Status::unavailable(text) }
}

/// Seconds after which a client may repeat a request for a path that is not known yet, as in kube-apiserver.
const DEFINITIONS_RETRY_SECONDS: u32 = 5;
