//! Constraints during a search: values that the devices of a claim must have in common, or must not.

use std::{collections::BTreeSet, fmt};

use hostler_api::resource::DeviceAttribute;

use super::{
    claims::{CompiledClaims, ConstrainedAttribute, ConstraintKind},
    node::NodeDevice,
    pools::NodePools,
    quirks::{Quirk, Quirks},
};

/// A value of an attribute; values of different types are never equal.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Value<'a> {
    Int(i64),
    Bool(bool),
    String(&'a str),
    Version(&'a str),
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::String(text) => write!(f, "{text:?}"),
            Self::Version(version) => f.write_str(version),
        }
    }
}

/// The constraints of all claims.
#[derive(Debug)]
pub(super) struct ConstraintUse<'p, 'a> {
    compiled: &'p CompiledClaims<'a>,
    pools: &'p NodePools<'a>,
    rules: Rules,
    states: Vec<ConstraintState<'a>>,
    /// Looked-up attributes, by attribute and device.
    attributes: Vec<Option<Option<&'a DeviceAttribute>>>,
}

/// Rules that are the same for all constraints.
#[derive(Clone, Copy, Debug)]
struct Rules {
    has_lists: bool,
    forgets: bool,
    by_identity: bool,
    stays_narrow: bool,
}

/// Attributes of the chosen devices of one constraint.
#[derive(Debug, Default)]
struct ConstraintState<'a> {
    count: usize,
    /// Attributes of the devices, in the order in which they were added; empty where the quirks need less.
    members: Vec<&'a DeviceAttribute>,
    /// Values that all of them have.
    common: Vec<Value<'a>>,
    /// The last attribute of each request.
    by_request: Vec<(usize, &'a DeviceAttribute)>,
}

impl<'p, 'a> ConstraintUse<'p, 'a> {
    pub(super) fn new(
        compiled: &'p CompiledClaims<'a>,
        pools: &'p NodePools<'a>,
        quirks: Quirks,
        has_lists: bool,
    ) -> Self {
        let rules = Rules {
            has_lists,
            forgets: quirks.has(Quirk::DistinctForgets),
            by_identity: quirks.has(Quirk::DistinctByIdentity),
            stays_narrow: quirks.has(Quirk::CommonValuesStayNarrow),
        };
        Self {
            compiled,
            pools,
            rules,
            states: compiled.constraints.iter().map(|_| ConstraintState::default()).collect(),
            attributes: vec![None; compiled.attributes.len() * pools.devices.len()],
        }
    }

    /// Adds a device for a request to the devices of a constraint, if the constraint allows it.
    pub(super) fn add(&mut self, constraint: usize, request: usize, device: usize) -> bool {
        let is_accepted = self.accepts(constraint, device);
        if let Some(attribute) = self.attribute(constraint, device).filter(|_| is_accepted) {
            self.states[constraint].add(attribute, request, self.compiled.constraints[constraint].kind, self.rules);
        }
        is_accepted
    }

    /// Returns true if the constraint allows the device beside those that were added.
    pub(super) fn accepts(&mut self, constraint: usize, device: usize) -> bool {
        let Some(attribute) = self.attribute(constraint, device) else { return false };
        let (state, rules) = (&self.states[constraint], self.rules);
        match self.compiled.constraints[constraint].kind {
            ConstraintKind::Match => state.is_equal(attribute, rules),
            ConstraintKind::Distinct => state.is_distinct(attribute, rules),
        }
    }

    /// Removes the device that was added last for a request.
    pub(super) fn remove(&mut self, constraint: usize, request: usize) {
        let (state, rules) = (&mut self.states[constraint], self.rules);
        state.remove(request, self.compiled.constraints[constraint].kind, rules);
    }

    /// Returns the device's values of the attribute that a constraint is about.
    pub(super) fn values(&mut self, constraint: usize, device: usize) -> BTreeSet<Value<'a>> {
        let rules = self.rules;
        self.attribute(constraint, device).into_iter().flat_map(|attribute| comparable(attribute, rules)).collect()
    }

    /// Returns the device's attribute that a constraint is about.
    fn attribute(&mut self, constraint: usize, device: usize) -> Option<&'a DeviceAttribute> {
        let (compiled, pools) = (self.compiled, self.pools);
        let attribute = compiled.constraints[constraint].attribute;
        let known = &mut self.attributes[attribute * pools.devices.len() + device];
        *known.get_or_insert_with(|| looked_up(&compiled.attributes[attribute], &pools.devices[device]))
    }
}

