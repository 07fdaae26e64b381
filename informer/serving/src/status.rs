//! Kubernetes' error body as a server makes it: constructors of errors and their causes, with kube-apiserver's texts.

mod cause;
mod errors;

pub use informer_core::wire::status::{CauseReason, Details, Reason, Status, StatusCause};

pub use self::{
    cause::{CauseExt, Causes},
    errors::{StatusExt, qualified},
};

#[cfg(test)]
mod tests;
