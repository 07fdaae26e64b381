//! The FlowSchemas and PriorityLevelConfigurations that a server starts with, and those of files as they change.
//!
//! INVARIANT: files that cannot be used never replace objects in force; at start they are an error.
//!
//! Source: `pkg/registry/flowcontrol/ensurer`: missing objects are created; those whose annotation asks for it, and the
//! mandatory ones, are reset to their built-in spec.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use access_rules::flow::{
    bootstrap::{self, AUTO_UPDATE},
    objects::FlowObject,
};
use parking_lot::Mutex;
use serde_json::Value;

use super::manifests::{self, FilesVersion, LoadError};
use crate::{access::flow::FlowControl, app::App, config::FlowSource, stored::ExistingObjects, watched::WatchedSource};

/// Puts the objects of the files in force and follows the files, or stores the built-in ones where the server follows
/// stored ones.
///
/// # Errors
/// [`LoadError`] at the first file or object that cannot be used.
pub(crate) async fn begin(app: &App) -> Result<(), LoadError> {
    match &app.config.flow.source {
        FlowSource::Files(path) => {
            let version = manifests::version(path)?;
            app.access.flow.configure(read(path)?);
            let flow = Arc::downgrade(&app.access.flow);
            app.files.keep(FlowFiles { flow, path: path.clone(), last: Mutex::new(Ok(version)) });
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
        FlowSource::Builtin | FlowSource::Stored => {}
        _ => {}
    }
    app.keep_flow_control();
    Ok(())
}

/// Reads the files.
///
/// # Errors
/// [`LoadError`] at the first file or object that cannot be used.
pub(crate) fn check(source: &FlowSource) -> Result<(), LoadError> {
    if let FlowSource::Files(path) = source {
        read(path)?;
    }
    Ok(())
}

/// Reads the objects of the files, after those that every cluster has.
fn read(path: &Path) -> Result<Vec<FlowObject>, LoadError> {
    let read = |value: &Value| FlowObject::read(value, true).map_err(|error| error.to_string());
    let objects = manifests::read_each(path, read)?;
    Ok(bootstrap::objects().into_iter().chain(objects).collect())
}

/// Files whose objects are in force. Those that cannot be used are read once for each change.
struct FlowFiles {
    flow: Weak<FlowControl>,
    path: PathBuf,
    /// State of the files when they were last read.
    last: Mutex<LastVersion>,
}

impl WatchedSource for FlowFiles {
    fn check(&self) {
        let before = self.last.lock().clone();
        let (Some((now, objects)), Some(flow)) = (read_changed(&self.path, &before), self.flow.upgrade()) else {
            return;
        };
        *self.last.lock() = now;
        let is_usable = objects.is_ok();
        match objects {
            Ok(objects) => {
                flow.configure(objects);
                tracing::info!(path = %self.path.display(), "flow control reloaded");
            }
            Err(error) => tracing::warn!(error, "flow control reload failed"),
        }
        flow.count_reload(is_usable);
    }
}

/// State of the files, or the reason why it is not known.
type LastVersion = Result<FilesVersion, String>;

/// Returns the state of the files and their objects; `None` if nothing changed since `before`. Reads the state first, so
/// that the next call notices a change that happens meanwhile.
fn read_changed(path: &Path, before: &LastVersion) -> Option<(LastVersion, Result<Vec<FlowObject>, String>)> {
    let now = manifests::version(path).map_err(|error| error.to_string());
    if now == *before {
        return None;
    }
    let objects = match &now {
        Ok(_) => read(path).map_err(|error| error.to_string()),
        Err(error) => Err(error.clone()),
    };
    Some((now, objects))
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
    manifests::create(app, manifest, ExistingObjects::Overwrite).await.map(drop)
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
