//! Places are kept, handed over and given back, whatever happens in between.

mod random;
pub(crate) mod world;

use hostler_api::{
    Quantity,
    reservation::{ReservationPhase as Phase, ReservedPlaceState as State},
};
use serde_json::{Value, json};

use self::world::{PlacesWorld, key};
use super::context::{PlacesStep, PlacesWrite};
use crate::testkit::Fate;

#[test]
fn a_place_is_kept_against_strangers_and_given_to_its_owner() {
    let mut world = PlacesWorld::new(&[4000], 0);
    world.reserve("r", "3", &json!({}));
    world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
    assert_eq!(world.state("r"), Some(State::Held));
    for stranger in 0..4 {
        world.pod(&format!("s{stranger}"), "", "2");
    }
    (0..20).for_each(|_| world.round());
    assert!((0..4).all(|stranger| world.node(&format!("s{stranger}")).is_none()), "a stranger is in the place");
    world.pod("p", "r", "3");
    let amounts = |world: &PlacesWorld| {
        let status = &world.reservation("r").unwrap().status;
        (status.allocatable.get("cpu").copied(), status.allocated.get("cpu").copied())
    };
    assert_eq!(amounts(&world), (Some(Quantity::whole(3)), None));
    world.until("the owner is bound", |world| world.node("p").is_some());
    world.until("the Reservation is over", |world| world.phase("r") == Some(Phase::Succeeded));
    world.until("nothing is left", |world| world.holders() == 0);
    world.until("its status is clear", |world| world.reservation("r").unwrap().status.places.is_empty());
    world.until("nothing keeps it", |world| world.reservation("r").unwrap().finalizers.is_empty());
    assert_eq!(world.reservation("r").unwrap().status.current_owners[0].name, "p");
}

#[test]
fn a_reservation_of_a_place_takes_five_writes_until_it_is_available() {
    let mut world = PlacesWorld::new(&[4000], 0);
    world.reserve("r", "3", &json!({}));
    world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
    // The finalizer and the phase are written by the part that keeps devices.
    assert_eq!(world.writes, ["status", "place_holder", "status"]);
    (0..40).for_each(|_| world.round());
    assert_eq!(world.writes.len(), 3, "a write at rest");
}

#[test]
fn a_thousand_places_take_one_write_each_and_a_few_for_all() {
    let mut world = PlacesWorld::new(&[1024], 0);
    world.reserve("r", "1m", &json!({"replicas": 1024}));
    world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
    let (made, others): (Vec<&str>, Vec<&str>) = world.writes.iter().partition(|what| **what == "place_holder");
    assert_eq!(made.len(), 1024);
    assert!(others.len() <= 20, "{others:?}");
}

#[test]
fn the_object_of_a_thousand_refused_places_fits_into_the_store() {
    let mut world = PlacesWorld::new(&[0], 0);
    world.reserve("r", "1m", &json!({"replicas": 1024}));
    world.until("all are asked for", |world| world.holders() == 1024);
    world.refuse_all(&"no node has the CPUs. ".repeat(100));
    let has_messages = |world: &PlacesWorld| {
        let places = &world.reservation("r").unwrap().status.places;
        places.len() == 1024 && places.iter().all(|place| place.message.starts_with("no node has the CPUs. no"))
    };
    world.until("the status says why", has_messages);
    let status = serde_json::to_vec(&world.reservation("r").unwrap().status).unwrap();
    // etcd takes 1.5 MB, and there are spec and managed fields as well.
    assert!(status.len() < 700_000, "{} bytes", status.len());
}

#[test]
fn owners_share_a_place_that_stays_and_its_rest_is_kept_all_the_time() {
    let mut world = PlacesWorld::new(&[3000], 0);
    world.reserve("r", "3", &json!({"allocateOnce": false}));
    world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
    for stranger in 0..4 {
        world.pod(&format!("s{stranger}"), "", "500m");
    }
    for (owner, cpu) in [("p", "1"), ("q", "1500m"), ("t", "500m")] {
        world.pod(owner, "r", cpu);
        world.until("the owner is bound", |world| world.node(owner).is_some());
    }
    (0..20).for_each(|_| world.round());
    assert!((0..4).all(|stranger| world.node(&format!("s{stranger}")).is_none()), "{}", world.told());
    assert_eq!((world.state("r"), world.holders()), (Some(State::HandedOver), 0), "{}", world.told());
    world.delete(&key("q"));
    world.until("the rest is kept again, or taken", |world| world.state("r") != Some(State::HandedOver));
}

