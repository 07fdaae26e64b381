//! Checks a value against the schemas in `allOf`, `anyOf`, `oneOf` and `not`.
//!
//! Of schemas that a value does not match, causes are those of the one with the most successful checks. So these are counted
//! exactly as kube-apiserver counts them.
//!
//! Source: kube-openapi `pkg/validation/validate/schema_props.go`.

use informer_serving::{
    go::quote,
    status::{CauseExt as _, StatusCause},
};
use serde_json::Value;

use super::{
    BRANCHED, SchemaNode, SchemaObject, flag,
    subject::Subject,
    values::{CheckCounts, Violations},
};

impl Violations<'_> {
    pub(super) fn branches(&mut self, subject: &Subject<'_>, node: &SchemaNode<'_>) {
        self.checked.matches += 1;
        if !flag(node.schema, BRANCHED) {
            return;
        }
        // kube-apiserver compares with stored values only outside of branches.
        let subject = &Subject { stored: None, ..*subject };
        self.any_of(subject, node);
        self.one_of(subject, node);
        self.all_of(subject, node);
        if let Some(not) = node.schema.get("not").and_then(Value::as_object)
            && self.probe(subject, &node.with(not)).errors == 0
        {
            self.refuse_branches(node, "must not validate the schema (not)");
        }
    }

    fn any_of(&mut self, subject: &Subject<'_>, node: &SchemaNode<'_>) {
        let mut best: Option<(CheckCounts, &SchemaObject)> = None;
        for branch in schemas(node.schema, "anyOf") {
            let checked = self.probe(subject, &node.with(branch));
            if checked.errors == 0 {
                self.checked.matches += checked.matches;
                return;
            }
            if best.is_none_or(|(best, _)| best.matches < checked.matches) {
                best = Some((checked, branch));
            }
        }
        if let Some((checked, branch)) = best {
            self.refuse_branches(node, "must validate at least one schema (anyOf)");
            self.repeat(checked, subject, &node.with(branch));
        }
    }

    fn one_of(&mut self, subject: &Subject<'_>, node: &SchemaNode<'_>) {
        let mut best: Option<(CheckCounts, &SchemaObject)> = None;
        let (mut first, mut valid, mut is_empty) = (CheckCounts::default(), 0, true);
        for branch in schemas(node.schema, "oneOf") {
            is_empty = false;
            let checked = self.probe(subject, &node.with(branch));
            if checked.errors == 0 {
                valid += 1;
                if valid == 1 {
                    first = checked;
                }
            } else if best.is_none_or(|(best, _)| best.matches < checked.matches) {
                best = Some((checked, branch));
            }
        }
        if is_empty {
            return;
        }
        if valid == 1 {
            self.checked.matches += first.matches;
            return;
        }
        let found = if valid == 0 { "none valid".to_owned() } else { format!("{valid} valid alternatives") };
        self.refuse_branches(node, &format!("must validate one and only one schema (oneOf). Found {found}"));
        if let Some((checked, branch)) = best.filter(|_| valid == 0) {
            self.repeat(checked, subject, &node.with(branch));
        }
    }

    fn all_of(&mut self, subject: &Subject<'_>, node: &SchemaNode<'_>) {
        let (mut valid, mut all) = (0, 0);
        for branch in schemas(node.schema, "allOf") {
            let before = self.checked.errors;
            self.value_itself(subject, &node.with(branch));
            all += 1;
            valid += usize::from(self.checked.errors == before);
        }
        if valid < all {
            let none = if valid == 0 { ". None validated" } else { "" };
            self.refuse_branches(node, &format!("must validate all the schemas (allOf){none}"));
        }
    }

    /// Checks the value without a cause.
    fn probe(&mut self, subject: &Subject<'_>, node: &SchemaNode<'_>) -> CheckCounts {
        let (causes, before) = (self.causes.take(), std::mem::take(&mut self.checked));
        self.value_itself(subject, node);
        self.causes = causes;
        std::mem::replace(&mut self.checked, before)
    }

    /// Adds the result of a probe, with its causes. A probe in a probe is not repeated: that would double for each level.
    fn repeat(&mut self, checked: CheckCounts, subject: &Subject<'_>, node: &SchemaNode<'_>) {
        if self.causes.is_some() {
            self.value_itself(subject, node);
        } else {
            self.checked.errors += checked.errors;
            self.checked.matches += checked.matches;
        }
    }

    /// Adds a cause about the schemas for a value. kube-apiserver gives it no field.
    fn refuse_branches(&mut self, node: &SchemaNode<'_>, why: &str) {
        let field = self.nameless_field();
        self.add(|| StatusCause::invalid(field, "\"\"", &format!("{} {why}", quote(&node.path.text()))));
    }
}

fn schemas<'a>(schema: &'a SchemaObject, name: &str) -> impl Iterator<Item = &'a SchemaObject> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}
