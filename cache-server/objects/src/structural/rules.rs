//! Rules in CEL of a schema: `x-kubernetes-validations`.
//!
//! A rule that does not compile here is not enforced: its definition may be valid, and this server does not know all of the
//! language. [`unenforced_rules`] names such rules.
//!
//! INVARIANT: the values of one object are visited once, and its rules share one [`StepBudget`].
//!
//! Source: apiextensions-apiserver `pkg/apiserver/schema/cel/validation.go`.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use api_rules::{
    limits::{WARNING_CHARS_MAX, WARNINGS_MAX},
    object::Object,
    registry::ResourceType,
};
use informer_serving::{
    go::quote,
    status::{CauseExt as _, CauseReason, Causes, StatusCause},
};
use serde_json::Value;

use super::{
    DEPTH_MAX, SchemaObject,
    cel::{
        Allowance, CelValue, CompiledExpression, Evaluation, EvaluationFailure, OUT_OF_BUDGET, OUT_OF_STEPS,
        StepBudget, compile, typed,
    },
    is_keyed, lists, member, parsed, properties,
    values::shown,
};
use crate::limits::{EXPRESSION_BYTES_MAX, RULE_MESSAGE_BYTES_MAX};

const RULES: &str = "x-kubernetes-validations";
const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// One compiled rule.
struct ValidationRule {
    program: CompiledExpression,
    /// The rule in errors: its message, or its text, up to [`EXPRESSION_BYTES_MAX`].
    name: String,
    has_message: bool,
    message: Option<CompiledExpression>,
    reason: ViolationReason,
    /// Members below the value, which a cause names; empty if it names the value.
    field_path: String,
    takes_optional: bool,
}

/// The reason of the cause for a rule that is not true.
#[derive(Clone, Copy)]
enum ViolationReason {
    Invalid,
    Forbidden,
    Required,
    Duplicate,
}

/// The rules for a value, and for those in it.
#[derive(Default)]
struct RuleTree {
    rules: Vec<ValidationRule>,
    properties: BTreeMap<String, Self>,
    items: Option<Box<Self>>,
    additional: Option<Box<Self>>,
}

/// The rules of a type, compiled once.
struct CompiledRules(Option<RuleTree>);

/// Compiles the rules of one schema.
#[derive(Default)]
struct RuleCompiler {
    allowance: Allowance,
    /// Warnings about rules that are not enforced, at most [`WARNINGS_MAX`].
    unenforced: Vec<String>,
}

/// The place of a schema in its definition, written for warnings only.
enum SchemaPath<'a> {
    Version(usize),
    Keyword(&'a Self, &'a str),
    Property(&'a Self, &'a str),
    Rule(&'a Self, usize),
}

impl SchemaPath<'_> {
    fn write(&self, out: &mut String) {
        let (parent, part) = match self {
            Self::Version(at) => return out.push_str(&format!("spec.versions[{at}].schema.openAPIV3Schema")),
            Self::Keyword(parent, keyword) => (parent, format!(".{keyword}")),
            Self::Property(parent, name) => (parent, format!(".properties[{name}]")),
            Self::Rule(parent, at) => (parent, format!(".{RULES}[{at}]")),
        };
        parent.write(out);
        out.push_str(&part);
    }
}

impl RuleCompiler {
    /// Notes what is not enforced.
    fn note(&mut self, at: &SchemaPath<'_>, keyword: &str, reason: &str) {
        if self.unenforced.len() == WARNINGS_MAX {
            return;
        }
        let mut text = String::new();
        SchemaPath::Keyword(at, keyword).write(&mut text);
        text.push_str(&format!(": not enforced by this server: {reason}"));
        self.unenforced.push(text.chars().take(WARNING_CHARS_MAX).collect());
    }

