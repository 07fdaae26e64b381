//! `…/{name}/scale`: reads the object, and writes the wanted number back into it.

use api_rules::object::{
    Object, WriteRequest,
    body::Encoding,
    metadata,
    options::{Options, PatchOptions},
    patch::{Patch, PatchType},
    put,
    scale::{self, API_VERSION, KIND},
    update::{RequestedChange, SentObject},
};
use http::StatusCode;
use informer_serving::status::{Status, StatusExt as _};
use serde_json::Value;

use super::{
    answer::{AnswerDocument, WriteAnswer},
    commit, webhooks,
};
use crate::{app::LocalApp, limits::WRITE_ATTEMPTS_MAX};

/// `GET …/{name}/scale`.
pub(super) async fn get(app: &LocalApp<'_>, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    let (place, paths) = scale::target(request)?;
    let current = commit::read(app, &place).await?;
    Ok(answer(&scale::read(paths, &current.object)))
}

/// `PUT …/{name}/scale`.
pub(super) async fn update(app: &LocalApp<'_>, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    let (place, _) = scale::target(request)?;
    let options = Options::read("UpdateOptions", request.query)?;
    let sent = scale::read_sent(request)?;
    metadata::check_shape(&sent).map_err(|error| scale::cannot_be_handled(&error))?;
    metadata::match_namespace(place.ty, place.namespace, &mut sent.clone())?;
    place.match_name(&sent)?;
    write(app, request, options, |_| Ok(sent.clone())).await
}

/// `PATCH …/{name}/scale`. A Scale has no lists, so strategic merge patches and applies are treated as merge patches.
pub(super) async fn patch(app: &LocalApp<'_>, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    let patch_type = PatchType::of(request.ty, request.content_type)?;
    let options = PatchOptions::read(request.query, patch_type == PatchType::Apply)?.options;
    let (patch_type, body) = match patch_type {
        PatchType::Strategic => (PatchType::Merge, request.body.to_vec()),
        PatchType::Apply => {
            let unreadable = |error: String| Status::bad_request(format!("error decoding YAML: {error}"));
            let value = Encoding::Yaml.decode(request.body).map_err(unreadable)?;
            (PatchType::Merge, value.to_string().into_bytes())
        }
        other @ (PatchType::Json | PatchType::Merge) => (other, request.body.to_vec()),
    };
    let patch = Patch::read(patch_type, &body, options.validation)?;
    write(app, request, options, |scale| patch.edit(scale, None)).await
}

/// Carries out a change of the Scale as an update of the object.
async fn write(
    app: &LocalApp<'_>,
    request: &WriteRequest<'_>,
    options: Options,
    change: impl Fn(&Object) -> Result<Object, Status>,
) -> Result<WriteAnswer, Status> {
    let (place, paths) = scale::target(request)?;
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let current = commit::read(app, &place).await?;
        let stored = scale::read(paths, &current.object);
        let mut changed = change(&stored)?;
        let admitted = webhooks::AdmittedChange { place: &place, is_scale: true, options };
        webhooks::mutate_update(app, admitted, &mut changed, &stored).await?;
        let replicas = scale::requested_replicas(&place, &current.object, &changed)?;
        webhooks::check_update(app, admitted, &changed, &stored).await?;
        let mut object = current.object.clone();
        put(&mut object, &paths.spec_replicas, replicas.into());
        // A retry must build a new object from the new version.
        let again = || Err(place.modified());
        let change = RequestedChange::Replace(SentObject::new(object, &again));
        // Webhooks have decided about the Scale.
        let app = &app.admitted_by(None).for_scale();
        let Some(answered) = commit::attempt(app, &place, &current, &change, options, &mut Vec::new()).await? else {
            continue;
        };
        return match serde_json::from_slice(&answered.document.json(place.ty)) {
            Ok(Value::Object(object)) => Ok(answer(&scale::read(paths, &object))),
            Ok(_) | Err(_) => Err(Status::internal("a stored object cannot be read")),
        };
    }
    Err(place.modified())
}

fn answer(scale: &Object) -> WriteAnswer {
    let mut json = format!("{{\"kind\":\"{KIND}\",\"apiVersion\":\"{API_VERSION}\"");
    for member in ["metadata", "spec", "status"] {
        let value = scale.get(member).unwrap_or(&Value::Null);
        json.push_str(&format!(",\"{member}\":{value}"));
    }
    json.push_str("}\n");
    WriteAnswer { code: StatusCode::OK, document: AnswerDocument::Text(json.into()), warnings: Vec::new() }
}