#[test]
fn a_pod_that_is_larger_than_the_place_or_no_owner_is_given_nothing() {
    let mut world = PlacesWorld::new(&[4000], 0);
    world.reserve("r", "3", &json!({}));
    world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
    world.pod("p", "r", "3500m");
    world.pod("q", "other", "2");
    (0..20).for_each(|_| world.round());
    assert_eq!((world.node("p"), world.node("q"), world.state("r")), (None, None, Some(State::Held)));
}

#[test]
fn a_pod_that_wants_exactly_as_much_is_given_no_larger_place() {
    let mut world = PlacesWorld::new(&[8000], 0);
    world.reserve("r", "3", &json!({}));
    world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
    let exactly = json!({"hostler.dev/exact-match-reservation": r#"{"resourceNames": ["cpu"]}"#});
    world.pod_that_says("less", "r", "2", &exactly);
    (0..20).for_each(|_| world.round());
    assert_eq!((world.state("r"), world.holders()), (Some(State::Held), 1), "{}", world.told());
    world.pod_that_says("exact", "r", "3000m", &exactly);
    world.until("the owner has it", |world| world.phase("r") == Some(Phase::Succeeded));
    assert_eq!(world.reservation("r").unwrap().status.current_owners[0].name, "exact");
}

#[test]
fn an_owner_that_goes_before_it_is_bound_leaves_the_place_kept() {
    for rounds in 0..6 {
        let mut world = PlacesWorld::new(&[3000], 0);
        world.reserve("r", "3", &json!({}));
        world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
        world.pod("s", "", "3");
        world.pod("p", "r", "3");
        let before = world.writes.len();
        // The scheduler is away meanwhile.
        for _ in 0..rounds {
            world.control();
        }
        let is_gone_early = !world.writes[before..].contains(&"hand_over");
        world.delete(&key("p"));
        (0..60).for_each(|_| world.round());
        if is_gone_early {
            assert_eq!((world.state("r"), world.node("s")), (Some(State::Held), None), "{rounds} {}", world.told());
        }
    }
}

#[test]
fn a_place_holder_that_became_too_small_is_replaced_also_when_the_one_before_it_is_gone() {
    let mut world = PlacesWorld::new(&[3000], 0);
    world.reserve("r", "3", &json!({"allocateOnce": false}));
    world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
    world.pod("p", "r", "1");
    let is_next_made = |world: &PlacesWorld| world.holders() == 2;
    while !is_next_made(&world) {
        assert!(world.control(), "{}", world.told());
    }
    world.delete(&key("p"));
    while !world.reservation("r").unwrap().status.places[0].owners.is_empty() {
        assert!(world.control());
    }
    // The write of a leader before comes late.
    world.end_oldest_holder();
    world.until("the whole place is held", |world| world.state("r") == Some(State::Held));
    world.pod("q", "r", "3");
    world.until("an owner of all of it is bound", |world| world.node("q").is_some());
}

#[test]
fn the_nomination_of_an_owner_goes_with_the_place_that_it_was_not_given() {
    let mut world = PlacesWorld::new(&[3000], 0);
    world.reserve("r", "3", &json!({}));
    world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
    world.pod("p", "r", "3");
    let nominated = |world: &PlacesWorld| world.server.pods[&key("p")].status.nominated_node_name.clone();
    while nominated(&world).is_empty() {
        assert!(world.control(), "{}", world.told());
    }
    let it = world.reservation("r").unwrap();
    let version = crate::testkit::over(&it.uid, &it.version);
    world.kept.delete("r", &version);
    for _ in 0..60 {
        world.control();
        world.kept.pass(1);
    }
    assert_eq!((world.reservation("r").is_none(), nominated(&world)), (true, String::new()), "{}", world.told());
}

#[test]
fn a_reservation_that_is_deleted_or_over_leaves_no_place_holder() {
    for more in [json!({}), json!({"ttl": "20s"})] {
        let mut world = PlacesWorld::new(&[3000], 0);
        world.reserve("r", "3", &more);
        world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
        if more == json!({}) {
            let version = world.reservation("r").unwrap();
            let version = crate::testkit::over(&version.uid, &version.version);
            world.kept.delete("r", &version);
            world.until("it is gone", |world| world.reservation("r").is_none());
        } else {
            world.until("it is over", |world| world.phase("r") == Some(Phase::Failed));
        }
        world.until("nothing is left", |world| world.holders() == 0);
        world.pod("s", "", "3");
        world.until("a stranger has the node", |world| world.node("s").is_some());
    }
}

#[test]
fn devices_and_their_place_are_on_one_node_and_a_full_node_is_left_for_another() {
    let mut world = PlacesWorld::new(&[1000, 4000], 2);
    world.pod("s", "", "1");
    world.schedule();
    assert_eq!(world.node("s").as_deref(), Some("a"));
    let claims = json!([{"name": "gpus", "resourceClaimTemplateName": "gpus-1"}]);
    world.reserve(
        "r",
        "3",
        &json!({
            "template": {
                "metadata": {"namespace": "default"},
                "spec": {
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}], "resourceClaims": claims,
                },
            },
        }),
    );
    world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
    let kept = world.reservation("r").unwrap().status.clone();
    assert_eq!((&*kept.places[0].node_name, &*kept.devices[0].node_name), ("b", "b"), "{}", world.told());
}

