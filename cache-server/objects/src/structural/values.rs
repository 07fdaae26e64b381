//! Checks types, required members, enums, bounds, patterns and formats.
//!
//! A first walk counts violations and builds no text. If it finds one, a second one builds the causes, up to their limit.

use api_rules::{
    object::{
        Object,
        metadata::{self, Part},
        validation::ValuePath,
    },
    registry::ResourceType,
};
use informer_serving::{
    go::{self, quote},
    limits::CAUSES_MAX,
    status::{CauseExt as _, CauseReason, Causes, Status, StatusCause, StatusExt as _},
};
use serde_json::Value;

use super::{
    DEPTH_MAX, INT_OR_STRING, PATTERN, SchemaNode, SchemaObject, embedded, flag, formats, lists, numbers, parsed,
    strings,
    subject::{Subject, ValueView},
};
use crate::{
    limits::{
        ALLOWED_BYTES_MAX, ALLOWED_VALUES_MAX, BYTES_PER_STEP, STATES_PER_STEP, STEPS_PER_VALUE, VALIDATION_STEPS_MAX,
    },
    pattern::{Pattern, PatternError},
};

/// Checks the part of a custom resource that a write may change. Violations by values that `stored` has too are no cause: a
/// definition may have become stricter since.
///
/// # Errors
/// 422 for values that the schema does not allow, and for an object that takes too many steps.
pub fn check(ty: &ResourceType, part: Part, object: &Object, stored: Option<&Object>) -> Result<(), Status> {
    let Some(parsed) = parsed(ty) else { return Ok(()) };
    let Some(schema) = parsed.schema.as_object() else { return Ok(()) };
    let (root, mut causes) = (SchemaNode::root(schema), Causes::default());
    match part {
        Part::Main | Part::Finalize => {
            let subject = Subject { view: ValueView::Whole(object), stored: stored.map(ValueView::Whole) };
            causes = violations(&subject, &root, &parsed.patterns, "");
            embedded::check(object, &root, &mut causes);
        }
        Part::Status | Part::Approval | Part::EphemeralContainers => {
            if let (Some(status), Some(node)) = (object.get("status"), root.member("status")) {
                let stored = stored.and_then(|stored| stored.get("status")).map(ValueView::Part);
                let subject = Subject { view: ValueView::Part(status), stored };
                causes = violations(&subject, &SchemaNode::root(node.schema), &parsed.patterns, "status");
            }
        }
    }
    lists::check(object, stored, &root, &mut causes);
    super::rules::check(ty, object, stored, &mut causes);
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&ty.group, &ty.kind, metadata::text(object, "name"), causes))
}

/// Returns the causes in a value. `prefix` is the field that has it.
fn violations(
    subject: &Subject<'_>,
    node: &SchemaNode<'_>,
    patterns: &[Result<Pattern, PatternError>],
    prefix: &'static str,
) -> Causes {
    let mut found = Violations {
        causes: None,
        is_full: false,
        checked: CheckCounts::default(),
        patterns,
        prefix,
        steps_left: VALIDATION_STEPS_MAX,
    };
    found.value(subject, node);
    let errors = std::mem::take(&mut found.checked).errors;
    if errors > 0 {
        found.causes = Some(Causes::default());
        found.value(subject, node);
    }
    // The second walk ended at the limit of causes.
    let more = if found.is_full { errors.saturating_sub(found.checked.errors) } else { 0 };
    for _ in 0..more {
        found.add(|| unreachable!("there is no room"));
    }
    if found.steps_left == 0 {
        let (field, text) =
            (found.nameless_field(), format!("validation takes more than {VALIDATION_STEPS_MAX} steps"));
        found.causes.get_or_insert_default().push(StatusCause::forbidden(field, &text));
    }
    distinct(found.causes.unwrap_or_default())
}

/// Removes causes that two schemas have for one value.
fn distinct(causes: Causes) -> Causes {
    let (first, more) = causes.clone().into_parts();
    if more > 0 {
        return causes;
    }
    let mut distinct: Vec<StatusCause> = Vec::new();
    for cause in first {
        if !distinct.contains(&cause) {
            distinct.push(cause);
        }
    }
    distinct.into()
}

