//! `…/serviceaccounts/{name}/token`: issues a token of a service account.

use access_rules::{
    authentication::token_request::{BoundKind, BoundObject, ClaimedObject, TokenOrigin, TokenRequest},
    user::MASTERS,
};
use api_rules::{
    object::{
        Object, WriteRequest, WriteTarget, at,
        draft::ordered,
        metadata::{self, Part},
        put,
    },
    registry::Subresource,
};
use http::StatusCode;
use informer_serving::{
    go::quote,
    status::{CauseExt as _, Reason, Status, StatusCause, StatusExt as _},
};
use serde_json::{Value, json};

use super::{
    answer::{AnswerDocument, WriteAnswer},
    commit, nodes, read_order,
};
use crate::{app::LocalApp, clock, ids};

/// `POST …/serviceaccounts/{name}/token`.
///
/// # Errors
/// The Status to answer with: 404 if this server issues no tokens; 403 to callers of a fork whose roles decide, because its
/// tokens are valid at its origin too.
pub(super) async fn create(app: &LocalApp<'_>, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    let signer = app.access.token_signer().ok_or_else(Status::generic_not_found)?;
    let place = request.owner()?;
    let is_master = app.caller.is_none_or(|caller| caller.is_in(MASTERS));
    if app.access.is_beside && app.access.authorizer.checks_again() && !is_master {
        let why = "a fork issues tokens to system:masters only";
        return Err(Status::forbidden("", "serviceaccounts", place.name, why));
    }
    let ty = Subresource::Token.sent().ok_or_else(Status::generic_not_found)?;
    let (mut sent, _, warnings) = read_order(app, request, ty, place.ty).await?;
    let requested = TokenRequest::read(&sent);
    if let (Some(node), Ok(requested)) = (nodes::writer(app), &requested) {
        let named = requested.bound_object_ref.as_ref().map_or("", BoundObject::name);
        let pod = found(app, &place, "pods", named).await?;
        node.check_token(place.name, requested, pod.as_ref())?;
    }
    let account = match_account(app, &place, &sent).await?;
    let requested = requested?;
    let bound = match &requested.bound_object_ref {
        Some(bound) => bound_objects(app, &place, bound).await?,
        None => Vec::new(),
    };
    let now = clock::unix_seconds();
    let id = ids::uuid().to_string();
    let (issuer, audiences) = (signer.issuer(), signer.audiences());
    let origin = TokenOrigin { issuer, audiences, id: &id, now };
    let objects: Vec<_> = bound.iter().map(|(claim, object)| (*claim, claimed(object))).collect();
    let claims = requested.claims(&origin, (place.namespace, claimed(&account)), &objects);
    let token = signer.token(&claims).ok_or_else(|| Status::internal("failed to generate token"))?;
    let metadata = metadata::metadata_mut(&mut sent);
    metadata.insert("creationTimestamp".to_owned(), clock::at(now).into());
    metadata.insert("name".to_owned(), place.name.into());
    metadata.insert("uid".to_owned(), metadata::text(&account, "uid").into());
    put(&mut sent, "spec.audiences", claims["aud"].clone());
    put(&mut sent, "spec.expirationSeconds", requested.expiration_seconds().into());
    let expires = clock::at(now.saturating_add(requested.expiration_seconds()));
    sent.insert("status".to_owned(), json!({"token": token, "expirationTimestamp": expires}));
    let document = AnswerDocument::Text(ordered(ty, sent).into());
    Ok(WriteAnswer { code: StatusCode::CREATED, document, warnings })
}

/// Returns the service account that the request means.
///
/// # Errors
/// 404 if it does not exist; 422 and 409 if the request names another one.
async fn match_account(app: &LocalApp<'_>, place: &WriteTarget<'_>, sent: &Object) -> Result<Object, Status> {
    const GROUP: &str = "authentication.k8s.io";
    const KIND: &str = "TokenRequest";
    let (name, uid) = (metadata::text(sent, "name"), metadata::text(sent, "uid"));
    if !name.is_empty() && name != place.name {
        let why = "must match the service account name if specified";
        let cause = StatusCause::invalid("metadata.name", &quote(name), why);
        return Err(Status::invalid(GROUP, KIND, place.name, vec![cause]));
    }
    let account = commit::read(app, place).await?.object;
    let own = metadata::text(&account, "uid");
    if !uid.is_empty() && uid != own {
        let why = format!("the UID in the token request ({uid}) does not match the UID of the service account ({own})");
        return Err(Status::conflict(GROUP, KIND, place.name, &why));
    }
    Ok(account)
}

/// Returns the objects that the token is bound to, by the names of their claims: a pod brings its node.
async fn bound_objects(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    bound: &BoundObject,
) -> Result<Vec<(&'static str, Object)>, Status> {
    let (claim, plural) = match bound.kind()? {
        BoundKind::Pod => ("pod", "pods"),
        BoundKind::Secret => ("secret", "secrets"),
        BoundKind::Node => ("node", "nodes"),
    };
    let object = found(app, place, plural, bound.name()).await?;
    let object = object.ok_or_else(|| Status::not_found("", plural, bound.name()))?;
    let mut objects = Vec::new();
    if plural == "pods" {
        let text = |path: &str| at(&object, path).and_then(Value::as_str).unwrap_or_default();
        if text("spec.serviceAccountName") != place.name {
            let account = quote(place.name);
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount {account} to pod running with different serviceaccount name."
            )));
        }
        let node = text("spec.nodeName");
        if !node.is_empty() {
            // Of a node that is not stored, the token has the name alone.
            let unknown = || Object::from_iter([("metadata".to_owned(), json!({ "name": node }))]);
            objects.push(("node", found(app, place, "nodes", node).await?.unwrap_or_else(unknown)));
        }
    }
    bound.match_uid(metadata::text(&object, "uid"))?;
    objects.push((claim, object));
    Ok(objects)
}

/// Reads an object of the core group in the namespace of `place`; `None` if it does not exist.
async fn found(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    plural: &str,
    name: &str,
) -> Result<Option<Object>, Status> {
    let ty = app.registry.now().find("", "v1", plural).ok_or_else(Status::generic_not_found)?;
    let place = WriteTarget { ty: &ty, namespace: place.namespace, name, part: Part::Main };
    match commit::read(app, &place).await {
        Ok(current) => Ok(Some(current.object)),
        Err(status) if status.reason == Reason::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}

fn claimed(object: &Object) -> ClaimedObject<'_> {
    ClaimedObject { name: metadata::text(object, "name"), uid: metadata::text(object, "uid") }
}
