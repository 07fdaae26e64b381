//! Policies, and what their expressions say about one write.

use api_rules::{
    object::{Object, metadata},
    registry::ResourceType,
};
use informer_serving::status::{Reason, Status, StatusCause, StatusExt as _};
use serde_json::Value;

use super::binding::PolicyBinding;
use crate::{
    limits::RULE_MESSAGE_BYTES_MAX,
    structural::cel::{
        Allowance, CelValue, ExpressionInput, ExpressionScope, NamedExpression, OUT_OF_BUDGET, StepBudget, compile_over,
    },
    webhooks::{
        AdmissionRequest, MatchedWrites,
        check::text,
        conditions::{AdmissionExpression, ExpressionError, MatchConditions},
    },
};

/// The variables of expressions. The last one is there in policies with parameters.
const VARIABLES: [&str; 5] = ["object", "oldObject", "request", "namespaceObject", "params"];

/// Returns the variables of the expressions of a policy.
pub(super) fn variables(spec: &Value) -> &'static [&'static str] {
    let has_parameters = spec.get("paramKind").is_some_and(Value::is_object);
    if has_parameters { &VARIABLES } else { &VARIABLES[..VARIABLES.len() - 1] }
}

/// A policy.
pub struct AdmissionPolicy {
    /// Its name.
    pub name: String,
    /// The writes that it is about.
    pub writes: MatchedWrites,
    /// Kind of its parameters; `None` if it has none.
    pub parameters: Option<ParameterKind>,
    ignores_failures: bool,
    conditions: MatchConditions,
    variables: Vec<NamedExpression>,
    validations: Vec<PolicyValidation>,
}

/// Kind of the parameters of a policy.
pub struct ParameterKind {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

struct PolicyValidation {
    expression: AdmissionExpression,
    message: String,
    message_expression: Option<AdmissionExpression>,
    refusal: (u16, Reason),
}

/// The values that the expressions of all policies read about a write.
pub struct PolicyInput {
    object: Value,
    old: Value,
    request: Value,
    namespace: Value,
}

impl PolicyInput {
    /// Returns the variables of a write, with its objects as those of `target`. `namespace` is where they are. Cost: a
    /// copy of the objects.
    #[must_use]
    pub fn new(request: &AdmissionRequest<'_>, target: &ResourceType, namespace: Option<&Object>) -> Self {
        let (object, old) = request.objects_as(target);
        let namespace = namespace.map_or(Value::Null, |namespace| {
            let mut shown = namespace.clone();
            shown.retain(|member, _| !["kind", "apiVersion"].contains(&&**member));
            if let Some(Value::Object(metadata)) = shown.get_mut("metadata") {
                metadata.retain(|member, _| !["managedFields", "ownerReferences"].contains(&&**member));
            }
            shown.into()
        });
        Self { object, old, request: request.question(target), namespace }
    }
}

/// Something that speaks against a write.
struct PolicyFailure {
    message: String,
    /// Code and reason of the answer.
    refusal: (u16, Reason),
}

const INVALID: (u16, Reason) = (422, Reason::Invalid);

impl AdmissionPolicy {
    /// Reads a policy.
    #[must_use]
    pub fn read(policy: &Object) -> Self {
        let spec = policy.get("spec").unwrap_or(&Value::Null);
        let list = |member: &str| spec.get(member).and_then(Value::as_array).into_iter().flatten();
        let (names, mut allowance) = (variables(spec), Allowance::default());
        let mut named = Vec::new();
        for variable in list("variables") {
            let scope = ExpressionScope { variables: names, named: &named };
            let program = compile_over(text(variable, "expression"), scope, &mut allowance);
            named.push(NamedExpression { name: text(variable, "name").to_owned(), program });
        }
        let (scope, bare) =
            (ExpressionScope { variables: names, named: &named }, ExpressionScope { variables: names, named: &[] });
        let conditions = MatchConditions::read(spec, bare, &mut allowance);
        let validations = list("validations").map(|validation| PolicyValidation {
            expression: AdmissionExpression::read(validation, "expression", scope, &mut allowance),
            message: text(validation, "message").trim().to_owned(),
            message_expression: (!text(validation, "messageExpression").is_empty())
                .then(|| AdmissionExpression::read(validation, "messageExpression", scope, &mut allowance)),
            refusal: match text(validation, "reason") {
                "Unauthorized" => (401, Reason::Unauthorized),
                "Forbidden" => (403, Reason::Forbidden),
                "RequestEntityTooLarge" => (413, Reason::RequestEntityTooLarge),
                _ => INVALID,
            },
        });
        let validations = validations.collect();
        let parameters = spec.get("paramKind").filter(|kind| kind.is_object()).map(|kind| ParameterKind {
            api_version: text(kind, "apiVersion").to_owned(),
            kind: text(kind, "kind").to_owned(),
        });
        Self {
            name: metadata::text(policy, "name").to_owned(),
            writes: MatchedWrites::of_policy(spec.get("matchConstraints").unwrap_or(&Value::Null)),
            parameters,
            ignores_failures: text(spec, "failurePolicy") == "Ignore",
            conditions,
            variables: named,
            validations,
        }
    }

