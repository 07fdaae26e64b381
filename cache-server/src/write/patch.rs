//! PATCH: JSON patches, merge patches and strategic merge patches of an object, and applies (`apply`).
//!
//! Source: apiserver `endpoints/handlers/patch.go`.

use api_rules::object::{
    WriteRequest,
    options::PatchOptions,
    patch::{Patch, PatchType},
    update::RequestedChange,
};
use informer_serving::status::Status;

use super::{answer::WriteAnswer, apply, commit};
use crate::app::LocalApp;

/// `PATCH …/{plural}/{name}`, and of its subresource `status`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn patch(app: &LocalApp<'_>, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    let place = request.target()?;
    let patch_type = PatchType::of(request.ty, request.content_type)?;
    let requested = PatchOptions::read(request.query, patch_type == PatchType::Apply)?;
    let mut warnings = Vec::new();
    if patch_type == PatchType::Apply {
        let answer = apply::apply(app, &place, request.body, requested, &mut warnings).await?;
        return Ok(WriteAnswer { warnings, ..answer });
    }
    let patch = match Patch::read(patch_type, request.body, requested.options.validation) {
        Ok(patch) => patch,
        Err(status) => {
            // As in kube-apiserver, 404 takes precedence over errors in the patch.
            commit::check_stored(app, &place).await?;
            return Err(status);
        }
    };
    let change = RequestedChange::Patch(patch);
    let answer = commit::change(app, &place, &change, requested.options, &mut warnings).await?;
    Ok(WriteAnswer { warnings, ..answer })
}
