//! Controllers: tasks that follow the objects of one type, and do what a Kubernetes cluster does about them.

pub(crate) mod definitions;
pub(crate) mod leftovers;
pub(crate) mod namespaces;

use cache_server_caches::{passes, settled};

#[cfg(test)]
mod tests;
