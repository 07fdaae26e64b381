//! Tests of checkpoints: what a restart finds of the states that were saved. `informer-log` tests crashes and damage.

pub(super) mod fixture;

mod saves;
