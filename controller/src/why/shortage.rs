//! Requests for which the cluster has no device to give: how many match, and who or what has each of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_allocator::plan::StockDevice;
use hostler_api::{fabric::of_fabric_pool, few, hardware::DeviceState, well_known::HELD_TAINT};

use super::{
    cause::{CauseKind, PodCause},
    claims::{ClaimRequest, ExplainedClaim},
    pod::ExplainedPod,
    world::WhyWorld,
};
use crate::{
    called,
    held::{KeptBy, KeptReservation},
    hold::DeviceKey,
    reservation_object::ReservationObject,
};

/// Returns the reason for which a claim cannot get its devices on any node, as far as the devices alone tell.
pub(super) fn shortage(world: &WhyWorld, pod: &ExplainedPod, claims: &[ExplainedClaim<'_>]) -> Option<PodCause> {
    if !world.may_read("resourceslices") || !world.may_read("deviceclasses") {
        return None;
    }
    let open = claims.iter().filter(|claim| claim.given().is_none());
    let requests = open.flat_map(|claim| claim.requests.iter().map(move |request| (claim, request)));
    // Of several ways each must fail before the request does; the planner's words tell of these.
    let mut requests = requests.filter(|(_, request)| !request.is_alternative);
    requests.find_map(|(claim, request)| RequestShortage { world, pod, claim, request }.cause())
}

/// A request that may have no devices.
struct RequestShortage<'a, 'w> {
    world: &'w WhyWorld,
    pod: &'a ExplainedPod,
    claim: &'a ExplainedClaim<'w>,
    request: &'a ClaimRequest,
}

impl RequestShortage<'_, '_> {
    fn cause(&self) -> Option<PodCause> {
        let request = self.request;
        let wanted = request.wanted.and_then(|it| usize::try_from(it).ok()).unwrap_or(1);
        let named = format!("request {} of its claim {}", request.name, self.claim.name);
        if request.of_class == 0 {
            return Some(self.class_empty(&named));
        }
        if request.devices.is_empty() {
            return Some(no_match(request, &named));
        }
        let (there, most) = (request.devices.len(), request.most_on_a_node(|_| true));
        if most < wanted {
            let reason =
                format!("{named} wants {wanted} devices of one node, and no node has more than {most} that match");
            let fix = format!("ask for fewer; {} devices match in the whole cluster", there);
            return Some(PodCause::new(CauseKind::TooFew, reason).with_fix(fix));
        }
        (request.most_on_a_node(|device| request.may_have(device)) < wanted).then(|| self.taken(&named, wanted))
    }

    fn class_empty(&self, named: &str) -> PodCause {
        let ClaimRequest { class, .. } = self.request;
        let reason = format!("no device of the cluster is of class {class}, which {named} asks for");
        let fix = format!(
            "{0} availability shows the devices by class; {0} node shows nodes whose daemon is silent or absent",
            called::program()
        );
        PodCause::new(CauseKind::ClassEmpty, reason).with_fix(fix)
    }

    /// Explains a request whose devices others have, or which are out of service.
    fn taken(&self, named: &str, wanted: usize) -> PodCause {
        let request = self.request;
        let not_tolerated = self.kept_for_the_pod();
        if let Some(reservation) = not_tolerated {
            return self.not_tolerated(named, reservation);
        }
        let counts = [
            (DeviceState::Allocated, CauseKind::Allocated),
            (DeviceState::Held, CauseKind::Kept),
            (DeviceState::Drained, CauseKind::Drained),
            (DeviceState::Unhealthy, CauseKind::Unhealthy),
            (DeviceState::Unknown, CauseKind::Unknown),
            (DeviceState::Blocked, CauseKind::Unavailable),
        ];
        let there = counts.map(|(state, cause)| (state, cause, self.withheld(state)));
        let mut there: Vec<_> = there.into_iter().filter(|(.., devices)| !devices.is_empty()).collect();
        there.sort_by_key(|(.., devices)| std::cmp::Reverse(devices.len()));
        let words: Vec<String> = there.iter().map(|(state, _, devices)| self.words(*state, devices)).collect();
        let wants = if wanted == 1 { "1 device".to_owned() } else { format!("{wanted} devices of one node") };
        let matching = request.devices.len();
        let matches = if matching == 1 { "matches" } else { "match" };
        let reason = format!("{named} wants {wants}, and {matching} {matches}: {}", words.join(", "));
        let cause = match &there[..] {
            [(_, cause, _)] => *cause,
            _ => CauseKind::Unavailable,
        };
        let fixes: BTreeSet<&'static str> = there.iter().map(|(state, ..)| fix(*state)).collect();
        let fixes: Vec<&str> = fixes.into_iter().collect();
        PodCause::new(cause, reason).with_fix(format!("{}: {} node shows them", fixes.join("; or "), called::program()))
    }

    /// Returns the devices in a state in which the request cannot have them.
    fn withheld(&self, state: DeviceState) -> Vec<&StockDevice> {
        let is_it = |device: &&StockDevice| device.state == state && !self.request.may_have(device);
        self.request.devices.iter().filter(is_it).collect()
    }

    fn words(&self, state: DeviceState, devices: &[&StockDevice]) -> String {
        let count = devices.len();
        let are = if count == 1 { "is" } else { "are" };
        match state {
            DeviceState::Allocated => format!("{count} {are} allocated to {}", few(holders(devices))),
            DeviceState::Held => format!("{count} {are} kept by {}", few(self.keepers(devices))),
            DeviceState::Drained => format!("{count} {are} drained ({})", few(nodes(devices))),
            DeviceState::Unhealthy => format!("{count} {are} unhealthy ({})", few(nodes(devices))),
            DeviceState::Unknown => format!("of {count} nothing is known ({})", few(nodes(devices))),
            DeviceState::Blocked if devices.iter().all(|device| of_fabric_pool(&device.pool).is_some()) => {
                format!("{count} {are} behind a switch and being attached or given back")
            }
            DeviceState::Blocked | DeviceState::Free => {
                format!("{count} {are} blocked by what others have of the same card")
            }
        }
    }

    /// Names the Reservations that keep devices, with their owners.
    fn keepers(&self, devices: &[&StockDevice]) -> Vec<String> {
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        for device in devices {
            match self.keeper(device) {
                Some(it) => {
                    let KeptReservation { name, owners, lasts, .. } = KeptReservation::from(it);
                    names.insert(name.clone(), format!("Reservation {name} for {} ({lasts})", few(owners)));
                }
                None => drop(names.insert(String::new(), self.unknown_keeper(device))),
            }
        }
        names.into_values().collect()
    }

    fn unknown_keeper(&self, device: &StockDevice) -> String {
        let value = device.held_for.as_deref().unwrap_or_default();
        match self.world.may_read("reservations") {
            true => format!("a Reservation that is gone ({HELD_TAINT}={value})"),
            false => "a Reservation that you may not read".to_owned(),
        }
    }

    fn keeper(&self, device: &StockDevice) -> Option<&ReservationObject> {
        let key = DeviceKey::new(&device.kind.driver, &device.pool, &device.name);
        KeptBy::new(&self.world.manifests.reservations).of_device(device.held_for.as_deref()?, &key)
    }

    /// Returns a Reservation that keeps matching devices for this very pod.
    fn kept_for_the_pod(&self) -> Option<&ReservationObject> {
        let keepers = self.withheld(DeviceState::Held).into_iter().filter_map(|device| self.keeper(device));
        let is_owner = |it: &&ReservationObject| {
            self.pod.as_candidate(|candidate| it.spec.owners.iter().any(|owner| owner.matches(candidate)))
        };
        keepers.into_iter().find(is_owner)
    }

    fn not_tolerated(&self, named: &str, reservation: &ReservationObject) -> PodCause {
        let value = reservation.status.toleration_value.clone().unwrap_or_default();
        let reason = format!(
            "Reservation {} keeps devices for it, and {named} does not tolerate {HELD_TAINT}={value}",
            reservation.name
        );
        let fix = format!(
            "add the toleration {{key: {HELD_TAINT}, value: \"{value}\"}} to the request, or switch on the webhook, which \
             adds it to claims that are made from then on"
        );
        PodCause::new(CauseKind::NotTolerated, reason).with_fix(fix)
    }
}

fn no_match(request: &ClaimRequest, named: &str) -> PodCause {
    let ClaimRequest { class, of_class, .. } = request;
    let (devices, none) = if *of_class == 1 { ("1 device", "it does not match") } else { ("devices", "none matches") };
    let count = if *of_class == 1 { String::new() } else { format!("{of_class} ") };
    let reason = format!("the cluster has {count}{devices} of class {class}, and {none} the selectors of {named}");
    let fix =
        "change the selectors of the request: kubectl get resourceslices -o yaml shows the attributes of all devices";
    PodCause::new(CauseKind::NoMatch, reason).with_fix(fix)
}

/// Names the pods that have devices, or the claims where no pod uses them.
fn holders(devices: &[&StockDevice]) -> Vec<String> {
    let holder = |holder: &hostler_allocator::plan::DeviceHolder| match &holder.pods[..] {
        [] => format!("claim {}", holder.claim),
        pods => format!("pod {}/{}", holder.claim.namespace, pods[0]),
    };
    let names: BTreeSet<String> = devices.iter().flat_map(|device| &device.holders).map(holder).collect();
    names.into_iter().collect()
}

fn nodes(devices: &[&StockDevice]) -> Vec<String> {
    let name =
        |device: &&StockDevice| device.node.as_ref().map_or("of no single node", |name: &Arc<str>| &**name).to_owned();
    let names: BTreeSet<String> = devices.iter().map(name).collect();
    names.into_iter().collect()
}

fn fix(state: DeviceState) -> &'static str {
    match state {
        DeviceState::Allocated | DeviceState::Blocked | DeviceState::Free => {
            "wait until a holder has ended, or delete one"
        }
        DeviceState::Held => "wait until the Reservation ends, or delete it",
        DeviceState::Drained => {
            "put the devices back into service (hostler device undrain on the node, or delete the DeviceTaintRule)"
        }
        DeviceState::Unhealthy => "repair the devices",
        DeviceState::Unknown => "bring the node's daemon back (kubectl get pods -n hostler-system -o wide)",
    }
}
