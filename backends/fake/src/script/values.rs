//! Values that a script may write in more than one way.

use std::fmt;

use hostler_api::Quantity;
use hostler_backend::{AttributeValue, Capacity, RequestPolicy};
use serde::{
    Deserialize, Deserializer,
    de::{
        Error, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

/// A number, truth value or text, `{ version = "…" }`, or a list of numbers or of texts.
#[derive(Clone, Debug)]
pub(super) struct Attribute(pub(super) AttributeValue);

/// An amount, or `{ value, default, min, step }`.
#[derive(Clone, Copy, Debug)]
pub(super) struct CapacityEntry(pub(super) Capacity);

/// A whole number, or a text such as "16Gi".
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount(pub(super) Quantity);

impl<'de> Deserialize<'de> for Attribute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AttributeVisitor;
        impl<'de> Visitor<'de> for AttributeVisitor {
            type Value = Attribute;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a whole number, true, false, a text, { version = \"1.2.3\" }, or a list of numbers or texts",
                )
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Attribute, E> {
                Ok(Attribute(AttributeValue::Bool(value)))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Attribute, E> {
                Ok(Attribute(AttributeValue::Int(value)))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Attribute, E> {
                Ok(Attribute(AttributeValue::String(value.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Attribute, A::Error> {
                #[derive(Deserialize)]
                #[serde(untagged, expecting = "a list holds whole numbers only, or texts only")]
                enum List {
                    Ints(Vec<i64>),
                    Strings(Vec<String>),
                }
                Ok(Attribute(match List::deserialize(SeqAccessDeserializer::new(list))? {
                    List::Ints(values) => AttributeValue::Ints(values),
                    List::Strings(texts) => AttributeValue::Strings(texts),
                }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Attribute, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Version {
                    version: String,
                }
                let Version { version } = Version::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Attribute(AttributeValue::Version(version)))
            }
        }
        deserializer.deserialize_any(AttributeVisitor)
    }
}

impl<'de> Deserialize<'de> for CapacityEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CapacityVisitor;
        impl<'de> Visitor<'de> for CapacityVisitor {
            type Value = CapacityEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount such as 4 or \"16Gi\", or { value = …, min = …, step = …, default = … }")
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<CapacityEntry, E> {
                whole(value).map(|value| CapacityEntry(Capacity { value, policy: None }))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<CapacityEntry, E> {
                let value = value.parse().map_err(E::custom)?;
                Ok(CapacityEntry(Capacity { value, policy: None }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CapacityEntry, A::Error> {
                CapacityTable::deserialize(MapAccessDeserializer::new(map)).map(CapacityTable::capacity)
            }
        }
        deserializer.deserialize_any(CapacityVisitor)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CapacityTable {
    value: Amount,
    default: Option<Amount>,
    min: Option<Amount>,
    step: Option<Amount>,
}

impl CapacityTable {
    /// Any of the three makes a policy: the step is 1, the least is one step and the default is the least.
    fn capacity(self) -> CapacityEntry {
        let Amount(value) = self.value;
        let [default, min, step] =
            [self.default, self.min, self.step].map(|amount| amount.map(|Amount(amount)| amount));
        let policy = default.or(min).or(step).map(|_| {
            let step = step.unwrap_or(Quantity::whole(1));
            let min = min.unwrap_or(step);
            RequestPolicy { default: default.unwrap_or(min), min, step }
        });
        CapacityEntry(Capacity { value, policy })
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AmountVisitor;
        impl Visitor<'_> for AmountVisitor {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount such as 4 or \"16Gi\"")
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Amount, E> {
                whole(value).map(Amount)
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Amount, E> {
                value.parse().map(Amount).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(AmountVisitor)
    }
}

fn whole<E: Error>(value: i64) -> Result<Quantity, E> {
    u64::try_from(value).map(Quantity::whole).map_err(|_| E::custom(format!("{value} is negative; write 0 or more")))
}
