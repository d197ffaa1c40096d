//! Quotas of namespaces on claims and on devices of a class. They take no part in plans: a promise of devices counts
//! them before.

use std::collections::BTreeMap;

use hostler_api::{
    ObjectKey,
    core::ResourceQuota,
    resource::{DeviceAllocationMode, ResourceClaimSpec},
};

use super::ClusterFacts;
use crate::plan::PodSet;

/// The end of a quota's name, after the class.
pub const QUOTA_OF_DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// The quota of claims.
pub const QUOTA_OF_CLAIMS: &str = "count/resourceclaims.resource.k8s.io";
/// The devices that a request for all of them counts for: the most results that an allocation has.
const ALL_DEVICES: u64 = 32;

/// Claims and devices of classes, under the names of quotas.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct QuotaAmounts(BTreeMap<String, u64>);

impl QuotaAmounts {
    /// Counts a claim as the API server does: of each class the greatest count among several alternatives.
    pub fn of_claim(spec: &ResourceClaimSpec) -> Self {
        let mut all = Self(BTreeMap::from([(QUOTA_OF_CLAIMS.to_owned(), 1)]));
        for request in &spec.devices.requests {
            let exactly = request.exactly.iter().map(|it| (&it.device_class_name, &it.allocation_mode, it.count));
            let alternatives =
                request.first_available.iter().map(|it| (&it.device_class_name, &it.allocation_mode, it.count));
            let mut most: BTreeMap<&str, u64> = BTreeMap::new();
            for (class, mode, count) in exactly.chain(alternatives) {
                let count = u64::try_from(count.unwrap_or(1)).unwrap_or_default();
                let count = if *mode == DeviceAllocationMode::All { ALL_DEVICES } else { count };
                let known = most.entry(class).or_default();
                *known = (*known).max(count);
            }
            most.into_iter().for_each(|(class, count)| all.add_devices(class, count));
        }
        all
    }

    /// Adds devices of a class.
    pub fn add_devices(&mut self, class: &str, count: u64) {
        self.add_amount(&format!("{class}{QUOTA_OF_DEVICES}"), count);
    }

    /// Adds claims.
    pub fn add_claims(&mut self, count: u64) {
        self.add_amount(QUOTA_OF_CLAIMS, count);
    }

    /// Adds other amounts, `times` times.
    pub fn add(&mut self, others: &Self, times: u64) {
        others.0.iter().for_each(|(name, count)| self.add_amount(name, count.saturating_mul(times)));
    }

    fn add_amount(&mut self, name: &str, count: u64) {
        let known = self.0.entry(name.to_owned()).or_default();
        *known = known.saturating_add(count);
    }

    fn subtract(&mut self, others: &Self) {
        for (name, count) in &others.0 {
            let known = self.0.entry(name.clone()).or_default();
            *known = known.saturating_sub(*count);
        }
    }

    fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }
}

impl ClusterFacts {
    /// Adds a quota, or takes news of it. One with scopes counts pods alone.
    pub fn add_quota(&mut self, key: ObjectKey, quota: &ResourceQuota) {
        let is_ours = |name: &str| name.ends_with(QUOTA_OF_DEVICES) || name == QUOTA_OF_CLAIMS;
        let is_scoped = !quota.spec.scopes.is_empty() || quota.spec.scope_selector.is_some();
        let hard = quota.spec.hard.iter().filter(|(name, _)| is_ours(name) && !is_scoped);
        let hard: BTreeMap<String, u64> =
            hard.filter_map(|(name, hard)| Some((name.clone(), u64::try_from(hard.as_integer()?).ok()?))).collect();
        if hard.is_empty() {
            self.remove_quota(&key);
        } else if self.quotas.get(&key) != Some(&hard) {
            self.quotas.insert(key, hard);
            self.changes.other();
            self.changes.gained();
        }
    }

    /// Forgets a quota.
    pub fn remove_quota(&mut self, key: &ObjectKey) {
        if self.quotas.remove(key).is_some() {
            self.changes.other();
            self.changes.gained();
        }
    }

    /// Amounts of the claims that are made for pods; claims that pods name are there already.
    pub fn quota_amounts(&self, sets: &[PodSet]) -> QuotaAmounts {
        let mut all = QuotaAmounts::default();
        for set in sets {
            for claim in &set.spec.resource_claims {
                let template = claim.resource_claim_template_name.as_deref();
                let key = template.map(|name| ObjectKey::new(&set.namespace, name));
                if let Some(spec) = key.and_then(|key| self.templates.get(&key)) {
                    all.add(&QuotaAmounts::of_claim(spec), set.count.into());
                }
            }
        }
        all
    }

    /// The quotas beside the use of their namespaces. Looks at all claims once.
    pub fn quota_book(&self) -> QuotaBook<'_> {
        let mut used: BTreeMap<&str, QuotaAmounts> =
            self.quotas.keys().map(|key| (&*key.namespace, QuotaAmounts::default())).collect();
        let mut of_spec: BTreeMap<u32, QuotaAmounts> = BTreeMap::new();
        if !used.is_empty() {
            // A claim that stands for a promise has a space in its name, which no object has.
            let given = self.claims.iter().filter(|(key, claim)| claim.allocation.is_some() && !key.name.contains(' '));
            for (key, claim) in given {
                let Some(used) = used.get_mut(&*key.namespace) else { continue };
                let amounts = of_spec.entry(claim.spec);
                used.add(amounts.or_insert_with(|| QuotaAmounts::of_claim(&claim.spec(&self.store.texts))), 1);
            }
        }
        QuotaBook { facts: self, used }
    }
}

