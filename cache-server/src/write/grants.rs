//! Writes of roles and bindings: callers grant only what they may.

use access_rules::rbac::{GROUP, RbacKind};
use api_rules::{object::Object, registry::ResourceType};
use informer_serving::status::{Status, StatusExt as _};

use crate::{access::authorize::escalation::GrantWrite, app::LocalApp, stored::current::Current};

/// Returns an error if the caller may not store the object. `name` is that in the path, empty for a create. The server's own
/// writes are not checked.
///
/// # Errors
/// 403 if it grants what the caller does not have; 404 if a binding names a role that does not exist.
pub(super) async fn check(
    app: &LocalApp<'_>,
    ty: &ResourceType,
    name: &str,
    current: Option<&Current>,
    new: &Object,
) -> Result<(), Status> {
    let kind = RbacKind::of_resource(&ty.plural).filter(|_| ty.group == GROUP);
    let (Some(kind), Some(caller)) = (kind, app.caller) else { return Ok(()) };
    let old = current.map(whole).transpose()?;
    let namespace = new.get("metadata").and_then(|metadata| metadata.get("namespace")?.as_str());
    let write = GrantWrite { kind, namespace: namespace.unwrap_or_default(), name, old: old.as_ref(), new };
    // Boxed, so that the futures of all other writes have no room for it.
    Box::pin(app.access.authorizer.check_grant(caller, &write, (&app.caches, &app.registry))).await
}

fn whole(current: &Current) -> Result<Object, Status> {
    if current.is_whole {
        return Ok(current.object.clone());
    }
    serde_json::from_slice(&current.entry.object()).map_err(|_| Status::internal("a stored object cannot be read"))
}
