//! Admission webhooks: which of them a write is sent to ([`AdmissionWebhook`]), with which question ([`AdmissionRequest`]), and
//! what their answers mean ([`answer`]). [`check`] refuses configurations. The caller sends the questions.
//!
//! Not implemented, on purpose: the operation CONNECT.
//!
//! INVARIANT: an answer about a write is decoded only if its values, and then those of its patch, fit into the bound of the
//! bodies of clients. INVARIANT: what logs say about a failure has no text of an object or an answer.
//!
//! Source: apiserver `pkg/admission/plugin/webhook`; `pkg/apis/admissionregistration/validation` of kubernetes/kubernetes.

pub mod answer;
pub(crate) mod check;
pub(crate) mod conditions;
mod configuration;
pub mod conversion;
mod matching;
mod request;
mod urls;

pub use self::{
    check::check,
    configuration::{AdmissionWebhook, WebhookAddress, WebhookKind, is_exempt, read},
    matching::MatchedWrites,
    request::{AdmissionOperation, AdmissionRequest, ObjectKind},
};

/// API group of the configurations.
pub const GROUP: &str = "admissionregistration.k8s.io";
