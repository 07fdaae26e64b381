//! Functions of lists.

use std::{cmp::Ordering, rc::Rc};

use super::{
    conversions::to_int,
    eval::{Evaluation, EvaluationFailure, EvaluationResult},
    expression::BinaryOperator,
    times,
    value::CelValue,
};
use crate::limits::EXPRESSION_DEPTH_MAX;

impl<'a> Evaluation<'a, '_> {
    /// Calls a method of a list; the receiver is the first argument.
    pub(super) fn call_list(&mut self, name: &str, arguments: &[CelValue<'a>]) -> EvaluationResult<'a> {
        let Some((receiver, rest)) = arguments.split_first() else { return Err(EvaluationFailure::no_overload()) };
        match (name, rest) {
            ("includes", [value]) => return Ok(CelValue::Bool(self.contains(receiver, value)?)),
            ("indexOf", [value]) => return self.index_of(receiver, value, false),
            ("lastIndexOf", [value]) => return self.index_of(receiver, value, true),
            ("flatten", []) => return self.flattened(receiver, 1),
            ("flatten", [CelValue::Int(levels)]) => {
                let levels =
                    usize::try_from(*levels).map_err(|_| EvaluationFailure::error("level must be non-negative"))?;
                return self.flattened(receiver, levels.min(EXPRESSION_DEPTH_MAX));
            }
            (_, _) => {}
        }
        let items = self.range(receiver)?;
        match (name, rest) {
            ("isSorted", []) => self.is_sorted(&items),
            ("sum", []) => sum(&items),
            ("min", []) => self.extreme(name, items, Ordering::Less),
            ("max", []) => self.extreme(name, items, Ordering::Greater),
            ("distinct", []) => self.distinct(items),
            ("reverse", []) => Ok(CelValue::list(items.into_iter().rev().collect())),
            ("first", []) => Ok(CelValue::Optional(items.into_iter().next().map(Rc::new))),
            ("last", []) => Ok(CelValue::Optional(items.into_iter().next_back().map(Rc::new))),
            ("slice", [CelValue::Int(start), CelValue::Int(end)]) => slice(&items, *start, *end),
            ("join", []) => self.join(&items, ""),
            ("join", [CelValue::Text(separator)]) => self.join(&items, separator),
            ("unwrapOpt", []) => unwrapped(&items),
            (_, _) => Err(EvaluationFailure::no_overload()),
        }
    }

    fn is_sorted(&mut self, items: &[CelValue<'a>]) -> EvaluationResult<'a> {
        for pair in items.windows(2) {
            let [left, right] = pair else { continue };
            if self.compare(left, right)?.is_gt() {
                return Ok(CelValue::Bool(false));
            }
        }
        Ok(CelValue::Bool(true))
    }

    /// Returns the least or the greatest item, as `order` says.
    fn extreme(&mut self, name: &str, items: Vec<CelValue<'a>>, order: Ordering) -> EvaluationResult<'a> {
        let mut items = items.into_iter();
        let Some(mut found) = items.next() else {
            return Err(EvaluationFailure::error(format!("{name} called on empty list")));
        };
        for item in items {
            if self.compare(&item, &found)? == order {
                found = item;
            }
        }
        Ok(found)
    }

    fn index_of(&mut self, list: &CelValue<'a>, value: &CelValue<'a>, is_last: bool) -> EvaluationResult<'a> {
        let length = list.list_length().unwrap_or_default();
        for step in 0..length {
            let at = if is_last { length - 1 - step } else { step };
            if let Some(item) = list.item(at, self)
                && self.equal(&item?, value)?
            {
                return Ok(CelValue::Int(i64::try_from(at).unwrap_or(i64::MAX)));
            }
        }
        Ok(CelValue::Int(-1))
    }

    fn flattened(&mut self, list: &CelValue<'a>, levels: usize) -> EvaluationResult<'a> {
        let mut flat = Vec::new();
        self.flatten(list, levels, &mut flat)?;
        Ok(CelValue::list(flat))
    }

    fn flatten(
        &mut self,
        list: &CelValue<'a>,
        levels: usize,
        flat: &mut Vec<CelValue<'a>>,
    ) -> Result<(), EvaluationFailure> {
        for item in self.range(list)? {
            if levels > 0 && item.list_length().is_some() {
                self.flatten(&item, levels - 1, flat)?;
            } else {
                flat.push(item);
            }
        }
        Ok(())
    }

    fn distinct(&mut self, items: Vec<CelValue<'a>>) -> EvaluationResult<'a> {
        let mut unique: Vec<CelValue<'a>> = Vec::new();
        'items: for item in items {
            for known in &unique {
                if self.equal(known, &item)? {
                    continue 'items;
                }
            }
            unique.push(item);
        }
        Ok(CelValue::list(unique))
    }

    fn join(&mut self, items: &[CelValue<'a>], separator: &str) -> EvaluationResult<'a> {
        let mut out = String::new();
        for (at, item) in items.iter().enumerate() {
            let CelValue::Text(text) = item else {
                return Err(EvaluationFailure::error(format!(
                    "join: invalid input: {}",
                    super::conversions::key_text(item)
                )));
            };
            self.charge_bytes(text.len() + separator.len())?;
            if at > 0 {
                out.push_str(separator);
            }
            out.push_str(text);
        }
        Ok(CelValue::text(out))
    }

    /// `lists.range(length)`
    pub(super) fn numbers(&mut self, length: i64) -> EvaluationResult<'a> {
        let count = usize::try_from(length)
            .map_err(|_| EvaluationFailure::error(format!("lists.range: size must be non-negative, got {length}")))?;
        self.charge(count)?;
        Ok(CelValue::list((0..length).map(CelValue::Int).collect()))
    }

    /// `sets.contains`, `sets.equivalent` and `sets.intersects`.
    pub(super) fn call_sets(&mut self, name: &str, left: &CelValue<'a>, right: &CelValue<'a>) -> EvaluationResult<'a> {
        let is_subset = |evaluation: &mut Self, set: &CelValue<'a>, of: &CelValue<'a>| {
            for item in evaluation.range(set)? {
                if !evaluation.contains(of, &item)? {
                    return Ok::<_, EvaluationFailure>(false);
                }
            }
            Ok(true)
        };
        Ok(CelValue::Bool(match name {
            "sets.contains" => is_subset(self, right, left)?,
            "sets.equivalent" => is_subset(self, right, left)? && is_subset(self, left, right)?,
            _ => {
                for item in self.range(left)? {
                    if self.contains(right, &item)? {
                        return Ok(CelValue::Bool(true));
                    }
                }
                false
            }
        }))
    }
}

fn sum<'a>(items: &[CelValue<'a>]) -> EvaluationResult<'a> {
    let Some((first, rest)) = items.split_first() else { return Ok(CelValue::Int(0)) };
    rest.iter().try_fold(first.clone(), |sum, item| match (&sum, item) {
        (CelValue::Int(sum), CelValue::Int(item)) => {
            sum.checked_add(*item).map(CelValue::Int).ok_or_else(|| EvaluationFailure::error("integer overflow"))
        }
        (CelValue::Uint(sum), CelValue::Uint(item)) => sum
            .checked_add(*item)
            .map(CelValue::Uint)
            .ok_or_else(|| EvaluationFailure::error("unsigned integer overflow")),
        (CelValue::Double(sum), CelValue::Double(item)) => Ok(CelValue::Double(sum + item)),
        (sum, item) => times::calculate(BinaryOperator::Add, sum, item),
    })
}

fn slice<'a>(items: &[CelValue<'a>], start: i64, end: i64) -> EvaluationResult<'a> {
    let refuse = |why: &str| EvaluationFailure::error(format!("cannot slice({start}, {end}), {why}"));
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return Err(refuse("negative indexes not supported"));
    };
    if from > to {
        return Err(refuse("start index must be less than or equal to end index"));
    }
    let slice = items.get(from..to).ok_or_else(|| refuse(&format!("list is length {}", items.len())))?;
    Ok(CelValue::list(slice.to_vec()))
}

fn unwrapped<'a>(items: &[CelValue<'a>]) -> EvaluationResult<'a> {
    let mut values = Vec::new();
    for item in items {
        let CelValue::Optional(inner) = item else { return Err(EvaluationFailure::no_overload()) };
        values.extend(inner.as_deref().cloned());
    }
    Ok(CelValue::list(values))
}

/// Returns a count that an expression gives; `None` for a negative one, which is no bound.
pub(super) fn count(number: i64) -> Option<usize> {
    usize::try_from(number).ok()
}

/// Returns true for the zero value of a type.
pub(super) fn is_zero(value: &CelValue<'_>) -> bool {
    match value {
        CelValue::Null | CelValue::Optional(None) => true,
        CelValue::Bool(value) => !value,
        CelValue::Int(number) | CelValue::Duration(number) => *number == 0,
        CelValue::Uint(number) => *number == 0,
        CelValue::Double(number) => to_int(*number) == Some(0) && number.fract() == 0.0,
        CelValue::Text(text) => text.is_empty(),
        CelValue::Bytes(bytes) => bytes.is_empty(),
        CelValue::Members(members) => members.object.is_empty(),
        CelValue::Map(entries) => entries.is_empty(),
        other => other.list_length() == Some(0),
    }
}
