//! What is cut short, and whom it keeps waiting.

use std::time::{Duration, Instant};

use hostler_api::resource::{ResourceClaimSpec, ResourceSlice};

use super::{super::fixtures::*, *};

/// Devices of which many are in one slot: no choice of nine has nine slots.
fn slotted(node: &str) -> ResourceSlice {
    let device = |at: usize| {
        let slot = format!(r#"{{"{DRIVER}/slot":{{"string":"{node}-{}"}}}}"#, at % 8);
        format!(r#"{{"name":"gpu-{at}","attributes":{slot}}}"#)
    };
    let devices: Vec<String> = (0..32).map(device).collect();
    read(&format!(
        r#"{{"metadata":{{"name":"{node}-gpus"}},"spec":{{"driver":"{DRIVER}","nodeName":"{node}",
            "pool":{{"name":"{node}","generation":1,"resourceSliceCount":1}},"devices":[{}]}}}}"#,
        devices.join(",")
    ))
}

/// A pigeonhole problem: nine devices in eight slots. A search that goes on until it knows takes years. Each device is a request of
/// its own: of one request only the last device is compared with others, as upstream has it.
fn pigeonhole() -> ResourceClaimSpec {
    let request = |at: usize| {
        format!(r#"{{"name":"r{at}","exactly":{{"deviceClassName":"gpu","count":1,"allocationMode":"ExactCount"}}}}"#)
    };
    let requests: Vec<String> = (0..9).map(request).collect();
    read(&format!(
        r#"{{"devices":{{"requests":[{}],"constraints":[{{"distinctAttribute":"{DRIVER}/slot"}}]}}}}"#,
        requests.join(",")
    ))
}

/// Nodes of which each is a question of its own.
fn slotted_cluster(nodes: usize) -> ClusterFacts {
    let mut facts = cluster(&vec![0; nodes]);
    (0..nodes).for_each(|at| facts.add_slice(slotted(&format!("n{at}"))));
    for namespace in ["default", "other"] {
        facts.add_template(ObjectKey::new(namespace, "pigeonhole"), pigeonhole());
        facts.add_template(ObjectKey::new(namespace, "one"), asks(1));
    }
    facts
}

fn in_namespace(namespace: &str, name: &str, template: &str) -> PodSet {
    PodSet { namespace: namespace.to_owned(), ..pods(name, 1, &with_template(template)) }
}

#[test]
fn a_question_that_takes_too_much_work_is_cut_short_says_so_and_keeps_nobody_else_waiting() {
    let snapshot = Snapshot::new(slotted_cluster(4));
    let size = BoxSize { work: 200_000, time: Duration::from_secs(600) };
    let hard = |at: usize| in_namespace("default", &format!("hard-{at}"), "pigeonhole");
    let sets = [hard(0), hard(1), in_namespace("default", "late", "one"), in_namespace("other", "honest", "one")];
    let mut boxes = PlanBoxes::for_each_namespace(size);
    let plan = snapshot.plan_within(&sets, &PlanOptions::default(), &mut boxes);
    let cut: Vec<Option<CutShort>> = plan.sets.iter().map(|set| set.cut_short).collect();
    assert_eq!(cut, [Some(CutShort::Begun), Some(CutShort::NotReached), Some(CutShort::NotReached), None]);
    assert_eq!(plan.sets[3].verdict, Verdict::Fits);
    for set in &plan.sets[..3] {
        assert_eq!((set.verdict, set.placed), (Verdict::Undecided, 0));
        assert_eq!(reasons(set), [(CUT_SHORT, 4)]);
    }
    boxes.open("default");
    assert!(boxes.is_empty());
    boxes.open("other");
    assert!(!boxes.is_empty());
}

#[test]
fn a_question_takes_no_more_time_than_there_is_for_it() {
    let snapshot = Snapshot::new(slotted_cluster(200));
    let size = BoxSize { work: u64::MAX, time: Duration::from_millis(10) };
    let began = Instant::now();
    let mut boxes = PlanBoxes::for_all(size);
    let plan =
        snapshot.plan_within(&[in_namespace("default", "hard", "pigeonhole")], &PlanOptions::default(), &mut boxes);
    assert_eq!(plan.sets[0].cut_short, Some(CutShort::Begun));
    // 200 nodes of 200,000 steps each take some seconds, and half a minute where nothing is optimized.
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn an_answer_that_one_asker_has_no_room_for_is_still_found_for_another() {
    let snapshot = Snapshot::new(slotted_cluster(1));
    let mut boxes = PlanBoxes::for_each_namespace(BoxSize { work: 20_000, time: Duration::from_secs(600) });
    boxes.open("default");
    boxes.spend(20_000 - 10);
    let sets = [in_namespace("default", "poor", "one"), in_namespace("other", "rich", "one")];
    let plan = snapshot.plan_within(&sets, &PlanOptions::default(), &mut boxes);
    let verdicts: Vec<Verdict> = plan.sets.iter().map(|set| set.verdict).collect();
    assert_eq!(verdicts, [Verdict::Undecided, Verdict::Fits]);
}
