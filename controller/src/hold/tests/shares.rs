//! Parts of devices that several claims share: what must be true of them, and their scenarios.

use hostler_api::{
    Quantity,
    reservation::{ReservationPhase as Phase, ReservedDevice, ReservedDeviceState as State},
};
use serde_json::json;

use super::{
    cluster::key,
    server::Server,
    world::{DRIVER, World, settings, wants, wants_and, wants_part},
};
use crate::{
    claim_write::ClaimWrite,
    hold::{AllocatedClaim, DeviceKey, HoldSettings, HoldWrite},
};

fn key_of(device: &ReservedDevice) -> DeviceKey {
    DeviceKey::new(&device.driver, &device.pool, &device.device)
}

/// CPUs of a device that these claims have.
fn given<'a>(device: &DeviceKey, claims: impl Iterator<Item = &'a AllocatedClaim>) -> Quantity {
    let parts = claims.flat_map(|claim| &claim.parts).filter(|part| part.device == *device);
    parts.fold(Quantity::default(), |sum, part| sum.plus(part.amounts["cpus"]))
}

/// Parts that are kept and nobody has, of all Reservations.
fn kept(server: &Server) -> impl Iterator<Item = &ReservedDevice> {
    let open = server.reservations.values().filter(|object| !object.status.phase.is_over());
    open.flat_map(|object| &object.status.devices).filter(|device| device.is_part() && device.state == State::Held)
}

fn placeholders(server: &Server) -> impl Iterator<Item = &AllocatedClaim> {
    server.claims.values().filter(|claim| claim.placeholder.is_some())
}

impl World {
    fn cpus(&self, key: &DeviceKey) -> Option<Quantity> {
        let slice = self.server.slices.values().find(|slice| slice.pool == key.pool)?;
        slice.devices.iter().find(|device| device.name == key.device)?.capacity.get("cpus").copied()
    }

    /// What must be true of parts at every moment.
    pub(super) fn check_parts(&self) {
        let of_pods = || self.server.claims.values().filter(|claim| claim.placeholder.is_none());
        for key in of_pods().flat_map(|claim| &claim.parts).map(|part| &part.device) {
            let all = self.cpus(key);
            assert!(all.is_none_or(|all| given(key, of_pods()) <= all), "pods have more of {key} than there is");
        }
        for claim in placeholders(&self.server).filter(|claim| !claim.devices.is_empty()) {
            let is_protected = claim.placeholder.iter().any(|mark| !mark.finalizers.is_empty());
            assert!(is_protected, "{} has a part, and can go with it", claim.key);
        }
    }

    /// What must be true of parts once nothing more happens.
    pub(super) fn check_parts_at_rest(&self) {
        for part in kept(&self.server) {
            let (key, of_pods) =
                (key_of(part), self.server.claims.values().filter(|claim| claim.placeholder.is_none()));
            let promised = kept(&self.server).filter(|other| key_of(other) == key);
            let promised = promised.fold(Quantity::default(), |sum, part| sum.plus(part.consumed_capacity["cpus"]));
            let all = self.cpus(&key);
            assert!(all.is_none_or(|all| given(&key, of_pods).plus(promised) <= all), "{key} has not what is promised");
            let is_accounted =
                placeholders(&self.server).any(|claim| claim.parts.iter().any(|it| it.share_id == part.share_id));
            let is_closed = self
                .server
                .node_fences
                .values()
                .flat_map(|it| &it.fences)
                .any(|it| it.device == key.device && it.pool == key.pool);
            let is_closed = is_closed || self.server.rules.values().any(|rule| rule.device == key);
            assert!(is_accounted || is_closed, "{key} is open, and nothing stands for what is kept of it");
        }
        let known = self.server.reservations.values().filter(|object| !object.status.phase.is_over());
        let known: Vec<String> =
            known.flat_map(|object| &object.status.devices).map(|it| format!("hold-{}", it.share_id)).collect();
        for claim in placeholders(&self.server) {
            assert!(known.contains(&claim.key.name), "{} stands for nothing", claim.key);
        }
    }

