//! In place of the webhooks, in a build without the feature `assets`: there are none.

/// The webhooks of a server.
#[derive(Default)]
pub(crate) struct Webhooks(());

/// In place of the store that calls conversion webhooks.
pub(crate) mod converting {
    use std::sync::Arc;

    use crate::{config::Config, storage::Store};

    /// Returns the store itself.
    pub(crate) fn over(_: &Config, store: Arc<dyn Store>) -> Arc<dyn Store> {
        store
    }
}

/// One request on its way through the webhooks.
pub(crate) enum RequestAdmission {}
