//! Selectors of objects by their labels.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// LabelSelector: labels that objects have.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels with these values.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements on labels.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// Requirement on a label.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelectorRequirement {
    /// Key of the label.
    pub key: String,
    /// Comparison with the values.
    pub operator: LabelSelectorOperator,
    /// The values that are meant, for In and NotIn.
    #[serde(deserialize_with = "super::or_default", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Comparison of a label.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum LabelSelectorOperator {
    /// The label is present with one of the values.
    #[default]
    In,
    /// The label is absent, or has another value.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl LabelSelector {
    /// True if an object with these labels matches.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_values(|key| labels.get(key).map(String::as_str))
    }

    /// True if an object matches whose labels have these values, by key.
    pub fn matches_values<'v>(&self, value_of: impl Fn(&str) -> Option<&'v str>) -> bool {
        self.match_labels.iter().all(|(key, value)| value_of(key) == Some(value))
            && self.match_expressions.iter().all(|it| it.matches(value_of(&it.key)))
    }

    /// True if the selector has no requirement: it selects everything.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }
}

impl LabelSelectorRequirement {
    /// True if a label meets the requirement; `None`: the object does not have the label.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let is_in = value.is_some_and(|value| self.values.iter().any(|it| it == value));
        match self.operator {
            LabelSelectorOperator::In => is_in,
            LabelSelectorOperator::NotIn => !is_in,
            LabelSelectorOperator::Exists => value.is_some(),
            LabelSelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}
