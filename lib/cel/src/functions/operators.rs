//! Operators and functions of the language itself.

use std::{cmp::Ordering, sync::Arc};

use super::{Body, Outcome, failed, int, mismatch, text, times};
use crate::{
    EvaluationError,
    cost::Meter,
    value::{List, Shared, Value, count},
};

pub(super) const ALL: &[(&str, Body)] = &[
    ("!_", not),
    ("-_", negate),
    ("_+_", add),
    ("_-_", subtract),
    ("_*_", |arguments, _| calculate(arguments, i64::checked_mul, u64::checked_mul, |one, two| one * two)),
    ("_/_", divide),
    ("_%_", modulo),
    ("_<_", |arguments, _| compare(arguments, Ordering::is_lt)),
    ("_<=_", |arguments, _| compare(arguments, Ordering::is_le)),
    ("_>_", |arguments, _| compare(arguments, Ordering::is_gt)),
    ("_>=_", |arguments, _| compare(arguments, Ordering::is_ge)),
    ("@in", contains),
    ("size", size),
    ("includes", includes),
    ("optional.of", |arguments, _| Ok(Value::optional(arguments[0].clone()))),
    ("optional.ofNonZeroValue", non_zero),
    ("optional.none", |_, _| Ok(Value::Optional(None))),
    ("value", value),
    ("hasValue", has_value),
];

/// Longer lists are refused: they can only come from doubling.
const LONGEST_LIST: u64 = 1 << 20;

/// Lists of more values than an attribute can have are refused by Kubernetes too.
const MOST_INCLUDED: u64 = 64;

fn not<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        other => mismatch(other),
    }
}

fn overflow<T>() -> Result<T, EvaluationError> {
    failed("a number is too big")
}

fn negate<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Int(number)] => number.checked_neg().map_or_else(overflow, |number| Ok(Value::Int(number))),
        [Value::Double(number)] => Ok(Value::Double(-number)),
        other => mismatch(other),
    }
}

fn calculate<'a>(
    arguments: &[Value<'a>],
    ints: fn(i64, i64) -> Option<i64>,
    uints: fn(u64, u64) -> Option<u64>,
    doubles: fn(f64, f64) -> f64,
) -> Outcome<'a> {
    match arguments {
        [Value::Int(one), Value::Int(two)] => ints(*one, *two).map_or_else(overflow, |number| Ok(Value::Int(number))),
        [Value::Uint(one), Value::Uint(two)] => {
            uints(*one, *two).map_or_else(overflow, |number| Ok(Value::Uint(number)))
        }
        [Value::Double(one), Value::Double(two)] => Ok(Value::Double(doubles(*one, *two))),
        other => mismatch(other),
    }
}

fn add<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Text(one), Value::Text(two)] => text([&**one, &**two].concat(), meter),
        [Value::Bytes(one), Value::Bytes(two)] => {
            meter.make(count(one.len() + two.len()))?;
            Ok(Value::Bytes(Shared::Owned(Arc::from([&**one, &**two].concat()))))
        }
        [Value::List(one), Value::List(two)] => join(one, two),
        [one, two] => times::add(one, two)
            .unwrap_or_else(|| calculate(arguments, i64::checked_add, u64::checked_add, |one, two| one + two)),
        other => mismatch(other),
    }
}

fn subtract<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [one, two] => times::subtract(one, two)
            .unwrap_or_else(|| calculate(arguments, i64::checked_sub, u64::checked_sub, |one, two| one - two)),
        other => mismatch(other),
    }
}

fn join<'a>(one: &List<'a>, two: &List<'a>) -> Outcome<'a> {
    match one.len().saturating_add(two.len()) > LONGEST_LIST {
        true => Err(EvaluationError::Unsupported("a list of more than a million elements".to_owned())),
        false => Ok(Value::List(one.clone().joined(two.clone()))),
    }
}

fn divide<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [_, Value::Int(0) | Value::Uint(0)] => failed("division by zero"),
        other => calculate(other, i64::checked_div, u64::checked_div, |one, two| one / two),
    }
}

fn modulo<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [_, Value::Int(0) | Value::Uint(0)] => failed("modulus by zero"),
        [Value::Double(_), _] => mismatch(arguments),
        other => calculate(other, i64::checked_rem, u64::checked_rem, |one, _| one),
    }
}

fn compare<'a>(arguments: &[Value<'a>], holds: fn(Ordering) -> bool) -> Outcome<'a> {
    let [one, two] = arguments else { return mismatch(arguments) };
    match one.compare(two) {
        Some(order) => Ok(Value::Bool(holds(order))),
        None if matches!([one, two], [Value::Double(_), _] | [_, Value::Double(_)]) => failed("NaN has no order"),
        None => mismatch(arguments),
    }
}

fn contains<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    match arguments {
        [wanted, Value::List(list)] => Ok(Value::Bool(list.contains(wanted, meter.work()))),
        [wanted, Value::Map(map)] if map.is_hashed() && !wanted.has_hash() => {
            Err(EvaluationError::NoHash(wanted.type_of().to_string()))
        }
        [wanted, Value::Map(map)] => Ok(Value::Bool(map.contains(wanted))),
        other => mismatch(other),
    }
}

fn size<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [value @ (Value::Text(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => Ok(int(value.size())),
        other => mismatch(other),
    }
}

/// True if an attribute has a value, be it one of several or the only one.
fn includes<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::List(list), wanted] => {
            let first = list.iter().take(usize::try_from(MOST_INCLUDED).unwrap_or(usize::MAX));
            let is_found = first.into_iter().any(|element| element.equals(wanted, meter.work()));
            match !is_found && list.len() > MOST_INCLUDED {
                true => failed(format!("includes() takes lists of at most {MOST_INCLUDED} values")),
                false => Ok(Value::Bool(is_found)),
            }
        }
        [value, wanted] => Ok(Value::Bool(value.equals(wanted, meter.work()))),
        other => mismatch(other),
    }
}

fn non_zero<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    let value = &arguments[0];
    Ok(if value.is_zero() { Value::Optional(None) } else { Value::optional(value.clone()) })
}

fn value<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Optional(Some(value))] => (**value).clone().unless_lost(),
        [Value::Optional(None)] => failed("an optional value is absent"),
        other => mismatch(other),
    }
}

fn has_value<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        other => mismatch(other),
    }
}
