//! Which devices are kept for whom: what the scheduler would give a pod of the template, now.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::plan::{ClusterFacts, ObjectKey, Placement, PlanOptions, PodSet, SetPlan, Snapshot};
use hostler_api::{
    core::PodResourceClaim,
    few,
    reservation::{DeviceOwner, OwnerCandidate, ReservedDevice, ReservedDeviceState},
    resource::{DeviceToleration, ResourceClaimSpec},
    well_known::HELD_TAINT,
};

use super::{
    agenda::Topic,
    core::{HoldCore, device_key, owner_of},
    event::{AllocatedClaim, DeviceKey},
    seen::PodKnowledge,
    status::owners_of,
    taken::{add_taken, taken_by_reservations},
};

/// Pods whose devices may be kept while they have them, that are tried for one Reservation at a time.
const MOST_VICTIMS: usize = 16;

/// A Reservation that lacks devices.
struct HoldWish {
    name: String,
    replicas: Vec<u32>,
    set: PodSet,
    /// What its claims ask for, by what the pod calls them.
    specs: BTreeMap<String, ResourceClaimSpec>,
}

/// A pod that has devices, and what it has.
struct Victim {
    pod: ObjectKey,
    claims: Vec<AllocatedClaim>,
}

impl HoldCore {
    /// Chooses devices for everybody who lacks some.
    pub(super) fn plan(&mut self, facts: &ClusterFacts) {
        self.agenda.refreshed();
        let now = self.agenda.now;
        self.avoided.retain(|_, until| *until > now);
        let mut facts = facts.clone();
        let wishes = self.wishes(&mut facts);
        if wishes.is_empty() {
            return;
        }
        let mut taken = self.taken(&wishes);
        add_taken(&mut facts, &taken);
        let plans = self.plan_together(&facts, &wishes);
        for (wish, plan) in wishes.iter().zip(plans) {
            let found = self.found(wish, &plan, &taken);
            let found = found.or_else(|problem| self.found_with_victims(&mut facts, wish, &mut taken).ok_or(problem));
            self.decide(wish, found, &mut taken);
        }
    }

    fn decide(&mut self, wish: &HoldWish, found: Result<Vec<ReservedDevice>, String>, taken: &mut BTreeSet<DeviceKey>) {
        let Some(hold) = self.holds.get_mut(&wish.name) else { return };
        match found {
            Ok(devices) => {
                taken.extend(devices.iter().map(device_key));
                (hold.proposal, hold.problem) = (Some(devices), None);
            }
            Err(problem) => hold.problem = Some(problem),
        }
        self.agenda.now(Topic::Reservation(wish.name.clone()));
    }

    /// The oldest first.
    fn wishes(&mut self, facts: &mut ClusterFacts) -> Vec<HoldWish> {
        let is_waiting = |name: &&String| self.holds[*name].is_open() && self.holds[*name].proposal.is_none();
        let mut names: Vec<String> = self.holds.keys().filter(is_waiting).cloned().collect();
        names.sort_by_key(|name| (self.holds[name].object.created, name.clone()));
        names.into_iter().filter_map(|name| self.wish(name, facts)).collect()
    }

    fn wish(&mut self, name: String, facts: &mut ClusterFacts) -> Option<HoldWish> {
        let devices = self.look_at_devices(&name);
        let owners = owners_of(self, &name, &devices);
        let hold = self.holds.get(&name)?;
        let replicas = hold.lacking(&devices, &owners);
        let template = hold.object.spec.pod_template().ok().filter(|_| !replicas.is_empty())?;
        let namespace = ObjectKey::new(&template.metadata.namespace, "").namespace;
        let (mut spec, mut specs) = (template.spec, BTreeMap::new());
        for claim in &hold.object.spec.device_claims {
            specs.insert(claim.name.clone(), claim.spec.clone());
            spec.resource_claims.push(PodResourceClaim { name: claim.name.clone(), ..PodResourceClaim::default() });
        }
        for claim in &mut spec.resource_claims {
            let template = claim.resource_claim_template_name.as_deref().unwrap_or_default();
            let known = facts.template(&ObjectKey::new(&namespace, template)).map(|it| (**it).clone());
            let Some(asked) = specs.get(&claim.name).cloned().or(known) else { continue };
            // No object has a space in its name.
            let own = format!("{} of {name}", claim.name);
            facts.add_template(ObjectKey::new(&namespace, &own), tolerating(asked.clone(), &hold.value));
            claim.resource_claim_template_name = Some(own);
            specs.insert(claim.name.clone(), asked);
        }
        let count = u32::try_from(replicas.len()).unwrap_or(u32::MAX);
        let set = PodSet { name: name.clone(), namespace, count, spec };
        Some(HoldWish { name, replicas, set, specs })
    }

