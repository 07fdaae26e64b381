//! Expressions in CEL, the Common Expression Language, as kube-apiserver evaluates them: compiled from a text ([`compile`]),
//! evaluated over values with schemas, or without ([`eval`]).
//!
//! Not implemented, on purpose: types are not checked, so an expression with a wrong type fails when it is evaluated; and
//! `timestamp` with time zones, `sort`, `semver`, `authorizer`, messages and names in backticks. Such an expression does not
//! compile.
//!
//! INVARIANT: texts come from clients. Lengths, nesting, patterns and steps are bounded, so an expression costs at most
//! [`limits::CALL_STEPS_MAX`](crate::limits::CALL_STEPS_MAX) steps and stack for
//! [`limits::EXPRESSION_DEPTH_MAX`](crate::limits::EXPRESSION_DEPTH_MAX) levels.
//!
//! In reading order: tokens (`lex`), trees (`expression`), their parser (`parse`), values (`value`), their order (`order`),
//! evaluation (`eval`), and the functions (`functions`), by what they are about.
//!
//! Source: cel-go 0.29 and `k8s.io/apiserver/pkg/cel` 1.37, whose texts of errors these are.

#![expect(clippy::wildcard_enum_match_arm, reason = "functions take few of many types; others have no overload")]

mod conversions;
mod eval;
mod expression;
mod formats;
mod functions;
mod lex;
mod lists;
mod net;
mod order;
mod parse;
mod quantity;
mod texts;
mod times;
mod value;

pub(crate) use self::{
    eval::{Evaluation, EvaluationFailure, ExpressionInput, OUT_OF_BUDGET, OUT_OF_STEPS, StepBudget},
    parse::{Allowance, CompiledExpression, ExpressionScope, NamedExpression, compile_over},
    value::{CelValue, is_identifier},
};
pub(super) use self::{parse::compile, value::typed};

#[cfg(test)]
mod tests;
