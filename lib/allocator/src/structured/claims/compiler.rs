//! Compiles claims: looks classes up, joins selectors, and finds errors that do not depend on the node.

use std::{borrow::Cow, collections::BTreeMap, ptr};

use hostler_api::resource::{
    CapacityRequirements, DeviceAllocationMode, DeviceClass, DeviceRequest, DeviceSelector, DeviceSubRequest,
    DeviceToleration, ExactDeviceRequest, ResourceClaim,
};

use super::{
    Alternative, CompiledClaim, CompiledClaims, CompiledConstraint, CompiledRequest, ConstrainedAttribute,
    ConstraintKind, Failure, Fatal, Selection, expression, full_name,
};
use crate::structured::{
    quirks::{Quirk, Quirks},
    selectors::Selectors,
    version::{Feature, Features},
};

/// A request or one of its alternatives, as far as both have the same fields.
struct RequestFields<'a> {
    name: &'a str,
    class_name: &'a str,
    selectors: &'a [DeviceSelector],
    mode: &'a DeviceAllocationMode,
    count: Option<i64>,
    admin_access: Option<bool>,
    tolerations: &'a [DeviceToleration],
    capacity: Option<&'a CapacityRequirements>,
}

impl<'a> RequestFields<'a> {
    fn exactly(name: &'a str, exactly: &'a ExactDeviceRequest) -> Self {
        Self {
            name,
            class_name: &exactly.device_class_name,
            selectors: &exactly.selectors,
            mode: &exactly.allocation_mode,
            count: exactly.count,
            admin_access: exactly.admin_access,
            tolerations: &exactly.tolerations,
            capacity: exactly.capacity.as_ref(),
        }
    }

    fn alternative(request: &'a DeviceSubRequest) -> Self {
        Self {
            name: &request.name,
            class_name: &request.device_class_name,
            selectors: &request.selectors,
            mode: &request.allocation_mode,
            count: request.count,
            admin_access: None,
            tolerations: &request.tolerations,
            capacity: request.capacity.as_ref(),
        }
    }
}

/// Compiles claims.
pub(in crate::structured) struct ClaimCompiler<'c, 'a> {
    pub(in crate::structured) features: Features,
    pub(in crate::structured) quirks: Quirks,
    pub(in crate::structured) classes: &'a BTreeMap<String, DeviceClass>,
    pub(in crate::structured) selectors: &'c Selectors,
    pub(in crate::structured) compiled: CompiledClaims<'a>,
}

impl<'c, 'a> ClaimCompiler<'c, 'a> {
    pub(in crate::structured) fn new(
        features: Features,
        quirks: Quirks,
        classes: &'a BTreeMap<String, DeviceClass>,
        selectors: &'c Selectors,
    ) -> Self {
        let compiled = CompiledClaims {
            claims: Vec::new(),
            alternatives: Vec::new(),
            selections: Vec::new(),
            capacities: vec![None],
            attributes: Vec::new(),
            constraints: Vec::new(),
            failure: None,
        };
        Self { features, quirks, classes, selectors, compiled }
    }

