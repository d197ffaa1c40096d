//! Lists and sets.

use std::cmp::Ordering;

use super::{Body, Function, Outcome, failed, int, mismatch};
use crate::{
    EvaluationError,
    cost::{LIMIT, Meter, NEW_LIST},
    time::Duration,
    value::{List, Value, count},
};

pub(super) const ALL: &[(&str, Body)] = &[
    ("isSorted", is_sorted),
    ("sum", sum),
    ("sum of uints", |arguments, meter| sum_from(Value::Uint(0), arguments, meter)),
    ("sum of doubles", |arguments, meter| sum_from(Value::Double(0.0), arguments, meter)),
    ("sum of durations", |arguments, meter| sum_from(Value::Duration(Duration(0)), arguments, meter)),
    ("max", |arguments, meter| extreme(arguments, meter, Ordering::Less)),
    ("min", |arguments, meter| extreme(arguments, meter, Ordering::Greater)),
    ("slice", slice),
    ("reverse", |arguments, meter| {
        changed(arguments, meter, |mut values| {
            values.reverse();
            Ok(values)
        })
    }),
    ("flatten", flatten),
    ("sort", |arguments, meter| match arguments {
        [list @ Value::List(_)] => sort_by(&[list.clone(), list.clone()], meter),
        other => mismatch(other),
    }),
    ("@sortByAssociatedKeys", sort_by),
    ("distinct", distinct),
    ("lists.range", range),
    ("first", |arguments, _| element(arguments, |_| 0)),
    ("last", |arguments, _| element(arguments, |length| length.saturating_sub(1))),
    ("sets.contains", |arguments, meter| sets(arguments, |one, two| has_all(one, two, meter))),
    ("sets.intersects", |arguments, meter| {
        sets(arguments, |one, two| one.iter().any(|element| two.contains(&element, meter.work())))
    }),
    ("sets.equivalent", |arguments, meter| {
        sets(arguments, |one, two| has_all(one, two, meter) && has_all(two, one, meter))
    }),
    ("optional.unwrap", unwrap),
    ("unwrapOpt", unwrap),
];

pub(super) fn index_of<'a>(list: &List<'a>, wanted: &Value<'a>, meter: &mut Meter) -> Value<'a> {
    position(list.iter().position(|element| element.equals(wanted, meter.work())))
}

pub(super) fn last_index_of<'a>(list: &List<'a>, wanted: &Value<'a>, meter: &mut Meter) -> Value<'a> {
    let last = (0..list.len())
        .rev()
        .find(|index| list.get(*index).is_some_and(|element| element.equals(wanted, meter.work())));
    last.map_or(Value::Int(-1), int)
}

fn position<'a>(at: Option<usize>) -> Value<'a> {
    at.map_or(Value::Int(-1), |at| int(count(at)))
}

fn is_sorted<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let [Value::List(list)] = arguments else { return mismatch(arguments) };
    meter.work().steps(list.len());
    let pairs = list.iter().zip(list.iter().skip(1));
    let is_sorted = pairs.into_iter().all(|(one, two)| one.compare(&two) != Some(Ordering::Greater));
    Ok(Value::Bool(is_sorted))
}

fn sum<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let [Value::List(list)] = arguments else { return mismatch(arguments) };
    let zero = match list.get(0) {
        None | Some(Value::Int(_)) => Value::Int(0),
        Some(Value::Uint(_)) => Value::Uint(0),
        Some(Value::Double(_)) => Value::Double(0.0),
        Some(Value::Duration(_)) => Value::Duration(Duration(0)),
        Some(other) => return mismatch(&[other]),
    };
    sum_from(zero, arguments, meter)
}

fn sum_from<'a>(zero: Value<'a>, arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let [Value::List(list)] = arguments else { return mismatch(arguments) };
    let add = Function::named("_+_");
    list.iter().try_fold(zero, |sum, element| match add {
        Some(add) => add.call(&[sum, element], meter),
        None => mismatch(arguments),
    })
}

/// The element that no other is on the given side of.
fn extreme<'a>(arguments: &[Value<'a>], meter: &mut Meter, loses: Ordering) -> Outcome<'a> {
    let [Value::List(list)] = arguments else { return mismatch(arguments) };
    meter.work().steps(list.len());
    let found = list.iter().reduce(|best, element| match best.compare(&element) {
        Some(order) if order == loses => element,
        _ => best,
    });
    found.map_or_else(|| failed("an empty list has neither a least nor a greatest element"), Ok)
}