    /// CPUs for which claims stand.
    fn accounted(&self) -> u64 {
        let key = DeviceKey::new(&self.server.slices["a"].driver, "a", "gpu-0");
        given(&key, placeholders(&self.server)).as_whole().unwrap()
    }
}

/// A node with one device of eight CPUs that claims share.
fn shared() -> World {
    let mut world = World::new(&[1]);
    world.share("a", "gpu-0", 8);
    world
}

#[test]
pub(super) fn a_part_is_kept_and_the_rest_of_the_device_is_for_everybody() {
    let mut world = shared();
    world.pod_of_part("before", "db", 2, "");
    assert!(world.schedule("before"));
    world.reserve("r", wants_part(3, "web", json!({})));
    world.settle_for(3);
    assert!(world.is_closed("a", "gpu-0"), "first it is closed");
    assert_eq!(world.accounted(), 0);
    world.settle();
    assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["a/gpu-0".into()]));
    let part = &world.get("r").status.devices[0];
    assert_eq!((part.consumed_capacity["cpus"], part.share_id.len()), (Quantity::whole(3), 36));
    assert_eq!((world.accounted(), world.is_closed("a", "gpu-0")), (3, false));
    world.check_rest();
    for (pod, cpus, expected) in [("large", 4, false), ("fits", 3, true), ("more", 1, false)] {
        world.pod_of_part(pod, "db", cpus, "");
        assert_eq!(world.schedule(pod), expected, "{pod}");
    }
    world.settle();
    assert_eq!(world.held("r").len(), 1);
    world.check_rest();
}

#[test]
pub(super) fn what_is_kept_of_a_device_is_written_while_it_is_closed_in_this_order() {
    let mut world = shared();
    world.reserve("r", wants_part(3, "web", json!({})));
    world.settle();
    let words: Vec<&str> = world
        .writes
        .iter()
        .map(|write| match write {
            HoldWrite::Finalizers(..) => "H0",
            HoldWrite::Status(_, status) if status.phase == Phase::Available => "H3",
            HoldWrite::Status(..) => "H1",
            HoldWrite::NodeFences { fences, .. } if !fences.is_empty() => "H2",
            HoldWrite::NodeFences { .. } => "K4",
            HoldWrite::Claim(write) => match &**write {
                ClaimWrite::Create(_) => "K1",
                ClaimWrite::Finalizers(..) => "K2",
                ClaimWrite::Status(..) => "K3",
                ClaimWrite::Delete(_) | ClaimWrite::Consumers(..) => "another",
            },
            _ => "another",
        })
        .collect();
    assert_eq!(words, ["H0", "H1", "H2", "H3", "K1", "K2", "K3", "K4"]);
}

#[test]
pub(super) fn an_owner_gets_the_part_and_nobody_else_in_between() {
    for is_once in [true, false] {
        let mut world = shared();
        world.reserve("r", wants_part(5, "web", json!({"allocateOnce": is_once})));
        world.settle();
        world.pod_of_part("stranger", "db", 3, "");
        assert!(world.schedule("stranger"));
        let value = world.value("r");
        world.pod_of_part("owner", "web", 5, &value);
        assert!(!world.schedule("owner"), "the claim stands for it");
        world.settle_for(3);
        assert_eq!((world.is_closed("a", "gpu-0"), world.accounted()), (true, 5), "closed, and given back only later");
        world.settle_for(10);
        assert_eq!((world.phase("r"), world.accounted()), (Phase::Available, 0));
        world.pod_of_part("thief", "db", 1, "");
        assert!(!world.schedule("thief"));
        assert!(world.schedule("owner"));
        world.settle();
        let expected = if is_once { Phase::Succeeded } else { Phase::Available };
        assert_eq!((world.phase("r"), world.devices("r", State::HandedOver).len()), (expected, usize::from(!is_once)));
        assert_eq!(placeholders(&world.server).count(), 0);
        assert_eq!(world.is_closed("a", "gpu-0"), !is_once);
        world.check_rest();
        world.end_pod("owner");
        world.settle();
        assert_eq!(world.held("r").len(), usize::from(!is_once));
        assert_eq!((world.accounted(), world.is_closed("a", "gpu-0")), (if is_once { 0 } else { 5 }, false));
        world.check_rest();
    }
}