#[test]
fn deaths_at_any_two_writes_lose_no_place_and_leave_nothing() {
    for first in 0..12 {
        for fates in Fate::TWO_DEATHS {
            let mut world = PlacesWorld::new(&[3000, 3000], 0);
            world.fates.extend([(first, fates[0]), (first + 1, fates[1])]);
            world.reserve("r", "2", &json!({}));
            world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
            (0..6).for_each(|stranger| world.pod(&format!("s{stranger}"), "", "1"));
            world.schedule();
            world.pod("p", "r", "2");
            world.until("the owner is bound", |world| world.node("p").is_some());
            world.until("nothing is left", |world| {
                world.holders() == 0 && world.reservation("r").is_none_or(|it| it.status.places.is_empty())
            });
        }
    }
}

#[test]
fn each_replica_has_a_place_and_each_place_gets_one_owner() {
    let mut world = PlacesWorld::new(&[2000, 2000], 0);
    world.reserve("r", "1", &json!({"replicas": 3}));
    world.until("all are kept", |world| world.phase("r") == Some(Phase::Available));
    (0..3).for_each(|stranger| world.pod(&format!("s{stranger}"), "", "1"));
    world.schedule();
    for owner in ["p", "q", "t"] {
        world.pod(owner, "r", "1");
    }
    world.until("all owners are bound", |world| ["p", "q", "t"].iter().all(|owner| world.node(owner).is_some()));
    world.until("the Reservation is over", |world| world.phase("r") == Some(Phase::Succeeded));
    assert_eq!(world.reservation("r").unwrap().status.current_owners.len(), 3);
    world.until("nothing is left", |world| world.holders() == 0);
}

#[test]
fn terms_about_pods_mean_the_pods_of_the_template_and_other_places() {
    let mut world = PlacesWorld::new(&[2000], 0);
    let term = |more: &Value| {
        let mut term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}});
        term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        term
    };
    let own = |terms: &[Value]| json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
    let elsewhere = json!({"namespaces": ["other"]});
    let affinity = json!({"podAffinity": own(&[term(&elsewhere)]), "podAntiAffinity": own(&[term(&json!({}))])});
    let template = json!({"metadata": {"namespace": "default", "labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}], "affinity": affinity,
    }});
    world.reserve("r", "2", &json!({"template": template, "allocateOnce": false}));
    world.until("it is asked for", |world| world.holders() == 1);
    let PlacesStep::Write(writes) = world.first_holder("r") else { panic!("no place holder") };
    let [PlacesWrite::Create { pod, .. }] = &*writes[0] else { panic!("no place holder") };
    let home = json!({"namespaces": ["default", "hostler-places"]});
    assert_eq!(pod["spec"]["affinity"]["podAntiAffinity"], own(&[term(&home)]));
    assert_eq!(pod["spec"]["affinity"]["podAffinity"], own(&[term(&elsewhere)]));
    let labels = &pod["metadata"]["labels"];
    assert_eq!((&labels["app"], &labels["app.kubernetes.io/name"]), (&json!("web"), &json!("hostler-place")));
    world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
    world.pod("p", "r", "1");
    world.until("an owner is bound", |world| world.node("p").is_some());
    world.until("the rest is held", |world| world.state("r") == Some(State::Held));
    let rest = world.server.pods.values().find(|pod| pod.key().namespace == "hostler-places").unwrap();
    assert!(rest.spec.affinity.as_ref().unwrap().far().is_empty(), "it stands beside the owner");
}

