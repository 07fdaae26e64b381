//! Equality and order of values.

use std::cmp::Ordering;

use serde_json::Value as Json;

use super::{
    super::{LIST_TYPE, is_keyed, lists::key_names},
    eval::{Evaluation, EvaluationFailure},
    value::{CelValue, TypedItems, TypedMembers},
};

/// A number of any type.
#[derive(Clone, Copy)]
enum NumberValue {
    Whole(i128),
    Double(f64),
}

fn number(value: &CelValue<'_>) -> Option<NumberValue> {
    match value {
        CelValue::Int(number) => Some(NumberValue::Whole((*number).into())),
        CelValue::Uint(number) => Some(NumberValue::Whole((*number).into())),
        CelValue::Double(number) => Some(NumberValue::Double(*number)),
        _ => None,
    }
}

/// Compares numbers; `None` if one is not a number, or NaN.
fn compare_numbers(left: NumberValue, right: NumberValue) -> Option<Ordering> {
    let double = |number: NumberValue| match number {
        NumberValue::Whole(number) => number as f64,
        NumberValue::Double(number) => number,
    };
    match (left, right) {
        (NumberValue::Whole(left), NumberValue::Whole(right)) => Some(left.cmp(&right)),
        (left, right) => double(left).partial_cmp(&double(right)),
    }
}

/// Compares two values of one type.
///
/// # Errors
/// `no such overload` for types without an order.
fn compare(left: &CelValue<'_>, right: &CelValue<'_>) -> Result<Ordering, EvaluationFailure> {
    if let (Some(left), Some(right)) = (number(left), number(right)) {
        return compare_numbers(left, right).ok_or_else(|| EvaluationFailure::error("NaN values cannot be ordered"));
    }
    match (left, right) {
        (CelValue::Text(left), CelValue::Text(right)) => Ok((**left).cmp(right)),
        (CelValue::Bytes(left), CelValue::Bytes(right)) => Ok(left.cmp(right)),
        (CelValue::Bool(left), CelValue::Bool(right)) => Ok(left.cmp(right)),
        (CelValue::Timestamp(left), CelValue::Timestamp(right)) => Ok(left.cmp(right)),
        (CelValue::Duration(left), CelValue::Duration(right)) => Ok(left.cmp(right)),
        (_, _) => Err(EvaluationFailure::no_overload()),
    }
}

