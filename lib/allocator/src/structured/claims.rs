//! The claims of a pod, compiled: everything about them that does not depend on the node.

use std::{borrow::Cow, sync::Arc};

use hostler_api::{
    cut_middle,
    resource::{CapacityRequirements, DeviceClass, DeviceConstraint, DeviceSelector, DeviceToleration, ResourceClaim},
};

use super::{fatal::Fatal, selectors::CompiledSelector};

mod compiler;

pub(super) use compiler::ClaimCompiler;

/// The most devices that a claim can hold.
pub(super) const MOST_DEVICES: i64 = 32;

/// Characters of a selector in a message: two lines of a terminal. A selector of a claim may have ten thousand.
const MOST_QUOTED: usize = 160;

/// The claims of a pod, ready to be satisfied on any node.
#[derive(Debug)]
pub struct CompiledClaims<'a> {
    pub(super) claims: Vec<CompiledClaim<'a>>,
    /// The ways to satisfy requests, of all claims.
    pub(super) alternatives: Vec<Alternative<'a>>,
    /// Different lists of selectors.
    pub(super) selections: Vec<Selection<'a>>,
    /// Different parts of capacities that are requested; the first is none.
    pub(super) capacities: Vec<Option<&'a CapacityRequirements>>,
    /// Different attributes that constraints look at, with their domain and the name in it.
    pub(super) attributes: Vec<ConstrainedAttribute<'a>>,
    /// The constraints of all claims.
    pub(super) constraints: Vec<CompiledConstraint<'a>>,
    /// The error of the last claim; claims behind it are not compiled.
    pub(super) failure: Option<Failure>,
}

/// An error of a claim, whatever the node is.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request behind those that were compiled, or one of its alternatives.
    Request(Fatal),
    /// A constraint. Upstream looks at these once it has counted devices.
    Constraint(Fatal),
}

/// One claim.
#[derive(Debug)]
pub(super) struct CompiledClaim<'a> {
    pub(super) claim: &'a ResourceClaim,
    pub(super) requests: Vec<CompiledRequest<'a>>,
}

impl CompiledClaim<'_> {
    /// `namespace/name`.
    pub(super) fn full_name(&self) -> String {
        full_name(self.claim)
    }
}

fn full_name(claim: &ResourceClaim) -> String {
    format!("{}/{}", claim.metadata.namespace, claim.metadata.name)
}

/// One request.
#[derive(Debug)]
pub(super) struct CompiledRequest<'a> {
    pub(super) name: &'a str,
    /// True if the request lists alternatives, even if only one.
    pub(super) has_list: bool,
    /// Range of the alternatives in [`CompiledClaims::alternatives`].
    pub(super) alternatives: std::ops::Range<usize>,
}

/// A way to satisfy a request.
#[derive(Debug)]
pub(super) struct Alternative<'a> {
    /// `request` or `request/subrequest`.
    pub(super) name: Cow<'a, str>,
    pub(super) class: &'a DeviceClass,
    /// Number of devices; `None`: all.
    pub(super) count: Option<i64>,
    pub(super) is_admin: bool,
    pub(super) tolerations: &'a [DeviceToleration],
    /// Index among the selections.
    pub(super) selection: usize,
    /// Index among the capacities.
    pub(super) capacity: usize,
    /// Indices of the constraints that apply to it, in the order of the claim.
    pub(super) constraints: Box<[usize]>,
}

/// Selectors that a device must match, those of the class first.
#[derive(Debug)]
pub(super) struct Selection<'a> {
    class: &'a DeviceClass,
    /// The first claim with them; two claims of the same class and without selectors of their own share them.
    claim: &'a ResourceClaim,
    /// Selectors of the claim, behind those of the class.
    own: &'a [DeviceSelector],
    /// Compiled selectors; `None`: a selector of a class that has no expression in it.
    pub(super) selectors: Vec<Option<Arc<CompiledSelector>>>,
}

impl<'a> Selection<'a> {
    /// Returns the text of a selector for messages, cut to a readable length. The class or claim has the rest.
    pub(super) fn quoted(&self, at: usize) -> Cow<'a, str> {
        let selector = self.class.spec.selectors.iter().chain(self.own).nth(at);
        cut_middle(selector.and_then(expression).unwrap_or_default(), MOST_QUOTED)
    }

    /// Describes the devices that the selector refuses, in words that follow `with`, where the selector is simple
    /// enough.
    pub(super) fn refusal_in_words(&self, at: usize) -> Option<&str> {
        self.selectors.get(at)?.as_ref()?.as_ref().as_ref().ok()?.refusal_in_words()
    }

    /// The class whose selectors come first.
    pub(super) fn class_name(&self) -> &'a str {
        &self.class.metadata.name
    }

    /// Names the class or claim of a selector, and the selector's index there.
    pub(super) fn owner(&self, at: usize) -> String {
        match at.checked_sub(self.class.spec.selectors.len()) {
            None => format!("class {}, selector #{at}", self.class.metadata.name),
            Some(at) => format!("claim {}, selector #{at}", full_name(self.claim)),
        }
    }
}

fn expression(selector: &DeviceSelector) -> Option<&str> {
    selector.cel.as_ref().map(|cel| &*cel.expression)
}

/// An attribute that constraints look at.
#[derive(Debug)]
pub(super) struct ConstrainedAttribute<'a> {
    /// Name with the domain.
    pub(super) name: &'a str,
    /// Domain, and name within it.
    pub(super) parts: Option<(&'a str, &'a str)>,
}

/// A constraint.
#[derive(Debug)]
pub(super) struct CompiledConstraint<'a> {
    pub(super) constraint: &'a DeviceConstraint,
    pub(super) kind: ConstraintKind,
    /// Index among the attributes.
    pub(super) attribute: usize,
}

/// The kind of a constraint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ConstraintKind {
    /// One value on all devices.
    Match,
    /// Another value on each.
    Distinct,
}
