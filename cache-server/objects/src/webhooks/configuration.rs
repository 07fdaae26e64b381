//! Webhooks as their configurations describe them, and which writes they are about.

use std::sync::Arc;

use api_rules::{
    limits::WEBHOOK_SHORT_ANSWER_BYTES_MAX,
    object::{Object, label_selector::LabelSelector},
    registry::ResourceType,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use informer_serving::status::{Status, StatusExt as _};
use serde_json::Value;

use super::{GROUP, request::AdmissionRequest, urls::with_clean_path};
use crate::{
    limits::WEBHOOK_ANSWER_BYTES_MAX,
    structural::cel::{
        Allowance, CelValue, CompiledExpression, Evaluation, EvaluationFailure, OUT_OF_BUDGET, StepBudget, compile_over,
    },
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

/// The variables of conditions.
pub(super) const VARIABLES: [&str; 3] = ["object", "oldObject", "request"];

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
    rules: Vec<WebhookRule>,
    matches_equivalent: bool,
    /// `None` if this server cannot read it.
    namespaces: Option<LabelSelector>,
    objects: Option<LabelSelector>,
    conditions: Vec<Result<CompiledExpression, String>>,
}

/// The writes that a webhook is called for.
struct WebhookRule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

/// Reads the webhooks of a configuration, in order.
#[must_use]
pub fn read(kind: WebhookKind, configuration: &Object) -> Vec<AdmissionWebhook> {
    let webhooks = configuration.get("webhooks").and_then(Value::as_array);
    webhooks.into_iter().flatten().map(|webhook| AdmissionWebhook::read(kind, webhook)).collect()
}

fn texts(value: &Value, member: &str) -> Vec<String> {
    let texts = value.get(member).and_then(Value::as_array).into_iter().flatten();
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

impl AdmissionWebhook {
    fn read(kind: WebhookKind, webhook: &Value) -> Self {
        let text = |member: &str| webhook.get(member).and_then(Value::as_str).unwrap_or_default();
        let selector = |member: &str| LabelSelector::read(webhook.get(member).unwrap_or(&Value::Null));
        let client = webhook.get("clientConfig").unwrap_or(&Value::Null);
        let authorities = client.get("caBundle").and_then(Value::as_str).unwrap_or_default();
        let rules = webhook.get("rules").and_then(Value::as_array).into_iter().flatten().map(|rule| WebhookRule {
            operations: texts(rule, "operations"),
            groups: texts(rule, "apiGroups"),
            versions: texts(rule, "apiVersions"),
            resources: texts(rule, "resources"),
            scope: rule.get("scope").and_then(Value::as_str).unwrap_or_default().to_owned(),
        });
        let known = |version: String| ["v1", "v1beta1"].into_iter().find(|known| *known == version);
        let mut allowance = Allowance::default();
        let conditions = webhook.get("matchConditions").and_then(Value::as_array).into_iter().flatten();
        let conditions = conditions.map(|condition| {
            let expression = condition.get("expression").and_then(Value::as_str).unwrap_or_default();
            compile_over(expression, Some(&VARIABLES), &mut allowance)
        });
        Self {
            name: text("name").to_owned(),
            kind,
            address: address(client),
            authorities: STANDARD.decode(authorities).unwrap_or_default(),
            timeout_seconds: webhook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10),
            ignores_failures: text("failurePolicy") == "Ignore",
            is_reinvoked: text("reinvocationPolicy") == "IfNeeded",
            allows_dry_run: ["None", "NoneOnDryRun"].contains(&text("sideEffects")),
            review_version: texts(webhook, "admissionReviewVersions").into_iter().find_map(known),
            rules: rules.collect(),
            matches_equivalent: text("matchPolicy") != "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            conditions: conditions.collect(),
        }
    }

    /// True if a rule names the type, or one of its subresources, at any version. Types that share their objects are not
    /// told apart.
    #[must_use]
    pub fn concerns(&self, ty: &ResourceType) -> bool {
        let names = |rule: &WebhookRule| {
            let is_type = |name: &String| name.split('/').next().is_some_and(|name| name == "*" || name == ty.plural);
            (self.matches_equivalent || has(&rule.groups, &ty.group)) && rule.resources.iter().any(is_type)
        };
        self.rules.iter().any(names)
    }

    /// Returns the type as which the webhook gets the objects of a write, if a rule matches: that of the request if possible,
    /// else another one of `served`, the types that share its objects.
    #[must_use]
    pub fn target<'a>(
        &self,
        request: &AdmissionRequest<'a>,
        served: &'a [Arc<ResourceType>],
    ) -> Option<&'a ResourceType> {
        if self.rules.iter().any(|rule| rule.matches(request, request.ty)) {
            return Some(request.ty);
        }
        let others = || served.iter().filter(|_| self.matches_equivalent);
        self.rules.iter().find_map(|rule| others().find(|ty| rule.matches(request, ty)).map(|ty| &**ty))
    }

    /// Length of the longest answer to a question: only one about a new object carries a patch.
    #[must_use]
    pub fn answer_bytes_max(&self, request: &AdmissionRequest<'_>) -> usize {
        let may_patch = self.kind == WebhookKind::Mutating && request.object.is_some();
        if may_patch { WEBHOOK_ANSWER_BYTES_MAX } else { WEBHOOK_SHORT_ANSWER_BYTES_MAX }
    }

    /// True if it depends on the labels of the namespace whether the webhook is called.
    #[must_use]
    pub fn reads_namespace(&self, request: &AdmissionRequest<'_>) -> bool {
        let is_about_one = !request.namespace.is_empty() || request.ty.holds_objects;
        is_about_one && self.namespaces.as_ref().is_none_or(|selector| !selector.is_empty())
    }

    /// True if the selectors and conditions of a webhook whose rules match hold. `namespace` is what
    /// [`reads_namespace`](Self::reads_namespace) asks for.
    ///
    /// # Errors
    /// 403 if conditions fail, unless failures are ignored; 500 for selectors that cannot be read.
    pub fn selects(
        &self,
        request: &AdmissionRequest<'_>,
        namespace: Option<&Object>,
        target: &ResourceType,
    ) -> Result<bool, Status> {
        let unread = || Status::internal("a selector of the webhook cannot be read");
        if let Some(namespace) = namespace
            && !self.namespaces.as_ref().ok_or_else(unread)?.selects(namespace)
        {
            return Ok(false);
        }
        let objects = self.objects.as_ref().ok_or_else(unread)?;
        let is_selected = |object: Option<&Object>| object.is_some_and(|object| objects.selects(object));
        if !objects.is_empty() && !is_selected(request.object) && !is_selected(request.old) {
            return Ok(false);
        }
        if self.conditions.is_empty() {
            return Ok(true);
        }
        match self.meets_conditions(request, target) {
            Ok(is_met) => Ok(is_met),
            Err(_) if self.ignores_failures => Ok(false),
            Err(errors) => Err(Status::forbidden(&request.ty.group, &request.ty.plural, request.name, &errors)),
        }
    }

    /// # Errors
    /// The errors of conditions, unless another one is false; or that they spent their budget.
    fn meets_conditions(&self, request: &AdmissionRequest<'_>, target: &ResourceType) -> Result<bool, String> {
        let (object, old) = request.objects_as(target);
        let variables = [object, old, request.question(target)];
        let (mut budget, mut errors) = (StepBudget::of_conditions(), Vec::new());
        for condition in &self.conditions {
            let value = condition.as_ref().map_err(|reason| EvaluationFailure::Error(reason.as_str().into()));
            match value.and_then(|program| Evaluation::run_over(program, &variables, &mut budget)) {
                Ok(CelValue::Bool(true)) => {}
                Ok(CelValue::Bool(false)) => return Ok(false),
                Ok(_) => errors.push("the condition is no bool".to_owned()),
                Err(EvaluationFailure::Error(text)) => errors.push(text.into()),
                Err(EvaluationFailure::CallLimit) => {
                    errors.push("operation cancelled: actual cost limit exceeded".to_owned());
                }
                Err(EvaluationFailure::BudgetLimit) => return Err(OUT_OF_BUDGET.to_owned()),
            }
        }
        match &*errors {
            [] => Ok(true),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
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

/// True if a list of a rule has a value, or the wildcard.
fn has(listed: &[String], value: &str) -> bool {
    listed.iter().any(|listed| listed == "*" || listed == value)
}

impl WebhookRule {
    fn matches(&self, request: &AdmissionRequest<'_>, ty: &ResourceType) -> bool {
        let is_cluster_wide = request.ty.holds_objects || request.namespace.is_empty();
        let is_in_scope = match &*self.scope {
            "Namespaced" => !is_cluster_wide,
            "Cluster" => is_cluster_wide,
            _ => true,
        };
        let is_named = |resource: &String| {
            let (name, part) = resource.split_once('/').unwrap_or((resource, ""));
            (name == "*" || name == ty.plural) && (part == "*" || part == request.subresource)
        };
        is_in_scope
            && has(&self.operations, request.operation.name())
            && has(&self.groups, &ty.group)
            && has(&self.versions, &ty.version)
            && self.resources.iter().any(is_named)
    }
}

/// True for types whose writes are sent to no webhook: a configuration must not be able to guard itself.
#[must_use]
pub fn is_exempt(ty: &ResourceType) -> bool {
    ty.group == GROUP
}
