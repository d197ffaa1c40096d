//! To which Reservation a claim is led, and what that makes of it. Pure.

use std::collections::BTreeMap;

use hostler_allocator::plan::ObjectKey;
use hostler_api::{
    Quantity,
    reservation::CLAIM_RESERVATION,
    resource::{DeviceAllocationMode, ResourceClaimSpec},
};
use serde_json::{Value, json};

use super::{
    affinity::{AffinityError, ReservationAffinity, ignores_reservations},
    pod::SteeredPod,
    review::{GeneratedClaim, SteerAnswer},
    rewrite::{Rewrite, Steering, rewrite, tolerates_held},
    suited::{suited, together},
};
use crate::{
    hold::{ReservationObject, ReservationOffer, open_reservations},
    view::ClusterView,
};

/// What is known when a claim comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SteerFacts<'a> {
    pub(super) view: &'a ClusterView,
    /// The driver whose daemons say of each device for whom it is kept.
    pub(super) own_driver: &'a str,
}

impl SteerFacts<'_> {
    /// Whether anything is kept that the claim could be led to, whosever it is: else nobody needs to be asked.
    pub(super) fn concern(&self, claim: &GeneratedClaim) -> bool {
        let wants = wanted(&spec_of(claim));
        let is_kept = |it: &ReservationObject| wants.keys().any(|name| it.status.allocatable.contains_key(name));
        !tolerates_held(&claim.spec) && self.view.reservations.values().any(|it| is_kept(it))
    }

    /// What becomes of the claim of a pod.
    pub(super) fn answer(&self, claim: &GeneratedClaim, pod: &SteeredPod) -> SteerAnswer {
        match self.chosen(claim, pod) {
            Ok(chosen) => self.led_to(claim, &chosen),
            Err(error) => SteerAnswer::warning(error.to_string()),
        }
    }

    /// The Reservation that the claim would be led to now, and what it would tolerate, if that changed anything: by name and value.
    pub(super) fn choice(&self, claim: &GeneratedClaim, pod: &SteeredPod) -> Option<(&str, &str)> {
        let chosen = self.chosen(claim, pod).ok()?;
        let reservation = *chosen.first()?;
        let value = reservation.status.toleration_value.as_deref()?;
        (!self.led_to(claim, &chosen).patch.is_empty()).then_some((&*reservation.name, value))
    }

    /// The Reservation that the pod is led to, and those that are for the same pods; nothing where there is none.
    fn chosen(&self, claim: &GeneratedClaim, pod: &SteeredPod) -> Result<Vec<&ReservationObject>, AffinityError> {
        if ignores_reservations(&pod.owner) || tolerates_held(&claim.spec) {
            return Ok(Vec::new());
        }
        let affinity = ReservationAffinity::of(&pod.owner)?;
        let key = ObjectKey::new(&claim.namespace, &claim.pod.name);
        let wants = self.wants(claim, pod);
        let offer =
            ReservationOffer { pod: pod.owner.candidate(&key), tolerations: &affinity.tolerations, wants: &wants };
        let suited = suited(self.view, pod, &offer.pod).into_iter();
        Ok(together(&open_reservations(suited.filter(|it| affinity.wants(it)), &offer)))
    }

    /// What the pod wants as a whole, under the names of quotas: a pod is led to one Reservation, with all its claims.
    fn wants(&self, claim: &GeneratedClaim, pod: &SteeredPod) -> BTreeMap<String, Quantity> {
        let mut wants = wanted(&spec_of(claim));
        let others = pod.spec.resource_claims.iter().filter(|it| it.name != claim.pod_claim);
        let templates = others.filter_map(|it| it.resource_claim_template_name.as_deref());
        for template in templates {
            let spec = self.view.facts.template(&ObjectKey::new(&claim.namespace, template));
            for (name, count) in spec.map(|spec| wanted(spec)).unwrap_or_default() {
                let sum: &mut Quantity = wants.entry(name).or_default();
                *sum = sum.plus(count);
            }
        }
        wants
    }

    fn led_to(&self, claim: &GeneratedClaim, chosen: &[&ReservationObject]) -> SteerAnswer {
        let values: Vec<String> = chosen.iter().filter_map(|it| it.status.toleration_value.clone()).collect();
        let Some(reservation) = chosen.first().filter(|_| !values.is_empty()) else { return SteerAnswer::default() };
        let steering = Steering {
            values,
            policy: reservation.spec.allocate_policy.unwrap_or_default(),
            classes: self.classes(chosen),
            has_alternatives: has_alternatives(self.view),
        };
        let Rewrite { mut patch, warnings } = rewrite(&claim.spec, &steering);
        let name = &reservation.name;
        let warnings = warnings.into_iter().map(|it| format!("led to Reservation {name}: {it}")).collect();
        if !patch.is_empty() {
            let path = format!("/metadata/annotations/{}", CLAIM_RESERVATION.replace('~', "~0").replace('/', "~1"));
            let choice = json!({ "name": name, "uid": reservation.uid }).to_string();
            patch.push(json!({ "op": "add", "path": path, "value": choice }));
        }
        SteerAnswer { patch, warnings }
    }

    fn classes(&self, chosen: &[&ReservationObject]) -> BTreeMap<String, bool> {
        let mut classes = BTreeMap::new();
        let devices = chosen.iter().flat_map(|it| it.status.kept());
        for device in devices.filter(|it| !it.device_class_name.is_empty()) {
            *classes.entry(device.device_class_name.clone()).or_insert(true) &= device.driver == self.own_driver;
        }
        classes
    }
}

/// Alternatives are in the API for good from 1.36 on; before, a feature gate may drop them, and with them the whole request.
fn has_alternatives(view: &ClusterView) -> bool {
    view.options.version >= hostler_allocator::structured::KubernetesVersion::V1_36
}

/// What cannot be read asks for nothing.
fn spec_of(claim: &GeneratedClaim) -> ResourceClaimSpec {
    serde_json::from_value::<ResourceClaimSpec>(Value::clone(&claim.spec)).unwrap_or_default()
}

/// How many devices of each class a claim wants, as quotas count them: of each class of several alternatives the most.
fn wanted(spec: &ResourceClaimSpec) -> BTreeMap<String, Quantity> {
    let mut all: BTreeMap<String, Quantity> = BTreeMap::new();
    for request in &spec.devices.requests {
        let exactly = request.exactly.iter().filter(|it| it.admin_access != Some(true));
        let exactly = exactly.map(|it| (&it.device_class_name, &it.allocation_mode, it.count));
        let alternatives =
            request.first_available.iter().map(|it| (&it.device_class_name, &it.allocation_mode, it.count));
        let mut most: BTreeMap<&String, u64> = BTreeMap::new();
        for (class, mode, count) in exactly.chain(alternatives) {
            // All that a node has: one at least.
            let count = if *mode == DeviceAllocationMode::All { 1 } else { count.unwrap_or(1) };
            let known = most.entry(class).or_default();
            *known = (*known).max(u64::try_from(count).unwrap_or_default());
        }
        for (class, count) in most {
            let sum = all.entry(format!("{class}.deviceclass.resource.k8s.io/devices")).or_default();
            *sum = sum.plus(Quantity::whole(count));
        }
    }
    all
}
