//! Times and durations.

use informer_serving::go;
use jiff::{SignedDuration, Timestamp, civil::Date, tz::Offset};

use super::{
    eval::{EvaluationFailure, EvaluationResult},
    expression::BinaryOperator,
    value::CelValue,
};

const SECOND: i64 = 1_000_000_000;

pub(super) fn parse_duration(text: &str) -> Result<i64, EvaluationFailure> {
    go::parse_duration(text).map_err(EvaluationFailure::error)
}

pub(super) fn parse_timestamp(text: &str) -> Result<Timestamp, EvaluationFailure> {
    text.parse().map_err(|_| {
        let quoted = go::quote(text);
        EvaluationFailure::error(format!(
            "parsing time {quoted} as \"2006-01-02T15:04:05Z07:00\": cannot parse {quoted}"
        ))
    })
}

pub(super) fn parse_date(text: &str) -> Result<Timestamp, EvaluationFailure> {
    let date: Option<Date> = text.parse().ok();
    let start = date.and_then(|date| Offset::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok());
    start.ok_or_else(|| EvaluationFailure::error(format!("Invalid date formatted string {text}")))
}

/// Writes a duration in seconds, as `string()` does.
pub(super) fn duration_text(nanoseconds: i64) -> String {
    let seconds = nanoseconds as f64 / SECOND as f64;
    format!("{seconds}s")
}

/// Adds and subtracts times.
pub(super) fn calculate<'a>(
    operator: BinaryOperator,
    left: &CelValue<'a>,
    right: &CelValue<'a>,
) -> EvaluationResult<'a> {
    let moved = |time: &Timestamp, by: i64| {
        let moved = time.checked_add(SignedDuration::from_nanos(by)).ok();
        moved.map(CelValue::Timestamp).ok_or_else(|| EvaluationFailure::error("timestamp overflow"))
    };
    let span =
        |sum: Option<i64>| sum.map(CelValue::Duration).ok_or_else(|| EvaluationFailure::error("duration overflow"));
    match (operator, left, right) {
        (BinaryOperator::Add, CelValue::Timestamp(time), CelValue::Duration(by))
        | (BinaryOperator::Add, CelValue::Duration(by), CelValue::Timestamp(time)) => moved(time, *by),
        (BinaryOperator::Subtract, CelValue::Timestamp(time), CelValue::Duration(by)) => {
            moved(time, by.saturating_neg())
        }
        (BinaryOperator::Subtract, CelValue::Timestamp(left), CelValue::Timestamp(right)) => {
            span(i64::try_from(left.as_nanosecond() - right.as_nanosecond()).ok())
        }
        (BinaryOperator::Add, CelValue::Duration(left), CelValue::Duration(right)) => span(left.checked_add(*right)),
        (BinaryOperator::Subtract, CelValue::Duration(left), CelValue::Duration(right)) => {
            span(left.checked_sub(*right))
        }
        (_, _, _) => Err(EvaluationFailure::no_overload()),
    }
}

/// Calls a method of a time, in UTC, or of a duration.
pub(super) fn call<'a>(name: &str, receiver: &CelValue<'a>) -> EvaluationResult<'a> {
    match receiver {
        CelValue::Timestamp(time) => part_of_time(name, *time),
        CelValue::Duration(nanoseconds) => {
            let unit = match name {
                "getHours" => 3_600 * SECOND,
                "getMinutes" => 60 * SECOND,
                "getSeconds" => SECOND,
                "getMilliseconds" => SECOND / 1_000,
                _ => return Err(EvaluationFailure::no_overload()),
            };
            Ok(CelValue::Int(nanoseconds / unit))
        }
        _ => Err(EvaluationFailure::no_overload()),
    }
}

fn part_of_time<'a>(name: &str, time: Timestamp) -> EvaluationResult<'a> {
    let at = Offset::UTC.to_datetime(time);
    let part = match name {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        "getMilliseconds" => i64::from(at.millisecond()),
        _ => return Err(EvaluationFailure::no_overload()),
    };
    Ok(CelValue::Int(part))
}
