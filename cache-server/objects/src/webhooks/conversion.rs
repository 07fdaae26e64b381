//! Webhooks that convert custom resources between versions: their questions, and what their answers mean.
//!
//! INVARIANT: a webhook changes no metadata but labels and annotations, and leaves no member that the version does not
//! have. INVARIANT: an answer that would take more memory than the objects of a question may is not decoded.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/conversion/webhook_converter.go`, `pkg/apis/apiextensions/validation`.

use api_rules::{
    limits::DECODED_BYTES_MAX,
    object::{Object, metadata, weight::Weight},
    registry::ResourceType,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use informer_serving::{
    go::quote,
    status::{CauseExt as _, Causes, Status, StatusCause, StatusExt as _},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    WebhookAddress,
    check::{self, REVIEW_VERSIONS},
    configuration, urls,
};
use crate::{limits::HEAVY_OBJECTS_MAX, structural, validation::metadata_complaints};

/// API group of the reviews.
const GROUP: &str = "apiextensions.k8s.io";

/// A webhook that converts objects.
#[derive(Debug)]
pub struct ConversionWebhook {
    /// Its address.
    pub address: WebhookAddress,
    /// Certificates of the authorities that its own is checked by, in PEM; empty for those of the system.
    pub authorities: Vec<u8>,
    /// Version of the reviews that it understands; `None` if this server knows none of them.
    review_version: Option<&'static str>,
}

/// Objects to convert, all from one version to one other.
#[derive(Clone, Copy, Debug)]
pub struct ConversionQuestion<'a> {
    /// Identifies the question.
    pub uid: &'a str,
    /// The type of the objects.
    pub from: &'a ResourceType,
    /// The type that they shall have.
    pub to: &'a ResourceType,
    /// The objects, with the apiVersion of `from`.
    pub objects: &'a [Object],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SentReview<'a> {
    kind: &'static str,
    api_version: String,
    request: SentRequest<'a>,
}

#[derive(Serialize)]
struct SentRequest<'a> {
    uid: &'a str,
    #[serde(rename = "desiredAPIVersion")]
    desired: &'a str,
    objects: &'a [Object],
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnsweredReview {
    kind: String,
    api_version: String,
    response: Option<ConversionResponse>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ConversionResponse {
    uid: String,
    converted_objects: Option<Vec<Object>>,
    result: ConversionResult,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConversionResult {
    status: String,
    message: String,
}

impl ConversionWebhook {
    /// Reads `spec.conversion.webhook` of a definition.
    #[must_use]
    pub fn read(webhook: &Value) -> Self {
        let client = webhook.get("clientConfig").unwrap_or(&Value::Null);
        let authorities = client.get("caBundle").and_then(Value::as_str).unwrap_or_default();
        let known = |version: &str| REVIEW_VERSIONS.into_iter().find(|known| *known == version);
        Self {
            address: configuration::address(client),
            authorities: STANDARD.decode(authorities).unwrap_or_default(),
            review_version: check::texts(webhook, "conversionReviewVersions").into_iter().find_map(known),
        }
    }

    /// Returns the body of a question.
    ///
    /// # Errors
    /// A text about a webhook that understands no known review.
    pub fn question(&self, question: &ConversionQuestion<'_>) -> Result<Vec<u8>, String> {
        let version = self.review_version.ok_or("no supported conversion review versions")?;
        let ConversionQuestion { uid, to, objects, .. } = *question;
        let request = SentRequest { uid, desired: to.api_version(), objects };
        let review = SentReview { kind: "ConversionReview", api_version: format!("{GROUP}/{version}"), request };
        serde_json::to_vec(&review).map_err(|error| error.to_string())
    }

    /// Returns the converted objects, in the order of those in the question.
    ///
    /// # Errors
    /// The failure in Kubernetes' words.
    pub fn answer(&self, question: &ConversionQuestion<'_>, body: &[u8]) -> Result<Vec<Object>, String> {
        let max = DECODED_BYTES_MAX * question.objects.len().min(HEAVY_OBJECTS_MAX);
        let weight = Weight::new(max).json(body).map_err(|error| error.to_string());
        let read = weight.and_then(|()| self.read_answer(question.uid, body));
        let converted = read.map_err(|reason| question.failed(&format!("failed: {reason}")))?;
        let (found, expected) = (converted.len(), question.objects.len());
        if found != expected {
            return Err(question.failed(&format!("returned {found} objects, expected {expected}")));
        }
        let pairs = question.objects.iter().zip(converted).enumerate();
        let checked = pairs.map(|(at, (original, converted))| {
            let invalid =
                |why: String| question.failed(&format!("returned invalid converted object at index {at}: {why}"));
            question.checked(original, converted).map_err(invalid)
        });
        checked.collect()
    }

    fn read_answer(&self, uid: &str, body: &[u8]) -> Result<Vec<Object>, String> {
        // Its message may show what the answer holds.
        let review: AnsweredReview = serde_json::from_slice(body)
            .map_err(|error| format!("the answer is no ConversionReview ({:?})", error.classify()))?;
        let AnsweredReview { kind, api_version, response } = review;
        let version = self.review_version.unwrap_or_default();
        if version == "v1" && (&*kind, &*api_version) != ("ConversionReview", &*format!("{GROUP}/v1")) {
            let expected = format!("{GROUP}/v1, Kind=ConversionReview");
            return Err(format!("expected webhook response of {expected}, got {api_version}, Kind={kind}"));
        }
        let response = response.ok_or("no response provided")?;
        if version == "v1" && response.uid != uid {
            return Err(format!("expected response.uid={}, got {}", quote(uid), quote(&response.uid)));
        }
        let ConversionResult { status, message } = response.result;
        match (&*status, &*message) {
            ("Success", _) => Ok(response.converted_objects.unwrap_or_default()),
            (_, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
            _ => Err(message),
        }
    }
}

impl ConversionQuestion<'_> {
    /// The message about a conversion that failed: `what` completes its sentence.
    #[must_use]
    pub fn failed(&self, what: &str) -> String {
        format!("conversion webhook for {}, Kind={} {what}", self.from.api_version(), self.from.kind)
    }

    /// Returns a converted object with the metadata of the one in the question, but for labels and annotations.
    fn checked(&self, original: &Object, mut converted: Object) -> Result<Object, String> {
        let text = |member: &str| converted.get(member).and_then(Value::as_str).unwrap_or_default();
        for (member, what, expected) in
            [("apiVersion", "groupVersion", self.to.api_version()), ("kind", "kind", &*self.from.kind)]
        {
            if text(member) != expected {
                return Err(format!("invalid {what} (expected {expected}, received {})", text(member)));
            }
        }
        for (member, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
            let (original, found) = (metadata::text(original, member), metadata::text(&converted, member));
            if original != found {
                return Err(format!("must have the same {shown}: {original} != {found}"));
            }
        }
        let Some(Value::Object(mut sent)) = converted.remove("metadata") else {
            return Err("missing metadata in converted object".to_owned());
        };
        let mut restored = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        for member in ["labels", "annotations"] {
            restored.remove(member);
            match sent.remove(member) {
                None | Some(Value::Null) => {}
                Some(Value::Object(texts)) if texts.values().all(Value::is_string) => {
                    restored.insert(member.to_owned(), texts.into());
                }
                Some(_) => return Err(format!("invalid metadata.{member} in converted object")),
            }
        }
        converted.insert("metadata".to_owned(), restored.into());
        if let Some(complaints) = metadata_complaints(&converted, original) {
            return Err(complaints);
        }
        structural::prune(self.to, &mut converted);
        Ok(converted)
    }
}

/// Checks the conversion of a new or changed definition; objects of other types are not looked at.
///
/// # Errors
/// 422. A conversion that is stored already is not refused.
pub fn check(ty: &ResourceType, object: &Object, stored: Option<&Object>) -> Result<(), Status> {
    let conversion = |object: &Object| object.get("spec").map(|spec| spec["conversion"].clone()).unwrap_or_default();
    let new = conversion(object);
    if !ty.defines_types || stored.is_some_and(|stored| conversion(stored) == new) {
        return Ok(());
    }
    let (client_field, versions_field) =
        ("spec.conversion.webhookClientConfig", "spec.conversion.conversionReviewVersions");
    let (client, versions) =
        (&new["webhook"]["clientConfig"], check::texts(&new["webhook"], "conversionReviewVersions"));
    let mut causes = Causes::default();
    if new["strategy"] == "Webhook" {
        if client.is_object() {
            urls::check(client, client_field, &mut causes);
        } else {
            causes.push(StatusCause::required(client_field, "required when strategy is set to Webhook"));
        }
        check::review_versions(&versions, "", versions_field, &mut causes);
    } else {
        let why = "should not be set when strategy is not set to Webhook";
        if client.is_object() {
            causes.push(StatusCause::forbidden(client_field, why));
        }
        if !versions.is_empty() {
            causes.push(StatusCause::forbidden(versions_field, why));
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&ty.group, &ty.kind, metadata::text(object, "name"), causes))
}

#[cfg(test)]
mod tests {
    use api_rules::registry::{Definition, Registry};
    use serde_json::json;

    use super::*;

    /// Both versions of a type whose objects are stored as `v1`.
    fn types() -> [std::sync::Arc<ResourceType>; 2] {
        let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
            "group": "example.com", "conversion": {"strategy": "Webhook"},
            "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v2", "served": true}]},
            "status": {"acceptedNames": {"plural": "things", "kind": "Thing"}}});
        let definition =
            Definition::read(definition.as_object().expect("an object")).expect("a definition").converting();
        let types = definition.types(&std::sync::Arc::new(definition.schema()), 1);
        let registry = Registry::builtin().changed([], &types);
        ["v1", "v2"].map(|version| registry.find("example.com", version, "things").expect("is served"))
    }

    fn thing(version: &str, metadata: &Value) -> Object {
        let mut metadata = metadata.clone();
        metadata["name"] = "a".into();
        let thing = json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": metadata});
        thing.as_object().expect("an object").clone()
    }

    /// Goal: a webhook decides about labels, annotations and the rest of an object, and nothing else. Method: answers to one
    /// question.
    #[test]
    fn answers_are_what_the_question_asked_for() {
        let [from, to] = types();
        assert_eq!((from.cache_id(), to.cache_id()), ("things.example.com", "things.example.com/v2"));
        let webhook = ConversionWebhook::read(&json!({"conversionReviewVersions": ["v7", "v1"]}));
        let original = thing("v1", &json!({"uid": "u", "labels": {"a": "b"}, "generation": 3}));
        let objects = [original];
        let question = ConversionQuestion { uid: "q", from: &from, to: &to, objects: &objects };
        let sent: Value = serde_json::from_slice(&webhook.question(&question).expect("a question")).expect("is JSON");
        assert_eq!(sent["request"]["desiredAPIVersion"], "example.com/v2");
        assert_eq!(sent["request"]["objects"], json!(objects));
        let review = |uid: &str, result: Value, objects: Value| {
            let response = json!({"uid": uid, "convertedObjects": objects, "result": result});
            json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response})
                .to_string()
        };
        let answer = |uid: &str, result: Value, objects: Value| {
            webhook.answer(&question, review(uid, result, objects).as_bytes())
        };
        let success = || json!({"status": "Success"});
        let converted = thing("v2", &json!({"uid": "u", "labels": {"c": "d"}, "generation": 9}));
        let taken = answer("q", success(), json!([converted])).expect("is converted");
        assert_eq!(taken, [thing("v2", &json!({"uid": "u", "labels": {"c": "d"}, "generation": 3}))]);
        let invalid = "returned invalid converted object at index 0: ";
        for (uid, result, objects, expected) in [
            ("p", success(), json!([]), "failed: expected response.uid=\"q\", got \"p\"".to_owned()),
            ("q", json!({"status": "Failure", "message": "no"}), json!([]), "failed: no".to_owned()),
            ("q", json!({}), json!([]), "failed: response.result.status was '', not 'Success'".to_owned()),
            ("q", success(), json!([]), "returned 0 objects, expected 1".to_owned()),
            (
                "q",
                success(),
                json!([thing("v1", &json!({"uid": "u"}))]),
                format!("{invalid}invalid groupVersion (expected example.com/v2, received example.com/v1)"),
            ),
            (
                "q",
                success(),
                json!([thing("v2", &json!({"uid": "w"}))]),
                format!("{invalid}must have the same UID: u != w"),
            ),
            (
                "q",
                success(),
                json!([thing("v2", &json!({"uid": "u", "labels": {"a": 1}}))]),
                format!("{invalid}invalid metadata.labels in converted object"),
            ),
        ] {
            let error = answer(uid, result, objects).expect_err(&expected);
            assert_eq!(error, format!("conversion webhook for example.com/v1, Kind=Thing {expected}"));
        }
    }

    #[test]
    fn definitions_say_how_to_convert() {
        let registry = Registry::builtin();
        let ty = registry.by_id("customresourcedefinitions.apiextensions.k8s.io").expect("is built in");
        let url = json!({"url": "https://localhost/convert"});
        for (conversion, expected) in [
            (json!({"strategy": "None"}), vec![]),
            (
                json!({"strategy": "Webhook", "webhook": {"clientConfig": url, "conversionReviewVersions": ["v1"]}}),
                vec![],
            ),
            (
                json!({"strategy": "Webhook"}),
                vec![
                    "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                    "spec.conversion.conversionReviewVersions: Required value",
                ],
            ),
            (
                json!({"strategy": "None", "webhook": {"clientConfig": url}}),
                vec![
                    "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook",
                ],
            ),
            (
                json!({"strategy": "Webhook", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v2"]}}),
                vec![
                    "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required",
                    "spec.conversion.conversionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
                ],
            ),
        ] {
            let object = json!({"metadata": {"name": "a"}, "spec": {"conversion": conversion}});
            let object = object.as_object().expect("an object");
            let refused = check(&ty, object, None).err().map(|status| status.message.to_string()).unwrap_or_default();
            for expected in &expected {
                assert!(refused.contains(expected), "{refused}");
            }
            assert_eq!(refused.is_empty(), expected.is_empty(), "{refused}");
            assert!(check(&ty, object, Some(object)).is_ok(), "what is stored stays");
        }
    }
}
