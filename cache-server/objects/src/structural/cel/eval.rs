//! Evaluates expressions, in bounded steps.

use std::{cell::RefCell, cmp::Ordering, rc::Rc};

use informer_serving::go::quote;
use serde_json::Value as Json;

use super::{
    super::SchemaObject,
    conversions::key_text,
    expression::{
        BinaryOperator, Element, Expression, FunctionCall, ItemSelection, Loop, LoopKind, MapEntry, MemberSelection,
        SelectKind,
    },
    functions,
    parse::{CompiledExpression, NamedExpression},
    times,
    value::{CelValue, Text, decoded_bytes, typed, untyped},
};
use crate::limits::{CALL_STEPS_MAX, CONDITIONS_STEPS_MAX, OBJECT_STEPS_MAX, POLICY_STEPS_MAX, STEP_BYTES};

/// Steps that several expressions may still take together.
pub(crate) struct StepBudget(u64);

impl StepBudget {
    /// For all rules about one object.
    pub(in super::super) const fn of_object() -> Self {
        Self(OBJECT_STEPS_MAX)
    }

    /// For all conditions of one webhook about one write.
    pub(crate) const fn of_conditions() -> Self {
        Self(CONDITIONS_STEPS_MAX)
    }

    /// For all expressions of one policy about one write and parameter, but for its conditions.
    pub(crate) const fn of_policy() -> Self {
        Self(POLICY_STEPS_MAX)
    }

    /// Takes steps.
    ///
    /// # Errors
    /// [`EvaluationFailure::BudgetLimit`].
    pub(in super::super) fn charge(&mut self, steps: u64) -> Result<(), EvaluationFailure> {
        self.0 = self.0.checked_sub(steps).ok_or(EvaluationFailure::BudgetLimit)?;
        Ok(())
    }
}

/// kube-apiserver's text once a budget is spent.
pub(crate) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// kube-apiserver's text for an expression that took [`CALL_STEPS_MAX`] steps.
pub(crate) const OUT_OF_STEPS: &str = "operation cancelled: actual cost limit exceeded";

/// The reason why an expression has no value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EvaluationFailure {
    /// An error that `&&`, `||`, `all` and `exists` may pass over.
    Error(Box<str>),
    /// The expression took [`CALL_STEPS_MAX`] steps.
    CallLimit,
    /// The expressions that share a [`StepBudget`] spent it.
    BudgetLimit,
}

impl EvaluationFailure {
    pub(super) fn error(text: impl Into<Box<str>>) -> Self {
        Self::Error(text.into())
    }

    pub(super) fn no_overload() -> Self {
        Self::error("no such overload")
    }
}

pub(crate) type EvaluationResult<'a> = Result<CelValue<'a>, EvaluationFailure>;

/// The values of the names that expressions read.
pub(crate) struct ExpressionInput<'a> {
    variables: Vec<CelValue<'a>>,
    named: &'a [NamedExpression],
    /// Values of the named expressions that were read. Those of the others are not known.
    values: RefCell<Vec<Option<EvaluationResult<'a>>>>,
}

impl<'a> ExpressionInput<'a> {
    /// The values of variables, which have no schemas, in the order of their names.
    pub(crate) fn new(variables: impl IntoIterator<Item = &'a Json>, named: &'a [NamedExpression]) -> Self {
        let variables = variables.into_iter().map(untyped).collect();
        Self { variables, named, values: RefCell::new(vec![None; named.len()]) }
    }
}

/// One evaluation of one expression.
pub(crate) struct Evaluation<'a, 'b> {
    subject: CelValue<'a>,
    old: Option<CelValue<'a>>,
    /// Variables of the expression, and of the macros around.
    locals: Vec<CelValue<'a>>,
    input: Option<&'b ExpressionInput<'a>>,
    /// Steps left to this expression.
    steps: u64,
    budget: &'b mut StepBudget,
}

