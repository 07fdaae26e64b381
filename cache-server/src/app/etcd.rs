//! A server whose objects are in etcd.

use std::sync::Arc;

use super::{App, ControllerDuty};
use crate::{
    cacher::Caches,
    config::{Config, EtcdConfig},
    storage::{
        coalesced::CoalescedSource,
        etcd::{EtcdAccess, EtcdOpenError, EtcdStorage},
    },
};

impl App {
    /// Builds the parts of a server whose objects are in etcd. Other servers may share them.
    ///
    /// # Errors
    /// [`EtcdOpenError`] if etcd cannot be used.
    pub(crate) async fn with_etcd(config: Config, etcd: &EtcdConfig) -> Result<Self, EtcdOpenError> {
        let store = Arc::new(EtcdStorage::open(etcd).await?);
        let duty = match store.access() {
            EtcdAccess::Owner => ControllerDuty::Shared,
            EtcdAccess::Guest | EtcdAccess::ReadOnly => ControllerDuty::None,
        };
        let caches = Caches::new(CoalescedSource::new(Arc::clone(&store)), config.limits.clone());
        let app = Self::local_with(config, Arc::clone(&store) as _, caches, duty);
        store.keep_checking(etcd, &app.tasks);
        Ok(app)
    }
}
