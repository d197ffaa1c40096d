//! Selectors of nodes: by labels and by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::LabelKey;

/// Field of a node that a selector can name.
const NAME_FIELD: &str = "metadata.name";

/// Selector of nodes: matches those of which at least one term is true.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The terms.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// A term: all of its requirements must be met. A term without requirements is met by no node.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on fields, of which there is one: `metadata.name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// Requirement on a label or field.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct NodeSelectorRequirement {
    /// Name of the label or field.
    pub key: String,
    /// Comparison with the values.
    pub operator: NodeSelectorOperator,
    /// Values that the label or field is compared with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Comparison of a label or field.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum NodeSelectorOperator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is absent.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is a greater whole number than the value.
    Gt,
    /// The label is a smaller whole number than the value.
    Lt,
    /// An operator that is not known here.
    #[serde(untagged)]
    Other(String),
}

/// Mistake that makes a selector meaningless.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NodeSelectorError {
    /// The operator is not allowed there.
    #[error("nodeSelectorTerms[{term}].{field}[{requirement}]: operator {operator} cannot be used here")]
    Operator {
        /// Index of the term.
        term: usize,
        /// `matchExpressions` or `matchFields`.
        field: &'static str,
        /// Index of the requirement.
        requirement: usize,
        /// The operator.
        operator: String,
    },
    /// The operator cannot work with a key or a value.
    #[error("nodeSelectorTerms[{term}].{field}[{requirement}]: {problem}")]
    Requirement {
        /// Index of the term.
        term: usize,
        /// `matchExpressions` or `matchFields`.
        field: &'static str,
        /// Index of the requirement.
        requirement: usize,
        /// Description of the mistake.
        problem: String,
    },
}

impl NodeSelector {
    /// The selector of these nodes.
    pub fn of_nodes(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let terms = names.into_iter().flat_map(|name| Self::of_node(name).node_selector_terms);
        Self { node_selector_terms: terms.collect() }
    }

    /// The selector of one node.
    pub fn of_node(name: impl Into<String>) -> Self {
        let requirement = NodeSelectorRequirement {
            key: NAME_FIELD.to_owned(),
            operator: NodeSelectorOperator::In,
            values: vec![name.into()],
        };
        Self {
            node_selector_terms: vec![NodeSelectorTerm {
                match_fields: vec![requirement],
                ..NodeSelectorTerm::default()
            }],
        }
    }

    /// Name of the node, if the selector selects one by its name.
    pub fn name(&self) -> Option<&str> {
        let [term] = &self.node_selector_terms[..] else { return None };
        let named =
            term.match_fields.iter().find(|it| it.key == NAME_FIELD && it.operator == NodeSelectorOperator::In)?;
        named.values.first().map(String::as_str)
    }

    /// Selector of the nodes that both select.
    pub(super) fn and(&self, other: &Self) -> Self {
        let both = |term: &NodeSelectorTerm| {
            let others = other.node_selector_terms.iter().filter(|it| !it.is_empty());
            others.map(|other| term.and(other)).collect::<Vec<_>>()
        };
        // A term without requirements matches no node; a further requirement would make it match some.
        let terms = self.node_selector_terms.iter().filter(|term| !term.is_empty());
        Self { node_selector_terms: terms.flat_map(both).collect() }
    }

    /// Excludes the node from the selector.
    pub(super) fn leave_out(&mut self, node: &str) {
        let requirements = NodeSelectorTerm::other_than(node).match_fields;
        // A term without requirements matches no node; a further requirement would make it match some.
        for term in self.node_selector_terms.iter_mut().filter(|term| !term.is_empty()) {
            let new = requirements.iter().filter(|it| !term.match_fields.contains(it)).cloned();
            let new: Vec<NodeSelectorRequirement> = new.collect();
            term.match_fields.extend(new);
        }
    }

    /// Checks that the selector has a meaning.
    ///
    /// # Errors
    /// The first requirement that cannot be understood.
    pub fn check(&self) -> Result<(), NodeSelectorError> {
        self.node_selector_terms.iter().enumerate().try_for_each(|(at, term)| term.check(at))
    }

    /// True if the selector matches the node with this name and these labels. A term that cannot be understood
    /// matches no node.
    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.node_selector_terms.iter().any(|term| term.matches(name, labels))
    }
}

