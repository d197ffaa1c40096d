//! Quantities: exact values, and the one way in which the server writes each.

use serde_json::{Value, json};

/// The unit in which values are kept: what a quantity can hold at least.
const NANO: i128 = 1_000_000_000;
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Suffixes from 10^-9 to 10^18.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// An exact value.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct NanoQuantity {
    pub nanos: i128,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum QuantityFormat {
    Binary,
    Decimal,
    Exponent,
}

impl NanoQuantity {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        parse(text).map(|(nanos, _)| Self { nanos })
    }

    /// Reads a JSON value; a text that cannot be parsed was refused before.
    pub(crate) fn of(value: &Value) -> Self {
        value.as_str().and_then(Self::parse).unwrap_or(Self { nanos: 0 })
    }
}

fn parse(text: &str) -> Option<(i128, QuantityFormat)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let (numerator, denominator, format) = scale(suffix)?;
    let mut value: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut divisor: i128 = 1;
    for digit in fraction.bytes() {
        value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
        divisor = divisor.checked_mul(10)?;
    }
    let scaled = value.checked_mul(numerator)?;
    let divisor = divisor.checked_mul(denominator)?;
    // What is finer than the unit is rounded away from zero.
    let nanos = scaled / divisor + i128::from(scaled % divisor != 0);
    Some((if negative { -nanos } else { nanos }, format))
}

/// Nano-units of a suffix, as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128, QuantityFormat)> {
    if let Some(at) = BINARY.iter().position(|one| *one == suffix) {
        return Some((NANO << (10 * (at + 1)), 1, QuantityFormat::Binary));
    }
    if let Some(at) = DECIMAL.iter().position(|one| *one == suffix) {
        return Some((1000_i128.pow(u32::try_from(at).ok()?), 1, QuantityFormat::Decimal));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = |exponent: i32| 10_i128.checked_pow(u32::try_from(exponent).ok()?);
    let (up, down) = if exponent >= -9 { (power(exponent + 9)?, 1) } else { (1, power(-9 - exponent)?) };
    Some((up, down, QuantityFormat::Exponent))
}

/// Returns the text as the server writes it; `None` if it is no quantity.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let (nanos, format) = parse(text)?;
    let whole = nanos.checked_rem(NANO)? == 0;
    if format == QuantityFormat::Binary && whole && (nanos / NANO).abs() >= 1024 {
        let mut value = nanos / NANO;
        let mut suffix = "";
        for next in BINARY {
            if value % 1024 != 0 {
                break;
            }
            (value, suffix) = (value / 1024, next);
        }
        return Some(format!("{value}{suffix}"));
    }
    if nanos == 0 {
        return Some("0".to_owned());
    }
    let (mut value, mut at) = (nanos, 0);
    while value % 1000 == 0 && at + 1 < DECIMAL.len() {
        (value, at) = (value / 1000, at + 1);
    }
    let exponent = 3 * i32::try_from(at).ok()? - 9;
    Some(match format {
        QuantityFormat::Exponent if exponent != 0 => format!("{value}e{exponent}"),
        _ => format!("{value}{}", DECIMAL[at]),
    })
}

/// Rewrites the quantities in objects of `resource.k8s.io`.
pub(crate) fn canonicalize(value: &mut Value) -> Result<(), String> {
    match value {
        Value::Object(object) => object.iter_mut().try_for_each(|(field, value)| member(field, value)),
        Value::Array(list) => list.iter_mut().try_for_each(canonicalize),
        _ => Ok(()),
    }
}

fn member(field: &str, value: &mut Value) -> Result<(), String> {
    match (field, &mut *value) {
        ("parameters" | "data" | "metadata", _) => Ok(()),
        ("capacity" | "counters", Value::Object(named)) => named.values_mut().try_for_each(|one| match one {
            Value::Object(object) => object.iter_mut().try_for_each(|(field, value)| match field.as_str() {
                "value" => rewrite(value),
                "requestPolicy" => policy(value),
                // The capacity of a request has its quantities one level deeper.
                _ => rewrite(value),
            }),
            other => rewrite(other),
        }),
        ("consumedCapacity" | "allocatable" | "limits" | "requests" | "overhead", Value::Object(named)) => {
            named.values_mut().try_for_each(rewrite)
        }
        ("capacityMultiplier" | "deviceMultiplier" | "perPod" | "perContainer", Value::String(_)) => rewrite(value),
        _ => canonicalize(value),
    }
}

fn policy(policy: &mut Value) -> Result<(), String> {
    for path in ["/default", "/validRange/min", "/validRange/max", "/validRange/step"] {
        policy.pointer_mut(path).map_or(Ok(()), rewrite)?;
    }
    policy["validValues"].as_array_mut().into_iter().flatten().try_for_each(rewrite)
}

fn rewrite(value: &mut Value) -> Result<(), String> {
    const RULE: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    if let Value::String(text) = value {
        *value = json!(canonical(text).ok_or_else(|| RULE.to_owned())?);
    }
    Ok(())
}
