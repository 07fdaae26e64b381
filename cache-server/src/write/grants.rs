//! Writes of roles and bindings: callers grant only what they may.

use access_rules::rbac::{GROUP, RbacKind};
use api_rules::{
    object::{Object, metadata},
    registry::ResourceType,
};
use informer_serving::{
    go::quote,
    status::{CauseExt as _, Status, StatusCause, StatusExt as _},
};

use crate::{access::authorize::escalation::GrantWrite, app::LocalApp, stored::current::Current};

/// Returns true for types of roles and bindings.
pub(super) fn concern(ty: &ResourceType) -> bool {
    kind(ty).is_some()
}

fn kind(ty: &ResourceType) -> Option<RbacKind> {
    if ty.group == GROUP { RbacKind::of_resource(&ty.plural) } else { None }
}

/// Returns an error if the caller may not store the object. `name` is that in the path, empty for a create. Writes of the
/// server itself are not checked.
///
/// # Errors
/// 403 if it grants what the caller does not have; 404 if a binding names a role that does not exist; 422 if it changes the
/// role of a binding, or grants too many combinations.
pub(super) async fn check(
    app: &LocalApp<'_>,
    ty: &ResourceType,
    name: &str,
    current: Option<&Current>,
    new: &Object,
) -> Result<(), Status> {
    let (Some(kind), Some(caller)) = (kind(ty), app.caller) else { return Ok(()) };
    let old = current.map(whole).transpose()?;
    let namespace = new.get("metadata").and_then(|metadata| metadata.get("namespace")?.as_str());
    let write = GrantWrite { kind, namespace: namespace.unwrap_or_default(), name, old: old.as_ref(), new };
    // Boxed, so that the futures of all other writes have no room for it.
    Box::pin(app.access.authorizer.check_grant(caller, &write, (&app.caches, &app.registry))).await?;
    if kind.is_binding() { check_role(ty, old.as_ref(), new) } else { Ok(()) }
}

/// Refuses to change the role of a binding. The default of its API group is the group of roles.
fn check_role(ty: &ResourceType, old: Option<&Object>, new: &Object) -> Result<(), Status> {
    let role = |object: &Object| {
        let text = |member: &str| object.get("roleRef").and_then(|role| role.get(member)?.as_str()).unwrap_or_default();
        let group = if text("apiGroup").is_empty() { GROUP } else { text("apiGroup") };
        [group, text("kind"), text("name")].map(quote)
    };
    let [group, kind, name] = role(new);
    if old.is_none_or(|old| role(old) == [&*group, &*kind, &*name]) {
        return Ok(());
    }
    let value = format!("{{\"APIGroup\":{group},\"Kind\":{kind},\"Name\":{name}}}");
    let cause = StatusCause::invalid("roleRef", &value, "cannot change roleRef");
    Err(Status::invalid(GROUP, &ty.kind, metadata::text(new, "name"), vec![cause]))
}

fn whole(current: &Current) -> Result<Object, Status> {
    if current.extent.is_whole() {
        return Ok(current.object.clone());
    }
    serde_json::from_slice(&current.entry.object()).map_err(|_| Status::internal("a stored object cannot be read"))
}