    /// What is promised to others, and what nobody can have for now. What one that lacks devices has already can be chosen again.
    fn taken(&self, wishes: &[HoldWish]) -> BTreeSet<DeviceKey> {
        let mut taken = taken_by_reservations(self.holds.values().map(|hold| &hold.object.status));
        for wish in wishes {
            let devices = self.holds.get(&wish.name).map(|hold| &hold.object.status.devices).into_iter().flatten();
            let own = devices.filter(|device| wish.replicas.contains(&device.replica)).map(device_key);
            let own: BTreeSet<DeviceKey> = own.collect();
            taken.retain(|key| !own.contains(key));
        }
        let proposed = self.holds.values().filter_map(|hold| hold.proposal.as_ref()).flatten();
        taken.extend(proposed.map(device_key));
        taken.extend(self.avoided.keys().cloned());
        // All of a shared device is kept or nothing: one of which somebody has a part is none.
        let is_shared = |key: &&DeviceKey| self.seen.device(key).is_some_and(|(_, device)| device.is_shareable);
        taken.extend(self.seen.taken().filter(is_shared).cloned());
        taken
    }

    fn options(&self) -> PlanOptions {
        PlanOptions { names_devices: true, ..self.settings.plan.clone() }
    }

    /// One plan for all; who does not fit as a whole leaves what it could have to the others.
    fn plan_together(&self, facts: &ClusterFacts, wishes: &[HoldWish]) -> Vec<SetPlan> {
        let snapshot = Snapshot::new(facts.clone());
        let mut answers: BTreeMap<usize, SetPlan> = BTreeMap::new();
        loop {
            let open: Vec<usize> = (0..wishes.len()).filter(|at| !answers.contains_key(at)).collect();
            let sets: Vec<PodSet> = open.iter().map(|at| wishes[*at].set.clone()).collect();
            let plans = snapshot.plan(&sets, &self.options()).sets;
            let is_partial = |set: &SetPlan| set.placed > 0 && set.placed < set.wanted;
            let has_partial = plans.iter().any(is_partial);
            let settled = open.into_iter().zip(plans).filter(|(_, set)| !has_partial || is_partial(set));
            answers.extend(settled);
            if !has_partial {
                return answers.into_values().collect();
            }
        }
    }

    /// The devices of a plan, if it has a place for all and all of them can be closed.
    fn found(
        &self,
        wish: &HoldWish,
        plan: &SetPlan,
        taken: &BTreeSet<DeviceKey>,
    ) -> Result<Vec<ReservedDevice>, String> {
        if plan.placed < plan.wanted {
            return Err(problem_of(plan));
        }
        let mut devices = BTreeMap::new();
        for device in plan.placements.iter().flat_map(|placement| reserved(wish, placement)) {
            // Parts of one device for several claims of the same Reservation are one device.
            devices.entry(device_key(&device)).or_insert(device);
        }
        for (key, device) in &devices {
            self.can_close(key, device)?;
            if taken.contains(key) {
                return Err(format!("{key} is promised to another Reservation"));
            }
        }
        let mut devices: Vec<ReservedDevice> = devices.into_values().collect();
        devices.sort_by_key(|device| (device.replica, device_key(device)));
        Ok(devices)
    }

    fn can_close(&self, key: &DeviceKey, device: &ReservedDevice) -> Result<(), String> {
        let is_own = key.driver == self.settings.own_driver;
        if !is_own && !self.settings.has_rules {
            return Err(format!(
                "{key} cannot be closed to others: it is of another driver, and the API server serves no DeviceTaintRules; \
                 turn on the feature gate DRADeviceTaintRules and its API"
            ));
        }
        if is_own && device.node_name.is_empty() {
            return Err(format!("{key} cannot be closed to others: it is on no single node"));
        }
        let Some((_, published)) = self.seen.device(key) else { return Err(format!("{key} is gone")) };
        if published.is_partition && !self.settings.holds_partitions {
            return Err(format!(
                "{key} cannot be closed to others: it is a part of a device, and schedulers would take the other parts for \
                 taken as well (kubernetes#140436)"
            ));
        }
        Ok(())
    }

    /// Devices that pods of the owners have, if it asks for that and nothing else is left.
    fn found_with_victims(
        &mut self,
        facts: &mut ClusterFacts,
        wish: &HoldWish,
        taken: &mut BTreeSet<DeviceKey>,
    ) -> Option<Vec<ReservedDevice>> {
        let spec = &self.holds.get(&wish.name)?.object.spec;
        if !spec.is_pre_allocation() {
            return None;
        }
        let takes_multiple = spec.takes_multiple();
        let victims = self.victims(&wish.name);
        add_taken(facts, taken);
        let tries: Vec<&[Victim]> = if takes_multiple {
            (1..=victims.len()).map(|count| &victims[..count]).collect()
        } else {
            victims.chunks(1).collect()
        };
        tries.into_iter().find_map(|chosen| self.found_without(facts, wish, chosen, taken))
    }

