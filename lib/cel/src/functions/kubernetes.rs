//! Functions of Kubernetes' own: quantities, versions, addresses.

use std::{cmp::Ordering, net::IpAddr};

use hostler_api::{ExactQuantity, ParseQuantityError};

use super::{Body, Outcome, failed, mismatch};
use crate::{
    EvaluationError,
    addresses::{Cidr, is_global_unicast, is_link_local_multicast, is_link_local_unicast, parse_ip},
    cost::Meter,
    semver::Semver,
    value::{Shared, Value},
};

pub(super) const ALL: &[(&str, Body)] = &[
    ("quantity", |arguments, _| read_quantity(arguments)?.map_or_else(not("quantity"), Ok)),
    ("isQuantity", |arguments, _| Ok(Value::Bool(read_quantity(arguments)?.is_some()))),
    ("sign", |arguments, meter| of_quantity(arguments, meter, |quantity| Ok(Value::Int(quantity.sign())))),
    ("isInteger", |arguments, meter| {
        of_quantity(arguments, meter, |quantity| Ok(Value::Bool(quantity.as_integer().is_some())))
    }),
    ("asInteger", |arguments, meter| of_quantity(arguments, meter, as_integer)),
    ("asApproximateFloat", |arguments, meter| {
        of_quantity(arguments, meter, |quantity| Ok(Value::Double(quantity.as_approximate_float())))
    }),
    ("add", |arguments, meter| calculate(arguments, meter, ExactQuantity::checked_add)),
    ("sub", |arguments, meter| calculate(arguments, meter, ExactQuantity::checked_sub)),
    ("isGreaterThan", |arguments, meter| order(arguments, meter, |order| Value::Bool(order.is_gt()))),
    ("isLessThan", |arguments, meter| order(arguments, meter, |order| Value::Bool(order.is_lt()))),
    ("compareTo", |arguments, meter| order(arguments, meter, |order| Value::Int(order as i64))),
    ("semver", |arguments, _| read_semver(arguments)?.map_or_else(not("semantic version"), Ok)),
    ("isSemver", |arguments, _| Ok(Value::Bool(read_semver(arguments)?.is_some()))),
    ("major", |arguments, _| of_version(arguments, 0)),
    ("minor", |arguments, _| of_version(arguments, 1)),
    ("patch", |arguments, _| of_version(arguments, 2)),
    ("ip", ip),
    ("isIP", |arguments, _| Ok(Value::Bool(parse_ip(only_text(arguments)?).is_some()))),
    ("ip.isCanonical", is_canonical),
    ("family", |arguments, _| of_ip(arguments, |address| Value::Int(if address.is_ipv4() { 4 } else { 6 }))),
    ("isUnspecified", |arguments, _| of_ip(arguments, |address| Value::Bool(address.is_unspecified()))),
    ("isLoopback", |arguments, _| of_ip(arguments, |address| Value::Bool(address.is_loopback()))),
    ("isLinkLocalMulticast", |arguments, _| of_ip(arguments, |it| Value::Bool(is_link_local_multicast(it)))),
    ("isLinkLocalUnicast", |arguments, _| of_ip(arguments, |it| Value::Bool(is_link_local_unicast(it)))),
    ("isGlobalUnicast", |arguments, _| of_ip(arguments, |it| Value::Bool(is_global_unicast(it)))),
    ("cidr", |arguments, _| match Cidr::parse(only_text(arguments)?) {
        Some(cidr) => Ok(Value::Cidr(cidr)),
        None => not("network")(),
    }),
    ("isCIDR", |arguments, _| Ok(Value::Bool(Cidr::parse(only_text(arguments)?).is_some()))),
    ("containsIP", contains_ip),
    ("containsCIDR", contains_cidr),
    ("prefixLength", |arguments, _| of_cidr(arguments, |cidr| Value::Int(cidr.bits.into()))),
    ("masked", |arguments, _| of_cidr(arguments, |cidr| Value::Cidr(cidr.masked()))),
];

fn not<'a>(what: &'static str) -> impl Fn() -> Outcome<'a> {
    move || failed(format!("not a {what}"))
}

fn only_text<'v>(arguments: &'v [Value<'_>]) -> Result<&'v str, EvaluationError> {
    match arguments {
        [Value::Text(text)] => Ok(text),
        other => mismatch(other).and_then(|_| failed("not a text")),
    }
}

/// Reads a quantity from a text; one beyond the range here is refused, though Kubernetes might read it.
fn read_quantity<'a>(arguments: &[Value<'_>]) -> Result<Option<Value<'a>>, EvaluationError> {
    match only_text(arguments)?.parse::<ExactQuantity>() {
        Ok(quantity) => Ok(Some(Value::Quantity(Shared::owned(quantity)))),
        Err(ParseQuantityError::TooMuch(text)) => Err(EvaluationError::Unsupported(format!("the quantity {text}"))),
        Err(_) => Ok(None),
    }
}