    /// Adds claims, up to the first that can be satisfied nowhere.
    pub(in crate::structured) fn add_all(
        mut self,
        claims: impl IntoIterator<Item = &'a ResourceClaim>,
    ) -> CompiledClaims<'a> {
        for claim in claims {
            self.compiled.failure = self.add(claim).err();
            if self.compiled.failure.is_some() {
                break;
            }
        }
        self.compiled
    }

    fn add(&mut self, claim: &'a ResourceClaim) -> Result<(), Failure> {
        let first = self.compiled.constraints.len();
        let constraints = self.add_constraints(claim);
        self.compiled.claims.push(CompiledClaim { claim, requests: Vec::new() });
        for request in &claim.spec.devices.requests {
            let start = self.compiled.alternatives.len();
            let complete = self.alternatives(claim, request, first);
            let alternatives = start..self.compiled.alternatives.len();
            let has_list = !request.first_available.is_empty();
            let compiled = CompiledRequest { name: &request.name, has_list, alternatives };
            if let Some(claim) = self.compiled.claims.last_mut() {
                claim.requests.push(compiled);
            }
            complete.map_err(Failure::Request)?;
        }
        constraints.map_err(Failure::Constraint)
    }

    fn alternatives(
        &mut self,
        claim: &'a ResourceClaim,
        request: &'a DeviceRequest,
        first_constraint: usize,
    ) -> Result<(), Fatal> {
        let name = &request.name;
        if request.first_available.is_empty() {
            let exactly = request.exactly.as_ref();
            let exactly = exactly.ok_or_else(|| Fatal::empty_request(full_name(claim), name))?;
            self.check_capacity(claim, name, exactly.capacity.is_some())?;
            return self.alternative(
                claim,
                name,
                Cow::Borrowed(name),
                &RequestFields::exactly(name, exactly),
                first_constraint,
            );
        }
        self.need(Feature::PrioritizedList, claim, name, "lists alternatives")?;
        for alternative in &request.first_available {
            self.check_capacity(claim, &alternative.name, alternative.capacity.is_some())?;
        }
        for alternative in &request.first_available {
            let full_name = Cow::Owned(format!("{name}/{}", alternative.name));
            self.alternative(claim, name, full_name, &RequestFields::alternative(alternative), first_constraint)?;
        }
        Ok(())
    }

    fn check_capacity(&self, claim: &ResourceClaim, request: &str, is_asked_for: bool) -> Result<(), Fatal> {
        if is_asked_for && !self.quirks.has(Quirk::NoConsumableCapacity) {
            self.need(Feature::ConsumableCapacity, claim, request, "wants parts of capacities")?;
        }
        Ok(())
    }

    fn alternative(
        &mut self,
        claim: &'a ResourceClaim,
        request: &str,
        name: Cow<'a, str>,
        fields: &RequestFields<'a>,
        first_constraint: usize,
    ) -> Result<(), Fatal> {
        if let Some(at) = fields.selectors.iter().position(|selector| selector.cel.is_none()) {
            return Err(Fatal::empty_selector(full_name(claim), fields.name, at));
        }
        if fields.admin_access.is_some() {
            self.need(Feature::AdminAccess, claim, fields.name, "wants access for administration")?;
        }
        if fields.class_name.is_empty() {
            return Err(Fatal::no_class(full_name(claim), fields.name));
        }
        let class = self.classes.get(fields.class_name);
        let class = class.ok_or_else(|| Fatal::unknown_class(full_name(claim), fields.name, fields.class_name))?;
        let count = match fields.mode {
            DeviceAllocationMode::ExactCount => Some(fields.count.unwrap_or(1)),
            DeviceAllocationMode::All => None,
            DeviceAllocationMode::Other(mode) => return Err(Fatal::unknown_mode(full_name(claim), fields.name, mode)),
        };
        let constraints = self.constraints_about(request, &name, first_constraint);
        let alternative = Alternative {
            name,
            class,
            count,
            is_admin: fields.admin_access == Some(true),
            tolerations: fields.tolerations,
            selection: self.selection(claim, class, fields.selectors),
            capacity: self.capacity(fields.capacity),
            constraints,
        };
        self.compiled.alternatives.push(alternative);
        Ok(())
    }

    fn need(&self, feature: Feature, claim: &ResourceClaim, request: &str, what: &'static str) -> Result<(), Fatal> {
        if self.features.has(feature) {
            return Ok(());
        }
        Err(Fatal::FeatureOff { claim: full_name(claim), request: request.to_owned(), what, feature: feature.gate() })
    }

    fn constraints_about(&self, request: &str, name: &str, first: usize) -> Box<[usize]> {
        let is_about = |names: &[String]| names.is_empty() || names.iter().any(|it| it == request || it == name);
        let constraints = self.compiled.constraints.iter().enumerate().skip(first);
        constraints.filter(|(_, it)| is_about(&it.constraint.requests)).map(|(at, _)| at).collect()
    }

    /// Returns the index of a list of selectors; equal lists have one index.
    fn selection(
        &mut self,
        claim: &'a ResourceClaim,
        class: &'a DeviceClass,
        selectors: &'a [DeviceSelector],
    ) -> usize {
        let known = self.compiled.selections.iter().position(|known| {
            let is_same_claim = selectors.is_empty() || ptr::eq(known.claim, claim);
            ptr::eq(known.class, class) && known.own == selectors && is_same_claim
        });
        if let Some(known) = known {
            return known;
        }
        let all = class.spec.selectors.iter().chain(selectors);
        let compiled = all.map(|selector| Some(self.selectors.compiled(expression(selector)?))).collect();
        self.compiled.selections.push(Selection { class, claim, own: selectors, selectors: compiled });
        self.compiled.selections.len() - 1
    }

    /// Returns the index of requested amounts. Amounts that are stored in the same way have one index; others are
    /// written differently in results.
    fn capacity(&mut self, wanted: Option<&'a CapacityRequirements>) -> usize {
        let wanted = wanted.filter(|wanted| !wanted.requests.is_empty());
        let known = &mut self.compiled.capacities;
        known.iter().position(|known| is_identical(*known, wanted)).unwrap_or_else(|| {
            known.push(wanted);
            known.len() - 1
        })
    }

    fn add_constraints(&mut self, claim: &'a ResourceClaim) -> Result<(), Fatal> {
        for (at, constraint) in claim.spec.devices.constraints.iter().enumerate() {
            let distinct = constraint.distinct_attribute.as_deref();
            let distinct = distinct.filter(|_| !self.quirks.has(Quirk::NoDistinctAttribute));
            let (kind, name) = match (constraint.match_attribute.as_deref(), distinct) {
                (Some(name), _) => (ConstraintKind::Match, name),
                (None, Some(name)) => (ConstraintKind::Distinct, name),
                (None, None) => return Err(Fatal::EmptyConstraint { claim: full_name(claim), at }),
            };
            let attribute = self.attribute(name);
            let compiled = CompiledConstraint { constraint, kind, attribute };
            self.compiled.constraints.push(compiled);
        }
        Ok(())
    }

    fn attribute(&mut self, name: &'a str) -> usize {
        let known = &mut self.compiled.attributes;
        known.iter().position(|known| known.name == name).unwrap_or_else(|| {
            known.push(ConstrainedAttribute { name, parts: name.split_once('/') });
            known.len() - 1
        })
    }
}

fn is_identical(one: Option<&CapacityRequirements>, other: Option<&CapacityRequirements>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_none() };
    let quantities = one.requests.iter().zip(other.requests.iter());
    one == other
        && quantities
            .filter_map(|((_, one), (_, other))| one.get().zip(other.get()))
            .all(|(one, other)| one.is_identical(other))
}
