//! Addresses and node ports of the Services of a cluster.
//!
//! INVARIANT: no two Services of this server get the same address or port: one write at a time looks at the Services that
//! there are and at those that webhooks decide about, and stores its own. Two servers of one storage may give the same
//! ones at the same time.

use std::sync::Arc;

use api_rules::{object::Object, registry::ResourceType, service_range::ServiceRange};
use informer_core::{Objects, objects::Difference};
use informer_serving::status::Status;
use object_rules::services::{Allocation, Holdings};
use tokio::sync::{Mutex, MutexGuard};
use watch_cache::Entry;

use crate::{cacher::Caches, config::Config};

/// Identifier of the type.
const SERVICES: &str = "services";

/// The Services whose addresses and ports are known, and the range of addresses.
pub(crate) struct ServiceNetwork {
    /// `None` if the server is no cluster: its Services have the addresses that clients give them.
    range: Option<ServiceRange>,
    followed: Mutex<FollowedServices>,
    /// Services whose reservation ended since the last turn.
    released: parking_lot::Mutex<Vec<Object>>,
}

/// Addresses and ports of the Services of one state, and those reserved. Memory: besides, the Services of that state.
#[derive(Default)]
struct FollowedServices {
    services: Objects<Entry>,
    held: Holdings,
}

/// The one write that may allocate.
pub(crate) struct AllocationTurn<'a> {
    network: &'a ServiceNetwork,
    range: ServiceRange,
    followed: MutexGuard<'a, FollowedServices>,
    dry_run: bool,
}

impl ServiceNetwork {
    /// The network of the settings.
    pub(crate) fn new(config: &Config) -> Self {
        let range = config.acts_as_cluster.then_some(config.service_range);
        Self { range, followed: Mutex::default(), released: parking_lot::Mutex::default() }
    }

    /// Waits for the turn to write an object of the type; `None` if it has no addresses. The write ends before the turn is
    /// dropped. Cost: a look at the Services that were written since the last turn.
    ///
    /// # Errors
    /// The Status of a cache that is not ready.
    pub(crate) async fn turn(
        &self,
        caches: &Caches,
        ty: &Arc<ResourceType>,
        dry_run: bool,
    ) -> Result<Option<AllocationTurn<'_>>, Status> {
        let Some(range) = self.range.filter(|_| ty.id() == SERVICES) else { return Ok(None) };
        // Boxed, so that the futures of all other writes have no room for it.
        let followed = Box::pin(self.followed(caches, ty)).await?;
        Ok(Some(AllocationTurn { network: self, range, followed, dry_run }))
    }

    /// Waits until no other write allocates, and looks at the Services.
    async fn followed(
        &self,
        caches: &Caches,
        ty: &Arc<ResourceType>,
    ) -> Result<MutexGuard<'_, FollowedServices>, Status> {
        let mut followed = self.followed.lock().await;
        let services = caches.fresh(ty).await?.snapshot().objects.clone();
        followed.follow(services);
        let released = std::mem::take(&mut *self.released.lock());
        released.iter().for_each(|service| followed.held.remove(service));
        Ok(followed)
    }
}

impl FollowedServices {
    fn follow(&mut self, services: Objects<Entry>) {
        for difference in self.services.diff(&services) {
            let (old, new) = match difference {
                Difference::Added(new) => (None, Some(new)),
                Difference::Updated { old, new } => (Some(old), Some(new)),
                Difference::Removed(old) => (Some(old), None),
            };
            old.and_then(decoded).inspect(|service| self.held.remove(service));
            new.and_then(decoded).inspect(|service| self.held.add(service));
        }
        self.services = services;
    }
}

/// Decodes a stored Service. One that cannot be read holds nothing.
fn decoded(entry: &Arc<Entry>) -> Option<Object> {
    serde_json::from_slice(entry.object_text()).ok()
}

/// Address and ports of a Service that webhooks decide about. No other Service gets them until it is dropped.
pub(crate) struct Reservation<'a> {
    network: &'a ServiceNetwork,
    /// `None` once it was taken back.
    service: Option<Object>,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.network.released.lock().extend(self.service.take());
    }
}

impl<'a> AllocationTurn<'a> {
    /// Ends the turn, and reserves what the Service has. Cost: a copy of it.
    pub(crate) fn reserve(mut self, service: &Object) -> Reservation<'a> {
        let service = (!self.dry_run).then(|| service.clone());
        service.iter().for_each(|service| self.followed.held.add(service));
        Reservation { network: self.network, service }
    }

    /// Ends a reservation: this turn may give the same again.
    pub(crate) fn take_back(&mut self, mut reservation: Reservation<'_>) {
        reservation.service.take().iter().for_each(|service| self.followed.held.remove(service));
    }
}

impl AllocationTurn<'_> {
    fn allocation(&self) -> Allocation<'_> {
        let held = &self.followed.held;
        Allocation { range: &self.range, held, random: |below| fastrand::u64(..below), dry_run: self.dry_run }
    }

    /// Completes a new Service.
    ///
    /// # Errors
    /// As [`Allocation::create`].
    pub(crate) fn create(&self, ty: &ResourceType, service: &mut Object) -> Result<(), Status> {
        self.allocation().create(ty, service)
    }

    /// Completes the successor of a stored Service.
    ///
    /// # Errors
    /// As [`Allocation::update`].
    pub(crate) fn update(&self, ty: &ResourceType, stored: &Object, service: &mut Object) -> Result<(), Status> {
        self.allocation().update(ty, stored, service)
    }
}
