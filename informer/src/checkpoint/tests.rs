//! Crashes at every byte, damage at every byte, random histories, and who may read and write.

pub(super) mod fixture;

mod crashes;
mod files;
mod histories;