    /// Returns the rules of a schema; `None` if there are none.
    fn tree(&mut self, schema: &SchemaObject, at: &SchemaPath<'_>, depth: usize) -> Option<RuleTree> {
        if depth == DEPTH_MAX {
            return None;
        }
        if schema.get("allOf").is_some_and(has_rules) {
            self.note(at, "allOf", "rules in it");
        }
        let mut tree = RuleTree::default();
        for (place, rule) in schema.get(RULES).and_then(Value::as_array).into_iter().flatten().enumerate() {
            tree.rules.extend(self.rule(rule, schema, &SchemaPath::Rule(at, place)));
        }
        for (name, property) in properties(schema).into_iter().flatten() {
            if let Some(schema) = property.as_object()
                && let Some(inner) = self.tree(schema, &SchemaPath::Property(at, name), depth + 1)
            {
                tree.properties.insert(name.clone(), inner);
            }
        }
        let mut inner = |name: &str| {
            let inner = self.tree(schema.get(name)?.as_object()?, &SchemaPath::Keyword(at, name), depth + 1)?;
            Some(Box::new(inner))
        };
        (tree.items, tree.additional) = (inner("items"), inner("additionalProperties"));
        let has_inner = tree.items.is_some() || tree.additional.is_some() || !tree.properties.is_empty();
        (has_inner || !tree.rules.is_empty()).then_some(tree)
    }

    fn rule(&mut self, rule: &Value, schema: &SchemaObject, at: &SchemaPath<'_>) -> Option<ValidationRule> {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        let source = text("rule").trim();
        if source.is_empty() {
            return None;
        }
        let program = match compile(text("rule"), &mut self.allowance) {
            Ok(program) => program,
            Err(reason) => {
                self.note(at, "rule", &reason);
                return None;
            }
        };
        let message = Some(text("messageExpression")).filter(|message| !message.is_empty()).and_then(|message| {
            let compiled = compile(message, &mut self.allowance);
            compiled.map_err(|reason| self.note(at, "messageExpression", &reason)).ok()
        });
        let reason = match text("reason") {
            "FieldValueForbidden" => ViolationReason::Forbidden,
            "FieldValueRequired" => ViolationReason::Required,
            "FieldValueDuplicate" => ViolationReason::Duplicate,
            _ => ViolationReason::Invalid,
        };
        let has_message = !text("message").is_empty();
        let name = if has_message { text("message").trim() } else { source };
        Some(ValidationRule {
            program,
            name: name[..name.floor_char_boundary(EXPRESSION_BYTES_MAX)].to_owned(),
            has_message,
            message,
            reason,
            field_path: field_path(text("fieldPath"), schema),
            takes_optional: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default(),
        })
    }
}

/// Returns true if a schema or a schema in it has rules.
fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.contains_key(RULES) || members.values().any(has_rules),
        Value::Array(items) => items.iter().any(has_rules),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the rules in the schemas of a definition that this server does not enforce, as at most [`WARNINGS_MAX`] warnings.
#[must_use]
pub fn unenforced_rules(definition: &Object) -> Vec<String> {
    let versions = definition.get("spec").and_then(|spec| spec.get("versions")).and_then(Value::as_array);
    let mut warnings = Vec::new();
    for (place, version) in versions.into_iter().flatten().enumerate() {
        let schema = version.get("schema").and_then(|schema| schema.get("openAPIV3Schema")).and_then(Value::as_object);
        let mut compiler = RuleCompiler::default();
        if let Some(schema) = schema {
            compiler.tree(schema, &SchemaPath::Version(place), 0);
        }
        warnings.append(&mut compiler.unenforced);
    }
    warnings.truncate(WARNINGS_MAX);
    warnings
}

/// Writes a path such as `.spec['a.b']` as causes do. Empty for a path that is none.
fn field_path(path: &str, schema: &SchemaObject) -> String {
    let (mut rest, mut schema, mut out) = (path, Some(schema), String::new());
    while !rest.is_empty() {
        let (name, after) = if let Some(after) = rest.strip_prefix('.') {
            after.split_at(after.find(['.', '[']).unwrap_or(after.len()))
        } else if let Some(quoted) = rest.strip_prefix("['")
            && let Some((name, after)) = quoted.split_once("']")
        {
            (name, after)
        } else {
            return String::new();
        };
        let Some(at) = schema else { return String::new() };
        if properties(at).is_some() {
            let separator = if out.is_empty() { "" } else { "." };
            out.push_str(&format!("{separator}{name}"));
        } else {
            out.push_str(&format!("[{name}]"));
        }
        (schema, rest) = (member(at, name), after);
    }
    out
}

