//! Reasons why a node does not fit, in words.

use std::{collections::BTreeMap, fmt};

use super::{
    claims::{CompiledConstraint, ConstraintKind, MOST_DEVICES},
    fatal::Fatal,
    shortage::CapacityShortage,
};

mod conflict;

pub use conflict::{Conflict, RequestValues};

/// The reason why claims got no devices.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The node cannot satisfy the claims; another may.
    #[error(transparent)]
    NoFit(NoFit),
    /// No node makes a difference.
    #[error(transparent)]
    Fatal(#[from] Fatal),
    /// The search took more steps than its limit.
    #[error("the search was given up after {steps} steps")]
    OutOfBudget {
        /// Number of steps that it took.
        steps: u64,
    },
}

/// The first reason why a node does not fit: that of the request that no earlier choice of devices could satisfy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("claim {claim}, {}", list(.alternatives))]
pub struct NoFit {
    /// `namespace/name` of the claim.
    pub claim: String,
    /// Reasons why each way to satisfy the request failed.
    pub alternatives: Vec<AlternativeNoFit>,
    /// Pools of the node whose devices cannot be used, and the reasons.
    pub pools: Vec<String>,
}

fn list(alternatives: &[AlternativeNoFit]) -> String {
    alternatives.iter().map(AlternativeNoFit::to_string).collect::<Vec<_>>().join("; ")
}

/// The reason why one way to satisfy a request failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AlternativeNoFit {
    /// `request` or `request/subrequest`.
    pub request: String,
    /// Number of requested devices; `None`: all.
    pub wanted: Option<i64>,
    /// Number of devices that the search could take together.
    pub found: i64,
    /// Number of devices of the node.
    pub devices: usize,
    /// Number of devices for each reason.
    pub rejections: BTreeMap<Rejection, usize>,
}

/// The reason why a request cannot have a device.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Rejection {
    /// The limit of a claim would be exceeded.
    Limit,
    /// A selector does not match.
    Selector(String),
    /// A selector does not match, and it is simple enough to name the property in words.
    Property {
        /// The property of the device.
        has: String,
        /// The claim or class of the selector.
        owner: String,
    },
    /// The device is for other nodes.
    Node,
    /// The device has binding conditions, and the feature is off.
    BindingConditions,
    /// Another claim has the device.
    Allocated,
    /// Another request of the pod has the device.
    Chosen,
    /// The device lacks a capacity.
    Capacity(CapacityShortage),
    /// The device consumes counters, and the feature is off.
    CountersOff,
    /// Others took too much of the device's counters.
    Counters,
    /// The device has a taint.
    Taint(String),
    /// A constraint does not allow it.
    Constraint {
        /// The constraint, in words.
        constraint: String,
        /// The conflict of the device.
        conflict: Conflict,
    },
    /// With the device, the following requests cannot be satisfied.
    Rest,
}

impl fmt::Display for CompiledConstraint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self.kind {
            ConstraintKind::Match => ("matchAttribute", &self.constraint.match_attribute),
            ConstraintKind::Distinct => ("distinctAttribute", &self.constraint.distinct_attribute),
        };
        write!(f, "constraint {kind} {:?}", name.as_deref().unwrap_or_default())?;
        match &self.constraint.requests[..] {
            [] => Ok(()),
            requests => write!(f, " of requests {}", requests.join(", ")),
        }
    }
}

impl fmt::Display for AlternativeNoFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {:?}: ", self.request)?;
        if self.rejections.contains_key(&Rejection::Limit) {
            return write!(f, "with it the claim would hold more than {MOST_DEVICES} devices");
        }
        let matching = self.devices - self.unselected();
        match self.wanted {
            _ if self.devices == 0 => return f.write_str("the node has no devices"),
            _ if matching == 0 => write!(f, "none of the node's {} matches", devices(self.devices))?,
            Some(_) if let Some(shortage) = self.only_shortage() => {
                return match matching {
                    1 => write!(f, "the only matching device has {shortage}"),
                    _ => write!(f, "each of the {matching} matching devices has {shortage}"),
                };
            }
            None => write!(f, "it wants all of {} that match", devices(matching))?,
            Some(wanted) => {
                let found = self.found;
                write!(f, "it wants {wanted} of {} that match, and {found} can be had", devices(matching))?;
            }
        }
        let mut separator = ": ";
        for (rejection, count) in &self.rejections {
            // Reasons why devices do not match are of interest only if none matches.
            if matching == 0 || !rejection.is_unselected() {
                write!(f, "{separator}{count} {rejection}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

fn devices(count: usize) -> String {
    if count == 1 { "1 device".to_owned() } else { format!("{count} devices") }
}

impl AlternativeNoFit {
    /// Returns the capacity that every matching device lacks, if nothing else keeps any of them from the request.
    pub fn only_shortage(&self) -> Option<&CapacityShortage> {
        let mut near = self.rejections.keys().filter(|rejection| !rejection.is_unselected());
        match (near.next(), near.next()) {
            (Some(Rejection::Capacity(shortage)), None) if self.found == 0 && self.wanted.is_some() => Some(shortage),
            _ => None,
        }
    }

    fn unselected(&self) -> usize {
        self.rejections.iter().filter(|(rejection, _)| rejection.is_unselected()).map(|(_, count)| count).sum()
    }
}

impl Rejection {
    /// Returns the reason in words, without values, which differ from node to node.
    pub fn in_general(&self) -> String {
        match self {
            Self::Constraint { constraint, conflict } => format!("against {constraint} ({})", conflict.in_general()),
            other => other.to_string(),
        }
    }

    /// True if the device is not one of those that the request selects.
    pub fn is_unselected(&self) -> bool {
        matches!(self, Self::Selector(_) | Self::Property { .. } | Self::Node | Self::BindingConditions)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit => f.write_str("too many"),
            Self::Selector(selector) => write!(f, "not selected by {selector}"),
            Self::Property { has, owner } => write!(f, "with {has} ({owner})"),
            Self::Node => f.write_str("for other nodes"),
            Self::BindingConditions => f.write_str("with binding conditions, which are off"),
            Self::Allocated => f.write_str("allocated"),
            Self::Chosen => f.write_str("taken by this pod"),
            Self::Capacity(shortage) => write!(f, "with {shortage}"),
            Self::CountersOff => f.write_str("with counters, which are off"),
            Self::Counters => f.write_str("without enough counters left"),
            Self::Taint(taint) => write!(f, "with taint {taint}"),
            Self::Constraint { constraint, conflict } => write!(f, "against {constraint} ({conflict})"),
            Self::Rest => f.write_str("with which the rest of the claims cannot be satisfied"),
        }
    }
}
