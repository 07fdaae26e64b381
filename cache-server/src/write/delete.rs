//! DELETE of one object.
//!
//! Source: apiserver `endpoints/handlers/delete.go`.

use std::sync::Arc;

use access_rules::node::restriction::NodeWriter;
use api_rules::object::{Object, WriteRequest, WriteTarget, deletion, options::DeleteOptions};
use http::StatusCode;
use informer_serving::status::{Reason, Status, StatusExt as _};

use super::{
    answer::{AnswerDocument, WriteAnswer},
    commit, nodes, webhooks,
};
use crate::{
    app::{App, LocalApp},
    cacher::Caches,
    limits::WRITE_ATTEMPTS_MAX,
    storage::Store,
    stored::removal::{self, DeleteContext, DeleteError, DeleteOutcome, LastState},
};

/// `DELETE …/{plural}/{name}`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn delete(app: &LocalApp<'_>, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    if request.subresource.is_some() {
        return Err(Status::generic_method_not_allowed());
    }
    let place = request.target()?;
    let options = options(app, DeleteOptions::read(request)?);
    let deleted = remove_admitted(app, &place, &options, false).await;
    let DeleteOutcome { last, at_once, .. } = deleted.map_err(|error| refusal(&place, error))?;
    let document = match last {
        LastState::Stored(entry) => AnswerDocument::Stored(entry),
        LastState::Planned(object) => AnswerDocument::Unstored(object),
        LastState::Gone(object, version) => AnswerDocument::Text(deletion::answer(&place, object, version).into()),
    };
    // 202 only for clients that wait for dependents (`orphanDependents=false`), as in kube-apiserver.
    let waits = !at_once && options.orphan_dependents == Some(false);
    let code = if waits { StatusCode::ACCEPTED } else { StatusCode::OK };
    let warnings = deletion::warning(place.ty, &options).into_iter().collect();
    Ok(WriteAnswer { code, document, warnings })
}

/// Completes the options that a client sent: a cluster may have a garbage collector, and this server alone has none.
pub(super) fn options(app: &App, sent: DeleteOptions) -> DeleteOptions {
    DeleteOptions { is_collected: app.config.acts_as_cluster, ..sent }
}

/// Removes an object at the version that its webhooks allow to delete. `is_listed` is true in a deletion of a collection.
pub(super) async fn remove_admitted(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    options: &DeleteOptions,
    is_listed: bool,
) -> Result<DeleteOutcome, DeleteError> {
    let remove = |options: DeleteOptions| async move {
        remove(&app.caches, app.store, place, &options, nodes::writer(app)).await
    };
    if app.admission.is_none() {
        return remove(options.clone()).await;
    }
    for _ in 0..WRITE_ATTEMPTS_MAX {
        let refused = |status| DeleteError::Refused(Box::new(status));
        let current = commit::read(app, place).await.map_err(|status| {
            if status.reason == Reason::NotFound { DeleteError::NotFound } else { refused(status) }
        })?;
        if let Some(text) = deletion::mismatch(&current.object, options) {
            return Err(DeleteError::Precondition(text));
        }
        Box::pin(webhooks::check_delete(app, place, options, &current.object, is_listed)).await.map_err(refused)?;
        let resource_version = Some(current.entry.resource_version().to_string());
        match remove(DeleteOptions { resource_version, ..options.clone() }).await {
            // Another write came first.
            Err(DeleteError::Precondition(_) | DeleteError::Modified) => {}
            removed => return removed,
        }
    }
    Err(DeleteError::Modified)
}

