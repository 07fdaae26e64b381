//! Turns of writes that charge quotas.

use std::{
    array,
    hash::{BuildHasher as _, RandomState},
};

use tokio::sync::Mutex;

use crate::limits::QUOTA_TURNS_MAX;

/// One turn for each namespace, so that writes to others do not wait; names with the same hash share one.
pub(crate) struct QuotaTurns {
    turns: [Mutex<()>; QUOTA_TURNS_MAX],
    hasher: RandomState,
}

impl QuotaTurns {
    /// Waits until no other write charges the quotas of a namespace.
    pub(crate) async fn begin(&self, namespace: &str) -> impl Drop {
        // The low bits are enough.
        let [low, ..] = self.hasher.hash_one(namespace).to_le_bytes();
        self.turns[usize::from(low) % self.turns.len()].lock().await
    }
}

impl Default for QuotaTurns {
    fn default() -> Self {
        Self { turns: array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Goal: a write waits for those to its namespace alone. Method: a turn that is held, and as many other namespaces as
    /// there are turns, of which some must be free.
    #[tokio::test]
    async fn a_quota_waits_for_its_own_namespace() {
        let turns = QuotaTurns::default();
        let begins = |namespace: &str| turns.begin(namespace).now_or_never().is_some();
        let held = turns.begin("a").await;
        assert!(!begins("a"));
        let free = (0..QUOTA_TURNS_MAX).filter(|number| begins(&format!("b{number}"))).count();
        assert!(free > QUOTA_TURNS_MAX / 2, "{free}");
        drop(held);
        assert!(begins("a"));
    }
}
