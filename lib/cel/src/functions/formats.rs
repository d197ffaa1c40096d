//! Kubernetes' named formats.

use super::{Body, Outcome, failed, mismatch};
use crate::{
    EvaluationError,
    cost::Meter,
    formats::NamedFormat,
    value::{List, Value, count},
};

pub(super) const ALL: &[(&str, Body)] = &[
    ("format.named", |arguments, _| named(arguments, false)),
    ("format.named of 1.34", |arguments, _| named(arguments, true)),
    ("format.dns1123Label", |_, _| constant("dns1123Label", false)),
    ("format.dns1123Subdomain", |_, _| constant("dns1123Subdomain", false)),
    ("format.dns1035Label", |_, _| constant("dns1035Label", false)),
    ("format.qualifiedName", |_, _| constant("qualifiedName", false)),
    ("format.qualifiedName of 1.34", |_, _| constant("qualifiedName", true)),
    ("format.dns1123LabelPrefix", |_, _| constant("dns1123LabelPrefix", false)),
    ("format.dns1123SubdomainPrefix", |_, _| constant("dns1123SubdomainPrefix", false)),
    ("format.dns1035LabelPrefix", |_, _| constant("dns1035LabelPrefix", false)),
    ("format.labelValue", |_, _| constant("labelValue", false)),
    ("format.labelValue of 1.34", |_, _| constant("labelValue", true)),
    ("format.uri", |_, _| constant("uri", false)),
    ("format.uuid", |_, _| constant("uuid", false)),
    ("format.byte", |_, _| constant("byte", false)),
    ("format.date", |_, _| constant("date", false)),
    ("format.datetime", |_, _| constant("datetime", false)),
    ("validate", validate),
];

/// Name of the older variant of a function whose words were others until 1.34.
pub(crate) fn name_of_1_34(name: &str) -> Option<&'static str> {
    let (older, _) = ALL.iter().find(|(other, _)| other.strip_suffix(" of 1.34") == Some(name))?;
    Some(older)
}

fn constant<'a>(name: &str, is_1_34: bool) -> Outcome<'a> {
    NamedFormat::named(name, is_1_34).map_or_else(|| failed("no such format"), |format| Ok(Value::Format(format)))
}

fn named<'a>(arguments: &[Value<'a>], is_1_34: bool) -> Outcome<'a> {
    match arguments {
        [Value::Text(name)] => {
            let format = NamedFormat::named(name, is_1_34);
            Ok(format.map_or(Value::Optional(None), |format| Value::optional(Value::Format(format))))
        }
        other => mismatch(other),
    }
}

/// Mistakes in a text; nothing where it has the format.
fn validate<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let [Value::Format(format), Value::Text(text)] = arguments else { return mismatch(arguments) };
    let unknown = || EvaluationError::Unsupported(format!("what format.{}() says of {text:?}", format.name));
    let faults = format.faults(text).ok_or_else(unknown)?;
    meter.make(faults.iter().map(|fault| count(fault.len())).sum())?;
    let is_valid = faults.is_empty();
    Ok(if is_valid { Value::Optional(None) } else { Value::optional(Value::List(List::texts(faults))) })
}
