//! Admission webhooks: which of them a write is sent to ([`AdmissionWebhook`]), with which question ([`AdmissionRequest`]), and
//! what their answers mean ([`answer`]). [`check`] refuses configurations. The caller sends the questions.
//!
//! Not implemented, on purpose: the operation CONNECT.
//!
//! INVARIANT: a webhook is known by the name of its configuration and by its own. INVARIANT: what a webhook answers is
//! bounded by its patch, which is bounded like the patches of clients.
//!
//! Source: apiserver `pkg/admission/plugin/webhook`; `pkg/apis/admissionregistration/validation` of kubernetes/kubernetes.

pub mod answer;
mod check;
mod configuration;
pub mod conversion;
mod request;
mod urls;

pub use self::{
    check::check,
    configuration::{AdmissionWebhook, WebhookAddress, WebhookKind, is_exempt, read},
    request::{AdmissionOperation, AdmissionRequest, ObjectKind},
};

/// API group of the configurations.
pub const GROUP: &str = "admissionregistration.k8s.io";
