//! The write that webhooks decide about, and the question that they get.

use api_rules::{object::Object, registry::ResourceType};
use serde_json::{Value, json};

use super::configuration::AdmissionWebhook;

/// The effect of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionOperation {
    /// Makes an object, or gives an order about one.
    Create,
    /// Changes an object.
    Update,
    /// Deletes an object.
    Delete,
}

impl AdmissionOperation {
    /// Its name in rules and questions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    /// Kind of its options.
    const fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// Group, version and kind of the objects of a write that is about a subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectKind<'a> {
    /// API group.
    pub group: &'a str,
    /// Version within the group.
    pub version: &'a str,
    /// Kind.
    pub kind: &'a str,
}

/// A write.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRequest<'a> {
    /// Its effect.
    pub operation: AdmissionOperation,
    /// The type of the path.
    pub ty: &'a ResourceType,
    /// The subresource of the path; empty for none.
    pub subresource: &'a str,
    /// The kind of its objects, if they are not of `ty`.
    pub kind: Option<ObjectKind<'a>>,
    /// Empty for cluster-scoped types, but for namespaces.
    pub namespace: &'a str,
    /// Empty if it is not known yet.
    pub name: &'a str,
    /// The new object; `None` for a deletion.
    pub object: Option<&'a Object>,
    /// The stored object; `None` for a create.
    pub old: Option<&'a Object>,
    /// Options of the request, without their kind.
    pub options: &'a Object,
    /// Nothing is stored.
    pub is_dry: bool,
    /// UserInfo of the caller.
    pub user: &'a Value,
}

impl AdmissionRequest<'_> {
    /// Returns both objects as those of a type that shares them; null for none.
    pub(crate) fn objects_as(&self, target: &ResourceType) -> (Value, Value) {
        let convert = |object: &Object| {
            let mut object = object.clone();
            self.convert(&mut object, self.ty, target);
            Value::Object(object)
        };
        (self.object.map_or(Value::Null, convert), self.old.map_or(Value::Null, convert))
    }

    /// Turns an object of one type into that of another one that shares it. Orders about objects are the same for all.
    pub(super) fn convert(&self, object: &mut Object, from: &ResourceType, to: &ResourceType) {
        if self.kind.is_some() || from.api_version() == to.api_version() {
            return;
        }
        if let Some(conversion) = from.conversion {
            (conversion.to_stored)(object);
        }
        if let Some(conversion) = to.conversion {
            (conversion.from_stored)(object);
        }
        object.insert("apiVersion".to_owned(), to.api_version().into());
    }

    /// Returns the question without the objects.
    pub(crate) fn question(&self, target: &ResourceType) -> Value {
        let kind = |ty: &ResourceType| {
            let own = ObjectKind { group: &ty.group, version: &ty.version, kind: &ty.kind };
            let ObjectKind { group, version, kind } = self.kind.unwrap_or(own);
            json!({"group": group, "version": version, "kind": kind})
        };
        let resource = |ty: &ResourceType| json!({"group": ty.group, "version": ty.version, "resource": ty.plural});
        let mut options = self.options.clone();
        options.insert("kind".to_owned(), self.operation.options().into());
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        let mut question = json!({
            "kind": kind(target),
            "resource": resource(target),
            "requestKind": kind(self.ty),
            "requestResource": resource(self.ty),
            "operation": self.operation.name(),
            "userInfo": self.user,
            "dryRun": self.is_dry,
            "options": options,
        });
        for (member, text) in [("name", self.name), ("namespace", self.namespace)] {
            if !text.is_empty() {
                question[member] = text.into();
            }
        }
        if !self.subresource.is_empty() {
            question["subResource"] = self.subresource.into();
            question["requestSubResource"] = self.subresource.into();
        }
        question
    }

    /// Writes the question for a webhook, which gets the objects as those of `target`. Returns `None` if it understands none
    /// of the reviews of this server. Cost: a copy of both objects.
    #[must_use]
    pub fn review(&self, webhook: &AdmissionWebhook, target: &ResourceType, uid: &str) -> Option<Vec<u8>> {
        let review_version = webhook.review_version?;
        let mut question = self.question(target);
        let (object, old) = self.objects_as(target);
        question["uid"] = uid.into();
        question["object"] = object;
        question["oldObject"] = old;
        let api_version = format!("admission.k8s.io/{review_version}");
        let review = json!({"kind": "AdmissionReview", "apiVersion": api_version, "request": question});
        Some(review.to_string().into_bytes())
    }
}
