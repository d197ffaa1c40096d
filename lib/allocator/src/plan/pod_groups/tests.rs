//! Plans of pods with terms about other pods, on small clusters.

use std::time::Duration;

use hostler_api::{
    ObjectKey,
    core::{Pod, PodSpec},
};

use crate::plan::{
    BoxSize, ClusterFacts, CutShort, PlanBoxes, PlanOptions, PodSet, SetPlan, Snapshot, Verdict,
    fixtures::{asks, class, node, pod, pods, read, slice, with_template},
};

/// Nodes `a0`, `a1`, `b0`, … of zones `a`, `b`, …, with these numbers of nodes.
fn zones(nodes: &[usize]) -> ClusterFacts {
    let mut facts = ClusterFacts::default();
    for (zone, nodes) in nodes.iter().enumerate() {
        let zone = ["a", "b", "c", "d"][zone];
        for at in 0..*nodes {
            let mut node = node(&format!("{zone}{at}"), "");
            node.metadata.labels.insert("zone".to_owned(), zone.to_owned());
            facts.add_node(node);
        }
    }
    facts
}

fn app(name: &str, count: u32, terms: &str) -> PodSet {
    let comma = if terms.is_empty() { "" } else { "," };
    let spec = format!(r#""containers":[{{"name":"c","resources":{{"requests":{{"cpu":"1"}}}}}}]{comma}{terms}"#);
    PodSet { labels: [("app".to_owned(), name.to_owned())].into(), ..pods(name, count, &spec) }
}

fn affinity(kind: &str, app: &str, key: &str) -> String {
    format!(
        r#""affinity":{{"{kind}":{{"requiredDuringSchedulingIgnoredDuringExecution":[{{"topologyKey":"{key}","labelSelector":{{"matchLabels":{{"app":"{app}"}}}}}}]}}}}"#
    )
}

fn spread(app: &str, key: &str, more: &str) -> String {
    format!(
        r#""topologySpreadConstraints":[{{"maxSkew":1,"topologyKey":"{key}","whenUnsatisfiable":"DoNotSchedule","labelSelector":{{"matchLabels":{{"app":"{app}"}}}}{more}}}]"#
    )
}

fn standing(name: &str, node: &str, app: &str, terms: &str) -> Pod {
    let mut pod = pod(name, node, &format!(r#","labels":{{"app":"{app}"}}"#));
    if !terms.is_empty() {
        pod.spec.affinity = read::<PodSpec>(&format!("{{{terms}}}")).affinity;
    }
    pod
}

fn planned(facts: &ClusterFacts, sets: &[PodSet]) -> Vec<SetPlan> {
    Snapshot::new(facts.clone()).plan(sets, &PlanOptions::default()).sets
}

fn places(plan: &SetPlan) -> Vec<(&str, u32)> {
    plan.placements.iter().map(|placement| (&*placement.node, placement.pods)).collect()
}

fn reasons(plan: &SetPlan) -> Vec<&str> {
    plan.refusals.iter().map(|refusal| &*refusal.reason).collect()
}

#[test]
fn pods_that_avoid_each_other_have_a_node_each() {
    let set = app("db", 4, &affinity("podAntiAffinity", "db", "kubernetes.io/hostname"));
    let plan = &planned(&zones(&[2, 1]), &[set])[0];
    assert_eq!(places(plan), [("a0", 1), ("a1", 1), ("b0", 1)]);
    assert_eq!(plan.verdict, Verdict::DoesNotFit);
    assert_eq!(reasons(plan), ["a pod that podAntiAffinity avoids is in the same kubernetes.io/hostname"]);
}

#[test]
fn pods_that_run_keep_others_away_though_these_have_no_term() {
    let mut facts = zones(&[2, 1]);
    facts.add_pod(&standing("lone", "a1", "lone", &affinity("podAntiAffinity", "web", "zone")));
    let plan = &planned(&facts, &[app("web", 2, "")])[0];
    assert_eq!(places(plan), [("b0", 2)]);
    assert_eq!(reasons(plan), ["a pod in the same zone avoids it by podAntiAffinity"]);
    assert_eq!(places(&planned(&facts, &[app("other", 1, "")])[0]), [("a0", 1)]);
}

#[test]
fn pods_of_an_earlier_set_count_as_those_that_run() {
    let near = app("web", 2, &affinity("podAffinity", "cache", "kubernetes.io/hostname"));
    let cache = app("cache", 1, r#""nodeName":"b0""#);
    let sets = planned(&zones(&[1, 1]), &[cache, near.clone()]);
    assert_eq!(places(&sets[1]), [("b0", 2)]);
    let alone = &planned(&zones(&[1, 1]), &[near])[0];
    assert_eq!((alone.placed, alone.verdict), (0, Verdict::DoesNotFit));
    assert_eq!(reasons(alone), ["no pod that podAffinity wants is in the same kubernetes.io/hostname"]);
}

#[test]
fn a_set_that_must_be_together_begins_where_there_is_room_for_all_of_it() {
    let set = app("train", 12, &affinity("podAffinity", "train", "zone"));
    assert_eq!(places(&planned(&zones(&[1, 2]), std::slice::from_ref(&set))[0]), [("b0", 8), ("b1", 4)]);
    let mut facts = zones(&[1, 2]);
    facts.add_pod(&standing("first", "a0", "train", ""));
    assert_eq!(places(&planned(&facts, &[set])[0]), [("a0", 7)], "the first pod runs already, and decides");
}

#[test]
fn a_node_without_the_label_of_an_affinity_takes_no_first_pod() {
    let mut facts = ClusterFacts::default();
    facts.add_node(node("n", ""));
    let plan = &planned(&facts, &[app("train", 1, &affinity("podAffinity", "train", "zone"))])[0];
    assert_eq!(reasons(plan), ["the node has no label zone, which podAffinity is about"]);
}

#[test]
fn pods_are_spread_over_domains_as_far_as_their_skew_allows() {
    let plan = &planned(&zones(&[1, 1, 1]), &[app("web", 7, &spread("web", "zone", ""))])[0];
    assert_eq!(places(plan), [("a0", 3), ("b0", 2), ("c0", 2)]);
    let mut facts = zones(&[1, 1]);
    for at in 0..2 {
        facts.add_pod(&standing(&format!("p{at}"), "a0", "web", ""));
    }
    let plan = &planned(&facts, &[app("web", 20, &spread("web", "zone", ""))])[0];
    assert_eq!(places(plan), [("b0", 8), ("a0", 6)], "b0 has its most CPU then");
    let few = &planned(&zones(&[1]), &[app("web", 3, &spread("web", "zone", r#","minDomains":2"#))])[0];
    assert_eq!(few.placed, 1);
    assert_eq!(reasons(few), ["one more pod there would exceed maxSkew 1 of the topology spread over zone"]);
}

#[test]
fn a_pod_that_is_being_deleted_counts_for_affinity_and_not_for_spread() {
    let mut facts = zones(&[1, 1]);
    let mut going = standing("going", "a0", "web", "");
    going.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
    facts.add_pod(&going);
    assert_eq!(places(&planned(&facts, &[app("web", 1, &spread("web", "zone", ""))])[0]), [("a0", 1)]);
    let far = app("x", 1, &affinity("podAntiAffinity", "web", "zone"));
    assert_eq!(places(&planned(&facts, &[far])[0]), [("b0", 1)]);
}

#[test]
fn labels_of_namespaces_that_are_not_known_leave_the_answer_open() {
    let term = r#""affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone","labelSelector":{"matchLabels":{"app":"web"}},"namespaceSelector":{"matchLabels":{"team":"x"}}}]}}"#;
    let mut facts = zones(&[1, 1]);
    facts.add_pod(&standing("p", "a0", "web", ""));
    let open = &planned(&facts, &[app("y", 1, term)])[0];
    assert_eq!((open.placed, open.verdict), (1, Verdict::Undecided));
    assert_eq!(
        open.unsupported,
        ["namespaceSelector of required podAntiAffinity (the labels of namespaces are not known: default)"]
    );
    facts.add_namespace(read(r#"{"metadata":{"name":"default","labels":{"team":"x"}}}"#));
    let known = &planned(&facts, &[app("y", 1, term)])[0];
    assert_eq!((places(known), known.verdict), (vec![("b0", 1)], Verdict::Fits));
}

#[test]
fn devices_and_terms_decide_together() {
    let mut facts = zones(&[1, 1]);
    facts.add_class(class());
    facts.add_template(ObjectKey::new("", "one"), asks(1));
    facts.add_slice(slice("a0", 4));
    facts.add_slice(slice("b0", 1));
    let set = app("gpu", 4, &format!("{},{}", with_template("one"), spread("gpu", "zone", "")));
    let plan = &planned(&facts, &[set])[0];
    assert_eq!(places(plan), [("b0", 1), ("a0", 2)], "b0 has no second device, and a0 would be two ahead");
}

#[test]
fn devices_that_are_asked_for_without_a_pod_are_not_kept_away() {
    let mut facts = zones(&[1]);
    facts.add_class(class());
    facts.add_template(ObjectKey::new("", "one"), asks(1));
    facts.add_slice(slice("a0", 1));
    let everybody = affinity("podAntiAffinity", "web", "zone");
    facts.add_pod(&standing("lone", "a0", "lone", &everybody));
    let set = PodSet { labels: [("app".to_owned(), "web".to_owned())].into(), ..pods("a", 1, &with_template("one")) };
    assert_eq!(planned(&facts, &[set])[0].placed, 1);
}

#[test]
fn drained_pods_keep_their_labels_and_terms() {
    let mut facts = zones(&[2, 1]);
    facts.add_pod(&standing("p", "a0", "web", &affinity("podAntiAffinity", "db", "zone")));
    facts.add_pod(&standing("q", "a1", "db", ""));
    let evicted = facts.apply(&"drain node a0".parse().unwrap()).unwrap();
    assert_eq!(places(&planned(&facts, &evicted)[0]), [("b0", 1)]);
}

#[test]
fn placing_one_by_one_ends_with_the_box_of_the_asker() {
    let set = app("web", 6, &spread("web", "zone", ""));
    let size = BoxSize { work: 3, time: Duration::from_secs(600) };
    let snapshot = Snapshot::new(zones(&[1, 1]));
    let plan = snapshot.plan_within(&[set], &PlanOptions::default(), &mut PlanBoxes::for_all(size));
    let set = &plan.sets[0];
    assert_eq!((set.placed, set.cut_short, set.verdict), (2, Some(CutShort::Begun), Verdict::Undecided));
}

fn nominated(name: &str, node: &str) -> Pod {
    let mut pod = pod(name, "", "");
    pod.status.nominated_node_name = node.to_owned();
    pod
}

#[test]
fn room_for_a_nominated_pod_is_its_own_sets_until_that_is_placed() {
    let mut facts = zones(&[1]);
    facts.add_pod(&nominated("w", "a0"));
    let own = PodSet { nominated: vec![ObjectKey::new("default", "w")], ..app("own", 1, "") };
    let other = app("other", 8, "");
    let placed = |sets: &[PodSet]| planned(&facts, sets).iter().map(|it| it.placed).collect::<Vec<_>>();
    assert_eq!(placed(std::slice::from_ref(&other)), [7], "room is left for the pod");
    let refusals = planned(&facts, std::slice::from_ref(&other)).remove(0).refusals;
    let reason =
        "not enough cpu: 1 of it are not free beside pods that are nominated for the node (status.nominatedNodeName)";
    assert_eq!(refusals[0].reason, reason);
    assert_eq!(placed(&[own.clone(), other.clone()]), [1, 7], "the pod is not counted twice");
    assert_eq!(placed(&[other, own.clone()]), [7, 1], "its room is left to it");
    assert_eq!(placed(&[PodSet { count: 8, ..own }]), [8], "its set does not wait for it");
}

#[test]
fn a_nominated_pod_that_goes_or_comes_to_a_node_leaves_its_room() {
    let mut facts = zones(&[1]);
    let placed = |facts: &ClusterFacts| planned(facts, &[app("other", 9, "")])[0].placed;
    facts.add_pod(&nominated("w", "a0"));
    let (before, gains) = (placed(&facts), facts.gains());
    facts.add_pod(&pod("w", "a0", ""));
    assert_eq!((before, placed(&facts)), (7, 7), "the pod on its node takes what was left for it");
    facts.remove_pod(&ObjectKey::new("default", "w"));
    assert_eq!(placed(&facts), 8);
    facts.add_pod(&nominated("v", "a0"));
    facts.add_pod(&nominated("v", ""));
    assert_eq!(placed(&facts), 8);
    assert!(facts.gains() > gains);
}
