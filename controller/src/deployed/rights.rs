//! Rights that roles give.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{list, texts};

/// A verb on a resource: `list pods`, `get resourceslices.resource.k8s.io`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct RoleRight {
    verb: String,
    group: String,
    resource: String,
    /// True if the right is for objects of certain names.
    is_named: bool,
}

/// Returns every right of a role.
pub(crate) fn rights(role: &Value) -> BTreeSet<RoleRight> {
    let mut all = BTreeSet::new();
    for rule in list(&role["rules"]) {
        let is_named = list(&rule["resourceNames"]).next().is_some();
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                let right = |verb: &str| RoleRight {
                    verb: verb.to_owned(),
                    group: group.to_owned(),
                    resource: resource.to_owned(),
                    is_named,
                };
                all.extend(texts(&rule["verbs"]).map(right));
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
            && (!self.is_named || other.is_named)
    }

    /// Returns the right as people name it.
    pub(crate) fn words(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{} {}{dot}{}", self.verb, self.resource, self.group)
    }
}