impl NodeSelectorTerm {
    /// Term of all nodes but this one.
    pub(super) fn other_than(node: &str) -> Self {
        let requirement = NodeSelectorRequirement {
            key: NAME_FIELD.to_owned(),
            operator: NodeSelectorOperator::NotIn,
            values: vec![node.to_owned()],
        };
        Self { match_fields: vec![requirement], ..Self::default() }
    }

    fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.match_expressions.extend(other.match_expressions.iter().cloned());
        both.match_fields.extend(other.match_fields.iter().cloned());
        both
    }

    fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty()
    }

    fn check(&self, term: usize) -> Result<(), NodeSelectorError> {
        self.match_expressions.iter().enumerate().try_for_each(|(at, it)| it.check_expression(term, at))?;
        self.match_fields.iter().enumerate().try_for_each(|(at, it)| it.check_field(term, at))
    }

    fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        !self.is_empty()
            && self.check(0).is_ok()
            && self.match_expressions.iter().all(|it| it.matches(labels.get(&it.key).map(String::as_str)))
            && self.match_fields.iter().all(|it| it.matches(Some(if it.key == NAME_FIELD { name } else { "" })))
    }
}

impl NodeSelectorRequirement {
    /// True if `value`, that of the label or field, meets the requirement.
    fn matches(&self, value: Option<&str>) -> bool {
        let is_listed = |value: &str| self.values.iter().any(|listed| listed == value);
        match self.operator {
            NodeSelectorOperator::In => value.is_some_and(is_listed),
            NodeSelectorOperator::NotIn => !value.is_some_and(is_listed),
            NodeSelectorOperator::Exists => value.is_some(),
            NodeSelectorOperator::DoesNotExist => value.is_none(),
            NodeSelectorOperator::Gt => self.numbers(value).is_some_and(|(value, limit)| value > limit),
            NodeSelectorOperator::Lt => self.numbers(value).is_some_and(|(value, limit)| value < limit),
            NodeSelectorOperator::Other(_) => false,
        }
    }

    fn numbers(&self, value: Option<&str>) -> Option<(i64, i64)> {
        Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
    }

    fn check_expression(&self, term: usize, requirement: usize) -> Result<(), NodeSelectorError> {
        let field = "matchExpressions";
        let wrong = |problem: &str| {
            Err(NodeSelectorError::Requirement { term, field, requirement, problem: problem.to_owned() })
        };
        if LabelKey::new(self.key.as_str()).is_err() {
            return wrong(&format!("key {:?} is not the key of a label", self.key));
        }
        match &self.operator {
            NodeSelectorOperator::In | NodeSelectorOperator::NotIn if self.values.is_empty() => {
                return wrong("operators In and NotIn need values");
            }
            NodeSelectorOperator::Exists | NodeSelectorOperator::DoesNotExist if !self.values.is_empty() => {
                return wrong("operators Exists and DoesNotExist go without values");
            }
            NodeSelectorOperator::Gt | NodeSelectorOperator::Lt if !self.is_one_number() => {
                return wrong("operators Gt and Lt need one whole number");
            }
            NodeSelectorOperator::Other(operator) => {
                return Err(NodeSelectorError::Operator { term, field, requirement, operator: operator.clone() });
            }
            _ => {}
        }
        match self.values.iter().find(|value| !is_label_value(value)) {
            Some(value) => wrong(&format!("{value:?} is not the value of a label")),
            None => Ok(()),
        }
    }

    fn check_field(&self, term: usize, requirement: usize) -> Result<(), NodeSelectorError> {
        let field = "matchFields";
        if !matches!(self.operator, NodeSelectorOperator::In | NodeSelectorOperator::NotIn) {
            let operator = self.operator.as_str().to_owned();
            return Err(NodeSelectorError::Operator { term, field, requirement, operator });
        }
        if self.values.len() != 1 {
            let problem = "exactly one value is needed".to_owned();
            return Err(NodeSelectorError::Requirement { term, field, requirement, problem });
        }
        Ok(())
    }

    fn is_one_number(&self) -> bool {
        matches!(&self.values[..], [value] if value.parse::<i64>().is_ok())
    }
}

impl NodeSelectorOperator {
    /// Returns the operator as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Other(operator) => operator,
        }
    }
}

/// True for an empty text, and for the name in a label's key.
fn is_label_value(value: &str) -> bool {
    value.is_empty() || (!value.contains('/') && LabelKey::new(value).is_ok())
}

#[cfg(test)]
mod tests;