#[test]
pub(super) fn an_owner_that_goes_before_it_has_the_part_leaves_it_as_it_was() {
    let mut world = shared();
    world.reserve("r", wants_part(5, "web", json!({})));
    world.settle();
    let value = world.value("r");
    world.pod_of_part("owner", "web", 5, &value);
    world.settle();
    assert_eq!((world.phase("r"), world.accounted()), (Phase::Available, 0), "given back to the owner");
    world.check_rest();
    world.end_pod("owner");
    world.settle();
    assert_eq!((world.phase("r"), world.accounted(), world.is_closed("a", "gpu-0")), (Phase::Available, 5, false));
    world.check_rest();
}

#[test]
pub(super) fn an_owner_that_gets_another_part_of_the_rest_frees_the_one_that_was_kept() {
    let mut world = shared();
    world.reserve("r", wants_part(2, "web", json!({})));
    world.settle();
    let value = world.value("r");
    world.pod_of_part("owner", "web", 2, &value);
    assert!(world.schedule("owner"), "there is room beside what is kept");
    world.settle();
    assert_eq!((world.phase("r"), world.accounted()), (Phase::Succeeded, 0));
    world.check_rest();
}

#[test]
pub(super) fn pods_of_owners_that_had_parts_before_have_not_what_is_kept() {
    let mut world = shared();
    world.pod_of_part("old", "web", 4, "");
    assert!(world.schedule("old"));
    world.reserve("r", wants_part(2, "web", json!({})));
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 1));
    world.check_rest();
}

#[test]
pub(super) fn parts_of_one_device_are_kept_for_several_replicas() {
    let mut world = shared();
    world.reserve("r", wants_part(2, "web", json!({"replicas": 3})));
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len(), world.accounted()), (Phase::Available, 3, 6));
    let value = world.value("r");
    world.pod_of_part("one", "web", 2, &value);
    world.settle();
    assert!(world.schedule("one"));
    world.settle();
    assert_eq!((world.held("r").len(), world.accounted()), (2, 4));
    world.check_rest();
    for pod in ["two", "three"] {
        world.pod_of_part(pod, "web", 2, &value);
        world.settle();
        assert!(world.schedule(pod), "{pod}");
        world.settle();
    }
    assert_eq!((world.phase("r"), world.accounted()), (Phase::Succeeded, 0));
    world.check_rest();
}

#[test]
pub(super) fn where_more_is_given_of_a_device_than_there_is_the_reservation_moves_and_it_stays_closed_until_then() {
    let mut world = World::new(&[1, 1]);
    world.share("a", "gpu-0", 8);
    world.pod_of_part("late", "db", 6, "");
    assert!(world.decide("late"), "before anything is closed");
    world.reserve("r", wants_part(4, "web", json!({})));
    world.settle();
    assert_eq!((world.phase("r"), world.accounted()), (Phase::Available, 4));
    assert!(world.bind("late"), "later than anybody expects");
    world.settle();
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Pending, "Lost"));
    let message = world.condition("r", "Ready").1;
    assert!(message.contains("default/late") && message.contains("part"), "{message}");
    assert!(world.is_closed("a", "gpu-0"), "nobody else gets anything of it");
    world.check_rest();
    world.share("b", "gpu-0", 4);
    world.settle();
    assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["b/gpu-0".into()]));
    assert_eq!((world.accounted(), world.is_closed("a", "gpu-0")), (0, false));
    world.check_rest();
}

