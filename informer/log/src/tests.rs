//! Crashes and damage at every byte, full disks, random histories, locks and permissions.

mod crashes;
mod files;
mod fixture;
mod histories;
