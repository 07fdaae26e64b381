//! Creates of reviews: questions about access, which are answered and not stored, and of Bindings.
//!
//! Source: Kubernetes `pkg/registry/authorization`, `pkg/registry/authentication`, `pkg/apis/authorization/validation`.

use std::collections::BTreeMap;

use access_rules::{
    decision::AccessDecision,
    request_info::{RawSelector, RequestInfo, ResourceAttributes},
    user::User,
};
use api_rules::{
    object::{Object, WriteRequest, body::read_valid, metadata, options::Options},
    registry::ResourceType,
};
use http::StatusCode;
use informer_serving::{
    go::quote,
    status::{CauseExt as _, CauseReason, Status, StatusCause, StatusExt as _},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{
    answer::{AnswerDocument, WriteAnswer},
    binding,
};
use crate::{app::LocalApp, clock};

/// The spec of a review, of any kind.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReviewSpec {
    resource_attributes: Option<ReviewResourceSpec>,
    non_resource_attributes: Option<ReviewPathSpec>,
    #[serde(deserialize_with = "nullable")]
    user: String,
    #[serde(deserialize_with = "nullable")]
    groups: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    extra: BTreeMap<String, Vec<String>>,
    #[serde(deserialize_with = "nullable")]
    uid: String,
    /// Of a SelfSubjectRulesReview.
    #[serde(deserialize_with = "nullable")]
    namespace: String,
    /// Of a TokenReview.
    #[serde(deserialize_with = "nullable")]
    token: String,
    /// Of a TokenReview.
    #[serde(deserialize_with = "nullable")]
    audiences: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReviewResourceSpec {
    #[serde(deserialize_with = "nullable")]
    verb: String,
    #[serde(deserialize_with = "nullable")]
    group: String,
    #[serde(deserialize_with = "nullable")]
    version: String,
    #[serde(deserialize_with = "nullable")]
    resource: String,
    #[serde(deserialize_with = "nullable")]
    subresource: String,
    #[serde(deserialize_with = "nullable")]
    namespace: String,
    #[serde(deserialize_with = "nullable")]
    name: String,
    field_selector: Option<ReviewSelectorSpec>,
    label_selector: Option<ReviewSelectorSpec>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReviewPathSpec {
    #[serde(deserialize_with = "nullable")]
    path: String,
    #[serde(deserialize_with = "nullable")]
    verb: String,
}

/// A selector as text, or as conditions that all hold.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReviewSelectorSpec {
    #[serde(deserialize_with = "nullable")]
    raw_selector: String,
    #[serde(deserialize_with = "nullable")]
    requirements: Vec<ReviewRequirementSpec>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReviewRequirementSpec {
    #[serde(deserialize_with = "nullable")]
    key: String,
    #[serde(deserialize_with = "nullable")]
    operator: String,
    #[serde(deserialize_with = "nullable")]
    values: Vec<String>,
}

/// `POST …/{reviews}`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn answer(app: &LocalApp<'_>, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    if request.ty.kind == "Binding" {
        return binding::create_named(app, request).await;
    }
    let (ty, mut warnings) = (request.ty, Vec::new());
    let options = Options::read("CreateOptions", request.query)?;
    let registry = app.registry.now();
    let mut sent = read_valid(&registry, ty, request.content_type, request.body, options.validation, &mut warnings)?;
    let namespace = request.namespace.unwrap_or_default();
    metadata::match_namespace(ty, namespace, &mut sent)?;
    let spec = ReviewSpec::read(&sent)?;
    let unsecured = User::unsecured();
    let caller = app.caller.unwrap_or(&unsecured);
    let status = match &*ty.kind {
        "SelfSubjectReview" => {
            metadata::metadata_mut(&mut sent).insert("creationTimestamp".to_owned(), clock::now().into());
            json!({"userInfo": caller})
        }
        "SelfSubjectRulesReview" => {
            if spec.namespace.is_empty() {
                return Err(Status::bad_request("no namespace on request"));
            }
            sent.insert("spec".to_owned(), json!({}));
            json!(app.access.authorizer.rules_for(caller, &spec.namespace).await?)
        }
        "TokenReview" => {
            if spec.token.is_empty() {
                return Err(Status::bad_request("token is required for TokenReview in authentication"));
            }
            match app.access.review_token(&spec.token, &spec.audiences).await? {
                None => json!({"user": {}, "error": "invalid bearer token"}),
                Some((user, audiences)) if audiences.is_empty() => json!({"authenticated": true, "user": user}),
                Some((user, audiences)) => json!({"authenticated": true, "user": user, "audiences": audiences}),
            }
        }
        kind => {
            let is_self = kind == "SelfSubjectAccessReview";
            spec.check(ty, &sent, is_self)?;
            let user = if is_self { caller.clone() } else { spec.user() };
            decided(&app.access.authorizer.decide(&user, &spec.info()).await?)
        }
    };
    sent.insert("status".to_owned(), status);
    Ok(WriteAnswer { code: StatusCode::CREATED, document: AnswerDocument::Unstored(sent), warnings })
}

/// The status of an access review.
fn decided(decision: &AccessDecision) -> Value {
    let mut status = json!({"allowed": decision.is_allowed()});
    if matches!(decision, AccessDecision::Denied { .. }) {
        status["denied"] = true.into();
    }
    if !decision.reason().is_empty() {
        status["reason"] = decision.reason().into();
    }
    status
}

