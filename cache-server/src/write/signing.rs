//! Writes of signing requests: each names its creator, and callers approve and sign for the signers that they may act for.
//!
//! Source: Kubernetes `plugin/pkg/admission/certificates`, `pkg/registry/certificates/certificates/strategy.go`.

use access_rules::{
    authentication::certificate::requested_subject,
    request_info::{RequestInfo, ResourceAttributes},
    user::MASTERS,
};
use api_rules::{
    object::{
        Object, WriteTarget, at,
        metadata::{self, Part},
    },
    registry::ResourceType,
};
use informer_serving::{
    go::quote,
    status::{CauseExt as _, Status, StatusCause, StatusExt as _},
};
use serde_json::{Value, json};

use crate::app::LocalApp;

/// Records the caller as the creator of a signing request. Those of the server itself are kept as they are.
pub(super) fn record_creator(app: &LocalApp<'_>, ty: &ResourceType, object: &mut Object) {
    let Some(caller) = app.caller.filter(|_| ty.is_approved()) else { return };
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    let (Value::Object(spec), Value::Object(user)) = (spec, json!(caller)) else { return };
    for member in ["username", "uid", "groups", "extra"] {
        spec.remove(member);
    }
    spec.extend(user);
}

/// Returns `Ok` if a new signing request is for a subject that its signer may have.
///
/// # Errors
/// 403 for a client of kube-apiserver in the group `system:masters`; 422 for one whose request cannot be read.
pub(super) fn check_subject(ty: &ResourceType, object: &Object) -> Result<(), Status> {
    let text = |path| at(object, path).and_then(Value::as_str).unwrap_or_default();
    // Another signer may read what this server cannot.
    if !ty.is_approved() || text("spec.signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let (name, request) = (metadata::text(object, "name"), text("spec.request"));
    match requested_subject(request) {
        Ok(subject) if subject.groups.iter().any(|group| group == MASTERS) => {
            let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
            Err(Status::forbidden(&ty.group, &ty.plural, name, &why))
        }
        Ok(_) => Ok(()),
        Err(problem) => {
            let cause = StatusCause::invalid("spec.request", &quote(request), problem);
            Err(Status::invalid(&ty.group, &ty.kind, name, vec![cause]))
        }
    }
}

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Returns `Ok` if the caller may change the status of a signing request from `stored` to `next`.
///
/// # Errors
/// 403 if it may not `approve` or `sign` for the signer; 429 or 503 if that cannot be decided.
pub(super) async fn check(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    stored: &Object,
    next: &Object,
) -> Result<(), Status> {
    let Some(caller) = app.caller.filter(|_| place.ty.is_approved()) else { return Ok(()) };
    let verb = match place.part {
        Part::Approval => "approve",
        Part::Status if stored.get("status") != next.get("status") => "sign",
        Part::Main | Part::Status | Part::EphemeralContainers | Part::Finalize => return Ok(()),
    };
    let signer = at(stored, "spec.signerName").and_then(Value::as_str).unwrap_or_default();
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [signer.to_owned(), format!("{domain}/*")] {
        let resource = ResourceAttributes {
            group: place.ty.group.clone(),
            version: "*".to_owned(),
            resource: "signers".to_owned(),
            name,
            ..ResourceAttributes::default()
        };
        let info = RequestInfo { verb: verb.into(), path: String::new(), resource: Some(resource) };
        // Boxed, so that the futures of all other writes have no room for it.
        if Box::pin(app.access.authorizer.decide(caller, &info)).await?.is_allowed() {
            return Ok(());
        }
    }
    let why = format!("user not permitted to {verb} requests with signerName {}", quote(signer));
    Err(Status::forbidden(&place.ty.group, &place.ty.plural, place.name, &why))
}
