//! The SDK with the types of kube 5 and k8s-openapi 0.29: feature `kube-5`, and the default.

use ::kube;

#[path = "adapter/mod.rs"]
mod adapter;
#[path = "adapter/differences.rs"]
mod differences;

use self::Kube5 as Types;
pub use self::adapter::*;

/// The types of kube 5: those that implement its `Resource`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Kube5 {}
