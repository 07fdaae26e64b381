//! Deletes objects: marks them, removes them, and answers.
//!
//! INVARIANT: a removed object is one whose deletion mark was written, or one that needed none.
//!
//! Source: apiserver `registry/generic/registry/store.go` (Delete), `registry/rest/delete.go`,
//! `endpoints/handlers/delete.go`.

use std::sync::Arc;

use api_rules::{
    object::{
        Object, WriteTarget,
        deletion::{self, Plan},
        draft::draft,
        metadata::{self, Part},
        options::DeleteOptions,
    },
    registry::ResourceType,
};
use http::StatusCode;
use informer_core::wire::status::{Reason, Status};
use serde_json::Value;
use watch_cache::Entry;

use super::{Answer, current::Current, time};
use crate::{
    cacher::Caches,
    storage::{Expect, Storage, Txn, WriteError},
};

/// Bound on attempts of a delete when other writes come first. kube-apiserver has no bound; the client may retry.
const ATTEMPTS_MAX: usize = 64;

/// Namespaces that cannot be deleted.
///
/// # Source
/// `plugin/pkg/admission/namespace/lifecycle` of kubernetes/kubernetes.
const KEPT_NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];

/// Caches and storage, for callers without an `App`.
#[derive(Clone, Copy)]
struct Stored<'a> {
    caches: &'a Caches,
    storage: &'a dyn Storage,
}

/// Outcome of a delete.
struct Deleted {
    answer: Answer,
    /// True if the object is removed. Otherwise it is removed with its last finalizer.
    is_gone: bool,
}

/// Deletes one listed object of a terminating namespace. Returns true if it is removed.
///
/// # Errors
/// The Status that a client would get.
pub(crate) async fn delete_listed(
    caches: &Caches,
    storage: &dyn Storage,
    ty: &Arc<ResourceType>,
    entry: &Entry,
) -> Result<bool, Status> {
    let place = WriteTarget { ty, namespace: entry.namespace(), name: entry.name(), part: Part::Main };
    let options = DeleteOptions { uid: Some(entry.uid().to_owned()), ..DeleteOptions::default() };
    match attempt(Stored { caches, storage }, &place, &options).await {
        Ok(deleted) => Ok(deleted.is_gone),
        Err(status) if matches!(status.reason, Reason::NotFound | Reason::Conflict) => Ok(true),
        Err(status) => Err(status),
    }
}

/// Deletes one object and answers with it, or with a Status, depending on its type. Objects with a grace period are
/// marked and then removed; that runs in a task of its own, so that a client that disconnects in between does not leave
/// the object terminating for ever.
pub(super) async fn delete(
    caches: &Arc<Caches>,
    storage: &Arc<dyn Storage>,
    place: &WriteTarget<'_>,
    options: &DeleteOptions,
) -> Result<Answer, Status> {
    if place.ty.grace.is_none() {
        return attempt(Stored { caches, storage: &**storage }, place, options).await.map(|deleted| deleted.answer);
    }
    let (caches, storage, ty) = (Arc::clone(caches), Arc::clone(storage), Arc::clone(place.ty));
    let (namespace, name, part) = (place.namespace.to_owned(), place.name.to_owned(), place.part);
    let options = options.clone();
    let deletion = tokio::spawn(async move {
        let place = WriteTarget { ty: &ty, namespace: &namespace, name: &name, part };
        attempt(Stored { caches: &caches, storage: &*storage }, &place, &options).await
    });
    match deletion.await {
        Ok(deleted) => deleted.map(|deleted| deleted.answer),
        Err(_) => Err(Status::internal("the deletion was not finished")),
    }
}

async fn attempt(stored: Stored<'_>, place: &WriteTarget<'_>, options: &DeleteOptions) -> Result<Deleted, Status> {
    if place.ty.holds_objects && KEPT_NAMESPACES.contains(&place.name) {
        let why = "this namespace may not be deleted";
        return Err(Status::forbidden(&place.ty.group, &place.ty.plural, place.name, why));
    }
    for _ in 0..ATTEMPTS_MAX {
        let current = Current::read(stored.caches, place).await?;
        check_preconditions(place, &current, options)?;
        let plan = deletion::plan(place.ty, &current.object, options, time());
        let is_gone = plan.goes && !options.dry_run;
        if let Some(answer) = carry_out(stored, place, current, plan, options).await? {
            return Ok(Deleted { answer, is_gone });
        }
    }
    Err(place.modified())
}

