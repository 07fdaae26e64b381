//! Functions and methods by name.

use std::rc::Rc;

use super::{
    conversions::convert,
    eval::{Evaluation, EvaluationFailure, EvaluationResult},
    expression::FunctionCall,
    formats, lists, net, quantity, texts, times,
    value::CelValue,
};
use informer_serving::go::quote;

/// Names of functions by the number of arguments.
const FUNCTIONS: [&str; 3] = [
    "optional.none",
    "size type dyn int uint double string bool bytes duration timestamp quantity isQuantity sign url isURL ip isIP \
     ip.isCanonical cidr isCIDR optional.of optional.ofNonZeroValue optional.unwrap format.named strings.quote lists.range",
    "matches sets.contains sets.equivalent sets.intersects",
];

/// Names of methods by the number of arguments beside the receiver.
const METHODS: [&str; 4] = [
    "size lowerAscii upperAscii trim reverse join isSorted sum min max flatten distinct first last unwrapOpt value hasValue \
     sign asApproximateFloat asInteger isInteger family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast \
     isGlobalUnicast ip prefixLength masked getScheme getHost getHostname getPort getEscapedPath getQuery getFullYear \
     getMonth getDate getDayOfMonth getDayOfYear getDayOfWeek getHours getMinutes getSeconds getMilliseconds",
    "contains startsWith endsWith matches find findAll charAt indexOf lastIndexOf split substring join format includes \
     flatten or orValue isGreaterThan isLessThan compareTo add sub containsIP containsCIDR validate",
    "findAll indexOf lastIndexOf replace split substring slice",
    "replace",
];

/// Returns true for a function with this number of arguments, of which the receiver of a method is the first.
pub(super) fn is_known(name: &str, is_method: bool, arguments: usize) -> bool {
    let has = |table: &[&str], arguments: usize| {
        table.get(arguments).is_some_and(|names| names.split(' ').any(|known| known == name))
    };
    if is_method {
        return has(&METHODS, arguments - 1);
    }
    has(&FUNCTIONS, arguments)
        || arguments == 0 && name.strip_prefix("format.").is_some_and(|name| formats::NAMES.contains(&name))
}

/// Calls a function with its arguments.
pub(super) fn call<'a>(
    evaluation: &mut Evaluation<'a, '_>,
    call: &'a FunctionCall,
    arguments: &[CelValue<'a>],
) -> EvaluationResult<'a> {
    let name = &*call.name;
    arguments.iter().try_for_each(|argument| evaluation.charge_value(argument))?;
    let Some((receiver, rest)) = arguments.split_first() else { return Ok(constant(name)) };
    if name == "size" {
        return size(evaluation, receiver);
    }
    if !call.is_method && name != "matches" {
        return function(evaluation, name, receiver, rest);
    }
    if let ("includes", [value], None) = (name, rest, receiver.list_length()) {
        return Ok(CelValue::Bool(evaluation.equal(receiver, value)?));
    }
    match receiver {
        CelValue::Text(text) => evaluation.call_text(name, text, rest, call.pattern.as_ref()),
        CelValue::Items(_) | CelValue::List(_) => evaluation.call_list(name, arguments),
        CelValue::Timestamp(_) | CelValue::Duration(_) => times::call(name, receiver),
        CelValue::Optional(inner) => optional(name, inner.as_ref(), rest),
        CelValue::Quantity(number) => quantity::call(name, *number, rest.first()),
        CelValue::Ip(address) => net::call_ip(name, *address),
        CelValue::Cidr(range) => net::call_cidr(name, *range, rest.first()),
        CelValue::Url(url) => evaluation.call_url(name, url),
        CelValue::Format(format) => match (name, rest) {
            ("validate", [CelValue::Text(text)]) => Ok(formats::validate(format, text)),
            (_, _) => Err(EvaluationFailure::no_overload()),
        },
        _ => Err(EvaluationFailure::no_overload()),
    }
}

/// Calls a function without arguments.
fn constant<'a>(name: &str) -> CelValue<'a> {
    let format = name.strip_prefix("format.");
    format.and_then(format_named).map_or(CelValue::Optional(None), CelValue::Format)
}

