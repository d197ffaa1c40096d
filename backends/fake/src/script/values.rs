//! Values that a script may write in more than one way.

use hostler_api::{ConfigProblem, ParseQuantityError, QualifiedName, Quantity};
use hostler_backend::{AttributeValue, Capacity, NodeAllocatable, RequestPolicy};
use serde::Deserialize;
use toml::Value;

use super::problem::read;

/// A whole number, or a text such as "16Gi".
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct ScriptedAmount(pub(super) Quantity);

impl TryFrom<Value> for ScriptedAmount {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::Integer(number) => match u64::try_from(number) {
                Ok(number) => Ok(Self(Quantity::whole(number))),
                Err(_) => Err(format!("{number} is negative; write 0 or more")),
            },
            Value::String(text) => text.parse().map(Self).map_err(|error: ParseQuantityError| error.to_string()),
            other => Err(format!("{other} is no amount; write one such as 4 or \"16Gi\"")),
        }
    }
}

/// A number, truth value or text, `{ version = "…" }`, or a list of numbers or of texts.
pub(super) fn attribute(value: Value) -> Result<AttributeValue, ConfigProblem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct VersionTable {
        version: String,
    }
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a list holds whole numbers only, or texts only")]
    enum ListEntry {
        Ints(Vec<i64>),
        Strings(Vec<String>),
    }
    Ok(match value {
        Value::Integer(number) => AttributeValue::Int(number),
        Value::Boolean(truth) => AttributeValue::Bool(truth),
        Value::String(text) => AttributeValue::String(text.into()),
        Value::Table(table) => AttributeValue::Version(read::<VersionTable>(table)?.version.into()),
        Value::Array(_) => match read(value)? {
            ListEntry::Ints(numbers) => AttributeValue::Ints(numbers),
            ListEntry::Strings(texts) => AttributeValue::Strings(texts),
        },
        Value::Float(_) | Value::Datetime(_) => {
            let kinds = "a whole number, true, false, a text, { version = \"1.2.3\" }, or a list of numbers or texts";
            return Err(ConfigProblem::new("", format!("{value} is no attribute's value; write {kinds}")));
        }
    })
}

/// An amount, or `{ value, default, min, step }`. Any of the last three makes a policy: the step is 1, the least is one
/// step and the default is the least.
pub(super) fn capacity(value: Value) -> Result<Capacity, ConfigProblem> {
    #[derive(Deserialize)]
    #[serde(
        deny_unknown_fields,
        expecting = "an amount such as 4 or \"16Gi\", or { value = …, min = …, step = …, default = … }"
    )]
    struct CapacityTable {
        value: ScriptedAmount,
        default: Option<ScriptedAmount>,
        min: Option<ScriptedAmount>,
        step: Option<ScriptedAmount>,
    }
    if matches!(value, Value::Integer(_) | Value::String(_)) {
        return read(value).map(|ScriptedAmount(value)| Capacity { value, policy: None });
    }
    let CapacityTable { value: ScriptedAmount(value), default, min, step } = read(value)?;
    let policy = default.or(min).or(step).map(|_| {
        let ScriptedAmount(step) = step.unwrap_or(ScriptedAmount(Quantity::whole(1)));
        let ScriptedAmount(min) = min.unwrap_or(ScriptedAmount(step));
        let ScriptedAmount(default) = default.unwrap_or(ScriptedAmount(min));
        RequestPolicy { default, min, step }
    });
    Ok(Capacity { value, policy })
}

/// Part of one of the node's own resources that a device stands for: `{ capacity, factor }` or `{ device }`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "{ capacity = \"…\", factor = … } or { device = … }")]
pub(super) struct NodeAllocatableEntry {
    capacity: Option<QualifiedName>,
    factor: Option<ScriptedAmount>,
    device: Option<ScriptedAmount>,
}

pub(super) fn node_allocatable(entry: NodeAllocatableEntry) -> Result<NodeAllocatable, ConfigProblem> {
    match (entry.capacity, entry.factor, entry.device) {
        (Some(capacity), factor, None) => {
            let factor = factor.map_or(Quantity::whole(1), |ScriptedAmount(factor)| factor);
            Ok(NodeAllocatable::PerCapacity { capacity, factor })
        }
        (None, None, Some(ScriptedAmount(amount))) => Ok(NodeAllocatable::PerDevice(amount)),
        _ => Err(ConfigProblem::new("", "write { capacity = \"…\", factor = … } or { device = … }")),
    }
}
