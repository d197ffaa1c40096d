//! Chooses the Reservation whose devices a claim may get, and the changes of the claim that follow. Pure.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::plan::QUOTA_OF_DEVICES;
use hostler_api::{
    ObjectKey, Quantity,
    core::ResourceList,
    reservation::{CLAIM_RESERVATION, ReservationSpec, toleration_value},
    resource::ResourceClaimSpec,
};
use serde_json::{Value, json};

use super::{
    capacity::{capacity, class_of, for_one_pod, wanted},
    pod::WebhookPod,
    review::{GeneratedClaim, WebhookAnswer},
    rewrite::{HeldClaims, Rewrite, rewrite, tolerates_held},
    suited::{suited, together},
};
use crate::{
    hold::{OfferedReservation, ReservationOffer, open_reservations},
    reservation_affinity::{AffinityError, ReservationAffinity, ignores_reservations},
    reservation_object::ReservationObject,
    view::ClusterView,
};

/// Facts that are known when the API server calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct WebhookFacts<'a> {
    pub(super) view: &'a ClusterView,
    /// The driver whose daemons publish for each device the Reservation that keeps it.
    pub(super) own_driver: &'a str,
}

/// The Reservation that a pod uses.
#[derive(Debug, Default)]
struct WebhookChoice<'a> {
    /// The chosen Reservation, and then those that are for the same pods.
    reservations: Vec<&'a ReservationObject>,
    /// True if the chosen Reservation has room for the pod now.
    has_room: bool,
    /// Classes of which these Reservations keep devices, or lack some; true if selectors can tell the kept devices.
    classes: BTreeMap<String, bool>,
}

