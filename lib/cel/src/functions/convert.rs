//! Conversions between types.

use std::sync::Arc;

use super::{Body, Outcome, failed, mismatch, text, times};
use crate::{
    EvaluationError,
    cost::Meter,
    value::{Shared, Value},
};

pub(super) const ALL: &[(&str, Body)] = &[
    ("bool", to_bool),
    ("bytes", to_bytes),
    ("double", to_double),
    ("duration", times::to_duration),
    ("dyn", |arguments, _| Ok(arguments[0].clone())),
    ("int", to_int),
    ("string", to_string),
    ("timestamp", times::to_timestamp),
    ("type", |arguments, _| Ok(Value::Type(Arc::new(arguments[0].type_of())))),
    ("uint", to_uint),
];

fn to_bool<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [Value::Text(text)] => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            other => failed(format!("{other:?} is neither true nor false")),
        },
        other => mismatch(other),
    }
}

fn to_bytes<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Bytes(bytes)] => Ok(Value::Bytes(bytes.clone())),
        [Value::Text(text)] => Ok(Value::Bytes(Shared::Owned(text.as_bytes().into()))),
        other => mismatch(other),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the conversion that is asked for")]
fn to_double<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Double(number)] => Ok(Value::Double(*number)),
        [Value::Int(number)] => Ok(Value::Double(*number as f64)),
        [Value::Uint(number)] => Ok(Value::Double(*number as f64)),
        [Value::Text(text)] => read_double(text).map(Value::Double),
        other => mismatch(other),
    }
}

fn read_double(text: &str) -> Result<f64, EvaluationError> {
    let unsigned = text.trim_start_matches(['+', '-']);
    if unsigned.starts_with("0x") || unsigned.starts_with("0X") {
        return Err(EvaluationError::Unsupported("hexadecimal floating-point numbers".to_owned()));
    }
    let names_infinity = unsigned.starts_with(['i', 'I']);
    match text.parse::<f64>() {
        Ok(number) if names_infinity || !number.is_infinite() => Ok(number),
        _ => failed(format!("{text:?} is not a floating-point number")),
    }
}

/// 2^63 and 2^64, the first numbers that do not fit.
const INT_END: f64 = 9_223_372_036_854_775_808.0;
const UINT_END: f64 = 18_446_744_073_709_551_616.0;

#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn to_int<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    let number = match arguments {
        [Value::Int(number)] => Some(*number),
        [Value::Uint(number)] => i64::try_from(*number).ok(),
        [Value::Double(number)] => (*number > -INT_END && *number < INT_END).then_some(*number as i64),
        [Value::Text(text)] => text.parse().ok(),
        [Value::Timestamp(time)] => Some(time.seconds()),
        [Value::Duration(duration)] => Some(duration.0),
        other => return mismatch(other),
    };
    number.map_or_else(|| failed("no whole number of 64 bits"), |number| Ok(Value::Int(number)))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn to_uint<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    let number = match arguments {
        [Value::Uint(number)] => Some(*number),
        [Value::Int(number)] => u64::try_from(*number).ok(),
        [Value::Double(number)] => (*number >= 0.0 && *number < UINT_END).then_some(*number as u64),
        [Value::Text(text)] => text.parse().ok().filter(|_| !text.starts_with('+')),
        other => return mismatch(other),
    };
    number.map_or_else(|| failed("no positive whole number of 64 bits"), |number| Ok(Value::Uint(number)))
}

fn to_string<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Text(text)] => Ok(Value::Text(text.clone())),
        [Value::Bytes(bytes)] if std::str::from_utf8(bytes).is_err() => failed("bytes that are no Unicode text"),
        [one] => written(one).map_or_else(|| mismatch(arguments), |written| text(written, meter)),
        other => mismatch(other),
    }
}

/// A value as a text; `None` where it has none.
pub(super) fn written(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::Text(text) => text.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => write_double(*number),
        Value::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.to_owned(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(cidr) => format!("{}/{}", cidr.address, cidr.bits),
        Value::Type(ty) => ty.runtime_name().to_owned(),
        Value::Timestamp(time) => time.to_string(),
        Value::Duration(duration) => duration.to_string(),
        _ => return None,
    })
}

/// From this power of ten on, Go writes an exponent.
const GO_EXPONENT: i32 = 6;

/// Writes a number as Go does: with an exponent from a million on, and below a ten-thousandth.
fn write_double(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        }
        .to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..GO_EXPONENT).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => number.to_string(),
    }
}
