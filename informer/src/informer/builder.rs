//! Builder of an informer. `start` returns the first mistake.

use std::{fmt, path::PathBuf, time::Duration};

use super::{Informer, keeping::Keep};
use crate::{
    cluster::Cluster,
    config::Config,
    declaration::{Declaration, DeclaredType, declaration_setters, single_stream_setters, storage_setters},
    error::ConfigError,
};

/// Declaration of an informer: what it watches, and how. Sends no request before [`start`](Self::start).
#[must_use = "nothing happens before start"]
pub struct InformerBuilder<K> {
    pub(super) declared: Declaration,
    pub(super) keep: Keep<K>,
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

    single_stream_setters! {}

    storage_setters! {}

    /// Starts the informer on the current tokio runtime and returns at once.
    ///
    /// # Errors
    /// The first wrong setting. Failures at the server are not returned here but by [`Informer::ready`].
    pub fn start(self) -> Result<Informer<K>, ConfigError> {
        Ok(Informer::start(self.declared.into_setup()?, self.keep))
    }
}

impl<K> fmt::Debug for InformerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InformerBuilder").field(&self.declared).finish()
    }
}
