//! Builder of an informer. `start` returns the first mistake.

use std::{fmt, path::PathBuf, time::Duration};

use kube::{Resource, core::ApiResource};

use super::{Informer, SharedBuilder, keeping::Keep};
use crate::{
    cluster::Cluster,
    config::Config,
    declaration::{
        Declaration, DeclaredType, declaration_setters, delays_setter, namespace_setter, namespaces_setter,
        storage_setters,
    },
    error::ConfigError,
};

/// Declaration of an informer: what it watches, and how. Sends no request before [`start`](Self::start).
#[must_use = "nothing happens before start"]
pub struct InformerBuilder<K> {
    pub(super) declared: Declaration,
    pub(super) keep: Keep<K>,
}

impl Cluster {
    /// Declares an informer of a type known at compile time. Sends no request before [`start`](InformerBuilder::start).
    pub fn informer<K>(&self) -> InformerBuilder<K>
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        InformerBuilder::new(self.clone(), DeclaredType::of::<K>())
    }

    /// Declares an informer of a type known at run time, such as `DynamicObject` of a custom resource. An `ApiResource`
    /// lacks the type's scope; set it with [`scope`](InformerBuilder::scope) if you know it.
    pub fn informer_for<K>(&self, resource: &ApiResource) -> InformerBuilder<K> {
        InformerBuilder::new(self.clone(), DeclaredType::from(resource))
    }
}

impl<K> InformerBuilder<K> {
    pub(crate) fn new(cluster: Cluster, of: DeclaredType) -> Self {
        Self::declared(Declaration::new(cluster, of, Config::default()))
    }

    pub(crate) fn declared(declared: Declaration) -> Self {
        Self { declared, keep: Keep::default() }
    }

    declaration_setters! {
        drop_path: "Cuts a dotted path, such as `metadata.annotations`, out of every object before it is stored.",
        config: "Changes any setting: `.config(|config| config.idle_timeout = Duration::from_secs(60))`.",
    }

    namespace_setter! {}

    namespaces_setter! {
        "Requests: a watch for each namespace; reading all namespaces is one watch, and cheaper for the server than many. \
        Each namespace has a checkpoint of its own, and [`shutdown`](Informer::shutdown) does not wait for their last \
        save. [`Cluster::shared`] shares the watches. [`linger`](Self::linger) and [`delays`](Self::delays) are an error \
        at [`start`](Self::start) then."
    }

    delays_setter! {}

    storage_setters! {}

    /// Starts the informer on the current tokio runtime and returns at once.
    ///
    /// # Errors
    /// The first wrong setting. Failures at the server are not returned here but by [`Informer::ready`].
    pub fn start(self) -> Result<Informer<K>, ConfigError>
    where
        K: Send + Sync + 'static,
    {
        if self.declared.namespaces.len() > 1 {
            return self.start_merged();
        }
        Ok(Informer::start(self.declared.into_setup()?, self.keep))
    }

    /// Starts one informer for each of several namespaces, and merges their copies into one.
    fn start_merged(mut self) -> Result<Informer<K>, ConfigError>
    where
        K: Send + Sync + 'static,
    {
        if self.declared.delays.is_some() {
            return Err(ConfigError::DelaysMerged);
        }
        let keep_of_part = self.keep.of_parts();
        let part = move |declared| Self { declared, keep: keep_of_part() };
        SharedBuilder::merged(self.declared, self.keep, part).start()
    }
}

impl<K> fmt::Debug for InformerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InformerBuilder").field(&self.declared).finish()
    }
}
