//! What fits, what does not, and why.

use hostler_api::ObjectKey;

use super::{fixtures::*, *};

mod boxes;
mod simulation;

fn plan(facts: ClusterFacts, sets: &[PodSet]) -> Plan {
    Snapshot::new(facts).plan(sets, &PlanOptions { names_devices: true, ..PlanOptions::default() })
}

fn placements(set: &SetPlan) -> Vec<(&str, u32)> {
    set.placements.iter().map(|placement| (&*placement.node, placement.pods)).collect()
}

fn reasons(set: &SetPlan) -> Vec<(&str, usize)> {
    set.refusals.iter().map(|refusal| (&*refusal.reason, refusal.nodes.len())).collect()
}

#[test]
fn pods_fill_nodes_as_far_as_their_devices_go() {
    let plan = plan(cluster(&[2, 4, 0]), &[pods("a", 5, &with_template("one"))]);
    let set = &plan.sets[0];
    assert_eq!((set.verdict, set.placed), (Verdict::Fits, 5));
    assert_eq!(placements(set), [("n0", 2), ("n1", 3)]);
    let devices: Vec<(u32, &str, &str)> =
        set.placements[1].devices.iter().map(|it| (it.pod, &*it.pool, &*it.device)).collect();
    assert_eq!(devices, [(2, "n1", "gpu-0"), (3, "n1", "gpu-1"), (4, "n1", "gpu-2")]);
    assert_eq!(set.room, ["n1"]);
}

#[test]
fn a_set_that_does_not_fit_says_how_many_do_and_why_no_more() {
    let plan = plan(cluster(&[2, 4, 0]), &[pods("a", 9, &with_template("one"))]);
    let set = &plan.sets[0];
    assert_eq!((set.verdict, set.placed, set.wanted), (Verdict::DoesNotFit, 6, 9));
    assert_eq!(set.refusals.iter().map(|it| it.nodes.len()).sum::<usize>(), 3);
    assert_eq!(plan.verdict(), Verdict::DoesNotFit);
}

#[test]
fn devices_of_allocated_claims_are_taken() {
    let mut facts = cluster(&[4]);
    facts.add_claim(&claim("a", &["n0/gpu-1"], &["p"]));
    let plan = plan(facts, &[pods("a", 4, &with_template("one"))]);
    let devices: Vec<&str> = plan.sets[0].placements[0].devices.iter().map(|it| &*it.device).collect();
    assert_eq!(devices, ["gpu-0", "gpu-2", "gpu-3"]);
}

#[test]
fn more_important_pods_come_first() {
    let (template, high) = (with_template("one"), format!("{},\"priority\":7", with_template("one")));
    let plan = plan(cluster(&[2]), &[pods("low", 2, &template), pods("high", 1, &high)]);
    assert_eq!(plan.sets.iter().map(|set| (&*set.name, set.placed)).collect::<Vec<_>>(), [("low", 1), ("high", 1)]);
}