fn changed<'a>(
    arguments: &[Value<'a>],
    meter: &mut Meter,
    change: impl FnOnce(Vec<Value<'a>>) -> Result<Vec<Value<'a>>, EvaluationError>,
) -> Outcome<'a> {
    let Some(Value::List(list)) = arguments.first() else { return mismatch(arguments) };
    meter.make(list.len())?;
    change(list.iter().collect()).map(Value::list)
}

fn slice<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let [Value::List(list), Value::Int(from), Value::Int(to)] = arguments else { return mismatch(arguments) };
    match (u64::try_from(*from), u64::try_from(*to)) {
        (Ok(from), Ok(to)) if from <= to && to <= list.len() => {
            meter.make(to - from)?;
            Ok(Value::list((from..to).map_while(|index| list.get(index)).collect()))
        }
        _ => failed(format!("slice({from}, {to}) of a list of {}", list.len())),
    }
}

fn flatten<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let (list, depth) = match arguments {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        other => return mismatch(other),
    };
    if depth < 0 {
        return failed("a list cannot be flattened by less than nothing");
    }
    let mut flat = Vec::new();
    flatten_into(list, depth, &mut flat, meter)?;
    Ok(Value::list(flat))
}

fn flatten_into<'a>(
    list: &List<'a>,
    depth: i64,
    flat: &mut Vec<Value<'a>>,
    meter: &mut Meter,
) -> Result<(), EvaluationError> {
    meter.make(list.len())?;
    for element in list.iter() {
        match element {
            Value::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, flat, meter)?,
            other => flat.push(other),
        }
    }
    Ok(())
}

fn sort_by<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let [Value::List(list), Value::List(keys)] = arguments else { return mismatch(arguments) };
    if list.len() != keys.len() {
        return failed("there are not as many keys as elements");
    }
    meter.make(list.len())?;
    let mut pairs: Vec<_> = keys.iter().zip(list.iter()).collect();
    let kind = pairs.first().map(|(key, _)| std::mem::discriminant(key));
    let is_comparable = |key: &Value<'a>| key.compare(key).is_some() || matches!(key, Value::Double(_));
    if pairs.iter().any(|(key, _)| Some(std::mem::discriminant(key)) != kind || !is_comparable(key)) {
        return failed("the elements of a list that is sorted must be of one type that has an order");
    }
    pairs.sort_by(|(one, _), (two, _)| one.compare(two).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, element)| element).collect()))
}

fn distinct<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let [Value::List(list)] = arguments else { return mismatch(arguments) };
    let mut found: Vec<Value<'a>> = Vec::new();
    for element in list.iter() {
        if !found.iter().any(|other| element.equals(other, meter.work())) {
            found.push(element);
        }
    }
    meter.make(count(found.len()))?;
    Ok(Value::list(found))
}

fn range<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let [Value::Int(end)] = arguments else { return mismatch(arguments) };
    let length = u64::try_from(*end).unwrap_or_default();
    if length > LIMIT {
        // What it would cost is known before it is made.
        meter.charge(length + 1 + NEW_LIST)?;
    }
    meter.make(length)?;
    Ok(Value::list((0..*end).map(Value::Int).collect()))
}

fn element<'a>(arguments: &[Value<'a>], index: impl Fn(u64) -> u64) -> Outcome<'a> {
    let [Value::List(list)] = arguments else { return mismatch(arguments) };
    Ok(list.get(index(list.len())).map_or(Value::Optional(None), Value::optional))
}

fn sets<'a>(arguments: &[Value<'a>], holds: impl FnOnce(&List<'a>, &List<'a>) -> bool) -> Outcome<'a> {
    match arguments {
        [Value::List(one), Value::List(two)] => Ok(Value::Bool(holds(one, two))),
        other => mismatch(other),
    }
}

fn has_all<'a>(list: &List<'a>, part: &List<'a>, meter: &mut Meter) -> bool {
    part.iter().all(|element| list.contains(&element, meter.work()))
}

fn unwrap<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    changed(arguments, meter, |values| {
        let mut unwrapped = Vec::new();
        for value in values {
            match value {
                Value::Optional(inside) => unwrapped.extend(inside.map(|value| (*value).clone())),
                other => return failed(format!("a value of type {} is not optional", other.type_of())),
            }
        }
        Ok(unwrapped)
    })
}
