//! Changes are read as they are shown, and do what they say.

use super::*;
use crate::plan::fixtures::{claim, node, pod, slice};

fn parse(text: &str) -> Result<Change, String> {
    text.parse::<Change>().map_err(|error| error.to_string())
}

#[test]
fn every_change_is_read_as_it_is_shown() {
    for text in [
        "drain node n1",
        "remove node n1",
        "add node like n1 × 3",
        "taint node n1 key=value:NoSchedule",
        "taint node n1 key:NoExecute",
        "taint node n1 key=value:NoSchedule-",
        "taint node n1 key-",
        "taint device gpu.example/n1/gpu-0 key=value:NoSchedule",
        "taint device gpu.example/rack/1/* key:NoExecute",
        "taint device gpu.example/*/* key:NoExecute",
        "free claim default/a",
    ] {
        assert_eq!(parse(text).map(|change| change.to_string()).as_deref(), Ok(text));
    }
}

#[test]
fn the_sign_for_times_is_written_in_any_way() {
    let three = Change::AddNodesLike { node: "n1".to_owned(), count: 3 };
    for text in ["add node like n1 x 3", "add node like n1 x3", "add nodes like n1 ×3", "Add node like n1×3"] {
        assert_eq!(parse(text), Ok(three.clone()), "{text}");
    }
    assert_eq!(parse("add node like n1"), Ok(Change::AddNodesLike { node: "n1".to_owned(), count: 1 }));
}

#[test]
fn what_is_not_understood_is_named_with_what_can_be_written() {
    for (text, start) in [
        (
            "drian node n1",
            "\"drian\" was not understood, drain, remove, add, taint or free is expected there; write one of",
        ),
        ("drain pod n1", "\"pod\" was not understood, node is expected there"),
        ("drain node", "\"drain node\" ends where a name is expected"),
        ("drain node n1 now", "\"now\" is too much"),
        ("add node like n1 × many", "\"many\" was not understood, a number of nodes"),
        ("add node like n1 × 0", "\"0\" was not understood, a number of nodes"),
        ("add node like n1 3", "\"3\" was not understood, × and a number"),
        ("taint node n1 key=value:Never", "\"key=value:Never\" was not understood, KEY=VALUE:EFFECT"),
        ("taint node n1 :NoSchedule", "\":NoSchedule\" was not understood"),
        ("taint device gpu-0 key:NoSchedule", "\"gpu-0\" was not understood, DRIVER/POOL/DEVICE"),
        ("taint device a/b/c key:PreferNoSchedule", "\"key:PreferNoSchedule\" was not understood"),
        ("", "\"\" ends where"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(start), "{text}: {error}");
        assert!(error.contains("free claim NAMESPACE/NAME"), "{error}");
    }
}

#[test]
fn what_is_not_there_is_named() {
    let mut facts = ClusterFacts::default();
    facts.add_node(node("n1", ""));
    facts.add_slice(slice("n1", 2));
    let mut error = |text: &str| facts.apply(&text.parse().unwrap()).unwrap_err().to_string();
    assert_eq!(error("drain node n2"), "there is no node n2; there are n1");
    assert!(
        error("taint device gpu.example/n1/gpu-7 a:NoSchedule")
            .starts_with("no slice has a device gpu.example/n1/gpu-7")
    );
    assert_eq!(error("free claim a/b"), "there is no claim a/b; write namespace/name");
}

#[test]
fn a_drained_node_gives_back_what_its_pods_hold_and_they_look_for_another() {
    let mut facts = ClusterFacts::default();
    facts.add_node(node("n1", ""));
    facts.add_slice(slice("n1", 2));
    facts.add_claim(&claim("a", &["n1/gpu-0"], &["p"]));
    facts.add_claim(&claim("b", &["n1/gpu-1"], &["p", "q"]));
    facts.add_pod(&pod("p", "n1", ""));
    let evicted = facts.apply(&"drain node n1".parse().unwrap()).unwrap();
    assert_eq!(evicted.iter().map(|set| (&*set.name, set.count)).collect::<Vec<_>>(), [("Pod p", 1)]);
    assert!(facts.nodes.get("n1").unwrap().spec.unschedulable);
    let holds = |name: &str| facts.claims.get(&ObjectKey::new("", name)).unwrap().allocation.is_some();
    assert!(!holds("a") && holds("b"), "b is used by another pod, too");
}

#[test]
fn nodes_like_another_have_devices_of_their_own_and_its_daemons() {
    let mut facts = ClusterFacts::default();
    facts.add_node(node("n1", ""));
    facts.add_slice(slice("n1", 2));
    facts.add_pod(&pod("p", "n1", ""));
    facts.add_pod(&pod("daemon-n1", "n1", r#","ownerReferences":[{"kind":"DaemonSet","name":"d"}]"#));
    facts.apply(&"add node like n1 × 2".parse().unwrap()).unwrap();
    assert_eq!(facts.node_names().collect::<Vec<_>>(), ["n1", "n1-like-1", "n1-like-2"]);
    let names: Vec<&str> = facts.slices.keys().map(|name| &**name).collect();
    assert_eq!(names, ["n1-gpus", "n1-like-1-gpus", "n1-like-2-gpus"]);
    let slice = facts.slices.get("n1-like-2-gpus").unwrap().unpack("s", &facts.store);
    assert_eq!((&*slice.spec.pool.name, slice.spec.node_name.as_deref()), ("n1-like-2", Some("n1-like-2")));
    let mut pods: Vec<&str> = facts.pods.iter().map(|(key, _)| &*key.name).collect();
    pods.sort_unstable();
    assert_eq!(pods, ["daemon-n1", "daemon-n1-like-1", "daemon-n1-like-2", "p"]);
}

#[test]
fn a_removed_node_takes_its_devices_along() {
    let mut facts = ClusterFacts::default();
    facts.add_node(node("n1", ""));
    facts.add_slice(slice("n1", 2));
    facts.apply(&"remove node n1".parse().unwrap()).unwrap();
    assert!(facts.nodes.is_empty() && facts.slices.is_empty());
}

#[test]
fn taints_of_nodes_come_and_go() {
    let mut facts = ClusterFacts::default();
    facts.add_node(node("n1", ""));
    facts.add_pod(&pod("p", "n1", ""));
    facts.apply(&"taint node n1 a=b:NoSchedule".parse().unwrap()).unwrap();
    facts.apply(&"taint node n1 a=c:NoSchedule".parse().unwrap()).unwrap();
    assert_eq!(
        facts.nodes.get("n1").unwrap().spec.taints.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["a=c:NoSchedule"]
    );
    facts.apply(&"taint node n1 a-".parse().unwrap()).unwrap();
    assert!(facts.nodes.get("n1").unwrap().spec.taints.is_empty());
    let evicted = facts.apply(&"taint node n1 a:NoExecute".parse().unwrap()).unwrap();
    assert_eq!(evicted.len(), 1, "a pod that does not bear it goes");
}

#[test]
fn taints_of_devices_are_rules() {
    let mut facts = ClusterFacts::default();
    facts.add_slice(slice("n1", 2));
    facts.apply(&"taint device gpu.example/n1/gpu-1 a=b:NoSchedule".parse().unwrap()).unwrap();
    let snapshot = crate::plan::Snapshot::new(facts);
    let slice = snapshot.cluster.slices[0].1.unpack("s", &snapshot.facts().store);
    assert_eq!(slice.spec.devices.iter().map(|device| device.taints.len()).collect::<Vec<_>>(), [0, 1]);
}