/// Result of checking a value against a schema.
#[derive(Clone, Copy, Default)]
pub(super) struct CheckCounts {
    pub(super) errors: usize,
    /// Successful checks, as kube-apiserver counts them.
    pub(super) matches: usize,
}

pub(super) struct Violations<'a> {
    /// `None` while violations are only counted.
    pub(super) causes: Option<Causes>,
    /// True once a cause was only counted, for want of room.
    is_full: bool,
    pub(super) checked: CheckCounts,
    patterns: &'a [Result<Pattern, PatternError>],
    /// The field that has the whole value. Texts do not repeat it.
    prefix: &'static str,
    /// Steps that further checks may take.
    steps_left: usize,
}

impl Violations<'_> {
    pub(super) fn add(&mut self, make: impl FnOnce() -> StatusCause) {
        self.checked.errors += 1;
        if let Some(causes) = &mut self.causes {
            self.is_full = true;
            causes.push_with(|| {
                self.is_full = false;
                make()
            });
        }
    }

    /// Adds a cause made of the field of a value, and of its path in texts.
    pub(super) fn add_at(&mut self, path: &ValuePath<'_>, make: impl FnOnce(&str, &str) -> StatusCause) {
        let (prefix, nameless) = (self.prefix, self.nameless_field());
        self.add(|| {
            let path = path.text();
            match (prefix, &*path) {
                (_, "") => make(nameless, ""),
                ("", path) => make(path, path),
                (prefix, path) => make(&format!("{prefix}.{path}"), path),
            }
        });
    }

    /// Returns the field of causes that are not about one field.
    pub(super) const fn nameless_field(&self) -> &'static str {
        if self.prefix.is_empty() { "<nil>" } else { self.prefix }
    }

    /// Takes some steps. Returns false if there are too few.
    fn take_steps(&mut self, steps: usize) -> bool {
        self.steps_left = self.steps_left.saturating_sub(steps);
        self.steps_left > 0
    }

    /// Checks a value, unless it is unchanged.
    pub(super) fn value(&mut self, subject: &Subject<'_>, node: &SchemaNode<'_>) {
        let makes_texts = self.causes.is_some();
        if node.depth == DEPTH_MAX || makes_texts && (self.is_full || subject.is_unchanged(node.schema)) {
            return;
        }
        let before = self.checked.errors;
        self.value_itself(subject, node);
        // Compared last, because most values have no violation.
        if !makes_texts && self.checked.errors > before && subject.is_unchanged(node.schema) {
            self.checked.errors = before;
        }
    }

    /// Checks a changed or unchanged value, in kube-apiserver's order and with its counts.
    pub(super) fn value_itself(&mut self, subject: &Subject<'_>, node: &SchemaNode<'_>) {
        if !self.take_steps(STEPS_PER_VALUE) {
            return;
        }
        if let ValueView::Part(Value::Null) = subject.view {
            if self.has_type(&Value::Null, node) {
                self.checked.matches += 1;
            }
            return self.enumerated(&Value::Null, node);
        }
        let has_type_rule = !expected_type(node.schema).is_empty() || formats::format(node.schema).is_some();
        if let ValueView::Part(value) = subject.view
            && has_type_rule
        {
            self.checked.matches += 1 + usize::from(self.has_type(value, node));
        } else {
            self.checked.matches += 2 * usize::from(has_type_rule);
        }
        self.checked.matches += 1;
        self.branches(subject, node);
        match subject.view {
            ValueView::Part(Value::String(text)) => self.text(text, node),
            ValueView::Part(value @ Value::Number(_)) => {
                numbers::check(self, value, node.schema, &node.path);
                self.checked.matches += 2;
            }
            ValueView::Part(Value::Array(list)) => {
                self.list(subject, list, node);
                self.checked.matches += 2;
            }
            ValueView::Part(Value::Null | Value::Bool(_) | Value::Object(_)) | ValueView::Whole(_) => {}
        }
        if let ValueView::Part(value) = subject.view {
            self.enumerated(value, node);
        }
        if let ValueView::Part(Value::Object(object)) | ValueView::Whole(object) = subject.view {
            self.members(subject, object, node);
            self.checked.matches += 1;
        }
        // Those of the enum, and of the whole.
        self.checked.matches += 2;
    }

    /// Adds a cause for a value of another type. Returns true if it has the type.
    fn has_type(&mut self, value: &Value, node: &SchemaNode<'_>) -> bool {
        let Some((expected, found)) = mistyped(value, node.schema) else { return true };
        self.add_at(&node.path, |field, path| {
            let found = quote(found);
            let text = format!("Invalid value: {found}: {path} in body must be of type {expected}: {found}");
            StatusCause::new(CauseReason::FieldValueTypeInvalid, field, &text)
        });
        false
    }

    fn text(&mut self, text: &str, node: &SchemaNode<'_>) {
        let SchemaNode { schema, path, .. } = node;
        self.checked.matches += 1;
        if !self.take_steps(text.len() / BYTES_PER_STEP) {
            return;
        }
        if let Some(crossed) = CrossedBound::of(text.chars().count(), schema, ["minLength", "maxLength"]) {
            self.add_at(path, |field, path| crossed.cause(field, path, &quote(text), "chars long"));
        } else if let Some(pattern) = schema.get(PATTERN).and_then(Value::as_u64) {
            self.pattern(text, usize::try_from(pattern).unwrap_or(usize::MAX), node);
        }
        if let Some(format) = formats::of_texts(schema) {
            self.checked.matches += 1;
            if !formats::has_format(format, text) {
                self.add_at(path, |field, path| {
                    let shown = quote(text);
                    let text = format!("Invalid value: {shown}: {path} in body must be of type {format}: {shown}");
                    StatusCause::new(CauseReason::FieldValueTypeInvalid, field, &text)
                });
            }
        }
    }

    fn pattern(&mut self, text: &str, at: usize, node: &SchemaNode<'_>) {
        let Some(pattern) = self.patterns.get(at) else { return };
        if let Ok(pattern) = pattern {
            let steps = text.len() * (1 + pattern.states() / STATES_PER_STEP);
            if !self.take_steps(steps) || pattern.is_match(text) {
                return;
            }
        }
        self.add_at(&node.path, |field, path| {
            let expected = node.schema.get("pattern").and_then(Value::as_str).unwrap_or_default();
            let invalid = pattern.as_ref().err().map(|error| format!(", but pattern is invalid: {error}"));
            let invalid = invalid.unwrap_or_default();
            StatusCause::invalid(field, &quote(text), &format!("{path} in body should match '{expected}{invalid}'"))
        });
    }

    /// Checks the items of a list and their number.
    fn list<'a>(&mut self, subject: &Subject<'a>, list: &'a [Value], node: &SchemaNode<'_>) {
        let stored_items = subject.stored_items(node.schema);
        for (at, item) in list.iter().enumerate() {
            let Some(inner) = node.item(at) else { break };
            let stored = stored_items.like(item, node.schema).filter(|stored| !stored.is_null());
            self.value(&Subject { view: ValueView::Part(item), stored: stored.map(ValueView::Part) }, &inner);
        }
        if let Some(crossed) = CrossedBound::of(list.len(), node.schema, ["minItems", "maxItems"]) {
            self.add_at(&node.path, |field, path| crossed.cause(field, path, &list.len().to_string(), "items"));
        }
    }

    /// Adds a cause for a value that the enum lacks. kube-apiserver finds null in none.
    fn enumerated(&mut self, value: &Value, node: &SchemaNode<'_>) {
        let Some(allowed) = node.schema.get("enum").and_then(Value::as_array) else { return };
        let has = |value| allowed.iter().any(|allowed| is_same(allowed, value));
        if !allowed.is_empty() && self.take_steps(allowed.len()) && (value.is_null() || !has(value)) {
            self.add_at(&node.path, |field, _| unsupported(value, allowed, field));
        }
    }

    /// Checks the members of an object and their number.
    fn members<'a>(&mut self, subject: &Subject<'a>, object: &'a Object, node: &SchemaNode<'_>) {
        let SchemaNode { schema, path, .. } = node;
        if let Some(crossed) = CrossedBound::of(object.len(), schema, ["minProperties", "maxProperties"]) {
            self.add_at(path, |field, path| crossed.cause(field, path, &object.len().to_string(), "properties"));
        }
        for (name, value) in object {
            if let Some(inner) = node.member(name) {
                self.value(&subject.member(name, value, node), &inner);
            }
        }
        // More are not counted: each of many small objects may lack all of many members.
        if !self.take_steps(schema.get("required").and_then(Value::as_array).map_or(0, Vec::len)) {
            return;
        }
        for name in strings(schema, "required").filter(|name| !object.contains_key(*name)).take(CAUSES_MAX + 1) {
            self.add_at(&ValuePath::Key(path, name), |field, _| StatusCause::required(field, ""));
        }
    }
}

