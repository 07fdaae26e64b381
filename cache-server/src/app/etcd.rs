//! A server whose objects are in etcd.

use std::sync::Arc;

use super::{App, ControllerDuty};
use crate::{
    cacher::{Caches, HandedStates, SavedStates, StateOrigin},
    config::{Config, EtcdConfig},
    storage::{
        coalesced::CoalescedSource,
        etcd::{EtcdAccess, EtcdOpenError, EtcdStorage},
    },
};

impl App {
    /// Builds the parts of a server whose objects are in etcd. Other servers may share them. `handed` has the caches of the
    /// process before.
    ///
    /// # Errors
    /// [`EtcdOpenError`] if etcd cannot be used.
    pub(crate) async fn with_etcd(
        config: Config,
        etcd: &EtcdConfig,
        handed: HandedStates,
    ) -> Result<Self, EtcdOpenError> {
        let store = Arc::new(EtcdStorage::open(etcd).await?);
        let duty = match store.access() {
            EtcdAccess::Owner => ControllerDuty::Shared,
            EtcdAccess::Guest | EtcdAccess::ReadOnly => ControllerDuty::None,
        };
        let caches = Caches::new(CoalescedSource::new(Arc::clone(&store)), config.limits.clone());
        let origin = StateOrigin { server: etcd.prefix.clone(), ..StateOrigin::default() };
        let caches = caches.saved_in(SavedStates::in_memory(origin, handed));
        let app = Self::local_with(config, Arc::clone(&store) as _, caches, duty);
        store.keep_checking(etcd, &app.tasks);
        Ok(app)
    }
}