#[test]
pub(super) fn a_part_that_was_lost_is_kept_again_once_it_is_free() {
    let mut world = shared();
    world.pod_of_part("late", "db", 6, "");
    assert!(world.decide("late"));
    world.reserve("r", wants_part(4, "web", json!({})));
    world.settle();
    assert!(world.bind("late"));
    world.settle();
    assert_eq!(world.reason("r"), "Lost");
    world.end_pod("late");
    world.settle();
    assert_eq!((world.phase("r"), world.accounted(), world.is_closed("a", "gpu-0")), (Phase::Available, 4, false));
    world.check_rest();
}

#[test]
pub(super) fn a_claim_that_stands_for_a_part_and_is_deleted_is_made_again() {
    let mut world = shared();
    world.reserve("r", wants_part(4, "web", json!({})));
    world.settle();
    let mut claim = placeholders(&world.server).next().unwrap().clone();
    claim.placeholder.as_mut().unwrap().is_deleting = true;
    world.server.put(claim);
    world.settle();
    assert_eq!((world.phase("r"), world.accounted(), world.is_closed("a", "gpu-0")), (Phase::Available, 4, false));
    world.check_rest();
}

#[test]
pub(super) fn what_stands_for_parts_goes_with_the_reservation() {
    for is_deleted in [true, false] {
        let mut world = shared();
        world.reserve("r", wants_part(4, "web", json!({"ttl": "5m"})));
        world.settle();
        assert_eq!(placeholders(&world.server).count(), 1);
        if is_deleted {
            world.server.delete_reservation("r");
        }
        world.settle_for(400);
        assert_eq!(placeholders(&world.server).count(), 0);
        assert_eq!(world.server.reservations.contains_key("r"), !is_deleted);
        world.check_rest();
    }
}

#[test]
pub(super) fn of_a_device_of_which_one_keeps_a_part_no_other_reservation_keeps_any() {
    let mut world = World::new(&[2]);
    world.share("a", "gpu-0", 8);
    world.share("a", "gpu-1", 8);
    for name in ["first", "second", "third"] {
        world.reserve(name, wants_part(2, "web", json!({})));
        world.settle();
    }
    assert_eq!((world.held("first"), world.held("second")), (vec!["a/gpu-0".into()], vec!["a/gpu-1".into()]));
    assert_eq!((world.phase("third"), world.reason("third")), (Phase::Pending, "Unschedulable"));
    world.reserve("whole", wants(1, "web"));
    world.settle();
    assert_eq!(world.phase("whole"), Phase::Pending, "nor all of it");
    world.check_rest();
}

#[test]
pub(super) fn where_no_claim_can_be_made_the_device_stays_closed_for_the_part() {
    let mut world = World::with(HoldSettings { namespace: None, ..settings() }, DRIVER, &[1]);
    world.share("a", "gpu-0", 8);
    world.reserve("r", wants_part(4, "web", json!({})));
    world.settle();
    assert_eq!((world.phase("r"), world.is_closed("a", "gpu-0")), (Phase::Available, true));
    let value = world.value("r");
    world.pod_of_part("owner", "web", 4, &value);
    assert!(world.schedule("owner"));
    world.settle();
    assert_eq!((world.phase("r"), world.has("owner")), (Phase::Succeeded, vec!["a/gpu-0".into()]));
    world.check_rest();
}

#[test]
pub(super) fn a_claim_of_somebody_else_with_the_name_of_ours_is_left_alone() {
    let mut world = shared();
    world.reserve("r", wants_part(4, "web", json!({})));
    world.settle_for(3);
    let name = format!("hold-{}", world.get("r").status.devices[0].share_id);
    let claim = hostler_api::ObjectKey::new("hostler-controller", &name);
    world.server.put(AllocatedClaim { key: claim.clone(), uid: "x".to_owned(), ..AllocatedClaim::default() });
    world.settle();
    assert_eq!((world.phase("r"), world.is_closed("a", "gpu-0")), (Phase::Available, true));
    assert_eq!(world.server.claims[&claim].uid, "x");
    assert!(!world.server.claims.contains_key(&key("r")));
}