#[test]
fn places_of_one_node_are_handed_over_one_after_the_other() {
    // Schedulers count a nominated owner beside the place holder that still stands: there is no room for another one.
    let mut world = PlacesWorld::new(&[4000], 0);
    world.reserve("r", "2", &json!({"replicas": 2}));
    world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
    world.pod("p", "r", "2");
    world.pod("q", "r", "2");
    let before = world.writes.len();
    world.control();
    world.control();
    assert_eq!(world.writes[before..], ["status", "nomination", "hand_over"], "the first owner is not bound yet");
    world.until("both have their place", |world| world.node("p").is_some() && world.node("q").is_some());
}

#[test]
fn a_reservation_that_goes_with_its_owner_keeps_no_other_place_of_the_node_waiting() {
    let mut world = PlacesWorld::new(&[4000], 0);
    world.reserve("r", "2", &json!({}));
    world.reserve("s", "2", &json!({}));
    world.until("both are kept", |world| ["r", "s"].iter().all(|name| world.phase(name) == Some(Phase::Available)));
    world.pod("p", "r", "2");
    world.pod("q", "s", "2");
    world.control();
    world.schedule();
    assert_eq!((world.node("p").is_some(), world.node("q")), (true, None));
    let it = world.reservation("r").unwrap();
    let version = crate::testkit::over(&it.uid, &it.version);
    world.kept.delete("r", &version);
    // No time passes.
    while world.control() {}
    world.schedule();
    assert!(world.node("q").is_some(), "{}", world.told());
}

#[test]
fn owners_that_come_at_once_get_places_of_different_nodes() {
    let mut world = PlacesWorld::new(&[4000, 4000], 0);
    world.reserve("r", "2", &json!({"replicas": 4}));
    world.until("it is kept", |world| world.phase("r") == Some(Phase::Available));
    let before = world.writes.len();
    world.pod("p", "r", "2");
    world.pod("q", "r", "2");
    world.control();
    let both = ["status", "nomination", "hand_over", "nomination", "hand_over"];
    assert_eq!(world.writes[before..], both, "neither waits for the other");
}

#[test]
fn ports_extended_resources_and_huge_pages_are_set_aside_by_the_place_holder() {
    let mut world = PlacesWorld::new(&[4000], 0);
    let containers = json!([{
        "name": "c", "ports": [{"containerPort": 80, "hostPort": 8080}],
        "resources": {"requests": {"cpu": "1", "example.com/card": "1", "hugepages-2Mi": "4Mi"}},
    }]);
    let template = json!({"metadata": {"namespace": "default"}, "spec": {
        "containers": containers, "tolerations": [{"key": "k", "operator": "Exists"}], "nodeSelector": {},
    }});
    world.reserve("r", "1", &json!({"template": template}));
    world.until("it is asked for", |world| world.holders() == 1);
    let PlacesStep::Write(writes) = world.first_holder("r") else { panic!("no place holder") };
    let [PlacesWrite::Create { pod, .. }] = &*writes[0] else { panic!("no place holder") };
    let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
    assert_eq!(container["ports"][0]["hostPort"], 8080);
    assert_eq!(container["resources"]["limits"], json!({"example.com/card": "1", "hugepages-2Mi": "4Mi"}));
    assert_eq!(container["resources"]["requests"]["cpu"], "1");
    assert_eq!((&spec["tolerations"][0]["key"], &spec["priorityClassName"]), (&json!("k"), &json!("hostler-place")));
}