    /// Decides about a write for which the policy, or one of its bindings, cannot be set up.
    ///
    /// # Errors
    /// 422, unless failures are ignored.
    pub fn misconfigured(
        &self,
        binding: Option<&PolicyBinding>,
        request: &AdmissionRequest<'_>,
        why: &str,
    ) -> Result<(), Status> {
        if self.ignores_failures {
            return Ok(());
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        let message = format!("failed to configure {what}: {why}");
        Err(self.denied(binding, request, PolicyFailure { message, refusal: INVALID }))
    }

    /// Decides about a write that the policy and a binding match, with one parameter, which is null for none. Adds
    /// warnings.
    ///
    /// # Errors
    /// The Status of the first validation that fails, with the code of its reason.
    pub fn decide(
        &self,
        binding: &PolicyBinding,
        request: &AdmissionRequest<'_>,
        input: &PolicyInput,
        parameter: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        for failure in self.failures(input, parameter) {
            if binding.warns {
                let (policy, by, why) = (&self.name, &binding.name, &failure.message);
                warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{by}': {why}"
                ));
            }
            if binding.denies {
                return Err(self.denied(Some(binding), request, failure));
            }
        }
        Ok(())
    }

    /// Returns the failure for an error, unless errors are ignored.
    fn error(&self, message: String) -> Option<PolicyFailure> {
        (!self.ignores_failures).then_some(PolicyFailure { message, refusal: INVALID })
    }

    fn failures(&self, input: &PolicyInput, parameter: &Value) -> Vec<PolicyFailure> {
        let PolicyInput { object, old, request, namespace } = input;
        // As many as there are names: variables of macros have the next places.
        let count = if self.parameters.is_some() { VARIABLES.len() } else { VARIABLES.len() - 1 };
        let values = |namespace| [object, old, request, namespace, parameter].into_iter().take(count);
        // As in kube-apiserver, conditions do not know the namespace.
        match self.conditions.are_met(&ExpressionInput::new(values(&Value::Null), &[])) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(errors) => return self.error(errors).into_iter().collect(),
        }
        let input = &ExpressionInput::new(values(namespace), &self.variables);
        let (mut budget, mut failed) = (StepBudget::of_policy(), Vec::new());
        for validation in &self.validations {
            match validation.expression.value(input, &mut budget) {
                Ok(CelValue::Bool(true)) => {}
                Ok(_) => failed.push((validation, None)),
                Err(ExpressionError::Failed(error)) => failed.push((validation, Some(error))),
                Err(ExpressionError::OutOfBudget) => return self.error(OUT_OF_BUDGET.to_owned()).into_iter().collect(),
            }
        }
        // Messages take the steps that validations left.
        let mut failures = Vec::new();
        for (validation, error) in failed {
            failures.extend(match error.map_or_else(|| validation.message(input, &mut budget), Err) {
                Ok(message) => Some(PolicyFailure { message, refusal: validation.refusal.clone() }),
                Err(error) => self.error(error),
            });
        }
        failures
    }

    /// Returns the Status of a write that is denied.
    fn denied(
        &self,
        binding: Option<&PolicyBinding>,
        request: &AdmissionRequest<'_>,
        failure: PolicyFailure,
    ) -> Status {
        let by = binding.map_or_else(String::new, |binding| format!(" with binding '{}'", binding.name));
        let message = format!("ValidatingAdmissionPolicy '{}'{by} denied request: {}", self.name, failure.message);
        let generated = request.object.map_or("", |object| metadata::text(object, "generateName"));
        let name = [request.name, generated].into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
        let mut status = Status::forbidden(&request.ty.group, &request.ty.plural, name, &message);
        (status.code, status.reason) = failure.refusal;
        status.details.get_or_insert_default().causes.push(StatusCause { message, ..StatusCause::default() });
        status
    }
}

impl PolicyValidation {
    /// # Errors
    /// That no steps are left for the message.
    fn message<'a>(&'a self, input: &ExpressionInput<'a>, budget: &mut StepBudget) -> Result<String, String> {
        let made = match self.message_expression.as_ref().map(|expression| expression.value(input, budget)) {
            Some(Ok(CelValue::Text(text))) => text.trim().to_owned(),
            Some(Err(ExpressionError::OutOfBudget)) => {
                return Err(format!("failed messageExpression: {OUT_OF_BUDGET}"));
            }
            Some(Ok(_) | Err(ExpressionError::Failed(_))) | None => String::new(),
        };
        let is_message = !made.is_empty() && made.len() <= RULE_MESSAGE_BYTES_MAX && !made.contains('\n');
        Ok(match (is_message, &*self.message) {
            (true, _) => made,
            (false, "") => format!("failed expression: {}", self.expression.text.trim()),
            (false, message) => message.to_owned(),
        })
    }
}
