//! Rights that roles give.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{list, texts};

/// A verb on a resource: `list pods`, `get resourceslices.resource.k8s.io`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct RoleRight {
    /// The verb.
    pub(crate) verb: String,
    /// The group; empty for the core one.
    pub(crate) group: String,
    /// The plural, or `plural/subresource`.
    pub(crate) resource: String,
    /// The name of the one object that the right is for; `None`: all objects.
    pub(crate) name: Option<String>,
}

/// Returns every right of a role.
pub(crate) fn rights(role: &Value) -> BTreeSet<RoleRight> {
    let mut all = BTreeSet::new();
    for rule in list(&role["rules"]) {
        let named: Vec<Option<String>> = texts(&rule["resourceNames"]).map(|name| Some(name.to_owned())).collect();
        let names = if named.is_empty() { vec![None] } else { named };
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    let [verb, group, resource] = [verb, group, resource].map(str::to_owned);
                    let right = |name: &Option<String>| RoleRight {
                        verb: verb.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        name: name.clone(),
                    };
                    all.extend(names.iter().map(right));
                }
            }
        }
    }
    all
}

impl RoleRight {
    /// True if this right includes another one. Names are not compared: some contain the driver, which installations
    /// may call otherwise.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let is_in = |own: &str, other: &str| own == "*" || own == other;
        is_in(&self.verb, &other.verb)
            && is_in(&self.group, &other.group)
            && is_in(&self.resource, &other.resource)
            && (self.name.is_none() || other.name.is_some())
    }

    /// Returns the right as people name it.
    pub(crate) fn words(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{} {}{dot}{}", self.verb, self.resource, self.group)
    }
}