impl<'a> Evaluation<'a, '_> {
    /// Compares two values of one type.
    ///
    /// # Errors
    /// `no such overload` for types without an order.
    pub(super) fn compare(&mut self, left: &CelValue<'_>, right: &CelValue<'_>) -> Result<Ordering, EvaluationFailure> {
        self.charge_value(left)?;
        compare(left, right)
    }

    /// Returns true for equal values. Lists that are sets or maps are equal in any order.
    pub(super) fn equal(&mut self, left: &CelValue<'a>, right: &CelValue<'a>) -> Result<bool, EvaluationFailure> {
        self.charge(1)?;
        if let (Some(left), Some(right)) = (number(left), number(right)) {
            return Ok(compare_numbers(left, right) == Some(Ordering::Equal));
        }
        Ok(match (left, right) {
            (CelValue::Null, CelValue::Null) => true,
            (CelValue::Bool(left), CelValue::Bool(right)) => left == right,
            (CelValue::Text(left), CelValue::Text(right)) => {
                self.charge_bytes(left.len().min(right.len()))?;
                **left == **right
            }
            (CelValue::Bytes(left), CelValue::Bytes(right)) => {
                self.charge_bytes(left.len().min(right.len()))?;
                left == right
            }
            (CelValue::Timestamp(left), CelValue::Timestamp(right)) => left == right,
            (CelValue::Duration(left), CelValue::Duration(right)) => left == right,
            (CelValue::Type(left), CelValue::Type(right)) | (CelValue::Format(left), CelValue::Format(right)) => {
                left == right
            }
            (CelValue::Quantity(left), CelValue::Quantity(right)) => left == right,
            (CelValue::Ip(left), CelValue::Ip(right)) => left == right,
            (CelValue::Cidr(left), CelValue::Cidr(right)) => left == right,
            (CelValue::Url(known), CelValue::Url(other)) => {
                self.charge_value(left)?;
                known == other
            }
            (CelValue::Optional(None), CelValue::Optional(None)) => true,
            (CelValue::Optional(Some(left)), CelValue::Optional(Some(right))) => self.equal(left, right)?,
            (CelValue::Opaque(left), CelValue::Opaque(right)) => self.same(left, right)?,
            (CelValue::Items(_) | CelValue::List(_), CelValue::Items(_) | CelValue::List(_)) => {
                self.equal_lists(left, right)?
            }
            (CelValue::Members(left), CelValue::Members(right)) => self.equal_members(left, right)?,
            (CelValue::Members(_) | CelValue::Map(_), CelValue::Members(_) | CelValue::Map(_)) => {
                self.equal_maps(left, right)?
            }
            (_, _) => false,
        })
    }

    /// Compares values without a schema.
    fn same(&mut self, left: &Json, right: &Json) -> Result<bool, EvaluationFailure> {
        self.charge_json(left)?;
        Ok(left == right)
    }

    fn charge_json(&mut self, value: &Json) -> Result<(), EvaluationFailure> {
        self.charge(1)?;
        match value {
            Json::Array(items) => items.iter().try_for_each(|item| self.charge_json(item)),
            Json::Object(members) => members.iter().try_for_each(|(name, member)| {
                self.charge_bytes(name.len())?;
                self.charge_json(member)
            }),
            Json::String(text) => self.charge_bytes(text.len()),
            Json::Null | Json::Bool(_) | Json::Number(_) => Ok(()),
        }
    }

    fn equal_lists(&mut self, left: &CelValue<'a>, right: &CelValue<'a>) -> Result<bool, EvaluationFailure> {
        let length = left.list_length();
        if length != right.list_length() {
            return Ok(false);
        }
        if let CelValue::Items(items) = left
            && has_no_order(items)
        {
            return self.equal_sets(items, left, right);
        }
        for at in 0..length.unwrap_or_default() {
            let (Some(left), Some(right)) = (left.item(at, self), right.item(at, self)) else { return Ok(false) };
            if !self.equal(&left?, &right?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares the items of a set, or of a map in a list, in any order. TypedItems are unique.
    fn equal_sets(
        &mut self,
        items: &TypedItems<'a>,
        left: &CelValue<'a>,
        right: &CelValue<'a>,
    ) -> Result<bool, EvaluationFailure> {
        let length = items.list.len();
        for at in 0..length {
            // Usually, the order is the same.
            let Some(item) = right.item(at, self) else { return Ok(false) };
            let (item, mut found) = (item?, false);
            for step in 0..length {
                let Some(other) = left.item((at + step) % length, self) else { return Ok(false) };
                if self.equal(&other?, &item)? {
                    found = true;
                    break;
                }
            }
            if !found {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn equal_members(&mut self, left: &TypedMembers<'a>, right: &TypedMembers<'a>) -> Result<bool, EvaluationFailure> {
        if left.object.len() != right.object.len() {
            return Ok(false);
        }
        for (name, value) in left.object {
            self.charge(1)?;
            self.charge_bytes(name.len())?;
            let equal = match (left.schema(name), right.object.get(name)) {
                (_, None) => false,
                (Some(schema), Some(other)) => {
                    if value.is_null() || other.is_null() {
                        value == other
                    } else {
                        let other_schema = right.schema(name).unwrap_or(schema);
                        let (value, other) = (self.read(value, schema)?, self.read(other, other_schema)?);
                        self.equal(&value, &other)?
                    }
                }
                (None, Some(other)) => self.same(value, other)?,
            };
            if !equal {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn equal_maps(&mut self, left: &CelValue<'a>, right: &CelValue<'a>) -> Result<bool, EvaluationFailure> {
        let keys = self.range(left)?;
        if keys.len() != self.range(right)?.len() {
            return Ok(false);
        }
        for key in keys {
            let (Some(left), Some(right)) = (self.member(left, &key)?, self.member(right, &key)?) else {
                return Ok(false);
            };
            if !self.equal(&left, &right)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds lists: to a set, and to a map in a list, only new items are added, and a new item replaces one with its keys.
    pub(super) fn add_lists(
        &mut self,
        left: &CelValue<'a>,
        right: &CelValue<'a>,
    ) -> Result<CelValue<'a>, EvaluationFailure> {
        let mut sum = self.range(left)?;
        let added = self.range(right)?;
        let CelValue::Items(items) = left else {
            sum.extend(added);
            return Ok(CelValue::list(sum));
        };
        if !has_no_order(items) {
            sum.extend(added);
            return Ok(CelValue::list(sum));
        }
        for item in added {
            let mut place = None;
            for (at, known) in sum.iter().enumerate() {
                if self.is_counterpart(items, known, &item)? {
                    place = Some(at);
                    break;
                }
            }
            match place {
                Some(at) => sum[at] = item,
                None => sum.push(item),
            }
        }
        Ok(CelValue::list(sum))
    }

    /// Returns true for equal items of a set, and for items of a map with equal keys.
    fn is_counterpart(
        &mut self,
        items: &TypedItems<'a>,
        left: &CelValue<'a>,
        right: &CelValue<'a>,
    ) -> Result<bool, EvaluationFailure> {
        if !is_keyed(items.schema) {
            return self.equal(left, right);
        }
        for name in key_names(items.schema) {
            let key = CelValue::text(name);
            let equal = match (self.member(left, &key)?, self.member(right, &key)?) {
                (Some(left), Some(right)) => self.equal(&left, &right)?,
                (None, None) => true,
                (_, _) => false,
            };
            if !equal {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn has_no_order(items: &TypedItems<'_>) -> bool {
    is_keyed(items.schema) || items.schema.get(LIST_TYPE).and_then(Json::as_str) == Some("set")
}