fn format_named(name: &str) -> Option<&'static str> {
    formats::NAMES.into_iter().find(|known| *known == name)
}

fn size<'a>(evaluation: &mut Evaluation<'a, '_>, value: &CelValue<'a>) -> EvaluationResult<'a> {
    let length = match value {
        CelValue::Text(text) => return evaluation.call_text("size", text, &[], None),
        CelValue::Bytes(bytes) => bytes.len(),
        CelValue::Members(members) => members.object.len(),
        CelValue::Map(entries) => entries.len(),
        other => other.list_length().ok_or_else(EvaluationFailure::no_overload)?,
    };
    Ok(texts::place(length))
}

fn function<'a>(
    evaluation: &mut Evaluation<'a, '_>,
    name: &str,
    value: &CelValue<'a>,
    rest: &[CelValue<'a>],
) -> EvaluationResult<'a> {
    match (name, value, rest) {
        ("quantity", CelValue::Text(text), []) => quantity::parse(text).map(CelValue::Quantity),
        ("isQuantity", CelValue::Text(text), []) => Ok(CelValue::Bool(quantity::parse(text).is_ok())),
        ("sign", CelValue::Quantity(number), []) => quantity::call(name, *number, None),
        ("url", CelValue::Text(text), []) => {
            let refuse =
                |why| EvaluationFailure::error(format!("URL parse error during conversion from string: {why}"));
            net::Url::parse(text).map(|url| CelValue::Url(Rc::new(url))).map_err(refuse)
        }
        ("isURL", CelValue::Text(text), []) => Ok(CelValue::Bool(net::Url::parse(text).is_ok())),
        ("ip", CelValue::Text(text), []) => net::parse_ip(text).map(CelValue::Ip),
        ("isIP", CelValue::Text(text), []) => Ok(CelValue::Bool(net::parse_ip(text).is_ok())),
        ("ip.isCanonical", CelValue::Text(text), []) => Ok(CelValue::Bool(net::parse_ip(text)?.to_string() == **text)),
        ("cidr", CelValue::Text(text), []) => net::parse_cidr(text).map(CelValue::Cidr),
        ("isCIDR", CelValue::Text(text), []) => Ok(CelValue::Bool(net::parse_cidr(text).is_ok())),
        ("optional.of", value, []) => Ok(CelValue::some(value.clone())),
        ("optional.ofNonZeroValue", value, []) => {
            Ok(if lists::is_zero(value) { CelValue::Optional(None) } else { CelValue::some(value.clone()) })
        }
        ("optional.unwrap", value, []) => evaluation.call_list("unwrapOpt", std::slice::from_ref(value)),
        ("format.named", CelValue::Text(text), []) => {
            Ok(CelValue::Optional(format_named(text).map(|format| Rc::new(CelValue::Format(format)))))
        }
        ("strings.quote", CelValue::Text(text), []) => Ok(CelValue::text(quote(text))),
        ("lists.range", CelValue::Int(length), []) => evaluation.numbers(*length),
        ("sets.contains" | "sets.equivalent" | "sets.intersects", left, [right]) => {
            evaluation.call_sets(name, left, right)
        }
        (name, value, []) => convert(name, value),
        (_, _, _) => Err(EvaluationFailure::no_overload()),
    }
}

/// Calls a method of an optional value.
fn optional<'a>(name: &str, value: Option<&Rc<CelValue<'a>>>, rest: &[CelValue<'a>]) -> EvaluationResult<'a> {
    match (name, value, rest) {
        ("hasValue", value, []) => Ok(CelValue::Bool(value.is_some())),
        ("value", Some(value), []) | ("orValue", Some(value), [_]) => Ok((**value).clone()),
        ("value", None, []) => Err(EvaluationFailure::error("optional.none() dereference")),
        ("or", Some(value), [_]) => Ok(CelValue::Optional(Some(Rc::clone(value)))),
        ("or" | "orValue", None, [other]) => Ok(other.clone()),
        (_, _, _) => Err(EvaluationFailure::no_overload()),
    }
}