/// Quotas, and the use of their namespaces: claims that have devices. A claim without devices may be among those
/// asked for.
#[derive(Debug)]
pub struct QuotaBook<'a> {
    facts: &'a ClusterFacts,
    used: BTreeMap<&'a str, QuotaAmounts>,
}

impl QuotaBook<'_> {
    /// Names the first quota of a namespace that leaves no room for the amounts `asked` beside those used and
    /// promised. Claims that are `leaving` do not count.
    pub fn problem<'k>(
        &self,
        namespace: &str,
        promised: &QuotaAmounts,
        asked: &QuotaAmounts,
        leaving: impl Iterator<Item = &'k ObjectKey>,
    ) -> Option<String> {
        let namespace = ObjectKey::new(namespace, "").namespace;
        let mut used = self.used.get(&*namespace)?.clone();
        let claims = &self.facts.claims;
        for claim in leaving.filter(|key| key.namespace == namespace).filter_map(|key| claims.get(key)) {
            if claim.allocation.is_some() {
                used.subtract(&QuotaAmounts::of_claim(&claim.spec(&self.facts.store.texts)));
            }
        }
        let exceeds = |name: &str, hard: u64| {
            let asks = asked.of(name);
            asks > 0 && used.of(name).saturating_add(promised.of(name)).saturating_add(asks) > hard
        };
        let quotas = self.facts.quotas.iter().filter(|(key, _)| key.namespace == namespace);
        quotas.into_iter().find_map(|(key, hard)| {
            let (name, hard) = hard.iter().find(|(name, hard)| exceeds(name, **hard))?;
            let [used, promised, asked] = [&used, promised, asked].map(|it| it.of(name));
            Some(format!(
                "ResourceQuota {key} leaves no room: {name} has hard {hard}, used {used}, promised to others {promised}, \
                 and {asked} are asked for"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn quota(spec: &Value) -> ResourceQuota {
        serde_json::from_value(json!({"metadata": {"name": "q", "namespace": "team"}, "spec": spec})).unwrap()
    }

    fn amounts(requests: &Value) -> QuotaAmounts {
        QuotaAmounts::of_claim(&serde_json::from_value(json!({"devices": {"requests": requests}})).unwrap())
    }

    const CARDS: &str = "card.deviceclass.resource.k8s.io/devices";

    #[test]
    fn a_claim_counts_as_the_api_server_counts_it() {
        let exactly = json!([
            {"name": "a", "exactly": {"deviceClassName": "card", "count": 3}},
            {"name": "b", "exactly": {"deviceClassName": "card"}},
            {"name": "c", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
        ]);
        let counted = amounts(&exactly);
        assert_eq!(
            [CARDS, "nic.deviceclass.resource.k8s.io/devices", QUOTA_OF_CLAIMS].map(|it| counted.of(it)),
            [4, 32, 1]
        );
        let one_of = json!([{"name": "a", "firstAvailable": [
            {"name": "x", "deviceClassName": "card", "count": 2}, {"name": "y", "deviceClassName": "card", "count": 5},
        ]}]);
        assert_eq!(amounts(&one_of).of(CARDS), 5);
    }

    #[test]
    fn what_is_used_promised_and_asked_for_together_is_within_the_quota() {
        let mut facts = ClusterFacts::default();
        let key = ObjectKey::new("team", "q");
        facts.add_quota(key.clone(), &quota(&json!({"hard": {CARDS: "4", "requests.cpu": "500m"}})));
        let one = amounts(&json!([{"name": "a", "exactly": {"deviceClassName": "card"}}]));
        let times = |count: u64| {
            let mut all = QuotaAmounts::default();
            all.add(&one, count);
            all
        };
        for (name, results) in
            [("has", json!([{"request": "a", "driver": "d", "pool": "p", "device": "x"}])), ("waits", Value::Null)]
        {
            let allocation = if results.is_null() { Value::Null } else { json!({"devices": {"results": results}}) };
            let claim = json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "team"},
                "spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "card"}}]}},
                "status": {"allocation": allocation},
            });
            facts.add_claim(&serde_json::from_value(claim).unwrap());
        }
        let problem = |facts: &ClusterFacts, promised, asked| {
            facts.quota_book().problem("team", &times(promised), &times(asked), std::iter::empty())
        };
        assert_eq!(problem(&facts, 1, 2), None);
        let why = problem(&facts, 2, 2).unwrap();
        for said in ["team/q", CARDS, "hard 4", "used 1", "others 2", "2 are asked"] {
            assert!(why.contains(said), "{why}");
        }
        let leaving = [ObjectKey::new("team", "has"), ObjectKey::new("team", "waits")];
        assert_eq!(facts.quota_book().problem("team", &times(2), &times(2), leaving.iter()), None);
        assert_eq!(facts.quota_book().problem("other", &times(2), &times(2), std::iter::empty()), None);
        // More may fit once it allows more.
        let gains = facts.gains();
        facts.add_quota(key.clone(), &quota(&json!({"hard": {CARDS: "5"}})));
        assert!(facts.gains() > gains && problem(&facts, 2, 2).is_none());
        facts.add_quota(key, &quota(&json!({"hard": {CARDS: "0"}, "scopes": ["BestEffort"]})));
        assert_eq!(problem(&facts, 2, 2), None, "it counts pods alone");
    }
}
