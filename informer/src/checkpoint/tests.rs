//! Tests of checkpoints: crashes and damage at every byte, random histories, locks and permissions.

pub(super) mod fixture;

mod crashes;
mod files;
mod histories;
