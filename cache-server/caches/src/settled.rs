//! The position up to which a controller has done its work, for requests that wait for it.

use std::sync::Arc;

use tokio::{
    sync::watch,
    time::{error::Elapsed, timeout},
};

use crate::{cacher::Caches, limits::FRESH_WAIT, registry::ResourceType};

/// Position up to which nothing is left to do; zero before the first pass.
#[derive(Debug, Default)]
pub struct SettledPosition(watch::Sender<u64>);

impl SettledPosition {
    /// Records that nothing is left to do up to `position`.
    pub fn reach(&self, position: u64) {
        self.0.send_replace(position);
    }

    /// Position up to which nothing is left to do; zero before the first pass.
    pub fn position(&self) -> u64 {
        *self.0.borrow()
    }

    /// True after the first pass.
    pub fn is_known(&self) -> bool {
        self.position() > 0
    }

    /// Waits for the first pass. Cancel safe.
    pub async fn known(&self) {
        // The sender is a field of `self`, so it is open.
        let _ = self.0.subscribe().wait_for(|&settled| settled > 0).await;
    }

    /// Waits until nothing is left to do for the objects of `ty` that are stored now. A cache that is not ready is not
    /// waited for. Cancel safe.
    ///
    /// # Errors
    /// [`Elapsed`] after [`FRESH_WAIT`]: the controller continues.
    pub async fn wait(&self, caches: &Caches, ty: &Arc<ResourceType>) -> Result<(), Elapsed> {
        let settled = async {
            if let Ok(reader) = caches.fresh(ty).await {
                let (mut settled, position) = (self.0.subscribe(), reader.applied());
                // The sender is a field of `self`, so it is open.
                let _ = settled.wait_for(|&settled| position <= settled).await;
            }
        };
        timeout(FRESH_WAIT, settled).await
    }
}
