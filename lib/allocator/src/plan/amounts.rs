//! CPU, memory and whatever else nodes have in amounts, counted as the scheduler counts: CPU in thousandths,
//! everything else in whole units, rounded up.

use std::collections::BTreeMap;

use hostler_api::core::ResourceList;

/// The resource that every pod takes one of.
pub(super) const PODS: &str = "pods";
const CPU: &str = "cpu";

/// Amounts by resource.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Amounts(BTreeMap<Box<str>, i64>);

impl Amounts {
    pub(super) fn of(list: &ResourceList) -> Self {
        Self(list.iter().map(|(name, amount)| (name.as_str().into(), counted(name, *amount))).collect())
    }

    /// Amounts that a pod sets aside: its requests, and one of the node's places for pods.
    pub(super) fn of_pod(requests: &ResourceList) -> Self {
        let mut amounts = Self::of(requests);
        amounts.0.insert(PODS.into(), 1);
        amounts
    }

    pub(super) fn get(&self, resource: &str) -> i64 {
        self.0.get(resource).copied().unwrap_or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (&**name, *amount))
    }

    /// Adds `other`, `times` times.
    pub(super) fn add(&mut self, other: &Self, times: i64) {
        for (name, amount) in &other.0 {
            let more = amount.saturating_mul(times);
            match self.0.get_mut(name) {
                Some(sum) => *sum = sum.saturating_add(more),
                None => drop(self.0.insert(name.clone(), more)),
            }
        }
    }

    /// Returns how often `asked` fits into `self` with `used` taken.
    pub(super) fn fits(&self, used: &Self, asked: &Self) -> i64 {
        asked.iter().map(|(name, asked)| self.fits_of(used, name, asked)).min().unwrap_or(i64::MAX)
    }

    /// Returns the first resource of which `asked` is not free, in the order in which the scheduler looks at them.
    pub(super) fn lacking<'a>(&self, used: &Self, asked: &'a Self) -> Option<(&'a str, i64)> {
        let rank = |name: &str| [PODS, CPU, "memory", "ephemeral-storage"].iter().position(|first| *first == name);
        asked
            .iter()
            .filter(|(name, asked)| self.fits_of(used, name, *asked) < 1)
            .min_by_key(|(name, _)| (rank(name).unwrap_or(usize::MAX), *name))
    }

    fn fits_of(&self, used: &Self, name: &str, asked: i64) -> i64 {
        match self.0.get(name) {
            _ if asked <= 0 => i64::MAX,
            // A file that says nothing of pods means no limit; a kubelet always tells one.
            None if name == PODS => i64::MAX,
            there => (there.copied().unwrap_or_default() - used.get(name)).max(0) / asked,
        }
    }
}

/// An amount as people write it.
pub(super) fn shown(resource: &str, amount: i64) -> String {
    match resource {
        CPU if amount % 1000 != 0 => format!("{amount}m"),
        CPU => (amount / 1000).to_string(),
        PODS => amount.to_string(),
        _ => binary(amount),
    }
}

fn binary(amount: i64) -> String {
    let units = [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let fitting = units.into_iter().find(|(_, shift)| amount > 0 && amount.trailing_zeros() >= *shift);
    fitting.map_or_else(|| amount.to_string(), |(unit, shift)| format!("{}{unit}", amount >> shift))
}

fn counted(resource: &str, amount: hostler_api::ExactQuantity) -> i64 {
    if resource == CPU { amount.rounded_milli() } else { amount.rounded() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(list: &[(&str, &str)]) -> Amounts {
        Amounts::of(&list.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap())).collect())
    }

    #[test]
    fn the_scarcest_resource_says_how_often_a_pod_fits() {
        let node = amounts(&[("cpu", "8"), ("memory", "64Gi"), ("pods", "110")]);
        let used = amounts(&[("cpu", "500m"), ("memory", "1Gi")]);
        assert_eq!(node.fits(&used, &amounts(&[("cpu", "2"), ("memory", "1Gi")])), 3);
        assert_eq!(node.fits(&used, &amounts(&[("memory", "21Gi")])), 3);
        assert_eq!(node.fits(&used, &amounts(&[("cpu", "0")])), i64::MAX);
        assert_eq!(node.fits(&used, &amounts(&[("vendor.example/thing", "1")])), 0);
    }

    #[test]
    fn what_lacks_is_named_in_the_order_of_the_scheduler() {
        let node = amounts(&[("cpu", "1"), ("memory", "1Gi"), ("pods", "0")]);
        let none = Amounts::default();
        let pod = amounts(&[("cpu", "2"), ("memory", "2Gi"), ("pods", "1"), ("a.example/b", "1")]);
        assert_eq!(node.lacking(&none, &pod), Some(("pods", 1)));
        assert_eq!(node.lacking(&none, &amounts(&[("memory", "2Gi"), ("cpu", "2")])), Some(("cpu", 2000)));
        assert_eq!(
            node.lacking(&none, &amounts(&[("a.example/b", "1"), ("memory", "2Gi")])),
            Some(("memory", 2 << 30))
        );
        assert_eq!(node.lacking(&none, &amounts(&[("cpu", "1")])), None);
    }

    #[test]
    fn a_node_that_does_not_count_pods_takes_any_number() {
        assert_eq!(amounts(&[("cpu", "1")]).fits(&Amounts::default(), &amounts(&[("pods", "1")])), i64::MAX);
    }

    #[test]
    fn amounts_are_shown_as_people_write_them() {
        assert_eq!(shown("cpu", 1500), "1500m");
        assert_eq!(shown("cpu", 2000), "2");
        assert_eq!(shown("memory", 3 << 30), "3Gi");
        assert_eq!(shown("memory", 1000), "1000");
    }
}