/// Removes an object. Objects with a grace period are marked and then removed; that runs in a task of its own, so that
/// a client that disconnects in between does not leave the object terminating for ever. `node` is the node that asks for it.
pub(super) async fn remove(
    caches: &Arc<Caches>,
    storage: &Arc<dyn Store>,
    place: &WriteTarget<'_>,
    options: &DeleteOptions,
    node: Option<NodeWriter<'_>>,
) -> Result<DeleteOutcome, DeleteError> {
    if place.ty.grace.is_none() {
        let admit = |old: &Object| node.map_or(Ok(()), |node| nodes::check_delete(node, place, old));
        return removal::delete(DeleteContext { caches, storage: &**storage, cause: None }, place, options, &admit)
            .await;
    }
    let (caches, storage, ty) = (Arc::clone(caches), Arc::clone(storage), Arc::clone(place.ty));
    let (namespace, name, part) = (place.namespace.to_owned(), place.name.to_owned(), place.part);
    let (options, node) = (options.clone(), node.map(|node| node.name().to_owned()));
    let deletion = tokio::spawn(async move {
        let place = WriteTarget { ty: &ty, namespace: &namespace, name: &name, part };
        let node = node.as_deref().map(NodeWriter::named);
        let admit = |old: &Object| node.map_or(Ok(()), |node| nodes::check_delete(node, &place, old));
        removal::delete(DeleteContext { caches: &caches, storage: &*storage, cause: None }, &place, &options, &admit)
            .await
    });
    deletion.await.unwrap_or(Err(DeleteError::Unfinished))
}

/// The kind, not the plural, stands in texts about preconditions, and in their details.
pub(super) fn refusal(place: &WriteTarget<'_>, error: DeleteError) -> Status {
    let (group, name) = (&place.ty.group, place.name);
    match error {
        DeleteError::NotFound => place.not_found(),
        DeleteError::Modified | DeleteError::CauseChanged => place.modified(),
        DeleteError::Precondition(text) => Status::conflict(group, &place.ty.kind, name, &text),
        DeleteError::Protected => Status::forbidden(group, &place.ty.plural, name, "this namespace may not be deleted"),
        DeleteError::Malformed => Status::internal("a stored object cannot be read"),
        DeleteError::Unfinished => Status::internal("the deletion was not finished"),
        DeleteError::Refused(status) => *status,
        DeleteError::Unfresh(error) => error.into(),
        DeleteError::Source(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, future::BoxFuture};
    use serde_json::json;

    use api_rules::object::{draft::draft, metadata::Part};

    use super::*;
    use crate::{
        registry::Registry,
        storage::{
            Expect, Txn, WriteError, WriteResult,
            embedded::EmbeddedStorage,
            hooked::{HookedStore, StoreHook},
        },
    };

    /// A storage in another process: its writes take a while.
    struct FarWrites;

    impl StoreHook for FarWrites {
        fn write<'a>(&'a self, inner: &'a EmbeddedStorage, txn: Txn) -> BoxFuture<'a, Result<WriteResult, WriteError>> {
            async move {
                let written = inner.write(txn).await;
                tokio::task::yield_now().await;
                written
            }
            .boxed()
        }
    }

    /// Goal: a marked pod is always removed. Method: clients that disconnect at every poll of a delete.
    #[tokio::test]
    async fn a_pod_goes_whether_or_not_its_client_waits() {
        let storage: Arc<dyn Store> = Arc::new(HookedStore::by(FarWrites));
        let caches = Arc::new(Caches::new(storage.clone(), watch_cache::Limits::default()));
        let ty = Registry::builtin().find("", "v1", "pods").expect("pods");
        let place = WriteTarget { ty: &ty, namespace: "ns", name: "a", part: Part::Main };
        for polls in 1..12 {
            let pod = json!({"kind": "Pod", "apiVersion": "v1", "spec": {"nodeName": "n"}, "metadata": {"namespace": "ns",
                "name": "a", "uid": format!("u{polls}")}});
            let put = draft(&ty, pod.as_object().expect("an object")).expect("a pod");
            let txn =
                Txn { ty: Arc::clone(&ty), key: place.key(), expect: Expect::Absent, put: Some(put), cause: None };
            storage.write(txn).await.expect("is created");
            let options = DeleteOptions::default();
            let mut deletion = Box::pin(remove(&caches, &storage, &place, &options, None));
            for _ in 0..polls {
                if deletion.as_mut().now_or_never().is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(deletion);
            let gone = async {
                while caches.fresh(&ty).await.expect("a cache").get(&place.key()).is_some() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(10), gone).await.expect("the pod goes");
        }
    }
}