#[test]
fn another_order_is_found_where_the_given_one_does_not_fit() {
    let set = |name: &str, cpus: u32| {
        pods(name, 1, &format!(r#""containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{cpus}"}}}}}}]"#))
    };
    let plan = plan(cluster(&[0, 0]), &[set("a", 4), set("b", 3), set("c", 5), set("d", 4)]);
    assert_eq!((plan.verdict(), plan.order), (Verdict::Fits, Order::LargestFirst));
    assert_eq!(plan.sets.iter().map(|set| &*set.name).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
}

#[test]
fn reasons_of_nodes_are_in_words_and_counted() {
    let mut facts = cluster(&[1]);
    facts.add_node(node("closed", r#""unschedulable":true"#));
    facts.add_node(node("tainted", r#""taints":[{"key":"a","value":"b","effect":"NoSchedule"}]"#));
    facts.add_node(node("busy", ""));
    facts.add_pod(&pod("p", "busy", ""));
    let set = pods("a", 1, r#""containers":[{"name":"c","resources":{"requests":{"cpu":"8"}}}]"#);
    let plan = plan(facts, &[set]);
    assert_eq!(placements(&plan.sets[0]), [("n0", 1)]);
    let mut found = reasons(&plan.sets[0]);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("not enough cpu: 8 of it are not free", 2),
            ("taint a=b:NoSchedule of the node is not tolerated", 1),
            ("the node takes no new pods (spec.unschedulable)", 1),
        ]
    );
}

#[test]
fn a_host_port_is_there_once_per_node() {
    let set = pods("a", 3, r#""containers":[{"name":"c","ports":[{"containerPort":80,"hostPort":80}]}]"#);
    let plan = plan(cluster(&[0, 0]), &[set]);
    assert_eq!(placements(&plan.sets[0]), [("n0", 1), ("n1", 1)]);
    assert_eq!(reasons(&plan.sets[0]), [("host port 80 is taken", 2)]);
}

#[test]
fn a_named_claim_is_allocated_once_and_its_pods_follow() {
    let mut facts = cluster(&[1, 1]);
    facts.add_claim(&claim("shared", &[], &[]));
    let claims = r#""resourceClaims":[{"name":"gpu","resourceClaimName":"shared"}]"#;
    let set = pods("a", 300, &format!(r#""containers":[{{"name":"c"}}],{claims}"#));
    let plan = plan(facts, &[set]);
    assert_eq!(placements(&plan.sets[0]), [("n0", 110)], "so many pods has the node");
    assert!(reasons(&plan.sets[0]).contains(&("the devices of claim default/shared cannot be used on the node", 1)));
}

#[test]
fn devices_that_are_asked_for_without_a_pod_take_no_place_of_one() {
    let mut facts = cluster(&[]);
    let mut small = node("small", "");
    small.status.allocatable = serde_json::from_str(r#"{"pods": "1"}"#).unwrap();
    facts.add_node(small);
    facts.add_slice(slice("small", 3));
    assert_eq!(plan(facts.clone(), &[pods("a", 3, &with_template("one"))]).sets[0].placed, 3);
    let with_container = format!(r#""containers":[{{"name":"c"}}],{}"#, with_template("one"));
    assert_eq!(plan(facts, &[pods("a", 3, &with_container)]).sets[0].placed, 1);
}

#[test]
fn a_claim_has_256_users_at_most() {
    let mut facts = cluster(&[]);
    let mut wide = node("wide", "");
    wide.status.allocatable.clear();
    facts.add_node(wide);
    facts.add_slice(slice("wide", 1));
    facts.add_claim(&claim("shared", &["wide/gpu-0"], &["x", "y"]));
    let plan = plan(facts, &[pods("a", 300, r#""resourceClaims":[{"name":"gpu","resourceClaimName":"shared"}]"#)]);
    assert_eq!(plan.sets[0].placed, 254);
    assert_eq!(plan.sets[0].problem.as_deref(), Some("claim default/shared is used by 256 already, which is the most"));
}

#[test]
fn what_is_missing_is_named() {
    let plan = plan(cluster(&[1]), &[pods("a", 1, &with_template("none"))]);
    assert_eq!(plan.sets[0].problem.as_deref(), Some("there is no ResourceClaimTemplate default/none"));
    assert_eq!(plan.sets[0].verdict, Verdict::DoesNotFit);
}

#[test]
fn what_is_not_looked_at_is_named_and_leaves_the_answer_open() {
    let volume = r#""containers":[{"name":"c"}],"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"x"}}]"#;
    let fits = &plan(cluster(&[0]), &[pods("a", 1, volume)]).sets[0];
    assert_eq!(fits.verdict, Verdict::Undecided);
    assert_eq!(fits.unsupported, ["volume data claims storage"]);
    let does_not = &plan(cluster(&[0]), &[pods("a", 200, volume)]).sets[0];
    assert_eq!(does_not.verdict, Verdict::DoesNotFit, "it could only fit on fewer nodes");
}

#[test]
fn the_cluster_after_a_plan_can_be_asked_again() {
    let before = Snapshot::new(cluster(&[2]));
    let set = pods("a", 1, &with_template("one"));
    let options = PlanOptions::default();
    let first = before.plan(std::slice::from_ref(&set), &options);
    let second = first.after().plan(std::slice::from_ref(&set), &options);
    assert_eq!((first.verdict(), second.verdict()), (Verdict::Fits, Verdict::Fits));
    assert_eq!(second.after().plan(std::slice::from_ref(&set), &options).verdict(), Verdict::DoesNotFit);
    assert_eq!(before.plan(&[set], &options).verdict(), Verdict::Fits, "the first cluster is as it was");
}

#[test]
fn one_pods_fit_is_told_for_every_node() {
    let snapshot = Snapshot::new(cluster(&[1, 0, 2]));
    let fit = snapshot.fit(&pods("a", 1, &with_template("two")), &PlanOptions::default(), &mut PlanBoxes::default());
    assert_eq!(fit.room, ["n2"]);
    assert_eq!(fit.refusals.iter().map(|it| it.nodes.len()).sum::<usize>(), 2);
}

#[test]
fn what_is_left_is_counted_by_driver_node_and_class() {
    let plan = plan(cluster(&[2, 4]), &[pods("a", 3, &with_template("one"))]);
    let left = plan.after().left(&PlanOptions::default());
    assert_eq!(left.devices[DRIVER], DeviceCount { there: 6, free: 3 });
    assert_eq!(left.nodes.iter().map(|node| node.devices[DRIVER].free).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(left.classes["gpu"], DeviceCount { there: 6, free: 3 });
}

#[test]
fn a_class_counts_the_devices_that_its_selectors_select() {
    let mut facts = cluster(&[3]);
    let text = format!("device.attributes[\\\"{DRIVER}\\\"].uuid == \\\"n0-1\\\"");
    facts.add_class(read(&format!(
        r#"{{"metadata":{{"name":"second"}},"spec":{{"selectors":[{{"cel":{{"expression":"{text}"}}}}]}}}}"#
    )));
    let classes = Snapshot::new(facts).left(&PlanOptions::default()).classes;
    assert_eq!(classes["second"], DeviceCount { there: 1, free: 1 });
    assert_eq!(classes["gpu"], DeviceCount { there: 3, free: 3 });
}

#[test]
fn a_snapshot_with_new_names_answers_as_one_that_is_made_anew() {
    let before = Snapshot::new(cluster(&[2, 4]));
    let ask = |snapshot: &Snapshot, template: &str| {
        snapshot.plan(&[pods("p", 3, &with_template(template))], &PlanOptions::default()).sets
    };
    let mut facts = before.facts().clone();
    facts.add_template(ObjectKey::new("", "three"), asks(3));
    facts.add_claim(&claim("waiting", &[], &[]));
    let with = before.with(facts.clone());
    assert!(std::sync::Arc::ptr_eq(&with.cluster.nodes, &before.cluster.nodes), "nothing was made anew");
    assert_eq!(ask(&with, "three"), ask(&Snapshot::new(facts.clone()), "three"));
    assert_eq!(ask(&with, "three")[0].placed, 1);
    for change in [
        |facts: &mut ClusterFacts| facts.add_claim(&claim("waiting", &["n1/gpu-0"], &[])),
        |facts: &mut ClusterFacts| facts.add_pod(&pod("p", "n0", "")),
        |facts: &mut ClusterFacts| facts.add_node(node("n2", "")),
        |facts: &mut ClusterFacts| facts.add_slice(slice("n0", 1)),
        |facts: &mut ClusterFacts| facts.remove_class("gpu"),
    ] {
        let mut changed = facts.clone();
        change(&mut changed);
        assert_eq!(ask(&before.with(changed.clone()), "two"), ask(&Snapshot::new(changed), "two"));
    }
}