impl WebhookFacts<'_> {
    /// True if any Reservation keeps or asks for devices of a class of the claim: else the pod need not be read.
    pub(super) fn concern(&self, claim: &GeneratedClaim) -> bool {
        let wants = wanted(&spec_of(claim));
        let is_meant = |it: &ReservationObject| {
            let capacity = capacity(self.view, it);
            wants.keys().any(|name| capacity.contains_key(name))
        };
        let mut open = self.view.reservations.values().filter(|it| !it.status.phase.is_over());
        !tolerates_held(&claim.spec) && open.any(|it| is_meant(it))
    }

    /// Answers the question about a pod's claim.
    pub(super) fn answer(&self, claim: &GeneratedClaim, pod: &WebhookPod) -> WebhookAnswer {
        match self.chosen(claim, pod) {
            Ok(chosen) => self.led_to(claim, chosen),
            Err(error) => WebhookAnswer::warning(error.to_string()),
        }
    }

    /// Returns the Reservation that has room for the pod now, and the answer about the claim, if it changes the claim.
    pub(super) fn choice(
        &self,
        claim: &GeneratedClaim,
        pod: &WebhookPod,
    ) -> Option<(&ReservationObject, WebhookAnswer)> {
        let chosen = self.chosen(claim, pod).ok().filter(|it| it.has_room)?;
        let reservation = *chosen.reservations.first()?;
        let answer = self.led_to(claim, chosen);
        (!answer.patch.is_empty()).then_some((reservation, answer))
    }

    /// The Reservation that the pod uses, and those that are for the same pods; empty if there is none.
    fn chosen(&self, claim: &GeneratedClaim, pod: &WebhookPod) -> Result<WebhookChoice<'_>, AffinityError> {
        if ignores_reservations(&pod.owner) || tolerates_held(&claim.spec) {
            return Ok(WebhookChoice::default());
        }
        let affinity = ReservationAffinity::of(&pod.owner)?;
        let key = ObjectKey::new(&claim.namespace, &claim.pod.name);
        let wants = self.wants(claim, pod);
        let offer =
            ReservationOffer { pod: pod.owner.candidate(&key), tolerations: &affinity.tolerations, wants: &wants };
        let asked = all_amounts(&wants, pod.spec.requests());
        let is_exact = |it: &ReservationObject| {
            let kept = all_amounts(&for_one_pod(self.view, it), it.spec.place_requests());
            affinity.is_exactly(&asked, &kept, |_| true)
        };
        let suited = suited(self.view, pod, &offer.pod).into_iter();
        let suited = suited.filter(|it| affinity.wants(it, self.view) && is_exact(it));
        let offered =
            suited.map(|reservation| OfferedReservation { reservation, capacity: capacity(self.view, reservation) });
        let open = open_reservations(offered, &offer);
        let has_room = open.first().is_some_and(|first| first.has_room(&offer));
        let chosen = together(&open);
        let classes = self.classes(&chosen);
        Ok(WebhookChoice { reservations: chosen.iter().map(|it| it.reservation).collect(), has_room, classes })
    }

    /// Sums all that the pod asks for, under the names of quotas: a pod uses one Reservation, with all its claims.
    fn wants(&self, claim: &GeneratedClaim, pod: &WebhookPod) -> BTreeMap<String, Quantity> {
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

    fn led_to(&self, claim: &GeneratedClaim, chosen: WebhookChoice<'_>) -> WebhookAnswer {
        let WebhookChoice { reservations, has_room, classes } = chosen;
        let Some(reservation) = reservations.first() else { return WebhookAnswer::default() };
        let held_claims = HeldClaims {
            values: reservations.iter().map(|it| value_of(it)).collect(),
            policy: reservation.spec.allocate_policy.unwrap_or_default(),
            unrestricted: unrestricted(&reservation.spec, classes.keys()),
            has_room,
            classes,
            has_alternatives: has_alternatives(self.view),
        };
        let Rewrite { mut patch, warnings } = rewrite(&claim.spec, &held_claims);
        let name = &reservation.name;
        let warnings = warnings.into_iter().map(|it| format!("led to Reservation {name}: {it}")).collect();
        if !patch.is_empty() {
            let path = format!("/metadata/annotations/{}", CLAIM_RESERVATION.replace('~', "~0").replace('/', "~1"));
            let choice = json!({ "name": name, "uid": reservation.uid }).to_string();
            patch.push(json!({ "op": "add", "path": path, "value": choice }));
        }
        WebhookAnswer { patch, warnings }
    }

    fn classes(&self, chosen: &[&OfferedReservation<'_>]) -> BTreeMap<String, bool> {
        let mut classes = BTreeMap::new();
        let devices = chosen.iter().flat_map(|it| it.reservation.status.kept());
        for device in devices.filter(|it| !it.device_class_name.is_empty()) {
            *classes.entry(device.device_class_name.clone()).or_insert(true) &= device.driver == self.own_driver;
        }
        for one in chosen {
            // It is not known which Reservation will give the devices: an alternative that takes nothing does no harm
            // beside another one.
            for (name, class) in one.capacity.keys().filter_map(|name| Some((name, class_of(name)?))) {
                classes.entry(class.to_owned()).or_insert(!one.reservation.spec.restricts(name));
            }
        }
        classes
    }
}

/// Classes that a Restricted Reservation does not restrict.
fn unrestricted<'a>(spec: &ReservationSpec, classes: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    let is_open = |class: &&String| !spec.restricts(&format!("{class}{QUOTA_OF_DEVICES}"));
    classes.filter(is_open).cloned().collect()
}

/// Devices and other amounts in one list.
fn all_amounts(devices: &BTreeMap<String, Quantity>, mut amounts: ResourceList) -> ResourceList {
    amounts.extend(devices.iter().map(|(name, count)| (name.clone(), (*count).into())));
    amounts
}

/// The value that claims tolerate to get devices of a Reservation. It follows from the UID, so it is known before any
/// status.
pub(super) fn value_of(reservation: &ReservationObject) -> String {
    reservation.status.toleration_value.clone().unwrap_or_else(|| toleration_value(&reservation.uid))
}

/// True if the API server keeps alternatives: from 1.36 on always; before, a feature gate may drop them, and with them
/// the whole request.
fn has_alternatives(view: &ClusterView) -> bool {
    view.options.version >= hostler_api::KubernetesVersion::V1_36
}

/// Reads the claim's spec; a spec that cannot be read asks for nothing.
fn spec_of(claim: &GeneratedClaim) -> ResourceClaimSpec {
    serde_json::from_value::<ResourceClaimSpec>(Value::clone(&claim.spec)).unwrap_or_default()
}