    /// Devices of a plan that takes what these pods have for free; all that is theirs goes with it.
    fn found_without(
        &self,
        facts: &ClusterFacts,
        wish: &HoldWish,
        victims: &[Victim],
        taken: &BTreeSet<DeviceKey>,
    ) -> Option<Vec<ReservedDevice>> {
        let mut facts = facts.clone();
        let claims = || victims.iter().flat_map(|victim| &victim.claims);
        claims().for_each(|claim| facts.remove_claim(&claim.key));
        let plan = Snapshot::new(facts).plan(std::slice::from_ref(&wish.set), &self.options());
        let mut devices = self.found(wish, plan.sets.first()?, taken).ok()?;
        for victim in victims {
            let has = |claim: &AllocatedClaim| devices.iter().any(|device| claim.devices.contains(&device_key(device)));
            if !victim.claims.iter().any(has) {
                continue;
            }
            for claim in &victim.claims {
                let owner = owner_of(claim, &victim.pod.name);
                for key in &claim.devices {
                    match devices.iter_mut().find(|device| device_key(device) == *key) {
                        Some(device) => device.owner = Some(owner.clone()),
                        None => devices.push(self.beside(key, &owner, wish.replicas[0])?),
                    }
                }
            }
        }
        Some(devices)
    }

    /// A device that goes with a pod whose other devices are kept.
    fn beside(&self, key: &DeviceKey, owner: &DeviceOwner, replica: u32) -> Option<ReservedDevice> {
        let (slice, _) = self.seen.device(key)?;
        let device = ReservedDevice {
            replica,
            driver: key.driver.clone(),
            pool: key.pool.clone(),
            device: key.device.clone(),
            node_name: slice.node.clone(),
            owner: Some(owner.clone()),
            ..ReservedDevice::default()
        };
        self.can_close(key, &device).ok().map(|()| device)
    }

    /// Pods of the owners that have devices, by name. Who is not known is asked for, and looked at another time.
    fn victims(&mut self, name: &str) -> Vec<Victim> {
        let mut found: BTreeMap<ObjectKey, Vec<AllocatedClaim>> = BTreeMap::new();
        let claims: Vec<AllocatedClaim> =
            self.seen.claims.values().filter(|it| !it.devices.is_empty()).cloned().collect();
        for claim in claims {
            // What several pods share does not get free with one of them.
            let [pod] = &claim.pods[..] else { continue };
            let key = ObjectKey::new(&claim.key.namespace, &pod.name);
            self.ask_for(&key);
            let Some(PodKnowledge::Known(Some(known))) = self.seen.pods.get(&key) else { continue };
            let candidate: OwnerCandidate<'_> = known.candidate(&key);
            if self.holds.get(name).is_some_and(|hold| hold.object.spec.is_owned_by(&candidate)) {
                found.entry(key.clone()).or_default().push(claim);
            }
        }
        found.into_iter().take(MOST_VICTIMS).map(|(pod, claims)| Victim { pod, claims }).collect()
    }
}

/// The devices of a plan on one node.
fn reserved(wish: &HoldWish, placement: &Placement) -> Vec<ReservedDevice> {
    let device = |device: &hostler_allocator::plan::PlacedDevice| ReservedDevice {
        replica: wish.replicas.get(device.pod as usize).copied().unwrap_or_default(),
        claim: device.claim.clone(),
        request: device.request.clone(),
        device_class_name: class_of(wish, &device.claim, &device.request),
        driver: device.driver.clone(),
        pool: device.pool.clone(),
        device: device.device.clone(),
        node_name: placement.node.clone(),
        state: ReservedDeviceState::Fencing,
        owner: None,
    };
    placement.devices.iter().map(device).collect()
}

/// The class that a request, or one of its alternatives, asks for.
fn class_of(wish: &HoldWish, claim: &str, request: &str) -> String {
    let (name, alternative) = request.split_once('/').unwrap_or((request, ""));
    let requests = wish.specs.get(claim).map(|spec| &spec.devices.requests).into_iter().flatten();
    let found = requests.into_iter().find(|request| request.name == name);
    let alternatives = found.map(|request| &request.first_available).into_iter().flatten();
    let exactly = found.and_then(|request| request.exactly.as_ref()).map(|it| it.device_class_name.clone());
    let of_alternative =
        alternatives.into_iter().find(|it| it.name == alternative).map(|it| it.device_class_name.clone());
    exactly.or(of_alternative).unwrap_or_default()
}

/// The same requests, which get what is closed with the value.
fn tolerating(mut spec: ResourceClaimSpec, value: &str) -> ResourceClaimSpec {
    let toleration =
        DeviceToleration { key: HELD_TAINT.to_owned(), value: value.to_owned(), ..DeviceToleration::default() };
    for request in &mut spec.devices.requests {
        request.exactly.iter_mut().for_each(|it| it.tolerations.push(toleration.clone()));
        request.first_available.iter_mut().for_each(|it| it.tolerations.push(toleration.clone()));
    }
    spec
}

/// Without numbers of nodes: what changes all the time would be written all the time.
fn problem_of(plan: &SetPlan) -> String {
    if let Some(problem) = &plan.problem {
        return problem.clone();
    }
    let reasons: BTreeSet<&str> = plan.refusals.iter().map(|refusal| &*refusal.reason).collect();
    let reasons: Vec<&str> = reasons.into_iter().collect();
    if reasons.is_empty() { "no node would take all of it".to_owned() } else { few(reasons) }
}
