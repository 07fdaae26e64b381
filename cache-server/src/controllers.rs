//! Controllers: tasks that follow the objects of one type, and do what a Kubernetes cluster does about them.

pub(crate) mod definitions;
pub(crate) mod leftovers;
pub(crate) mod namespaces;
pub(crate) mod passes;
pub(crate) mod settled;

#[cfg(test)]
mod tests;