/// Looks an attribute up; where the domain is the driver's, the device may leave it out.
fn looked_up<'a>(attribute: &ConstrainedAttribute<'_>, device: &NodeDevice<'a>) -> Option<&'a DeviceAttribute> {
    let attributes = &device.device.attributes;
    attributes.get(attribute.name).or_else(|| {
        let (_, id) = attribute.parts.filter(|(domain, _)| *domain == device.slice.driver)?;
        attributes.get(id)
    })
}

impl<'a> ConstraintState<'a> {
    fn is_equal(&self, attribute: &DeviceAttribute, rules: Rules) -> bool {
        if self.count == 0 {
            return !rules.has_lists || values(attribute).next().is_some();
        }
        // One value each is the rule.
        if let (Some(value), [common]) = (scalar(attribute), &self.common[..]) {
            return value == *common;
        }
        self.common.iter().any(|common| comparable(attribute, rules).any(|value| value == *common))
    }

    fn is_distinct(&self, attribute: &DeviceAttribute, rules: Rules) -> bool {
        let differs = |other: &DeviceAttribute| {
            if rules.has_lists {
                values(attribute).all(|value| values(other).all(|other| other != value))
            } else if rules.by_identity {
                is_scalar(attribute) && !std::ptr::eq(attribute, other)
            } else {
                is_scalar(attribute) && attribute != other
            }
        };
        if self.count == 0 {
            return true;
        }
        (!rules.has_lists || values(attribute).next().is_some())
            && self.members.iter().all(|other| differs(other))
            && self.by_request.iter().all(|(_, other)| differs(other))
    }

    /// Adds a device that the constraint allows.
    fn add(&mut self, attribute: &'a DeviceAttribute, request: usize, kind: ConstraintKind, rules: Rules) {
        if kind == ConstraintKind::Match {
            if self.count == 0 {
                self.common.clear();
                self.common.extend(comparable(attribute, rules));
            }
            self.common.retain(|common| comparable(attribute, rules).any(|value| value == *common));
        } else if rules.forgets {
            self.by_request.retain(|(other, _)| *other != request);
            self.by_request.push((request, attribute));
        }
        if !(if kind == ConstraintKind::Match { rules.stays_narrow } else { rules.forgets }) {
            self.members.push(attribute);
        }
        self.count += 1;
    }

    fn remove(&mut self, request: usize, kind: ConstraintKind, rules: Rules) {
        self.count -= 1;
        self.members.pop();
        match kind {
            ConstraintKind::Distinct => self.by_request.retain(|(other, _)| *other != request),
            ConstraintKind::Match if !rules.stays_narrow => self.widen(rules),
            ConstraintKind::Match => {}
        }
    }

    /// Works out the common values of the devices anew.
    fn widen(&mut self, rules: Rules) {
        let mut members = self.members.iter();
        self.common.clear();
        self.common.extend(members.next().into_iter().flat_map(|first| comparable(first, rules)));
        for member in members {
            self.common.retain(|common| comparable(member, rules).any(|value| value == *common));
        }
    }
}

/// Returns the values that can be compared: where lists are not known, a list is equal to nothing.
fn comparable(attribute: &DeviceAttribute, rules: Rules) -> impl Iterator<Item = Value<'_>> {
    values(attribute).filter(move |_| rules.has_lists || is_scalar(attribute))
}

fn is_scalar(attribute: &DeviceAttribute) -> bool {
    scalar(attribute).is_some()
}

fn scalar(attribute: &DeviceAttribute) -> Option<Value<'_>> {
    match attribute {
        DeviceAttribute::Int(value) => Some(Value::Int(*value)),
        DeviceAttribute::Bool(value) => Some(Value::Bool(*value)),
        DeviceAttribute::String(value) => Some(Value::String(value)),
        DeviceAttribute::Version(value) => Some(Value::Version(value)),
        _ => None,
    }
}

/// Returns the values of an attribute: one, or those of a list.
fn values(attribute: &DeviceAttribute) -> impl Iterator<Item = Value<'_>> {
    let (mut ints, mut bools, mut strings, mut versions) = (&[][..], &[][..], &[][..], &[][..]);
    match attribute {
        DeviceAttribute::Ints(values) => ints = values,
        DeviceAttribute::Bools(values) => bools = values,
        DeviceAttribute::Strings(values) => strings = values,
        DeviceAttribute::Versions(values) => versions = values,
        _ => {}
    }
    scalar(attribute)
        .into_iter()
        .chain(ints.iter().map(|value| Value::Int(*value)))
        .chain(bools.iter().map(|value| Value::Bool(*value)))
        .chain(strings.iter().map(|value| Value::String(value)))
        .chain(versions.iter().map(|value| Value::Version(value)))
}
