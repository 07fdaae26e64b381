//! Objects of requests and responses, as records hold them.
//!
//! INVARIANT: no credential enters a record, whatever the policy says: neither objects of types that hold credentials, nor
//! patches of them, lists with them, or error texts that may quote their fields.

use informer_serving::status::{Reason, Status};
use serde_json::{Map, Value};

use super::level::AuditLevel;
use crate::request_info::RequestInfo;

/// Types whose objects hold credentials, whatever their group: secret stores of other vendors use this name too.
const CREDENTIAL_TYPES: [&str; 2] = ["secrets", "tokenreviews"];

/// Subresource whose bodies hold credentials: `serviceaccounts/token`.
const TOKEN: &str = "token";

/// Kinds that hold credentials. A body may have another kind than its path.
const CREDENTIAL_KINDS: [&str; 3] = ["Secret", "TokenReview", "TokenRequest"];

/// Depth to which objects in objects are searched for kinds that hold credentials. Deeper ones are not recorded.
const DEPTH_MAX: usize = 64;

/// Returns true if bodies of the request may hold credentials.
#[must_use]
pub fn holds_credentials(info: &RequestInfo) -> bool {
    let Some(of) = &info.resource else { return false };
    CREDENTIAL_TYPES.contains(&&*of.resource) || of.subresource == TOKEN
}

/// Returns the level at which a request is recorded if the policy chooses `level`: requests whose bodies may hold
/// credentials are recorded without them.
#[must_use]
pub fn lowered(level: AuditLevel, info: &RequestInfo) -> AuditLevel {
    if holds_credentials(info) { level.min(AuditLevel::Metadata) } else { level }
}

/// Returns true if the response to the request is one object. Those of other requests have no bound, so they are not
/// recorded.
#[must_use]
pub fn is_single(info: &RequestInfo) -> bool {
    info.resource.is_some() && matches!(&*info.verb, "get" | "create" | "update" | "patch" | "delete")
}

/// Returns true if the body of the request is a part of an object, which only the whole object explains: a patch or an
/// apply. A Scale holds no credentials.
#[must_use]
pub fn is_part(info: &RequestInfo) -> bool {
    info.verb == "patch" && info.resource.as_ref().is_some_and(|of| of.subresource != "scale")
}

/// Built-in types whose objects may hold objects of any type.
const EMBEDDING_TYPES: [&str; 5] =
    ["controllerrevisions", "customresourcedefinitions", "deviceclasses", "resourceclaims", "resourceclaimtemplates"];

/// Returns true if objects of the request's type, which is a built-in one, may hold objects of any type.
#[must_use]
pub fn embeds_objects(info: &RequestInfo) -> bool {
    info.resource.as_ref().is_some_and(|of| EMBEDDING_TYPES.contains(&&*of.resource))
}

/// Prepares an object, or a patch, for a record. Returns `None` if it holds an object with credentials.
#[must_use]
pub fn recorded(mut object: Value, omits_managed_fields: bool) -> Option<Value> {
    if has_credentials(&object, DEPTH_MAX) {
        return None;
    }
    if omits_managed_fields && let Value::Object(members) = &mut object {
        remove_managed_fields(members);
    }
    Some(object)
}

/// Returns true if an object is one with credentials, or holds one.
#[must_use]
pub fn has_embedded_credentials(object: &Map<String, Value>) -> bool {
    members_have_credentials(object, DEPTH_MAX)
}

