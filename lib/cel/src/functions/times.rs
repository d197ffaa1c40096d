//! Times and durations.

use super::{Body, Outcome, failed, mismatch};
use crate::{
    EvaluationError,
    cost::Meter,
    time::{Civil, Duration, Timestamp, ZoneError, zone},
    value::Value,
};

pub(super) const ALL: &[(&str, Body)] = &[
    ("getFullYear", |arguments, _| shown(arguments, |civil| civil.year)),
    ("getMonth", |arguments, _| shown(arguments, |civil| civil.month - 1)),
    ("getDayOfYear", |arguments, _| shown(arguments, |civil| civil.day_of_year)),
    ("getDayOfMonth", |arguments, _| shown(arguments, |civil| civil.day - 1)),
    ("getDate", |arguments, _| shown(arguments, |civil| civil.day)),
    ("getDayOfWeek", |arguments, _| shown(arguments, |civil| civil.weekday)),
    ("getHours", |arguments, _| part(arguments, |it| it.whole(3600), |civil| civil.hour)),
    ("getMinutes", |arguments, _| part(arguments, |it| it.whole(60), |civil| civil.minute)),
    ("getSeconds", |arguments, _| part(arguments, |it| it.whole(1), |civil| civil.second)),
    ("getMilliseconds", milliseconds),
];

/// Part of a time, in UTC or in the zone that is named.
fn shown<'a>(arguments: &[Value<'_>], of: fn(Civil) -> i64) -> Outcome<'a> {
    let (time, offset) = match arguments {
        [Value::Timestamp(time)] => (time, 0),
        [Value::Timestamp(time), Value::Text(name)] => (time, offset(name)?),
        other => return mismatch(other),
    };
    Ok(Value::Int(of(time.civil(offset))))
}

fn offset(name: &str) -> Result<i64, EvaluationError> {
    zone(name).map_err(|error| match error {
        ZoneError::Invalid => EvaluationError::Failed(format!("{name:?} is no time zone")),
        ZoneError::Unknown => EvaluationError::Unsupported(format!("the time zone {name:?}")),
    })
}

fn part<'a>(arguments: &[Value<'_>], of_duration: fn(Duration) -> i64, of: fn(Civil) -> i64) -> Outcome<'a> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Int(of_duration(*duration))),
        other => shown(other, of),
    }
}

fn milliseconds<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Int(duration.milliseconds())),
        [Value::Timestamp(time), zone @ ..] => {
            shown(arguments, |_| 0)?;
            debug_assert!(zone.len() < 2, "no overload takes more");
            Ok(Value::Int(i64::from(time.nanos() / 1_000_000)))
        }
        other => mismatch(other),
    }
}

pub(super) fn to_timestamp<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    let time = match arguments {
        [Value::Timestamp(time)] => Some(*time),
        [Value::Int(seconds)] => Timestamp::at(*seconds),
        [Value::Text(text)] => Timestamp::parse(text),
        other => return mismatch(other),
    };
    time.map_or_else(|| failed("no time of RFC 3339 from year 1 to 9999"), |time| Ok(Value::Timestamp(time)))
}

pub(super) fn to_duration<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    let duration = match arguments {
        [Value::Duration(duration)] => Some(*duration),
        [Value::Text(text)] => Duration::parse(text),
        // It is declared, and nothing does it.
        [Value::Int(_)] => None,
        other => return mismatch(other),
    };
    duration.map_or_else(|| failed("no duration of less than 292 years"), |duration| Ok(Value::Duration(duration)))
}

/// Sums with a time or a duration; `None` for others.
pub(super) fn add<'a>(one: &Value<'a>, two: &Value<'a>) -> Option<Outcome<'a>> {
    Some(match (one, two) {
        (Value::Duration(one), Value::Duration(two)) => duration(one.0.checked_add(two.0).map(Duration)),
        (Value::Timestamp(time), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(time)) => {
            timestamp(time.checked_add(*by))
        }
        _ => return None,
    })
}

/// Differences with a time or a duration; `None` for others.
pub(super) fn subtract<'a>(one: &Value<'a>, two: &Value<'a>) -> Option<Outcome<'a>> {
    Some(match (one, two) {
        (Value::Duration(one), Value::Duration(two)) => duration(one.0.checked_sub(two.0).map(Duration)),
        (Value::Timestamp(one), Value::Timestamp(two)) => duration(one.since(*two)),
        (Value::Timestamp(time), Value::Duration(by)) => timestamp(time.checked_sub(*by)),
        _ => return None,
    })
}

fn duration<'a>(duration: Option<Duration>) -> Outcome<'a> {
    duration.map_or_else(|| failed("a duration is too long"), |duration| Ok(Value::Duration(duration)))
}

fn timestamp<'a>(time: Option<Timestamp>) -> Outcome<'a> {
    time.map_or_else(|| failed("a time is beyond the years 1 to 9999"), |time| Ok(Value::Timestamp(time)))
}
