//! Metrics of admission, under kube-apiserver's names.

mod audit;
mod authentication;
mod authorization;

pub use self::{audit::AuditCounters, authentication::AuthenticationMetrics, authorization::AuthorizationMetrics};
