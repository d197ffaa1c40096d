//! Budgets that are about pods, and how many of these may go now. Pods whose budgets allow it make room before others do, as they do
//! for kube-scheduler: an eviction that a budget is against waits, for how long nobody knows.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::ObjectKey;

use super::{
    core::HoldCore,
    event::{HoldCommand, OwnerPod, PodBudget},
    victims::Victim,
};

/// For so long a list is believed. Each eviction changes what is allowed.
const FRESH: Duration = Duration::from_secs(10);

/// A budget that is about a pod that may have to go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct VictimBudget {
    pub(super) key: ObjectKey,
    pub(super) allowed: u64,
}

impl PodBudget {
    fn is_about(&self, pod: &ObjectKey, known: &OwnerPod) -> bool {
        self.key.namespace == pod.namespace
            && !self.going.contains(&pod.name)
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&known.labels))
    }
}

/// The budgets that are about a pod.
pub(super) fn about(budgets: &[PodBudget], pod: &ObjectKey, known: &OwnerPod) -> Vec<VictimBudget> {
    let about = budgets.iter().filter(|budget| budget.is_about(pod, known));
    about.map(|budget| VictimBudget { key: budget.key.clone(), allowed: budget.allowed }).collect()
}

/// What budgets still allow when some of these have gone.
#[derive(Default)]
struct LeftOfBudgets<'a>(BTreeMap<&'a ObjectKey, u64>);

impl<'a> LeftOfBudgets<'a> {
    /// Whether a pod may go beside those before it; then it does. One that has several budgets never may: the API server evicts none.
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

/// How many of these pods would go against their budgets, if all of them went.
pub(super) fn violations(going: &[Victim]) -> usize {
    let mut left = LeftOfBudgets::default();
    going.iter().filter(|victim| !left.takes(victim)).count()
}

/// Whom to look among, the best first: those that may all go; those of whom each may go, if no other one does; and all. Each has those
/// before it among it, and more.
pub(super) fn by_budgets(all: &[Victim]) -> Vec<Vec<Victim>> {
    let mut left = LeftOfBudgets::default();
    let together = all.iter().filter(|victim| left.takes(victim)).cloned().collect();
    let alone = all.iter().filter(|victim| LeftOfBudgets::default().takes(victim)).cloned().collect();
    let mut tries: Vec<Vec<Victim>> = vec![together, alone, all.to_vec()];
    tries.dedup_by_key(|victims| victims.len());
    tries
}

impl HoldCore {
    /// What budgets there are; `None` while that is being asked for. Who may not know them goes without.
    pub(super) fn pod_budgets(&mut self) -> Option<Vec<PodBudget>> {
        let now = self.agenda.now;
        let Some(known) = self.budgets.known(now, FRESH) else {
            if self.budgets.asks() {
                self.commands.push(HoldCommand::ListBudgets);
            }
            return None;
        };
        Some(known.clone().unwrap_or_default())
    }

    pub(super) fn budgets_listed(&mut self, budgets: Result<Vec<PodBudget>, String>) {
        self.budgets.told(self.agenda.now, budgets);
        self.plan_soon();
    }
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
