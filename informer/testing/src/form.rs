//! Response form that a client accepts: whole objects or only metadata.

use std::borrow::Cow;

use informer_core::object;
use informer_serving::status::{Status, StatusExt as _};
use serde_json::{Value, json};

use super::types::FakeType;

/// Shape of the requested response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseShape {
    /// A LIST.
    List,
    /// One object, or a watch, which sends single objects.
    Object,
}

/// Form in which objects are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FakeForm {
    /// Unchanged.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
}

/// The group version of the metadata form.
const META: &str = "meta.k8s.io/v1";

impl FakeForm {
    /// Selects the first acceptable clause of the Accept header. Ignores quality values.
    ///
    /// # Errors
    /// 406 if no clause is acceptable, or if it names the metadata form of an object for a list, or the reverse.
    pub(super) fn accepted(accept: &str, shape: ResponseShape) -> Result<Self, Status> {
        if accept.trim().is_empty() {
            return Ok(Self::Whole);
        }
        for clause in accept.split(',') {
            let mut parts = clause.split(';').map(str::trim);
            let range = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
            let parameter =
                |name: &str| parameters.iter().find(|(given, _)| *given == name).map(|(_, value)| value.trim());
            let is_json = matches!(&*range, "application/json" | "application/*" | "*/*");
            if !is_json || !matches!(parameter("stream"), None | Some("" | "watch")) {
                continue;
            }
            let named = (parameter("g"), parameter("v")) == (Some("meta.k8s.io"), Some("v1"));
            match (parameter("as"), shape) {
                (None | Some(""), _) => return Ok(Self::Whole),
                (Some("PartialObjectMetadataList"), ResponseShape::List) if named => return Ok(Self::Metadata),
                (Some("PartialObjectMetadata"), ResponseShape::Object) if named => return Ok(Self::Metadata),
                // The clause is acceptable, so later ones are not tried, although the response cannot have this form.
                (Some("PartialObjectMetadata"), ResponseShape::List) if named => {
                    return Err(unfit("you requested PartialObjectMetadata, but the requested object is a list"));
                }
                (Some("PartialObjectMetadataList"), ResponseShape::Object) if named => {
                    return Err(unfit(
                        "you requested PartialObjectMetadataList, but the requested object is not a list",
                    ));
                }
                (Some(_), _) => {}
            }
        }
        Err(Status::not_acceptable(&["application/json"]))
    }

    /// Converts one object to this form.
    pub(super) fn object(self, json: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Whole => json.into(),
            Self::Metadata => {
                let metadata = object::metadata_only(json).expect("JSON of our own writing");
                let mut metadata: Value = serde_json::from_slice(&metadata).expect("JSON of our own writing");
                metadata["kind"] = json!("PartialObjectMetadata");
                metadata["apiVersion"] = json!(META);
                metadata.to_string().into_bytes().into()
            }
        }
    }

    /// Kind and apiVersion of a list of such objects.
    pub(super) fn list_type(self, ty: &FakeType) -> (String, &str) {
        match self {
            Self::Whole => (format!("{}List", ty.kind), &ty.api_version),
            Self::Metadata => ("PartialObjectMetadataList".to_owned(), META),
        }
    }

    /// Kind and apiVersion of a single object.
    pub(super) fn object_type(self, ty: &FakeType) -> (&str, &str) {
        match self {
            Self::Whole => (&ty.kind, &ty.api_version),
            Self::Metadata => ("PartialObjectMetadata", META),
        }
    }
}

fn unfit(why: &str) -> Status {
    Status { message: why.to_owned(), ..Status::not_acceptable(&[]) }
}