/// Carries out the plan on the object as read; `None` if another write came first.
async fn carry_out(
    stored: Stored<'_>,
    place: &WriteTarget<'_>,
    current: Current,
    plan: Plan,
    options: &DeleteOptions,
) -> Result<Option<Answer>, Status> {
    let Plan { mark, goes, at_once } = plan;
    let is_marked = mark.is_some();
    if options.dry_run {
        let answer = match mark {
            None if goes => gone(place, current.object, None),
            None => Answer::stored(StatusCode::OK, &current.entry),
            Some(mark) => Answer::unstored(StatusCode::OK, place.ty, mark),
        };
        return Ok(Some(answered(answer, at_once, options)));
    }
    let marked = match &mark {
        None => Arc::clone(&current.entry),
        Some(mark) => match put(stored, place, &current.entry, Some(mark)).await? {
            Put::Done(_, entry) => entry,
            Put::Late => return Ok(None),
            Put::Gone => return Err(place.not_found()),
        },
    };
    if !goes {
        return Ok(Some(answered(Answer::stored(StatusCode::OK, &marked), false, options)));
    }
    let removed = match (put(stored, place, &marked, None).await?, is_marked) {
        (Put::Done(resource_version, _), _) => resource_version,
        (Put::Gone, false) => return Err(place.not_found()),
        (Put::Late, false) => return Ok(None),
        // Our deletion mark is visible already, so a concurrent write or removal does not fail the delete.
        (Put::Gone, true) => marked.resource_version(),
        (Put::Late, true) => finish(stored, place, &marked).await?,
    };
    let answer = if at_once {
        gone(place, mark.unwrap_or(current.object), Some(removed))
    } else {
        Answer::stored(StatusCode::OK, &marked)
    };
    Ok(Some(answered(answer, at_once, options)))
}

/// Removes an object that was changed after it was marked. Returns the version of its removal, or the last version
/// seen.
async fn finish(stored: Stored<'_>, place: &WriteTarget<'_>, marked: &Entry) -> Result<u64, Status> {
    let mut last = marked.resource_version();
    for _ in 0..ATTEMPTS_MAX {
        let current = match Current::read(stored.caches, place).await {
            Ok(current) if current.entry.uid() == marked.uid() => current,
            Ok(_) => return Ok(last),
            Err(status) if status.reason == Reason::NotFound => return Ok(last),
            Err(status) => return Err(status),
        };
        last = current.entry.resource_version();
        match put(stored, place, &current.entry, None).await? {
            Put::Done(resource_version, _) => return Ok(resource_version),
            Put::Gone => return Ok(last),
            Put::Late => {}
        }
    }
    Err(place.modified())
}

/// Outcome of one storage write.
enum Put {
    /// Written at this version; the new object, or the last state of a removed one.
    Done(u64, Arc<Entry>),
    /// Another write came first.
    Late,
    /// The object does not exist.
    Gone,
}

/// Replaces the object as read, or removes it if `object` is `None`.
async fn put(
    stored: Stored<'_>,
    place: &WriteTarget<'_>,
    read: &Entry,
    object: Option<&Object>,
) -> Result<Put, Status> {
    let put = object.map(|object| draft(place.ty, object)).transpose()?;
    let expect = Expect::At(read.resource_version());
    match stored.storage.write(Txn { ty: place.ty.clone(), key: place.key(), expect, put }).await {
        Ok(written) => Ok(Put::Done(written.resource_version, written.entry)),
        Err(WriteError::Conflict { .. } | WriteError::Exists) => Ok(Put::Late),
        Err(WriteError::NotFound) => Ok(Put::Gone),
        Err(error @ WriteError::Storage(_)) => Err(error.into()),
    }
}