/// Path of a value, in the words of kube-apiserver's rules.
enum RulePath<'a> {
    Root,
    Member(&'a Self, &'a str),
    Key(&'a Self, &'a str),
    Item(&'a Self, usize),
}

impl RulePath<'_> {
    fn text(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Member(Self::Root, name) => (*name).to_owned(),
            Self::Member(parent, name) => format!("{}.{name}", parent.text()),
            Self::Key(parent, key) => format!("{}[{key}]", parent.text()),
            Self::Item(parent, at) => format!("{}[{at}]", parent.text()),
        }
    }

    /// Returns the field of a cause.
    fn field(&self, below: &str) -> String {
        let path = self.text();
        match (path.is_empty(), below.is_empty()) {
            (true, true) => "<nil>".to_owned(),
            (true, false) => below.to_owned(),
            (false, true) => path,
            (false, false) => format!("{path}.{below}"),
        }
    }
}

/// A value, and the stored one that it replaces: violations by an unchanged value are no cause.
struct Correlation<'a> {
    value: &'a Value,
    stored: &'a Value,
    is_unchanged: OnceCell<bool>,
}

impl<'a> Correlation<'a> {
    const fn new(value: &'a Value, stored: &'a Value) -> Self {
        Self { value, stored, is_unchanged: OnceCell::new() }
    }

    fn is_unchanged(&self) -> bool {
        *self.is_unchanged.get_or_init(|| self.value == self.stored)
    }
}

/// A value to check.
#[derive(Clone, Copy)]
struct CheckedValue<'a, 'p> {
    value: &'a Value,
    schema: &'a SchemaObject,
    /// The value of `oldSelf`.
    old: Option<&'a Value>,
    path: &'p RulePath<'p>,
    correlation: Option<&'p Correlation<'a>>,
    /// The nearest value around with a stored one.
    outer: Option<&'p Correlation<'a>>,
}

impl CheckedValue<'_, '_> {
    fn is_unchanged(&self) -> bool {
        self.correlation.or(self.outer).is_some_and(Correlation::is_unchanged)
    }
}

/// Checks the rules of a custom resource, unless there are causes that would fail them too.
pub(super) fn check(ty: &ResourceType, object: &Object, stored: Option<&Object>, causes: &mut Causes) {
    let Some(parsed) = parsed(ty) else { return };
    let Some(schema) = parsed.schema.as_object() else { return };
    let rules =
        ty.derived.get_or_make(|| CompiledRules(RuleCompiler::default().tree(schema, &SchemaPath::Version(0), 0)));
    let Some(tree) = &rules.0 else { return };
    if causes.any(blocks) {
        return causes.push(StatusCause::invalid("<nil>", "null", UNCHECKED));
    }
    let value = Value::Object(object.clone());
    let stored = stored.map(|stored| Value::Object(stored.clone()));
    let correlation = stored.as_ref().map(|stored| Correlation::new(&value, stored));
    let root = CheckedValue {
        value: &value,
        schema,
        old: stored.as_ref(),
        path: &RulePath::Root,
        correlation: correlation.as_ref(),
        outer: None,
    };
    let mut check = RuleCheck { causes, budget: StepBudget::of_object(), has_stopped: false };
    check.visit(tree, root);
}

/// Returns true for a cause that the rules rely on not to be there.
const fn blocks(cause: &StatusCause) -> bool {
    matches!(
        cause.reason,
        CauseReason::FieldValueNotSupported
            | CauseReason::FieldValueRequired
            | CauseReason::FieldValueTooLong
            | CauseReason::FieldValueTooMany
            | CauseReason::FieldValueTypeInvalid
    )
}

struct RuleCheck<'c> {
    causes: &'c mut Causes,
    budget: StepBudget,
    /// True once the budget is spent.
    has_stopped: bool,
}

