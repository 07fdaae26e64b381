//! Admission plugins that are part of kube-apiserver, where this server acts as a cluster: before webhooks, LimitRanges and
//! accounts complete new pods; LimitRanges then check pods and claims; after all others, quotas count what is written.
//!
//! INVARIANT: a quota is charged at the version that was compared, before the object is stored: two writes never get the
//! last unit. INVARIANT: where there are no quotas and ranges, a write costs one look at the caches of each, which are not
//! started; without any in its namespace, a search in them.

use std::{sync::Arc, time::Duration};

use api_rules::{
    object::{
        Object, WriteTarget,
        draft::bounded_draft,
        metadata::{self, Part},
        options::{FieldValidation, Options},
        weight::{Size, Weight},
    },
    registry::ResourceType,
};
use informer_serving::status::{Reason, Status, StatusExt as _};
use object_rules::{
    accounts::{self, ACCOUNTS, DEFAULT_ACCOUNT, TOKEN_VOLUME},
    quotas::{QUOTAS, QuotaWrite},
    ranges::{self, RANGES},
};
use tokio::time::sleep;

use super::{commit, schemas, webhooks};
use crate::{app::LocalApp, budget::WaitingMemory, ids, stored::namespaced};

/// Reads of the account `default`, which a controller makes for each new namespace.
const ACCOUNT_READS: usize = 10;
/// Pause between two of them: kube-apiserver chooses one of 100 to 200 ms.
const ACCOUNT_PAUSE: Duration = Duration::from_millis(150);

/// True if a new object of the type may have to wait for another one.
pub(super) fn may_wait(app: &LocalApp<'_>, ty: &ResourceType) -> bool {
    app.config.admission.service_account && ty.id() == "pods"
}

/// Completes a new pod; objects of other types stay as they are.
///
/// # Errors
/// 403 for a pod without its account; those of the caches.
pub(super) async fn complete_new(
    app: &LocalApp<'_>,
    ty: &Arc<ResourceType>,
    object: &mut Object,
) -> Result<(), Status> {
    if !app.config.acts_as_cluster || ty.id() != "pods" {
        return Ok(());
    }
    // Boxed, so that the futures of all other writes have no room for it.
    Box::pin(complete_pod(app, ty, object)).await
}

async fn complete_pod(app: &LocalApp<'_>, ty: &Arc<ResourceType>, pod: &mut Object) -> Result<(), Status> {
    let plugins = app.config.admission;
    if plugins.limit_ranger {
        let ranges = ranges_of(app, pod).await?;
        if !ranges.is_empty() {
            // An amount that another one defaults to is no missing one.
            schemas::complete(app, ty, pod, FieldValidation::Ignore, &mut Vec::new())?;
        }
        ranges::complete(&ranges, pod)?;
    }
    if !plugins.service_account {
        return Ok(());
    }
    let Some(name) = accounts::choose(ty, pod)? else { return Ok(()) };
    let account = account(app, ty, pod, &name).await?;
    accounts::complete(pod, &account, ids::generated_name(TOKEN_VOLUME));
    Ok(())
}

/// Reads the account of a pod.
async fn account(app: &LocalApp<'_>, ty: &ResourceType, pod: &Object, name: &str) -> Result<Object, Status> {
    let accounts = app.registry.now().by_id(ACCOUNTS).ok_or_else(Status::generic_not_found)?;
    let place = WriteTarget { ty: &accounts, namespace: metadata::text(pod, "namespace"), name, part: Part::Main };
    let mut reads_left = if name == DEFAULT_ACCOUNT { ACCOUNT_READS } else { 1 };
    loop {
        reads_left -= 1;
        match commit::read(app, &place).await {
            Err(status) if status.reason != Reason::NotFound => return Err(status),
            Err(_) if reads_left == 0 => return Err(accounts::missing(ty, pod, name)),
            Err(_) => pause(app, pod).await?,
            Ok(current) => return Ok(current.object),
        }
    }
}

/// Waits before the next read of an account, without the permits of the write: others need these to make the account.
async fn pause(app: &LocalApp<'_>, pod: &Object) -> Result<(), Status> {
    let pause = sleep(ACCOUNT_PAUSE);
    let Some(turn) = webhooks::turn(app) else {
        pause.await;
        return Ok(());
    };
    let mut weight = Weight::new(usize::MAX);
    weight.object(pod)?;
    let memory = WaitingMemory { documents: weight.bytes(), ..WaitingMemory::default() };
    app.work.wait(turn, memory, pause, |()| Size::Small(0)).await
}

/// Returns the ranges of an object's namespace.
async fn ranges_of(app: &LocalApp<'_>, object: &Object) -> Result<Vec<Object>, Status> {
    let ty = app.registry.now().by_id(RANGES).ok_or_else(Status::generic_not_found)?;
    namespaced::beside(&app.caches, &ty, object).read().await
}

/// Checks a complete object by the ranges of its namespace.
///
/// # Errors
/// 403 for amounts that they do not allow; those of the caches.
pub(super) async fn check(
    app: &LocalApp<'_>,
    ty: &ResourceType,
    part: Part,
    object: &Object,
    old: Option<&Object>,
) -> Result<(), Status> {
    if !app.config.acts_as_cluster || !app.config.admission.limit_ranger || !ranges::concern(ty, part, old) {
        return Ok(());
    }
    ranges::check(ty, &Box::pin(ranges_of(app, object)).await?, object)
}

/// Charges the quotas of the namespace for a write that is about to be stored; a dry run only compares.
///
/// # Errors
/// 403 if it does not fit into one; 409 if others change a quota each time; those of the caches and the storage.
pub(super) async fn charge(
    app: &LocalApp<'_>,
    ty: &ResourceType,
    part: Part,
    object: &Object,
    old: Option<&Object>,
    options: Options,
) -> Result<(), Status> {
    let write = QuotaWrite { ty, part, object, old };
    if !app.config.acts_as_cluster || !app.config.admission.resource_quota || !write.is_counted() {
        return Ok(());
    }
    Box::pin(charge_all(app, write, options.dry_run)).await
}

async fn charge_all(app: &LocalApp<'_>, write: QuotaWrite<'_>, is_dry: bool) -> Result<(), Status> {
    let ty = app.registry.now().by_id(QUOTAS).ok_or_else(Status::generic_not_found)?;
    let quotas = namespaced::beside(&app.caches, &ty, write.object);
    let found = quotas.read().await?;
    if found.is_empty() || is_dry {
        return write.charge(&found).map(drop);
    }
    // Writes to a namespace come one after another: they would only repeat each other's work.
    let _turn = app.quota_turns.begin(quotas.namespace).await;
    let draft = |quota: Object| bounded_draft(&ty, &quota, app.config.object_bytes_max);
    let charge =
        |quotas: &[Object]| write.charge(quotas)?.into_iter().map(|next| next.map(draft).transpose()).collect();
    quotas.change_each(&**app.store, charge).await
}
