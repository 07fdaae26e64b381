//! Expressions of webhooks and policies, with the errors of kube-apiserver, and the conditions made of them.
//!
//! Source: apiserver `pkg/admission/plugin/cel/activation.go`, `pkg/admission/plugin/webhook/matchconditions`.

use serde_json::Value;

use crate::structural::cel::{
    Allowance, CelValue, CompiledExpression, Evaluation, EvaluationFailure, ExpressionInput, ExpressionScope,
    OUT_OF_BUDGET, OUT_OF_STEPS, StepBudget, compile_over,
};

/// An expression.
pub(crate) struct AdmissionExpression {
    pub(crate) text: String,
    program: Result<CompiledExpression, String>,
}

/// The reason why an expression has no value.
pub(crate) enum ExpressionError {
    /// For people.
    Failed(String),
    /// The budget of several expressions is spent.
    OutOfBudget,
}

impl AdmissionExpression {
    /// Reads the expression in a member.
    pub(crate) fn read(value: &Value, member: &str, scope: ExpressionScope<'_>, allowance: &mut Allowance) -> Self {
        let text = value.get(member).and_then(Value::as_str).unwrap_or_default();
        Self { text: text.to_owned(), program: compile_over(text, scope, allowance) }
    }

    /// # Errors
    /// [`ExpressionError`].
    pub(crate) fn value<'a>(
        &'a self,
        input: &ExpressionInput<'a>,
        budget: &mut StepBudget,
    ) -> Result<CelValue<'a>, ExpressionError> {
        let program = self
            .program
            .as_ref()
            .map_err(|reason| ExpressionError::Failed(format!("compilation error: compilation failed: {reason}")))?;
        let failed =
            |why: &str| ExpressionError::Failed(format!("expression '{}' resulted in error: {why}", self.text));
        Evaluation::run_over(program, input, budget).map_err(|failure| match failure {
            EvaluationFailure::Error(text) => failed(&text),
            EvaluationFailure::CallLimit => failed(OUT_OF_STEPS),
            EvaluationFailure::BudgetLimit => ExpressionError::OutOfBudget,
        })
    }
}

/// Conditions that a write has to meet.
pub(crate) struct MatchConditions(Vec<AdmissionExpression>);

impl MatchConditions {
    /// Reads the `matchConditions` of a webhook or policy.
    pub(crate) fn read(value: &Value, scope: ExpressionScope<'_>, allowance: &mut Allowance) -> Self {
        let conditions = value.get("matchConditions").and_then(Value::as_array).into_iter().flatten();
        let read = |condition| AdmissionExpression::read(condition, "expression", scope, allowance);
        Self(conditions.map(read).collect())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// # Errors
    /// The errors of conditions, unless another one is false; or that they spent their budget.
    pub(crate) fn are_met<'a>(&'a self, input: &ExpressionInput<'a>) -> Result<bool, String> {
        let (mut budget, mut errors) = (StepBudget::of_conditions(), Vec::new());
        for condition in &self.0 {
            match condition.value(input, &mut budget) {
                Ok(CelValue::Bool(true)) => {}
                Ok(CelValue::Bool(false)) => return Ok(false),
                Ok(_) => errors.push("the condition is no bool".to_owned()),
                Err(ExpressionError::Failed(text)) => errors.push(text),
                Err(ExpressionError::OutOfBudget) => return Err(OUT_OF_BUDGET.to_owned()),
            }
        }
        match &*errors {
            [] => Ok(true),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }
}
