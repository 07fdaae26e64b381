//! Webhooks as their configurations describe them, and which writes they are about.

use api_rules::{limits::WEBHOOK_SHORT_ANSWER_BYTES_MAX, object::Object, registry::ResourceType};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use informer_serving::status::{Status, StatusExt as _};
use serde_json::Value;

use super::{
    GROUP, check, conditions::MatchConditions, matching::MatchedWrites, request::AdmissionRequest,
    urls::with_clean_path,
};
use crate::{
    limits::WEBHOOK_ANSWER_BYTES_MAX,
    structural::cel::{Allowance, ExpressionInput, ExpressionScope},
};

/// The power of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookKind {
    /// Change the object.
    Mutating,
    /// Refuse the write.
    Validating,
}

impl WebhookKind {
    /// Both, in the order in which writes pass them.
    pub const ALL: [Self; 2] = [Self::Mutating, Self::Validating];

    /// Id of the type of the configurations; see [`ResourceType::id`].
    #[must_use]
    pub const fn type_id(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            Self::Validating => "validatingwebhookconfigurations.admissionregistration.k8s.io",
        }
    }

    /// Returns what webhooks of a configuration may do; `None` if the type has none.
    #[must_use]
    pub fn of(ty: &ResourceType) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| ty.id() == kind.type_id())
    }
}

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookAddress {
    /// Its URL.
    Url(String),
    /// A Service: its name, and the URL that its name in the cluster makes.
    Service(String, String),
}

/// The names of conditions.
pub(super) const SCOPE: ExpressionScope<'_> =
    ExpressionScope { variables: &["object", "oldObject", "request"], named: &[] };

/// One webhook.
pub struct AdmissionWebhook {
    /// Its name.
    pub name: String,
    /// Its power.
    pub kind: WebhookKind,
    /// Where it is.
    pub address: WebhookAddress,
    /// Certificates of the authorities that its own is checked by, in PEM; empty for those of the system.
    pub authorities: Vec<u8>,
    /// Seconds that a call may take.
    pub timeout_seconds: u64,
    /// True if a write goes on when the call fails.
    pub ignores_failures: bool,
    /// True if it is called again when later webhooks changed the object.
    pub is_reinvoked: bool,
    /// True if a dry run may call it.
    pub allows_dry_run: bool,
    /// Version of the reviews that it understands; `None` if this server knows none of them.
    pub(super) review_version: Option<&'static str>,
    /// The writes that it is called for.
    pub writes: MatchedWrites,
    conditions: MatchConditions,
}

/// Reads the webhooks of a configuration, in order.
#[must_use]
pub fn read(kind: WebhookKind, configuration: &Object) -> Vec<AdmissionWebhook> {
    let webhooks = configuration.get("webhooks").and_then(Value::as_array);
    webhooks.into_iter().flatten().map(|webhook| AdmissionWebhook::read(kind, webhook)).collect()
}

impl AdmissionWebhook {
    fn read(kind: WebhookKind, webhook: &Value) -> Self {
        let text = |member: &str| webhook.get(member).and_then(Value::as_str).unwrap_or_default();
        let client = webhook.get("clientConfig").unwrap_or(&Value::Null);
        let authorities = client.get("caBundle").and_then(Value::as_str).unwrap_or_default();
        let known = |version: &str| check::REVIEW_VERSIONS.into_iter().find(|known| *known == version);
        Self {
            name: text("name").to_owned(),
            kind,
            address: address(client),
            authorities: STANDARD.decode(authorities).unwrap_or_default(),
            timeout_seconds: webhook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10),
            ignores_failures: text("failurePolicy") == "Ignore",
            is_reinvoked: text("reinvocationPolicy") == "IfNeeded",
            allows_dry_run: ["None", "NoneOnDryRun"].contains(&text("sideEffects")),
            review_version: check::texts(webhook, "admissionReviewVersions").into_iter().find_map(known),
            writes: MatchedWrites::of_webhook(webhook),
            conditions: MatchConditions::read(webhook, SCOPE, &mut Allowance::default()),
        }
    }

    /// Length of the longest answer to a question: only one about a new object carries a patch.
    #[must_use]
    pub fn answer_bytes_max(&self, request: &AdmissionRequest<'_>) -> usize {
        let may_patch = self.kind == WebhookKind::Mutating && request.object.is_some();
        if may_patch { WEBHOOK_ANSWER_BYTES_MAX } else { WEBHOOK_SHORT_ANSWER_BYTES_MAX }
    }

    /// True if the conditions of a webhook hold for a write that it matches.
    ///
    /// # Errors
    /// 403 if conditions fail, unless failures are ignored.
    pub fn meets_conditions(&self, request: &AdmissionRequest<'_>, target: &ResourceType) -> Result<bool, Status> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let (object, old) = request.objects_as(target);
        let variables = [object, old, request.question(target)];
        match self.conditions.are_met(&ExpressionInput::new(&variables, &[])) {
            Ok(is_met) => Ok(is_met),
            Err(_) if self.ignores_failures => Ok(false),
            Err(errors) => Err(Status::forbidden(&request.ty.group, &request.ty.plural, request.name, &errors)),
        }
    }
}

pub(super) fn address(client: &Value) -> WebhookAddress {
    if let Some(url) = client.get("url").and_then(Value::as_str) {
        return WebhookAddress::Url(with_clean_path(url));
    }
    let service = client.get("service").unwrap_or(&Value::Null);
    let text = |member: &str| service.get(member).and_then(Value::as_str).unwrap_or_default();
    let port = service.get("port").and_then(Value::as_u64).unwrap_or(443);
    let (name, namespace) = (text("name"), text("namespace"));
    let url = with_clean_path(&format!("https://{name}.{namespace}.svc:{port}/{}", text("path")));
    WebhookAddress::Service(name.to_owned(), url)
}

/// True for types whose writes are sent to no webhook: a configuration must not be able to guard itself.
#[must_use]
pub fn is_exempt(ty: &ResourceType) -> bool {
    ty.group == GROUP
}