impl RuleCheck<'_> {
    /// Takes the step for a value or for a rule of one. Returns false if none is left.
    fn take_step(&mut self, checked: CheckedValue<'_, '_>) -> bool {
        if self.has_stopped {
            return false;
        }
        if self.budget.charge(1).is_err() {
            self.has_stopped = true;
            self.add_of_type(checked, "", || OUT_OF_BUDGET.to_owned());
        }
        !self.has_stopped
    }

    fn visit<'a>(&mut self, tree: &'a RuleTree, checked: CheckedValue<'a, '_>) {
        if checked.value.is_null() || !self.take_step(checked) {
            return;
        }
        if !tree.rules.is_empty() {
            self.rules(tree, checked);
        }
        match checked.value {
            Value::Object(object) => self.members(tree, object, checked),
            Value::Array(list) => self.items(tree, list, checked),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn members<'a>(&mut self, tree: &'a RuleTree, object: &'a Object, checked: CheckedValue<'a, '_>) {
        let mut property = |name: &'a str, inner: &'a RuleTree, value: &'a Value| {
            let schema = properties(checked.schema).and_then(|properties| properties.get(name));
            if let Some(schema) = schema.and_then(Value::as_object) {
                self.member(inner, name, value, schema, &RulePath::Member(checked.path, name), checked);
            }
        };
        if tree.properties.len() < object.len() {
            for (name, inner) in &tree.properties {
                object.get(name).into_iter().for_each(|value| property(name, inner, value));
            }
        } else {
            for (name, value) in object {
                tree.properties.get(name).into_iter().for_each(|inner| property(name, inner, value));
            }
        }
        let additional = checked.schema.get("additionalProperties").and_then(Value::as_object);
        if let (Some(inner), Some(schema)) = (&tree.additional, additional) {
            for (name, value) in object {
                self.member(inner, name, value, schema, &RulePath::Key(checked.path, name), checked);
            }
        }
    }

    fn member<'a>(
        &mut self,
        tree: &'a RuleTree,
        name: &str,
        value: &'a Value,
        schema: &'a SchemaObject,
        path: &RulePath<'_>,
        parent: CheckedValue<'a, '_>,
    ) {
        // To kube-apiserver, null is no value.
        let old = parent.old.and_then(|old| old.get(name)).filter(|old| !old.is_null());
        // A stored object may have another version there.
        let is_hidden = parent.outer.is_none() && ["apiVersion", "kind"].contains(&name);
        let stored = parent.correlation.filter(|_| !is_hidden).and_then(|parent| parent.stored.get(name));
        let correlation = stored.map(|stored| Correlation::new(value, stored));
        let outer = if is_hidden { None } else { parent.correlation.or(parent.outer) };
        self.visit(tree, CheckedValue { value, schema, old, path, correlation: correlation.as_ref(), outer });
    }

    fn items<'a>(&mut self, tree: &'a RuleTree, list: &'a [Value], checked: CheckedValue<'a, '_>) {
        let schema = checked.schema.get("items").and_then(Value::as_object);
        let (Some(inner), Some(schema)) = (&tree.items, schema) else { return };
        let keys = |item: &Value| Value::Object(lists::keys(item, checked.schema)).to_string();
        let is_keyed = is_keyed(checked.schema);
        let known: HashMap<String, &Value> = match checked.old {
            Some(Value::Array(stored)) if is_keyed => stored.iter().map(|item| (keys(item), item)).collect(),
            _ => HashMap::new(),
        };
        for (at, value) in list.iter().enumerate() {
            let old =
                if known.is_empty() { None } else { known.get(&keys(value)).copied().filter(|old| !old.is_null()) };
            let stored = old.filter(|_| checked.correlation.is_some());
            let correlation = stored.map(|stored| Correlation::new(value, stored));
            let outer = checked.correlation.or(checked.outer);
            let path = &RulePath::Item(checked.path, at);
            self.visit(inner, CheckedValue { value, schema, old, path, correlation: correlation.as_ref(), outer });
        }
    }

    fn rules<'a>(&mut self, tree: &'a RuleTree, checked: CheckedValue<'a, '_>) {
        let is_root = matches!(checked.path, RulePath::Root);
        let read = |value: &'a Value| typed(value, checked.schema, is_root);
        let subject = read(checked.value);
        let old = checked.old.map(read);
        let plain_old = old.as_ref().and_then(|old| old.as_ref().ok());
        for rule in &tree.rules {
            if !self.take_step(checked) {
                return;
            }
            if rule.program.uses_old && checked.old.is_none() && !rule.takes_optional {
                continue;
            }
            let subject = match &subject {
                Ok(subject) => subject,
                Err(failure) => {
                    self.failed(rule, checked, failure);
                    continue;
                }
            };
            let rule_old = match old {
                Some(Err(_)) => None,
                _ if rule.takes_optional => Some(CelValue::Optional(plain_old.cloned().map(Rc::new))),
                _ => plain_old.cloned(),
            };
            match Evaluation::run(&rule.program, subject.clone(), rule_old, &mut self.budget) {
                // A message reads the plain value, also where the rule reads an optional one.
                Ok(CelValue::Bool(false)) => self.violated(rule, checked, subject, plain_old),
                // A rule of another type is refused by kube-apiserver, in the definition.
                Ok(_) => {}
                Err(failure) => self.failed(rule, checked, &failure),
            }
        }
    }

    /// Adds a cause for a rule without a result.
    fn failed(&mut self, rule: &ValidationRule, checked: CheckedValue<'_, '_>, failure: &EvaluationFailure) {
        self.has_stopped = !matches!(failure, EvaluationFailure::Error(_));
        let name = &rule.name;
        self.add_of_type(checked, "", || match failure {
            EvaluationFailure::Error(error) if error.starts_with("no such overload") => format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
            ),
            EvaluationFailure::Error(error) => format!("{error} evaluating rule: {name}"),
            EvaluationFailure::CallLimit => {
                format!(
                    "'{OUT_OF_STEPS}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                )
            }
            EvaluationFailure::BudgetLimit => OUT_OF_BUDGET.to_owned(),
        });
    }

    /// Adds a cause with the type of the value in place of the value.
    fn add_of_type(&mut self, checked: CheckedValue<'_, '_>, below: &str, text: impl FnOnce() -> String) {
        let ty = checked.schema.get("type").and_then(Value::as_str).unwrap_or_default();
        self.causes.push_with(|| StatusCause::invalid(&checked.path.field(below), &quote(ty), &text()));
    }

    /// Adds a cause for a rule that is not true, unless an unchanged value broke it before.
    fn violated<'a>(
        &mut self,
        rule: &'a ValidationRule,
        checked: CheckedValue<'a, '_>,
        subject: &CelValue<'a>,
        old: Option<&CelValue<'a>>,
    ) {
        if !rule.program.uses_old && checked.is_unchanged() {
            return;
        }
        let message = rule.message.as_ref().and_then(|message| {
            match Evaluation::run(message, subject.clone(), old.cloned(), &mut self.budget) {
                Ok(CelValue::Text(text)) => Some(text.trim().to_owned()).filter(|text| is_message(text)),
                Ok(_) | Err(EvaluationFailure::Error(_)) => None,
                Err(EvaluationFailure::CallLimit | EvaluationFailure::BudgetLimit) => {
                    self.has_stopped = true;
                    None
                }
            }
        });
        if self.has_stopped {
            let text = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
            return self.add_of_type(checked, &rule.field_path, || text.to_owned());
        }
        self.causes.push_with(|| {
            let detail = message.unwrap_or_else(|| {
                if rule.has_message { rule.name.clone() } else { format!("failed rule: {}", rule.name) }
            });
            cause(rule, checked, &detail)
        });
    }
}

fn is_message(text: &str) -> bool {
    !text.is_empty() && text.len() <= RULE_MESSAGE_BYTES_MAX && !text.contains('\n')
}

fn cause(rule: &ValidationRule, checked: CheckedValue<'_, '_>, detail: &str) -> StatusCause {
    let ty = checked.schema.get("type").and_then(Value::as_str);
    let value =
        if matches!(ty, Some("object" | "array")) { String::new() } else { format!(": {}", shown(checked.value)) };
    let field = checked.path.field(&rule.field_path);
    match rule.reason {
        ViolationReason::Invalid => {
            StatusCause::new(CauseReason::FieldValueInvalid, &field, &format!("Invalid value{value}: {detail}"))
        }
        ViolationReason::Forbidden => StatusCause::forbidden(&field, detail),
        ViolationReason::Required => StatusCause::required(&field, detail),
        ViolationReason::Duplicate => {
            StatusCause::new(CauseReason::FieldValueDuplicate, &field, &format!("Duplicate value{value}"))
        }
    }
}
