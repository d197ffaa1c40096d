//! Limits on what a device tells the scheduler beside its attributes: conditions to wait for, and what it stands for of
//! the node's own resources.

use std::collections::BTreeMap;

use hostler_api::{LabelKey, Quantity, limits::MAX_BINDING_CONDITIONS};

use super::DeviceProblem;
use crate::{BindingConditions, Capacities, NodeAllocatable};

/// Resources that a node accounts for by itself, beside huge pages of every size.
const NODE_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const HUGE_PAGES: &str = "hugepages-";

/// Faults in the binding conditions of a device.
pub(super) fn binding_problems(binding: &BindingConditions) -> Vec<DeviceProblem> {
    let mut problems = conditions_problems("binding.conditions", &binding.conditions, &[]);
    let failures = &binding.failure_conditions;
    problems.extend(conditions_problems("binding.failure_conditions", failures, &binding.conditions));
    problems
}

fn conditions_problems(field: &str, conditions: &[String], others: &[String]) -> Vec<DeviceProblem> {
    let count = (!(1..=MAX_BINDING_CONDITIONS).contains(&conditions.len())).then(|| DeviceProblem {
        field: field.to_owned(),
        reason: format!("{} of them; there must be 1 to {MAX_BINDING_CONDITIONS} of each kind", conditions.len()),
    });
    let each = conditions.iter().enumerate().filter_map(|(at, condition)| {
        let reason = if LabelKey::new(condition).is_err() {
            "is no condition type; write it like a label's key, such as example.com/Attached"
        } else if conditions.iter().take(at).any(|earlier| earlier == condition) {
            "is there twice"
        } else if others.contains(condition) {
            "is among the other conditions as well; it cannot mean both"
        } else {
            return None;
        };
        Some(DeviceProblem { field: format!("{field}[{at}]"), reason: format!("{condition:?} {reason}") })
    });
    count.into_iter().chain(each).collect()
}

/// Faults in the node's resources that a device stands for.
pub(super) fn node_allocatable_problems(
    resources: &BTreeMap<String, NodeAllocatable>,
    capacities: &Capacities,
) -> Vec<DeviceProblem> {
    let problem = |(name, amount): (&String, &NodeAllocatable)| {
        let reason = resource_problem(name).or_else(|| amount_problem(amount, capacities))?;
        Some(DeviceProblem { field: format!("node_allocatable.{name}"), reason })
    };
    resources.iter().filter_map(problem).collect()
}

fn resource_problem(name: &str) -> Option<String> {
    let is_page = |size: &str| size.parse::<Quantity>().is_ok_and(|size| size.as_whole().is_some_and(|size| size > 0));
    let known = NODE_RESOURCES.contains(&name) || name.strip_prefix(HUGE_PAGES).is_some_and(is_page);
    (!known)
        .then(|| format!("no node accounts for it by itself; write {}, or {HUGE_PAGES}2Mi", NODE_RESOURCES.join(", ")))
}

fn amount_problem(amount: &NodeAllocatable, capacities: &Capacities) -> Option<String> {
    let amount = match amount {
        NodeAllocatable::PerCapacity { capacity, .. } if capacities.get(capacity).is_none() => {
            return Some(format!("the device has no capacity {capacity}"));
        }
        NodeAllocatable::PerCapacity { factor, .. } => factor,
        NodeAllocatable::PerDevice(amount) => amount,
    };
    amount.is_zero().then(|| format!("{amount} stands for nothing; write more than 0, or leave it out"))
}