/// A bound on a length that is not kept.
enum CrossedBound {
    Least(usize),
    /// The length, and its bound.
    Most(usize, usize),
}

impl CrossedBound {
    /// Compares a length with the lower and the upper bound of these names.
    fn of(length: usize, schema: &SchemaObject, names: [&str; 2]) -> Option<Self> {
        let bound = |name| schema.get(name).and_then(Value::as_u64).map(|bound| bound.try_into().unwrap_or(usize::MAX));
        let [least, most] = names.map(bound);
        let least = least.filter(|least| length < *least).map(Self::Least);
        least.or_else(|| most.filter(|most| *most < length).map(|most| Self::Most(length, most)))
    }

    /// Builds the cause; `shown` is the value in it.
    fn cause(&self, field: &str, path: &str, shown: &str, what: &str) -> StatusCause {
        let is_text = what == "chars long";
        match self {
            Self::Least(least) => {
                let has = if is_text { "be" } else { "have" };
                let why = format!("{path} in body should {has} at least {least} {what}");
                StatusCause::invalid(field, shown, &why)
            }
            Self::Most(_, most) if is_text => {
                let text = format!("Too long: may not be more than {most} byte{}", if *most == 1 { "" } else { "s" });
                StatusCause::new(CauseReason::FieldValueTooLong, field, &text)
            }
            Self::Most(length, most) => StatusCause::too_many(field, *length, *most),
        }
    }
}