impl ReviewSpec {
    fn read(sent: &Object) -> Result<Self, Status> {
        let spec = sent.get("spec").filter(|spec| !spec.is_null());
        let read = spec.map(Self::deserialize).transpose();
        Ok(read.map_err(|_| Status::bad_request("the spec cannot be read"))?.unwrap_or_default())
    }

    /// Checks an access review.
    ///
    /// # Errors
    /// 422.
    fn check(&self, ty: &ResourceType, sent: &Object, is_self: bool) -> Result<(), Status> {
        let mut causes = Vec::new();
        let mut refuse = |field: &str, value: &str, why: &str| causes.push(StatusCause::invalid(field, value, why));
        match (&self.resource_attributes, &self.non_resource_attributes) {
            (Some(_), Some(path)) => {
                let why = "cannot be specified in combination with resourceAttributes";
                refuse("spec.nonResourceAttributes", &path.in_go(), why);
            }
            (None, None) => {
                let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                refuse("spec.resourceAttributes", "null", why);
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
        if !is_self && self.user.is_empty() && self.groups.is_empty() {
            refuse("spec.user", "\"\"", "at least one of user or group must be specified");
        }
        for (name, selector) in self.resource_attributes.iter().flat_map(ReviewResourceSpec::selectors) {
            if !selector.raw_selector.is_empty() && !selector.requirements.is_empty() {
                let field = format!("spec.resourceAttributes.{name}.rawSelector");
                refuse(&field, &quote(&selector.raw_selector), "may not specified at the same time as requirements");
            }
        }
        if ty.namespaced {
            let own = metadata::text(sent, "namespace");
            if self.resource_attributes.as_ref().is_some_and(|of| of.namespace != own) {
                let value = self.resource_attributes.as_ref().map_or("", |of| &of.namespace);
                refuse("spec.resourceAttributes.namespace", &quote(value), "must match metadata.namespace");
            }
            if let Some(path) = &self.non_resource_attributes {
                refuse("spec.nonResourceAttributes", &path.in_go(), "disallowed on this kind of request");
            }
        }
        check_metadata(ty, sent, &mut causes);
        if causes.is_empty() { Ok(()) } else { Err(Status::invalid(&ty.group, "", "", causes)) }
    }

    /// The user of a review that is not about the caller.
    fn user(&self) -> User {
        let (name, uid, groups) = (self.user.clone(), self.uid.clone(), self.groups.clone());
        User { name, uid, groups, extra: self.extra.clone() }
    }

    /// The attributes of the request that the review asks about.
    fn info(&self) -> RequestInfo {
        if let Some(path) = &self.non_resource_attributes {
            return RequestInfo { verb: path.verb.clone().into(), path: path.path.clone(), resource: None };
        }
        let nothing = ReviewResourceSpec::default();
        let of = self.resource_attributes.as_ref().unwrap_or(&nothing);
        let text = |selector: &Option<ReviewSelectorSpec>| RawSelector {
            raw_selector: selector.as_ref().map(ReviewSelectorSpec::text).unwrap_or_default(),
        };
        let resource = ResourceAttributes {
            group: of.group.clone(),
            version: of.version.clone(),
            resource: of.resource.clone(),
            subresource: of.subresource.clone(),
            namespace: of.namespace.clone(),
            name: of.name.clone(),
            field_selector: text(&of.field_selector),
            label_selector: text(&of.label_selector),
        };
        RequestInfo { verb: of.verb.clone().into(), path: String::new(), resource: Some(resource) }
    }
}

/// A review has no metadata, apart from the namespace of a namespaced one.
fn check_metadata(ty: &ResourceType, sent: &Object, causes: &mut Vec<StatusCause>) {
    let Some(Value::Object(metadata)) = sent.get("metadata") else { return };
    let is_known = |name: &str| name == "managedFields" || (name == "namespace" && ty.namespaced);
    let others = metadata.iter().filter(|(name, value)| !is_known(name) && !value.is_null());
    if others.count() > 0 {
        let value = Value::Object(metadata.clone()).to_string();
        let except = if ty.namespaced { "must be empty except for namespace" } else { "must be empty" };
        let text = format!("Invalid value: {value}: {except}");
        causes.push(StatusCause::new(CauseReason::FieldValueInvalid, "metadata", &text));
    }
}

impl ReviewResourceSpec {
    fn selectors(&self) -> impl Iterator<Item = (&'static str, &ReviewSelectorSpec)> {
        let named = [("fieldSelector", &self.field_selector), ("labelSelector", &self.label_selector)];
        named.into_iter().filter_map(|(name, selector)| Some((name, selector.as_ref()?)))
    }
}

impl ReviewPathSpec {
    /// The value as Go prints it.
    fn in_go(&self) -> String {
        format!("{{\"Path\":{},\"Verb\":{}}}", quote(&self.path), quote(&self.verb))
    }
}

impl ReviewSelectorSpec {
    /// The selector as text. A condition that no text has is left out, which makes the question stricter.
    fn text(&self) -> String {
        if !self.raw_selector.is_empty() {
            return self.raw_selector.clone();
        }
        let escape = |value: &str| value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let terms = self.requirements.iter().filter_map(|of| match (&*of.operator, &*of.values) {
            ("In", [value]) => Some(format!("{}={}", of.key, escape(value))),
            ("NotIn", [value]) => Some(format!("{}!={}", of.key, escape(value))),
            _ => None,
        });
        terms.collect::<Vec<_>>().join(",")
    }
}

/// Reads a member that may be null.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
