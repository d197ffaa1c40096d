//! Requests that take more work than there is for a namespace: what is cut short, and whom it keeps waiting.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_allocator::plan::{BoxSize, PlanOptions, PodSet, Snapshot};
use hostler_api::{ObjectKey, provisioning::ProvisioningConditionType as Type};
use serde_json::{Value, json};

use super::world::{CLASS, ModelServer, World, read};
use crate::{
    askers::ASKER_BOX,
    provision::{
        check::{CheckBatch, CheckCandidate, CheckVerdict},
        context::Keeping,
    },
    requests::ProvisionClass,
};

const CUT_SHORT: &str = "takes more work than there is for one asker";
const UNDECIDED: &str = "False FailedToCheckCapacity";

/// Enough for an honest request, and much less than a hard one takes.
const SMALL_BOX: BoxSize = BoxSize { work: 200_000, time: Duration::from_secs(600) };

/// Nodes with 32 devices in 8 slots, and templates for one device and for 9 devices in 9 slots: a search for these that goes on until it
/// knows takes years.
fn add_slots(server: &mut ModelServer) {
    for at in 0..4 {
        let node = format!("n{at}");
        server.node_for(&node, 100);
        let device = |at: usize| json!({"name": format!("gpu-{at}"), "attributes": {"slot": {"string": format!("{node}-{}", at % 8)}}});
        let devices: Vec<Value> = (0..32).map(device).collect();
        server.facts.add_slice(read(json!({
            "metadata": {"name": format!("{node}-gpu")},
            "spec": {
                "driver": "gpu.example", "nodeName": node, "devices": devices,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            },
        })));
    }
    let request = |at: usize| {
        let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
        json!({"name": format!("r{at}"), "exactly": exactly})
    };
    let requests = |count: usize| (0..count).map(request).collect::<Vec<_>>();
    let hard =
        json!({"devices": {"requests": requests(9), "constraints": [{"distinctAttribute": "gpu.example/slot"}]}});
    let honest = json!({"devices": {"requests": requests(1)}});
    for namespace in ["default", "hard", "honest"] {
        server.facts.add_template(ObjectKey::new(namespace, "pigeonhole"), read(hard.clone()));
        server.facts.add_template(ObjectKey::new(namespace, "one"), read(honest.clone()));
    }
}

fn slots() -> ModelServer {
    let mut server = ModelServer::with_classes();
    add_slots(&mut server);
    server
}

fn pods(namespace: &str, template: &str) -> Vec<PodSet> {
    let spec = read(ModelServer::pod_spec(template));
    vec![PodSet { name: "set".to_owned(), namespace: namespace.to_owned(), count: 1, spec, ..PodSet::default() }]
}

fn candidate(name: &str, namespace: &str, template: &str) -> CheckCandidate {
    CheckCandidate {
        uid: name.to_owned(),
        namespace: namespace.to_owned(),
        class: ProvisionClass::CheckCapacity,
        sets: pods(namespace, template),
    }
}

/// What candidates are told, by name, beside bookings.
fn answers(bookings: Vec<Vec<PodSet>>, candidates: Vec<CheckCandidate>) -> BTreeMap<String, CheckVerdict> {
    answers_within(SMALL_BOX, bookings, candidates)
}

fn answers_within(
    asker_box: BoxSize,
    bookings: Vec<Vec<PodSet>>,
    candidates: Vec<CheckCandidate>,
) -> BTreeMap<String, CheckVerdict> {
    let batch = CheckBatch {
        number: 1,
        bookings,
        taken: BTreeSet::new(),
        promised: BTreeMap::new(),
        candidates,
        time_box: Duration::from_secs(10),
        asker_box,
    };
    let snapshot = Snapshot::new(slots().cluster.facts);
    batch.run(&snapshot, &PlanOptions::default(), &mut || Duration::ZERO).verdicts.into_iter().collect()
}

#[test]
fn a_request_that_takes_too_much_work_is_cut_short_says_so_and_keeps_no_other_namespace_waiting() {
    let hard = |name: &str| candidate(name, "hard", "pigeonhole");
    let told = answers(Vec::new(), vec![hard("first"), hard("second"), candidate("third", "honest", "one")]);
    assert!(
        matches!(&told["first"], CheckVerdict::Undecided(message) if message.contains(CUT_SHORT)),
        "{:?}",
        told["first"]
    );
    assert_eq!(told.get("second"), None, "it has its turn in a round of its own");
    assert!(matches!(told["third"], CheckVerdict::Found(_)), "{:?}", told["third"]);
}

#[test]
fn hard_requests_of_one_namespace_are_answered_one_in_each_round() {
    let mut world = World::new();
    add_slots(&mut world.server);
    world.set_asker_box(SMALL_BOX);
    world.server.template("hard", &ModelServer::pod_spec("pigeonhole"));
    for name in ["first", "second"] {
        world.ask_for(name, CLASS, &[("hard", 1)], &[]);
    }
    world.settle();
    for name in ["first", "second"] {
        assert_eq!(world.provisioned(name), UNDECIDED);
        assert!(
            world.message(name, Type::Provisioned).contains(CUT_SHORT),
            "{}",
            world.message(name, Type::Provisioned)
        );
    }
    world.check_rest();
}

/// What could not be placed of a booking within its box would be room for others.
#[test]
fn beside_a_booking_that_is_cut_short_nothing_is_promised_to_anybody() {
    let honest = || vec![candidate("r", "honest", "one")];
    let told = answers(vec![pods("default", "one")], honest());
    assert!(matches!(told["r"], CheckVerdict::Found(_)), "{told:?}");
    let told = answers(vec![pods("hard", "pigeonhole")], honest());
    assert!(matches!(told["r"], CheckVerdict::Crowded(_)), "{told:?}");
}

#[test]
fn what_is_booked_for_a_namespace_is_placed_within_its_own_share() {
    let honest = || vec![candidate("r", "honest", "one")];
    let is_found = |work: u64, bookings: Vec<Vec<PodSet>>| {
        let told = answers_within(BoxSize { work, ..SMALL_BOX }, bookings, honest());
        matches!(told["r"], CheckVerdict::Found(_))
    };
    let works: Vec<u64> = (1..=20_000).collect();
    let needed = |booked_in: &str| works[works.partition_point(|work| !is_found(*work, vec![pods(booked_in, "one")]))];
    assert!(needed("honest") > needed("default"), "the booking takes of what is there for the request");
}

#[test]
fn a_request_that_wants_no_retry_does_not_fail_because_of_what_others_have_booked() {
    let mut world = World::of(&[2]);
    world.keeping = Keeping::NotKept("nobody does".to_owned());
    world.ask("a", 1);
    world.settle();
    world.set_asker_box(BoxSize { work: 0, ..SMALL_BOX });
    world.ask_with("b", 1, &[("noRetry", "true")]);
    world.settle();
    assert_eq!((world.provisioned("b"), world.says("b", Type::Failed)), (UNDECIDED.to_owned(), String::new()));
    let message = world.message("b", Type::Provisioned);
    assert!(message.starts_with("what is booked for ProvisioningRequests takes more work"), "{message}");
    world.check_rest();
    world.set_asker_box(ASKER_BOX);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.provisioned("b"), "True CapacityIsFound");
}
