//! The FlowSchemas and PriorityLevelConfigurations that a server starts with.
//!
//! Source: `pkg/registry/flowcontrol/ensurer`: missing objects are created; those whose annotation asks for it, and the
//! mandatory ones, are reset to their built-in spec.

use access_rules::flow::{
    bootstrap::{self, AUTO_UPDATE},
    objects::FlowObject,
};
use serde_json::Value;

use super::manifests::{self, LoadError};
use crate::{app::App, config::FlowSource, storage::backup::ExistingObjects};

/// Puts the objects of the files in force, or stores the built-in ones where the server follows stored ones.
///
/// # Errors
/// [`LoadError`] at the first file or object that cannot be used.
pub(crate) async fn begin(app: &App) -> Result<(), LoadError> {
    match &app.config.flow.source {
        FlowSource::Builtin => {}
        FlowSource::Files(path) => {
            let read = |value: &Value| FlowObject::read(value, true).map_err(|error| error.to_string());
            let objects = manifests::read_each(path, read)?;
            app.access.flow.configure(bootstrap::objects().into_iter().chain(objects));
        }
        FlowSource::Stored if app.runs_controllers() => {
            for manifest in bootstrap::manifests() {
                if let Err(error) = ensure(app, &manifest).await {
                    // Another server may create it at the same time, or the storage is read-only: those in effect are
                    // built in.
                    tracing::warn!(error, "built-in object of flow control not stored");
                }
            }
        }
        FlowSource::Stored => {}
    }
    app.keep_flow_control();
    Ok(())
}

async fn ensure(app: &App, manifest: &Value) -> Result<(), String> {
    let text = |value: &Value, member: &str| value[member].as_str().unwrap_or_default().to_owned();
    let name = text(&manifest["metadata"], "name");
    let ty = app.registry.now().by_kind(&text(manifest, "apiVersion"), &text(manifest, "kind"));
    let ty = ty.ok_or_else(|| "the type does not exist".to_owned())?;
    let reader = app.caches.fresh(&ty).await.map_err(|error| error.to_string())?;
    if let Some(entry) = reader.get(&ty.key("", &name)) {
        let stored: Value = serde_json::from_slice(&entry.object()).map_err(|error| error.to_string())?;
        let is_ours = bootstrap::is_mandatory(&name) || stored["metadata"]["annotations"][AUTO_UPDATE] == "true";
        if !is_ours || has_spec_of(&stored, manifest) {
            return Ok(());
        }
    }
    manifests::create(app, manifest, ExistingObjects::Overwrite).await
}

/// Returns true if both objects mean the same, whatever their uids.
fn has_spec_of(stored: &Value, manifest: &Value) -> bool {
    let read = |value: &Value| {
        let mut value = value.clone();
        value["metadata"]["uid"] = Value::Null;
        FlowObject::read(&value, false).ok()
    };
    read(stored) == read(manifest)
}