impl<'a, 'b> Evaluation<'a, 'b> {
    /// Evaluates `program` with `self` and `oldSelf`.
    ///
    /// # Errors
    /// [`EvaluationFailure`].
    pub(in super::super) fn run(
        program: &'a CompiledExpression,
        subject: CelValue<'a>,
        old: Option<CelValue<'a>>,
        budget: &'b mut StepBudget,
    ) -> EvaluationResult<'a> {
        let mut evaluation = Self { subject, old, locals: Vec::new(), input: None, steps: CALL_STEPS_MAX, budget };
        evaluation.value(&program.expression)
    }

    /// Evaluates an expression over other names than `self` and `oldSelf`.
    ///
    /// # Errors
    /// [`EvaluationFailure`].
    pub(crate) fn run_over(
        program: &'a CompiledExpression,
        input: &'b ExpressionInput<'a>,
        budget: &'b mut StepBudget,
    ) -> EvaluationResult<'a> {
        let (subject, locals) = (CelValue::Null, input.variables.clone());
        let mut evaluation = Self { subject, old: None, locals, input: Some(input), steps: CALL_STEPS_MAX, budget };
        evaluation.value(&program.expression)
    }

    /// Takes steps.
    pub(super) fn charge(&mut self, steps: usize) -> Result<(), EvaluationFailure> {
        let steps = steps as u64;
        self.steps = self.steps.checked_sub(steps).ok_or(EvaluationFailure::CallLimit)?;
        self.budget.charge(steps)
    }

    /// Takes the steps for reading or writing bytes.
    pub(super) fn charge_bytes(&mut self, bytes: usize) -> Result<(), EvaluationFailure> {
        self.charge(bytes / STEP_BYTES)
    }

    /// Takes the steps for reading a text, bytes or a URL.
    pub(super) fn charge_value(&mut self, value: &CelValue<'_>) -> Result<(), EvaluationFailure> {
        self.charge_bytes(match value {
            CelValue::Text(text) => text.len(),
            CelValue::Bytes(bytes) => bytes.len(),
            CelValue::Url(url) => url.length(),
            _ => 0,
        })
    }

    /// Reads a value in the object through its schema.
    pub(super) fn read(&mut self, value: &'a Json, schema: &'a SchemaObject) -> EvaluationResult<'a> {
        self.charge_bytes(decoded_bytes(value, schema))?;
        typed(value, schema, false)
    }

    fn value(&mut self, expression: &'a Expression) -> EvaluationResult<'a> {
        match expression {
            Expression::Null => Ok(CelValue::Null),
            Expression::Bool(value) => Ok(CelValue::Bool(*value)),
            Expression::Int(number) => Ok(CelValue::Int(*number)),
            Expression::Uint(number) => Ok(CelValue::Uint(*number)),
            Expression::Double(number) => Ok(CelValue::Double(*number)),
            Expression::Text(text) => Ok(CelValue::Text(Text::Given(text))),
            Expression::Bytes(bytes) => {
                self.charge_bytes(bytes.len())?;
                Ok(CelValue::Bytes(bytes.as_slice().into()))
            }
            Expression::TypeName(name) => Ok(CelValue::Type(name)),
            Expression::Subject | Expression::OldSubject | Expression::Local(_) => self.variable(expression),
            Expression::Named(place) => self.named(*place),
            Expression::Select(selection) => self.select(selection),
            Expression::Index(indexing) => self.index(indexing),
            Expression::Call(call) => self.call(call),
            Expression::List(elements) => self.list(elements),
            Expression::Map(entries) => self.map(entries),
            Expression::And(parts) => self.decide(parts, false),
            Expression::Or(parts) => self.decide(parts, true),
            Expression::Not(operand) => Ok(CelValue::Bool(!self.truth(operand)?)),
            Expression::Negate(operand) => self.negate(operand),
            Expression::Conditional(parts) => self.conditional(parts),
            Expression::Binary(operator, parts) => self.binary(*operator, parts),
            Expression::Loop(looping) => self.looping(looping),
            Expression::OptionalMap(parts, is_flat) => self.optional_map(parts, *is_flat),
        }
    }

    fn variable(&mut self, expression: &Expression) -> EvaluationResult<'a> {
        self.charge(1)?;
        let found = match expression {
            Expression::Local(at) => self.locals.get(*at).cloned(),
            Expression::OldSubject => self.old.clone(),
            _ => Some(self.subject.clone()),
        };
        found.ok_or_else(|| EvaluationFailure::error("no such attribute"))
    }

    /// Returns the value of a named expression, which has steps of its own and is evaluated once.
    fn named(&mut self, place: usize) -> EvaluationResult<'a> {
        self.charge(1)?;
        let found = self.input.and_then(|input| Some((input, input.named.get(place)?)));
        let (input, named) = found.ok_or_else(|| EvaluationFailure::error("no such attribute"))?;
        if let Some(known) = input.values.borrow().get(place).cloned().flatten() {
            return known;
        }
        let name = quote(&named.name);
        let failed = |text: &str| Err(EvaluationFailure::error(format!("composited variable {name} {text}")));
        let value = match &named.program {
            Err(reason) => failed(&format!("fails to compile: {reason}")),
            Ok(program) => match Evaluation::run_over(program, input, &mut *self.budget) {
                Err(EvaluationFailure::Error(text)) => failed(&format!("fails to evaluate: {text}")),
                Err(EvaluationFailure::CallLimit) => failed(&format!("fails to evaluate: {OUT_OF_STEPS}")),
                value => value,
            },
        };
        if let Some(known) = input.values.borrow_mut().get_mut(place) {
            *known = Some(value.clone());
        }
        value
    }

    fn truth(&mut self, expression: &'a Expression) -> Result<bool, EvaluationFailure> {
        match self.value(expression)? {
            CelValue::Bool(value) => Ok(value),
            _ => Err(EvaluationFailure::no_overload()),
        }
    }

    /// Evaluates `&&` and `||`: `decisive` is the value that decides them, whatever errors the others are.
    fn decide(&mut self, parts: &'a [Expression], decisive: bool) -> EvaluationResult<'a> {
        let mut error = None;
        for part in parts {
            // Constants take no steps themselves.
            self.charge(1)?;
            match self.truth(part) {
                Ok(value) if value == decisive => return Ok(CelValue::Bool(decisive)),
                Ok(_) => {}
                Err(EvaluationFailure::Error(text)) => error = error.or(Some(text)),
                Err(failure @ (EvaluationFailure::CallLimit | EvaluationFailure::BudgetLimit)) => return Err(failure),
            }
        }
        error.map_or(Ok(CelValue::Bool(!decisive)), |text| Err(EvaluationFailure::Error(text)))
    }

    fn negate(&mut self, operand: &'a Expression) -> EvaluationResult<'a> {
        self.charge(1)?;
        match self.value(operand)? {
            CelValue::Int(number) => number.checked_neg().map(CelValue::Int).ok_or_else(overflow),
            CelValue::Double(number) => Ok(CelValue::Double(-number)),
            CelValue::Duration(number) => number.checked_neg().map(CelValue::Duration).ok_or_else(overflow),
            _ => Err(EvaluationFailure::no_overload()),
        }
    }

    fn conditional(&mut self, parts: &'a [Expression; 3]) -> EvaluationResult<'a> {
        let [condition, then, other] = parts;
        if self.truth(condition)? { self.value(then) } else { self.value(other) }
    }

    fn select(&mut self, selection: &'a MemberSelection) -> EvaluationResult<'a> {
        let (operand, is_chained) = match self.value(&selection.operand)? {
            CelValue::Optional(None) if selection.kind == SelectKind::Presence => return Ok(CelValue::Bool(false)),
            CelValue::Optional(None) => return Ok(CelValue::Optional(None)),
            CelValue::Optional(Some(inner)) => ((*inner).clone(), true),
            operand => (operand, false),
        };
        let key = CelValue::Text(Text::Given(&selection.name));
        let found = self.member(&operand, &key)?;
        match selection.kind {
            SelectKind::Presence => Ok(CelValue::Bool(found.is_some())),
            SelectKind::Value if !is_chained => {
                found.ok_or_else(|| EvaluationFailure::error(format!("no such key: {}", selection.name)))
            }
            SelectKind::Value | SelectKind::Optional => Ok(CelValue::Optional(found.map(Rc::new))),
        }
    }

    /// Returns the member of a map with a key.
    pub(super) fn member(
        &mut self,
        map: &CelValue<'a>,
        key: &CelValue<'a>,
    ) -> Result<Option<CelValue<'a>>, EvaluationFailure> {
        self.charge(1)?;
        match (map, key) {
            (CelValue::Members(members), CelValue::Text(name)) => {
                self.charge_bytes(name.len())?;
                members.get(name, self).transpose()
            }
            (CelValue::Map(entries), key) => {
                for (known, value) in entries.iter() {
                    if self.equal(known, key)? {
                        return Ok(Some(value.clone()));
                    }
                }
                Ok(None)
            }
            (_, _) => Err(EvaluationFailure::no_overload()),
        }
    }

    fn index(&mut self, indexing: &'a ItemSelection) -> EvaluationResult<'a> {
        let operand = self.value(&indexing.operand)?;
        let at = self.value(&indexing.at)?;
        let (operand, is_optional) = match operand {
            CelValue::Optional(None) => return Ok(CelValue::Optional(None)),
            CelValue::Optional(Some(inner)) => ((*inner).clone(), true),
            operand => (operand, indexing.is_optional),
        };
        let is_list = operand.list_length().is_some();
        let found = if is_list { self.item(&operand, &at)? } else { self.member(&operand, &at)? };
        if is_optional {
            return Ok(CelValue::Optional(found.map(Rc::new)));
        }
        found.ok_or_else(|| {
            let problem = if is_list { "index out of bounds" } else { "no such key" };
            EvaluationFailure::error(format!("{problem}: {}", key_text(&at)))
        })
    }

    fn item(&mut self, list: &CelValue<'a>, at: &CelValue<'a>) -> Result<Option<CelValue<'a>>, EvaluationFailure> {
        self.charge(1)?;
        let at = match at {
            CelValue::Int(at) => usize::try_from(*at).ok(),
            CelValue::Uint(at) => usize::try_from(*at).ok(),
            CelValue::Double(at) => super::conversions::to_int(*at).and_then(|at| usize::try_from(at).ok()),
            _ => return Err(EvaluationFailure::no_overload()),
        };
        at.and_then(|at| list.item(at, self)).transpose()
    }

    /// Returns the items of a list, or the keys of a map.
    pub(super) fn range(&mut self, value: &CelValue<'a>) -> Result<Vec<CelValue<'a>>, EvaluationFailure> {
        match value {
            CelValue::Items(items) => {
                self.charge(items.list.len())?;
                (0..items.list.len()).filter_map(|at| items.get(at, self)).collect()
            }
            CelValue::List(items) => {
                self.charge(items.len())?;
                Ok(items.to_vec())
            }
            CelValue::Members(members) => {
                self.charge(members.object.len())?;
                self.charge_bytes(members.object.keys().map(String::len).sum())?;
                Ok(members.keys().map(CelValue::Text).collect())
            }
            CelValue::Map(entries) => {
                self.charge(entries.len())?;
                Ok(entries.iter().map(|(key, _)| key.clone()).collect())
            }
            _ => Err(EvaluationFailure::no_overload()),
        }
    }

    /// Returns true if a list has an item, or a map a key.
    pub(super) fn contains(&mut self, range: &CelValue<'a>, value: &CelValue<'a>) -> Result<bool, EvaluationFailure> {
        let Some(length) = range.list_length() else { return Ok(self.member(range, value)?.is_some()) };
        for at in 0..length {
            if let Some(item) = range.item(at, self)
                && self.equal(&item?, value)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Evaluates an element of a list or map; `None` for an optional one without a value.
    fn element(&mut self, element: &'a Element) -> Result<Option<CelValue<'a>>, EvaluationFailure> {
        let value = self.value(&element.value)?;
        match (element.is_optional, value) {
            (false, value) => Ok(Some(value)),
            (true, CelValue::Optional(inner)) => Ok(inner.map(|inner| (*inner).clone())),
            (true, _) => Err(EvaluationFailure::no_overload()),
        }
    }

    fn list(&mut self, elements: &'a [Element]) -> EvaluationResult<'a> {
        self.charge(elements.len() + 1)?;
        let mut items = Vec::with_capacity(elements.len());
        for element in elements {
            items.extend(self.element(element)?);
        }
        Ok(CelValue::list(items))
    }

    fn map(&mut self, entries: &'a [MapEntry]) -> EvaluationResult<'a> {
        self.charge(entries.len() + 1)?;
        let mut members: Vec<(CelValue<'a>, CelValue<'a>)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.value(&entry.key)?;
            let Some(value) = self.element(&entry.element)? else { continue };
            for (known, _) in &members {
                if self.equal(known, &key)? {
                    return Err(EvaluationFailure::error(format!("Failed with repeated key: {}", key_text(&key))));
                }
            }
            members.push((key, value));
        }
        Ok(CelValue::Map(Rc::new(members)))
    }

    fn binary(&mut self, operator: BinaryOperator, parts: &'a [Expression; 2]) -> EvaluationResult<'a> {
        let left = self.value(&parts[0])?;
        let right = self.value(&parts[1])?;
        self.charge(1)?;
        let mut order =
            |is: fn(Ordering) -> bool| -> EvaluationResult<'a> { Ok(CelValue::Bool(is(self.compare(&left, &right)?))) };
        match operator {
            BinaryOperator::Equal => Ok(CelValue::Bool(self.equal(&left, &right)?)),
            BinaryOperator::NotEqual => Ok(CelValue::Bool(!self.equal(&left, &right)?)),
            BinaryOperator::Less => order(Ordering::is_lt),
            BinaryOperator::LessOrEqual => order(Ordering::is_le),
            BinaryOperator::Greater => order(Ordering::is_gt),
            BinaryOperator::GreaterOrEqual => order(Ordering::is_ge),
            BinaryOperator::In => Ok(CelValue::Bool(self.contains(&right, &left)?)),
            BinaryOperator::Add => self.add(&left, &right),
            BinaryOperator::Subtract
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Remainder => calculate(operator, &left, &right),
        }
    }

    fn add(&mut self, left: &CelValue<'a>, right: &CelValue<'a>) -> EvaluationResult<'a> {
        match (left, right) {
            (CelValue::Text(left), CelValue::Text(right)) => {
                self.charge_bytes(left.len() + right.len())?;
                Ok(CelValue::text([&**left, &**right].concat()))
            }
            (CelValue::Bytes(left), CelValue::Bytes(right)) => {
                self.charge_bytes(left.len() + right.len())?;
                Ok(CelValue::Bytes([&**left, &**right].concat().into()))
            }
            (CelValue::Items(_) | CelValue::List(_), CelValue::Items(_) | CelValue::List(_)) => {
                self.add_lists(left, right)
            }
            (left, right) => calculate(BinaryOperator::Add, left, right),
        }
    }

    fn looping(&mut self, looping: &'a Loop) -> EvaluationResult<'a> {
        let range = self.value(&looping.range)?;
        let keys = self.range(&range)?;
        let outer = self.locals.len();
        let result = self.each(looping, &range, keys);
        self.locals.truncate(outer);
        result
    }

    fn each(&mut self, looping: &'a Loop, range: &CelValue<'a>, keys: Vec<CelValue<'a>>) -> EvaluationResult<'a> {
        let (outer, is_list) = (self.locals.len(), range.list_length().is_some());
        let (mut error, mut found, mut items, mut members) = (None, 0, Vec::new(), Vec::new());
        for (at, key) in keys.into_iter().enumerate() {
            self.charge(1)?;
            self.locals.truncate(outer);
            // An index never exceeds the bytes of the object.
            let place = if is_list { CelValue::Int(i64::try_from(at).unwrap_or(i64::MAX)) } else { key.clone() };
            if looping.has_two {
                let value = if is_list { key.clone() } else { self.member(range, &key)?.unwrap_or(CelValue::Null) };
                self.locals.extend([place.clone(), value]);
            } else {
                self.locals.push(key.clone());
            }
            if let Some(filter) = &looping.filter
                && !self.truth(filter)?
            {
                continue;
            }
            match looping.kind {
                LoopKind::All | LoopKind::Exists => {
                    let decisive = looping.kind == LoopKind::Exists;
                    match self.truth(&looping.body) {
                        Ok(value) if value == decisive => return Ok(CelValue::Bool(decisive)),
                        Ok(_) => {}
                        Err(EvaluationFailure::Error(text)) => error = error.or(Some(text)),
                        Err(failure @ (EvaluationFailure::CallLimit | EvaluationFailure::BudgetLimit)) => {
                            return Err(failure);
                        }
                    }
                }
                LoopKind::ExistsOne => found += usize::from(self.truth(&looping.body)?),
                LoopKind::Filter => {
                    if self.truth(&looping.body)? {
                        items.push(key);
                    }
                }
                LoopKind::Map => items.push(self.value(&looping.body)?),
                LoopKind::MapValues => members.push((place, self.value(&looping.body)?)),
            }
        }
        if let Some(text) = error {
            return Err(EvaluationFailure::Error(text));
        }
        Ok(match looping.kind {
            LoopKind::All => CelValue::Bool(true),
            LoopKind::Exists => CelValue::Bool(false),
            LoopKind::ExistsOne => CelValue::Bool(found == 1),
            LoopKind::Filter | LoopKind::Map => CelValue::list(items),
            LoopKind::MapValues => CelValue::Map(Rc::new(members)),
        })
    }

    fn optional_map(&mut self, parts: &'a [Expression; 2], is_flat: bool) -> EvaluationResult<'a> {
        let CelValue::Optional(operand) = self.value(&parts[0])? else { return Err(EvaluationFailure::no_overload()) };
        let Some(inner) = operand else { return Ok(CelValue::Optional(None)) };
        self.locals.push((*inner).clone());
        let result = self.value(&parts[1]);
        self.locals.pop();
        let result = result?;
        Ok(if is_flat { result } else { CelValue::some(result) })
    }

    fn call(&mut self, call: &'a FunctionCall) -> EvaluationResult<'a> {
        self.charge(1)?;
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            arguments.push(self.value(argument)?);
            // The alternative is not evaluated if there is a value.
            if call.is_method
                && ["or", "orValue"].contains(&&*call.name)
                && let [CelValue::Optional(Some(value))] = arguments.as_slice()
            {
                return Ok(if call.name == "or" {
                    CelValue::Optional(Some(Rc::clone(value)))
                } else {
                    (**value).clone()
                });
            }
        }
        functions::call(self, call, &arguments)
    }
}

fn overflow() -> EvaluationFailure {
    EvaluationFailure::error("integer overflow")
}

/// Calculates with two numbers, or with times.
fn calculate<'a>(operator: BinaryOperator, left: &CelValue<'a>, right: &CelValue<'a>) -> EvaluationResult<'a> {
    match (left, right) {
        (CelValue::Int(left), CelValue::Int(right)) => {
            refuse_zero(operator, *right == 0)?;
            let checked = [i64::checked_add, i64::checked_sub, i64::checked_mul, i64::checked_div, i64::checked_rem];
            operation(operator, checked)?(*left, *right).map(CelValue::Int).ok_or_else(overflow)
        }
        (CelValue::Uint(left), CelValue::Uint(right)) => {
            refuse_zero(operator, *right == 0)?;
            let checked = [u64::checked_add, u64::checked_sub, u64::checked_mul, u64::checked_div, u64::checked_rem];
            let result = operation(operator, checked)?(*left, *right);
            result.map(CelValue::Uint).ok_or_else(|| EvaluationFailure::error("unsigned integer overflow"))
        }
        (CelValue::Double(left), CelValue::Double(right)) => match operator {
            BinaryOperator::Add => Ok(CelValue::Double(left + right)),
            BinaryOperator::Subtract => Ok(CelValue::Double(left - right)),
            BinaryOperator::Multiply => Ok(CelValue::Double(left * right)),
            BinaryOperator::Divide => Ok(CelValue::Double(left / right)),
            _ => Err(EvaluationFailure::no_overload()),
        },
        (left, right) => times::calculate(operator, left, right),
    }
}

/// Returns the function of an operator among those of `+`, `-`, `*`, `/` and `%`.
fn operation<F>(
    operator: BinaryOperator,
    [add, subtract, multiply, divide, remainder]: [F; 5],
) -> Result<F, EvaluationFailure> {
    match operator {
        BinaryOperator::Add => Ok(add),
        BinaryOperator::Subtract => Ok(subtract),
        BinaryOperator::Multiply => Ok(multiply),
        BinaryOperator::Divide => Ok(divide),
        BinaryOperator::Remainder => Ok(remainder),
        _ => Err(EvaluationFailure::no_overload()),
    }
}

fn refuse_zero(operator: BinaryOperator, is_zero: bool) -> Result<(), EvaluationFailure> {
    match operator {
        BinaryOperator::Divide if is_zero => Err(EvaluationFailure::error("division by zero")),
        BinaryOperator::Remainder if is_zero => Err(EvaluationFailure::error("modulus by zero")),
        _ => Ok(()),
    }
}