fn of_quantity<'a>(arguments: &[Value<'_>], meter: &Meter, of: fn(ExactQuantity) -> Outcome<'a>) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(quantity) | Value::Sum(quantity)] => of(meter.held(quantity)),
        other => mismatch(other),
    }
}

fn as_integer<'a>(quantity: ExactQuantity) -> Outcome<'a> {
    quantity.as_integer().map_or_else(|| failed(format!("{quantity} is no whole number")), |it| Ok(Value::Int(it)))
}

fn calculate<'a>(
    arguments: &[Value<'_>],
    meter: &Meter,
    result: fn(ExactQuantity, ExactQuantity) -> Option<ExactQuantity>,
) -> Outcome<'a> {
    let (one, two) = match arguments {
        [Value::Quantity(one) | Value::Sum(one), Value::Quantity(two) | Value::Sum(two)] => {
            (meter.held(one), meter.held(two))
        }
        [Value::Quantity(one) | Value::Sum(one), Value::Int(two)] => (meter.held(one), ExactQuantity::whole(*two)),
        other => return mismatch(other),
    };
    match result(one, two) {
        Some(result) => Ok(Value::Sum(Shared::owned(result))),
        None => Err(EvaluationError::Unsupported("a quantity of more than 10^29".to_owned())),
    }
}

fn order<'a>(arguments: &[Value<'_>], meter: &mut Meter, answer: fn(Ordering) -> Value<'a>) -> Outcome<'a> {
    match arguments {
        [Value::Quantity(one) | Value::Sum(one), Value::Quantity(two) | Value::Sum(two)] => {
            // Kubernetes changes how it holds the first to compare it with what it holds in decimal.
            if meter.held(two).is_in_decimal() && !one.is_in_decimal() {
                meter.hold_in_decimal(one);
            }
            Ok(answer((**one).cmp(&**two)))
        }
        [Value::Semver(one), Value::Semver(two)] => Ok(answer(Semver::cmp(one, two))),
        other => mismatch(other),
    }
}

fn read_semver<'a>(arguments: &[Value<'_>]) -> Result<Option<Value<'a>>, EvaluationError> {
    let version = match arguments {
        [Value::Text(text), Value::Bool(true)] => Semver::parse_normalized(text),
        [Value::Text(text)] | [Value::Text(text), Value::Bool(false)] => Semver::parse(text),
        other => return mismatch(other).map(Some),
    };
    Ok(version.map(|version| Value::Semver(Shared::owned(version))))
}

fn of_version<'a>(arguments: &[Value<'_>], part: usize) -> Outcome<'a> {
    match arguments {
        // A number beyond the range of whole numbers turns negative there.
        [Value::Semver(version)] => Ok(Value::Int(version.numbers[part].cast_signed())),
        other => mismatch(other),
    }
}

fn ip<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Cidr(cidr)] => Ok(Value::Ip(cidr.address)),
        other => parse_ip(only_text(other)?).map_or_else(not("address"), |address| Ok(Value::Ip(address))),
    }
}

fn is_canonical<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    let text = only_text(arguments)?;
    parse_ip(text).map_or_else(not("address"), |address| Ok(Value::Bool(address.to_string() == text)))
}

fn of_ip<'a>(arguments: &[Value<'_>], of: fn(IpAddr) -> Value<'a>) -> Outcome<'a> {
    match arguments {
        [Value::Ip(address)] => Ok(of(*address)),
        other => mismatch(other),
    }
}

fn of_cidr<'a>(arguments: &[Value<'_>], of: fn(Cidr) -> Value<'a>) -> Outcome<'a> {
    match arguments {
        [Value::Cidr(cidr)] => Ok(of(*cidr)),
        other => mismatch(other),
    }
}

fn contains_ip<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Cidr(cidr), Value::Ip(address)] => Ok(Value::Bool(cidr.contains(*address))),
        [Value::Cidr(cidr), Value::Text(text)] => match parse_ip(text) {
            Some(address) => Ok(Value::Bool(cidr.contains(address))),
            None => not("address")(),
        },
        other => mismatch(other),
    }
}

fn contains_cidr<'a>(arguments: &[Value<'a>], _: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Cidr(cidr), Value::Cidr(other)] => Ok(Value::Bool(cidr.contains_network(*other))),
        [Value::Cidr(cidr), Value::Text(text)] => match Cidr::parse(text) {
            Some(other) => Ok(Value::Bool(cidr.contains_network(other))),
            None => not("network")(),
        },
        other => mismatch(other),
    }
}