/// Returns true if a value equals one of an enum. `1` and `1.0` are equal.
fn is_same(allowed: &Value, value: &Value) -> bool {
    allowed == value || allowed.as_f64().is_some_and(|number| value.is_f64() && value.as_f64() == Some(number))
}

/// Shows a value in a cause as kube-apiserver does.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) if number.is_f64() => number.as_f64().map(go::float).unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Returns the expected type and the type of the value, if it has another one.
fn mistyped<'a>(value: &Value, schema: &'a SchemaObject) -> Option<(&'a str, &'static str)> {
    let (expected, found) = (expected_type(schema), type_of(value));
    let takes = |name: &str| expected.split(',').any(|expected| expected == name);
    let fits = takes(found)
        || match value {
            Value::Null => expected.is_empty() || flag(schema, "nullable"),
            Value::Number(number) => takes("number") || takes("integer") && numbers::is_integer(number),
            Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => false,
        };
    match (formats::format(schema), value) {
        (Some(format), Value::Number(_)) if !fits => {
            Some((format, if found == "integer" { "int64" } else { "float64" }))
        }
        (Some(format), Value::Bool(_) | Value::Object(_)) if !fits => Some((format, "")),
        // kube-apiserver takes lists for texts with a format.
        (Some(_), Value::String(_) | Value::Array(_)) if !takes("number") && !takes("integer") => None,
        _ => (!fits && !expected.is_empty()).then_some((expected, found)),
    }
}

fn unsupported(value: &Value, allowed: &[Value], field: &str) -> StatusCause {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (mut texts, mut bytes) = (Vec::new(), 0);
    for text in allowed.iter().map(plain).take(ALLOWED_VALUES_MAX) {
        bytes += text.len();
        if bytes > ALLOWED_BYTES_MAX {
            break;
        }
        texts.push(quote(&text));
    }
    let more = allowed.len() - texts.len();
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    let text = format!("Unsupported value: {}: supported values: {}", shown(value), texts.join(", "));
    StatusCause::new(CauseReason::FieldValueNotSupported, field, &text)
}

pub(super) fn expected_type(schema: &SchemaObject) -> &str {
    if flag(schema, INT_OR_STRING) {
        return "integer,string";
    }
    schema.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
