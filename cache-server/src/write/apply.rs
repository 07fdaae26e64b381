//! Server-side apply: reads the object, applies the configuration to it, and writes it; again when another write came
//! first.

use api_rules::object::{
    WriteTarget, apply::AppliedConfiguration, metadata::Part, options::PatchOptions, update::RequestedChange,
};
use informer_serving::status::{Reason, Status};

use super::{answer::WriteAnswer, commit, create, schemas};
use crate::{app::LocalApp, clock, limits::WRITE_ATTEMPTS_MAX};

/// Applies a configuration to an object, or creates the object.
pub(super) async fn apply(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    body: &[u8],
    requested: PatchOptions,
    warnings: &mut Vec<String>,
) -> Result<WriteAnswer, Status> {
    let options = requested.options;
    let change = match AppliedConfiguration::read(place, body, requested, warnings) {
        Ok(applied) => RequestedChange::Apply(applied.completed_by(schemas::completion(app, place.ty))),
        Err(status) => {
            if place.part != Part::Main {
                // 404 takes precedence over errors in the configuration, for subresources.
                commit::check_stored(app, place).await?;
            }
            return Err(status);
        }
    };
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let current = match commit::read_for_change(app, place, &change, options).await {
            Ok(current) => current,
            // Only an apply to the main resource creates the object.
            Err(status) if status.reason == Reason::NotFound && place.part == Part::Main => {
                let RequestedChange::Apply(applied) = &change else { break };
                match create::create_named(app, place.ty, &applied.first(place, &clock::now())?, options).await? {
                    Some(answer) => return Ok(answer),
                    None => continue,
                }
            }
            Err(status) => return Err(status),
        };
        if let Some(answer) = commit::attempt(app, place, &current, &change, options, &mut Vec::new()).await? {
            return Ok(answer);
        }
    }
    Err(place.modified())
}
