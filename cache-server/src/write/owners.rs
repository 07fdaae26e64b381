//! Records who owns which field, where the server acts as a cluster: a write that does not apply owns what it changes.
//!
//! Not implemented, on purpose: entries of what admission webhooks and this server itself change, as in Kubernetes; of
//! objects in manifests; and applies of Scales.

use std::sync::Arc;

use api_rules::{
    object::{
        Object, WriteTarget,
        metadata::{self, Part},
        options::Options,
        record::{self, RecordedWrite},
        update::RequestedChange,
    },
    registry::ResourceType,
};
use http::{HeaderMap, header};
use informer_serving::status::Status;

use super::schemas;
use crate::{app::LocalApp, clock};

/// Returns the manager of a request's write; `None` if the server records none.
pub(super) fn manager<'a>(
    app: &LocalApp<'_>,
    query: &'a [(String, String)],
    headers: &'a HeaderMap,
) -> Option<&'a str> {
    let stated = query.iter().find(|(name, _)| name == "fieldManager").map_or("", |(_, value)| value);
    let program = headers.get(header::USER_AGENT).and_then(|program| program.to_str().ok()).unwrap_or_default();
    app.config.acts_as_cluster.then(|| record::manager(stated, program))
}

/// Completes a new object, and records its fields.
///
/// # Errors
/// Those of [`schemas::complete`].
pub(super) fn record_new(
    app: &LocalApp<'_>,
    ty: &Arc<ResourceType>,
    object: &mut Object,
    options: Options,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let Some(manager) = app.manager else { return Ok(()) };
    schemas::complete(app, ty, object, options.validation, warnings)?;
    let (namespace, name) = (metadata::text(object, "namespace").to_owned(), metadata::text(object, "name").to_owned());
    let place = WriteTarget { ty, namespace: &namespace, name: &name, part: Part::Main };
    record::record(&place, None, object, RecordedWrite { manager, now: &clock::now(), is_scale: false });
    Ok(())
}

/// Records the fields that a change sets in a completed object; an apply has recorded its own.
pub(super) fn record_change(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    stored: &Object,
    change: &RequestedChange<'_>,
    next: &mut Object,
) {
    let is_apply = matches!(change, RequestedChange::Apply(_));
    let Some(manager) = app.manager.filter(|_| !is_apply) else { return };
    let write = RecordedWrite { manager, now: &clock::now(), is_scale: app.is_scale };
    record::record(place, Some(stored), next, write);
}