/// Deletes the listed objects one by one.
pub(super) async fn delete_collection(
    caches: &Arc<Caches>,
    storage: &Arc<dyn Storage>,
    ty: &Arc<ResourceType>,
    listed: &[Arc<Entry>],
    options: &DeleteOptions,
) -> Result<(), Status> {
    let asks = options.uid.is_some() || options.resource_version.is_some();
    for entry in listed {
        let place = WriteTarget { ty, namespace: entry.namespace(), name: entry.name(), part: Part::Main };
        // The uid precondition protects a new object with a listed object's name.
        let uid = options.uid.clone().or_else(|| Some(entry.uid().to_owned()));
        let one = DeleteOptions { uid, ..options.clone() };
        match delete(caches, storage, &place, &one).await {
            Ok(_) => {}
            Err(status) if status.reason == Reason::NotFound => {}
            Err(status) if status.reason == Reason::Conflict && !asks => {}
            Err(status) => return Err(status),
        }
    }
    Ok(())
}

/// Sets the code 202 for clients that wait for dependents (`orphanDependents=false`), and 200 for all others, as in
/// kube-apiserver.
fn answered(answer: Answer, at_once: bool, options: &DeleteOptions) -> Answer {
    let waits = !at_once && options.orphan_dependents == Some(false);
    Answer { code: if waits { StatusCode::ACCEPTED } else { StatusCode::OK }, ..answer }
}

/// Answers for an object that was removed without a grace period, at the version of the removal.
fn gone(place: &WriteTarget<'_>, mut object: Object, resource_version: Option<u64>) -> Answer {
    let version = resource_version.map(|version| version.to_string());
    if place.ty.returns_deleted {
        if let Some(version) = version {
            metadata::metadata_mut(&mut object).insert("resourceVersion".to_owned(), Value::String(version));
        }
        return Answer::unstored(StatusCode::OK, place.ty, object);
    }
    let uid = metadata::text(&object, "uid");
    let mut status = Status::deleted(&place.ty.group, &place.ty.plural, place.name, uid);
    status.metadata.resource_version = version.unwrap_or_default();
    Answer::status(&status)
}

/// Checks the preconditions. These messages and their details name the kind instead of the plural.
fn check_preconditions(place: &WriteTarget<'_>, current: &Current, options: &DeleteOptions) -> Result<(), Status> {
    let uid = metadata::text(&current.object, "uid");
    let version = current.entry.resource_version().to_string();
    let refuse = |text: String| Err(Status::conflict(&place.ty.group, &place.ty.kind, place.name, &text));
    match (options.uid.as_deref(), options.resource_version.as_deref()) {
        (Some(wanted), _) if wanted != uid => refuse(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        )),
        (_, Some(wanted)) if wanted != version => refuse(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, future::BoxFuture};
    use serde_json::json;

    use super::*;
    use crate::{
        registry::Registry,
        storage::{Followed, Listed, StorageError, Written, embedded::Embedded},
    };

    /// A storage in another process: its writes take a while.
    struct Far(Embedded);

    impl Storage for Far {
        fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<Listed, StorageError>> {
            self.0.list(ty)
        }

        fn follow(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<Followed, StorageError>> {
            self.0.follow(ty)
        }

        fn write(&self, txn: Txn) -> BoxFuture<'_, Result<Written, WriteError>> {
            let written = self.0.write(txn);
            async move {
                let written = written.await;
                tokio::task::yield_now().await;
                written
            }
            .boxed()
        }

        fn progress(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, StorageError>> {
            self.0.progress(ty)
        }
    }

    /// Goal: a marked pod is always removed. Method: clients that disconnect at every poll of a delete.
    #[tokio::test]
    async fn a_pod_goes_whether_or_not_its_client_waits() {
        let storage: Arc<dyn Storage> = Arc::new(Far(Embedded::new(Some(100))));
        let caches = Arc::new(Caches::new(Arc::clone(&storage), watch_cache::Limits::default()));
        let ty = Registry::builtin().find("", "v1", "pods").expect("pods");
        let place = WriteTarget { ty: &ty, namespace: "ns", name: "a", part: Part::Main };
        for polls in 1..12 {
            let pod = json!({"kind": "Pod", "apiVersion": "v1", "spec": {"nodeName": "n"}, "metadata": {"namespace": "ns",
                "name": "a", "uid": format!("u{polls}")}});
            let put = draft(&ty, pod.as_object().expect("an object")).expect("a pod");
            let txn = Txn { ty: Arc::clone(&ty), key: place.key(), expect: Expect::Absent, put: Some(put) };
            storage.write(txn).await.expect("is created");
            let options = DeleteOptions::default();
            let mut deletion = Box::pin(delete(&caches, &storage, &place, &options));
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
