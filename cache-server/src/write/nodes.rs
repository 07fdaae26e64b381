//! Writes of nodes: a node stores and deletes only what concerns itself. The rules are those of
//! [`access_rules::node::restriction`]; they act where the node authorizer is one of those that decide.

use access_rules::node::restriction::{self, NodeOperation, NodeWrite, NodeWriter};
use api_rules::{
    object::{
        Object, WriteTarget,
        metadata::{self, Part},
    },
    registry::ResourceType,
};
use informer_serving::status::Status;

use crate::app::LocalApp;

/// Returns the node that sends the write; `None` for other callers, whose writes are not restricted here.
pub(super) fn writer<'a>(app: &LocalApp<'a>) -> Option<NodeWriter<'a>> {
    app.caller.filter(|_| app.access.authorizer.restricts_nodes()).and_then(NodeWriter::of)
}

/// Returns `Ok` if the caller may create the object, which has the name and namespace of the request.
///
/// # Errors
/// See [`NodeWriter::check`]; 429 or 504 if the nodes cannot be read.
pub(super) async fn check_create(app: &LocalApp<'_>, ty: &ResourceType, new: &Object) -> Result<(), Status> {
    let Some(node) = writer(app) else { return Ok(()) };
    // Boxed, so that the futures of all other writes have no room for it.
    Box::pin(async move {
        let nodes = app.registry.now().find("", "v1", "nodes").filter(|_| ty.id() == "pods");
        let own = match nodes {
            Some(nodes) => app.caches.fresh(&nodes).await?.get(&nodes.key("", node.name())),
            None => None,
        };
        let operation = NodeOperation::Create { new, own_uid: own.as_ref().map(|own| own.uid()) };
        let (namespace, name) = (metadata::text(new, "namespace"), metadata::text(new, "name"));
        node.check(&NodeWrite { namespace, name, operation, ..write_of(ty, operation) })
    })
    .await
}

/// Returns `Ok` if the caller may change the object from `old` to `new`.
///
/// # Errors
/// See [`NodeWriter::check`].
pub(super) fn check_update(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    old: &Object,
    new: &Object,
) -> Result<(), Status> {
    let Some(node) = writer(app) else { return Ok(()) };
    if place.part == Part::EphemeralContainers {
        return node.refuse_of_pod(place.name, place.part.subresource());
    }
    node.check(&write_at(place, NodeOperation::Update { old, new }))
}

/// Returns `Ok` if `node` may delete the object.
///
/// # Errors
/// See [`NodeWriter::check`].
pub(super) fn check_delete(node: NodeWriter<'_>, place: &WriteTarget<'_>, old: &Object) -> Result<(), Status> {
    node.check(&write_at(place, NodeOperation::Delete { old }))
}

/// True if the caller may replace the object with any content.
pub(super) fn may_replace(app: &LocalApp<'_>, place: &WriteTarget<'_>) -> bool {
    let none = Object::new();
    writer(app).is_none_or(|node| {
        let update = write_at(place, NodeOperation::Update { old: &none, new: &none });
        !restriction::reads_content(&place.ty.group, &place.ty.plural) && node.check(&update).is_ok()
    })
}

fn write_at<'a>(place: &'a WriteTarget<'_>, operation: NodeOperation<'a>) -> NodeWrite<'a> {
    let WriteTarget { ty, namespace, name, part } = *place;
    NodeWrite { namespace, name, is_status: part == Part::Status, ..write_of(ty, operation) }
}

fn write_of<'a>(ty: &'a ResourceType, operation: NodeOperation<'a>) -> NodeWrite<'a> {
    NodeWrite { group: &ty.group, resource: &ty.plural, is_status: false, namespace: "", name: "", operation }
}