#[test]
fn words_about_its_reservation_keep_nobody_waiting_for_the_rest_of_a_device() {
    let mut world = World::with(settings(), DRIVER, &[1]);
    world.share("a", "gpu-0", 8);
    world.reserve("p", wants_part(5, "web", json!({})));
    while !placeholders(&world.server).any(|claim| !claim.devices.is_empty()) {
        assert!(world.now.as_secs() < 1100, "no claim stands for the part");
        world.settle_for(1);
    }
    for _ in 0..8 {
        let object = world.get("p").clone();
        world.server.put(object);
        world.settle_for(1);
    }
    assert!(world.server.node_fences["a"].fences.is_empty(), "the device is still closed");
    world.check_rest();
}

/// API servers count claims of a namespace.
#[test]
fn what_is_kept_is_in_no_claim_of_its_owners() {
    let mut world = World::new(&[2, 1]);
    world.share("b", "gpu-0", 8);
    world.reserve("whole", wants(2, "web"));
    world.reserve("part", wants_part(3, "web", json!({})));
    world.settle();
    assert_eq!((world.phase("whole"), world.phase("part")), (Phase::Available, Phase::Available));
    let namespaces: Vec<&str> = world.server.claims.keys().map(|key| &*key.namespace).collect();
    assert_eq!(namespaces, ["hostler-controller"], "one claim, for the part");
    let of_owners = world.value("whole");
    world.pod("owner", "web", 2, &of_owners);
    assert_eq!(world.server.claims.keys().filter(|key| key.namespace == "default").count(), 1, "a pod's own counts");
}

#[test]
pub(super) fn a_part_that_was_lost_does_not_come_back_where_another_reservation_keeps_the_device() {
    let mut world = shared();
    // The daemon is silent, and for a while the device has less: both are promised it, one after the other, and lose it.
    world.daemons_down.insert("a".to_owned());
    world.reserve("older", wants_part(5, "web", json!({})));
    world.settle();
    world.share("a", "gpu-0", 4);
    world.reserve("younger", wants_part(4, "web", json!({})));
    world.settle_for(600);
    for name in ["older", "younger"] {
        assert_eq!(world.devices(name, State::Lost), ["a/gpu-0"], "{name}");
    }
    world.daemons_down.clear();
    world.share("a", "gpu-0", 8);
    world.settle();
    assert_eq!((world.phase("younger"), world.held("younger").len()), (Phase::Available, 1), "its value closes it");
    assert_eq!((world.phase("older"), world.devices("older", State::Lost)), (Phase::Pending, vec!["a/gpu-0".into()]));
    assert_eq!((world.accounted(), world.is_closed("a", "gpu-0")), (4, false), "the rest is for everybody");
    world.check_rest();
    world.server.delete_reservation("younger");
    world.settle();
    assert_eq!((world.phase("older"), world.accounted()), (Phase::Available, 5));
    world.check_rest();
}

#[test]
pub(super) fn a_device_that_is_shared_no_longer_is_not_kept_while_a_pod_has_a_part_of_it() {
    let mut world = shared();
    world.pod_of_part("before", "db", 4, "");
    assert!(world.schedule("before"));
    world.edit_device("a", "gpu-0", |device| (device.is_shareable, device.capacity) = Default::default());
    world.node("b", DRIVER, 1);
    world.pod("moved", "db", 1, "");
    assert!(world.schedule("moved"));
    assert_eq!(world.has("moved"), ["b/gpu-0"]);
    // The refusal of the older one says why no device will do. It must not say something else at times.
    world.reserve("older", wants_part(2, "job", json!({})));
    world.settle_for(1);
    let uid = world.server.pods[&key("moved")].is.uid.clone();
    let moved = json!({"namespace": "default", "name": "moved", "uid": uid});
    world.reserve("r", wants_and(1, "web", json!({"replaces": moved})));
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Pending, 0));
    world.check_rest();
    world.end_pod("before");
    world.settle();
    assert_eq!(world.held("r"), ["a/gpu-0"]);
    world.check_rest();
}
