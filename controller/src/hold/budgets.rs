//! PodDisruptionBudgets, and how many of their pods may go now. Pods whose budgets allow it make room before others do,
//! as they do for kube-scheduler: an eviction against a budget waits, without a limit.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::ObjectKey;

use super::{
    context::{HoldContext, HoldEffect},
    objects::{OwnerPod, PodBudget},
    victims::{Victim, VictimBudget},
};

/// Time for which a list counts. Each eviction changes what is allowed.
const FRESH: Duration = Duration::from_secs(10);

impl PodBudget {
    fn is_about(&self, pod: &ObjectKey, known: &OwnerPod) -> bool {
        self.key.namespace == pod.namespace
            && !self.going.contains(&pod.name)
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&known.labels))
    }
}

/// Returns the budgets that count a pod.
pub(super) fn about(budgets: &[PodBudget], pod: &ObjectKey, known: &OwnerPod) -> Vec<VictimBudget> {
    let about = budgets.iter().filter(|budget| budget.is_about(pod, known));
    about.map(|budget| VictimBudget { key: budget.key.clone(), allowed: budget.allowed }).collect()
}

/// Evictions that budgets still allow once some pods have gone.
#[derive(Default)]
struct LeftOfBudgets<'a>(BTreeMap<&'a ObjectKey, u64>);

impl<'a> LeftOfBudgets<'a> {
    /// Returns true if a pod may go beside those before it, and counts it. A pod with several budgets never may: the
    /// API server evicts none.
    fn takes(&mut self, victim: &'a Victim) -> bool {
        match &victim.budgets[..] {
            [] => true,
            [budget] => {
                let left = self.0.entry(&budget.key).or_insert(budget.allowed);
                let is_allowed = *left > 0;
                *left = left.saturating_sub(1);
                is_allowed
            }
            _ => false,
        }
    }
}

/// Number of these pods whose eviction would be against their budgets, if all of them were evicted.
pub(super) fn violations(going: &[Victim]) -> usize {
    let mut left = LeftOfBudgets::default();
    going.iter().filter(|victim| !left.takes(victim)).count()
}

/// Sets of pods to choose from, the best first: pods that may all go; pods of which each may go, if no other one does;
/// and all. Each set contains the one before it.
pub(super) fn by_budgets(all: &[Victim]) -> Vec<Vec<Victim>> {
    let mut left = LeftOfBudgets::default();
    let together = all.iter().filter(|victim| left.takes(victim)).cloned().collect();
    let alone = all.iter().filter(|victim| LeftOfBudgets::default().takes(victim)).cloned().collect();
    let mut tries: Vec<Vec<Victim>> = vec![together, alone, all.to_vec()];
    tries.dedup_by_key(|victims| victims.len());
    tries
}

/// Returns all budgets; `None` while they are being listed. A controller whose role does not allow the list plans
/// without budgets.
pub(super) fn pod_budgets(cx: &mut HoldContext<'_>) -> Option<Vec<PodBudget>> {
    let known = cx.cluster.budgets.known(cx.now, FRESH);
    if known.is_none() {
        cx.push(HoldEffect::ListBudgets);
    }
    Some(known?.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use hostler_api::reservation::LabelSelector;

    use super::*;

    fn victim(name: &str, budgets: &[(&str, u64)]) -> Victim {
        let budget = |(name, allowed): &(&str, u64)| VictimBudget { key: ObjectKey::new("n", name), allowed: *allowed };
        let budgets = budgets.iter().map(budget).collect();
        Victim { pod: ObjectKey::new("n", name), claims: Vec::new(), priority: 0, budgets }
    }

    fn names(victims: &[Victim]) -> Vec<&str> {
        victims.iter().map(|it| &*it.pod.name).collect()
    }

    #[test]
    fn who_goes_against_a_budget_is_counted_pod_by_pod() {
        let [a, b, c] = ["a", "b", "c"].map(|name| victim(name, &[("two", 2)]));
        let (free, none, several) =
            (victim("f", &[]), victim("o", &[("none", 0)]), victim("s", &[("two", 2), ("other", 9)]));
        assert_eq!(violations(&[a.clone(), b.clone(), free.clone()]), 0);
        assert_eq!(violations(&[a.clone(), b.clone(), c.clone(), none.clone()]), 2);
        assert_eq!(violations(std::slice::from_ref(&several)), 1, "the API server evicts no pod with several budgets");
        let all = [a, none, b, several, c, free];
        let tries = by_budgets(&all);
        assert_eq!(
            tries.iter().map(|it| names(it)).collect::<Vec<_>>(),
            [vec!["a", "b", "f"], vec!["a", "b", "c", "f"], vec!["a", "o", "b", "s", "c", "f"]]
        );
        assert_eq!(by_budgets(&all[5..]).len(), 1, "where no budget matters nothing is looked at twice");
    }

    #[test]
    fn a_budget_is_about_pods_of_its_namespace_with_its_labels() {
        let pod = |app: &str| OwnerPod { labels: [("app".to_owned(), app.to_owned())].into(), ..OwnerPod::default() };
        let selector = LabelSelector { match_labels: pod("web").labels, ..LabelSelector::default() };
        let budget = |selector: Option<LabelSelector>, going: &[&str]| PodBudget {
            key: ObjectKey::new("n", "careful"),
            selector,
            allowed: 1,
            going: going.iter().map(|it| (*it).to_owned()).collect(),
        };
        let about = |budget: PodBudget, namespace: &str, app: &str| {
            about(&[budget], &ObjectKey::new(namespace, "p"), &pod(app)).len()
        };
        let of_web = || budget(Some(selector.clone()), &["q"]);
        assert_eq!((about(of_web(), "n", "web"), about(of_web(), "n", "db"), about(of_web(), "m", "web")), (1, 0, 0));
        assert_eq!(
            about(budget(Some(LabelSelector::default()), &[]), "n", "db"),
            1,
            "one that says nothing is about all"
        );
        assert_eq!(about(budget(None, &[]), "n", "db"), 0);
        assert_eq!(about(budget(Some(selector.clone()), &["p"]), "n", "web"), 0, "it goes already, and is counted");
    }
}