fn has_credentials(value: &Value, depth: usize) -> bool {
    if depth == 0 {
        return true;
    }
    match value {
        Value::Object(members) => members_have_credentials(members, depth),
        Value::Array(items) => items.iter().any(|item| has_credentials(item, depth - 1)),
        Value::String(text) => text_has_credentials(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn members_have_credentials(members: &Map<String, Value>, depth: usize) -> bool {
    let kind = members.get("kind").and_then(Value::as_str).unwrap_or_default();
    let is_one = CREDENTIAL_KINDS.contains(&kind.strip_suffix("List").unwrap_or(kind));
    is_one || members.values().any(|member| has_credentials(member, depth - 1))
}

/// Returns true if a text may be a document of an object with credentials: kubectl keeps objects as JSON in an annotation,
/// charts keep them as YAML in a ConfigMap. Looks for words instead of parsing, because YAML writes one member in many
/// ways; a text without credentials that has both words is left out too.
fn text_has_credentials(text: &str) -> bool {
    let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let names_kind = |word: &str| CREDENTIAL_KINDS.contains(&word.strip_suffix("List").unwrap_or(word));
    // `\u0053ecret` and `\x53ecret` are other spellings of the words.
    let hides_letters = text.split('\\').skip(1).any(|escape| {
        let digits = escape.strip_prefix("u00").or_else(|| escape.strip_prefix('x'));
        digits.is_some_and(|digits| digits.starts_with(['4', '5', '6', '7']))
    });
    hides_letters || text.contains("kind") && words.any(names_kind)
}

/// Removes `managedFields` from an object, and from the objects of a table's rows.
fn remove_managed_fields(members: &mut Map<String, Value>) {
    if let Some(Value::Object(metadata)) = members.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    let rows = members.get_mut("rows").and_then(Value::as_array_mut);
    for object in rows.into_iter().flatten().filter_map(|row| row.get_mut("object")?.as_object_mut()) {
        remove_managed_fields(object);
    }
}

/// Returns `status` as a record holds it: without its text and causes if they may quote fields of an object with
/// credentials.
///
/// `has_credentials` is true if the object has some without being of such a type.
#[must_use]
pub fn recorded_status(status: &Status, info: &RequestInfo, has_credentials: bool) -> Status {
    let names_only = [
        Reason::Forbidden,
        Reason::Unauthorized,
        Reason::NotFound,
        Reason::Conflict,
        Reason::AlreadyExists,
        Reason::MethodNotAllowed,
        Reason::TooManyRequests,
    ];
    let quotes =
        (has_credentials || holds_credentials(info)) && status.is_failure() && !names_only.contains(&status.reason);
    let mut status = status.clone();
    if quotes {
        status.message.clear();
        status.details.iter_mut().for_each(|details| details.causes.clear());
    }
    status
}

#[cfg(test)]
mod tests {
    use informer_serving::query::Query;
    use serde_json::json;

    use super::*;

    fn info(method: &str, path: &str) -> RequestInfo {
        RequestInfo::new(method, path, &Query::default())
    }

    /// Goal: bodies with credentials are never recorded. Method: a table of requests, at the highest level.
    #[test]
    fn requests_with_credentials_are_recorded_without_bodies() {
        for (path, level) in [
            ("/api/v1/namespaces/a/secrets", AuditLevel::Metadata),
            ("/api/v1/namespaces/a/secrets/b", AuditLevel::Metadata),
            ("/api/v1/secrets", AuditLevel::Metadata),
            ("/apis/vault.example.com/v1/namespaces/a/secrets/b", AuditLevel::Metadata),
            ("/apis/authentication.k8s.io/v1/tokenreviews", AuditLevel::Metadata),
            ("/api/v1/namespaces/a/serviceaccounts/b/token", AuditLevel::Metadata),
            ("/api/v1/namespaces/a/serviceaccounts/b", AuditLevel::RequestResponse),
            ("/api/v1/namespaces/a/configmaps/secrets", AuditLevel::RequestResponse),
        ] {
            assert_eq!(lowered(AuditLevel::RequestResponse, &info("POST", path)), level, "{path}");
        }
        assert_eq!(lowered(AuditLevel::None, &info("GET", "/api/v1/secrets")), AuditLevel::None);
    }

    #[test]
    fn only_responses_of_one_object_are_recorded() {
        for (method, path, expected) in [
            ("GET", "/api/v1/namespaces/a/pods/b", true),
            ("POST", "/api/v1/namespaces/a/pods", true),
            ("GET", "/api/v1/pods", false),
            ("GET", "/metrics", false),
            ("DELETE", "/api/v1/namespaces/a/pods", false),
        ] {
            assert_eq!(is_single(&info(method, path)), expected, "{method} {path}");
        }
    }

    #[test]
    fn objects_in_objects_count_too() {
        let secret = json!({"kind": "Secret", "data": {"k": "v"}});
        for object in [
            secret.clone(),
            json!({"kind": "SecretList", "items": []}),
            json!({"kind": "List", "items": [{"kind": "ConfigMap"}, secret]}),
            json!({"kind": "Table", "rows": [{"object": secret}]}),
            json!([{"op": "add", "path": "/x", "value": secret}]),
            json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": secret.to_string()}}}),
        ] {
            assert_eq!(recorded(object.clone(), false), None, "{object}");
        }
        let deep = (0..DEPTH_MAX).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(recorded(deep, false), None);
        let other = json!({"kind": "ConfigMap", "data": {"kind": "Secrets of the trade"}});
        assert_eq!(recorded(other.clone(), false), Some(other));
    }

    /// Goal: a Secret in a text is found however the text is written. Method: spellings in JSON and YAML, and texts that are
    /// none.
    #[test]
    fn documents_in_texts_count_too() {
        for text in [
            "{\"kind\":\"Secret\"}",
            "{ \"kind\" : \"Secret\" }",
            r#"{\"kind\":\"Secret\"}"#,
            "kind: Secret\nstringData: {k: v}\n",
            "apiVersion: v1\nkind:   'Secret'",
            "data: {k: v}\nkind:\n  SecretList",
            "{kind: TokenReview, spec: {token: t}}",
            "kind: !!str Secret",
            "kind: &a TokenRequest",
            "? kind\n: Secret",
            r#"kind: "\u0053ecret""#,
            r#"kind: "\x53ecret""#,
            r#""\u006bind": Secret"#,
        ] {
            assert_eq!(recorded(json!({"spec": {"manifest": text}}), false), None, "{text}");
        }
        for text in ["kind: ConfigMap\nname: secret-store", "Secret", "kind: SecretStore", r"a \u003c b, \n, \xff"] {
            assert!(recorded(json!({"data": {"manifest": text}}), false).is_some(), "{text}");
        }
    }

    #[test]
    fn patches_are_parts_of_objects() {
        for (method, path, expected) in [
            ("PATCH", "/api/v1/namespaces/a/pods/b", true),
            ("PATCH", "/api/v1/namespaces/a/pods/b/status", true),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/b/scale", false),
            ("PUT", "/api/v1/namespaces/a/pods/b", false),
        ] {
            assert_eq!(is_part(&info(method, path)), expected, "{method} {path}");
        }
    }

    #[test]
    fn managed_fields_are_left_out_on_request() {
        let object = json!({"metadata": {"name": "a", "managedFields": []}, "rows": [{"object": {"metadata":
            {"managedFields": []}}}]});
        assert_eq!(recorded(object.clone(), false), Some(object.clone()));
        let left = json!({"metadata": {"name": "a"}, "rows": [{"object": {"metadata": {}}}]});
        assert_eq!(recorded(object, true), Some(left));
    }

    #[test]
    fn texts_of_errors_may_quote_a_secret() {
        let failure = |reason| Status {
            status: "Failure".to_owned(),
            message: "data[k]: Invalid value".to_owned(),
            reason,
            ..Status::default()
        };
        let secrets = info("POST", "/api/v1/namespaces/a/secrets");
        for (reason, text) in [(Reason::Invalid, ""), (Reason::BadRequest, ""), (Reason::Unknown, "")] {
            assert_eq!(recorded_status(&failure(reason), &secrets, false).message, text);
        }
        assert_ne!(recorded_status(&failure(Reason::NotFound), &secrets, false).message, "");
        let pods = info("POST", "/api/v1/namespaces/a/pods");
        assert_ne!(recorded_status(&failure(Reason::Invalid), &pods, false).message, "");
        assert_eq!(recorded_status(&failure(Reason::Invalid), &pods, true).message, "");
    }
}
