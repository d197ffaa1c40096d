//! What is known of containers: merged from what the runtime says and what records give, one by one.

use hostler_proto::nri::ContainerState;

use super::*;
use crate::nri::testing::{KIND, UID_A, UID_B, container, facts, hook, on_cpus, pod};

fn known(containers: &[Container], facts: &PinningFacts) -> KnownContainers {
    let mut known = KnownContainers::new(KIND.to_owned());
    known.remember_pods(&[pod()]);
    containers.iter().for_each(|container| known.learn(None, container, facts));
    known.forget_pods();
    known
}

/// What is due, with the CPUs that are to be told.
fn due(known: &KnownContainers) -> Vec<(String, String)> {
    let now = Instant::now();
    known.due(now).into_iter().map(|id| (id.clone(), known.update(&id).unwrap().0.cpus.to_string())).collect()
}

fn told(id: &str, cpus: &str) -> (String, String) {
    (id.to_owned(), cpus.to_owned())
}

#[tokio::test]
async fn only_who_has_something_else_than_intended_is_told() {
    let facts = facts("0-7", &[(UID_A, &["2-3"])]);
    let known = known(
        &[
            container("unbound", &[hook(UID_A, "--cpus 2-3")]),
            on_cpus(container("bound", &[hook(UID_A, "--cpus 2-3")]), "2-3"),
            on_cpus(container("shared", &[]), "1,4-7"),
            on_cpus(container("wide", &[]), "0-7"),
        ],
        &facts,
    );
    assert_eq!(due(&known), [told("unbound", "2-3"), told("wide", "1,4-7")]);
}

#[tokio::test]
async fn one_odd_container_is_left_alone_and_the_others_are_served() {
    let facts = facts("0-7", &[(UID_A, &["2-3"])]);
    let mut known = known(
        &[
            container("forged", &[hook(UID_A, "--cpus 2-5")]),
            container("gone", &[hook(UID_B, "--cpus 6")]),
            container("broken", &[hook(UID_A, "--cpus oops")]),
            container("../../etc", &[]),
            container("good", &[hook(UID_A, "--cpus 2-3")]),
        ],
        &facts,
    );
    assert_eq!(due(&known), [told("good", "2-3")]);
    let quarantined: Vec<&str> = known.quarantined().map(|(id, _)| id).collect();
    assert_eq!(quarantined, ["broken", "forged", "gone", "../../etc"]);
    let SeenContainers::Connected(seen) = known.seen() else { panic!("it is connected") };
    let reason = seen["gone"].quarantined.as_deref().unwrap();
    assert_eq!(reason, format!("it was made with claim {UID_B}, which is not prepared on this node"));
    assert_eq!((seen["gone"].claims.len(), &seen["good"].quarantined), (1, &None));
    assert!(!seen.contains_key("../../etc"), "no reader has to be careful with it");
    assert_eq!(known.len(), 5);
}

#[tokio::test]
async fn an_odd_container_is_served_as_soon_as_records_agree() {
    let mut known = known(&[container("c", &[hook(UID_A, "--cpus 2-3")])], &facts("0-7", &[]));
    assert_eq!((due(&known), known.quarantined().count()), (vec![], 1));
    known.consider(&facts("0-7", &[(UID_A, &["2-3"])]));
    assert_eq!((due(&known), known.quarantined().count()), (vec![told("c", "2-3")], 0));
    known.consider(&facts("0-7", &[]));
    assert_eq!((due(&known), known.quarantined().count()), (vec![], 1), "its claim was taken back under it");
}

#[tokio::test]
async fn init_containers_and_sidecars_share_a_claim() {
    let facts = facts("0-7", &[(UID_A, &["2-3"])]);
    let ids = ["init", "main", "sidecar"];
    let known = known(&ids.map(|id| container(id, &[hook(UID_A, "--cpus 2-3")])), &facts);
    assert_eq!(due(&known), ids.map(|id| told(id, "2-3")));
}

#[tokio::test]
async fn a_claim_that_no_container_has_started_with_keeps_its_cpus() {
    // The runtime starts anew between the prepare and the container: nothing that it says takes a claim's CPUs away.
    let facts = facts("0-7", &[(UID_A, &["2-3"]), (UID_B, &["4"])]);
    let known = known(&[container("c", &[hook(UID_A, "--cpus 2-3")]), container("d", &[])], &facts);
    assert_eq!(due(&known), [told("c", "2-3"), told("d", "1,5-7")]);
}

#[tokio::test]
async fn the_pool_shrinks_and_grows_with_claims() {
    let mut known = known(&[container("c", &[])], &facts("0-7", &[]));
    for (claims, expected) in [(&[][..], "1-7"), (&[(UID_A, &["2-3"][..])][..], "1,4-7"), (&[][..], "1-7")] {
        known.consider(&facts("0-7", claims));
        assert_eq!(due(&known), [told("c", expected)]);
        known.told("c", &Pins { cpus: expected.parse().unwrap(), ..Pins::default() });
        assert_eq!(due(&known), []);
    }
    known.consider(&facts("0-3", &[(UID_A, &["1-3"])]));
    assert_eq!(due(&known), [], "an empty pool is not told, and nothing wider either");
}

#[tokio::test]
async fn readers_are_told_what_the_runtime_has_put_into_the_pool() {
    let bound = container("bound", &[hook(UID_A, "--cpus 2-3")]);
    let mut known = known(&[bound, on_cpus(container("c", &[]), "1,4-7")], &facts("0-7", &[(UID_A, &["2-3"])]));
    let pools = |known: &mut KnownContainers| {
        let SeenContainers::Connected(seen) = known.seen() else { panic!("it is connected") };
        ["bound", "c"].map(|id| seen[id].pool.as_ref().map(ToString::to_string))
    };
    assert_eq!(pools(&mut known), [None, Some("1,4-7".to_owned())]);
    known.consider(&facts("0-7", &[(UID_A, &["2-3"]), (UID_B, &["4"])]));
    assert_eq!(pools(&mut known), [None, None], "until the runtime has it");
    known.told("c", &Pins { cpus: "1,5-7".parse().unwrap(), ..Pins::default() });
    assert_eq!(pools(&mut known), [None, Some("1,5-7".to_owned())]);
    known.ended("c");
    assert_eq!(pools(&mut known), [None, None]);
}

#[tokio::test]
async fn who_has_ended_is_not_told_and_who_is_gone_is_forgotten() {
    let facts = facts("0-7", &[]);
    let mut stopped = container("stopped", &[]);
    stopped.set_state(ContainerState::ContainerStopped);
    let mut known = known(&[stopped, container("c", &[]), container("d", &[])], &facts);
    known.runs("c", 42);
    let SeenContainers::Connected(seen) = known.seen() else { panic!("it is connected") };
    assert_eq!((seen["c"].pid, &*seen["c"].pod, &*seen["c"].namespace), (Some(42), "web", "default"));
    known.ended("c");
    known.removed("d");
    assert_eq!((due(&known), known.len()), (vec![], 2));
    let SeenContainers::Connected(seen) = known.seen() else { panic!("it is connected") };
    assert_eq!(seen["c"].pid, None);
}

#[tokio::test]
async fn whose_update_fails_is_tried_again_ever_later() {
    let mut known = known(&[container("c", &[])], &facts("0-7", &[]));
    let mut now = Instant::now();
    let mut pauses = Vec::new();
    for _ in 0..9 {
        known.failed("c", "busy", now);
        assert_eq!(known.due(now), Vec::<String>::new());
        let next = known.next_retry().unwrap();
        pauses.push(next.duration_since(now).as_secs());
        now = next;
        assert_eq!(known.due(now), ["c"]);
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    known.told("c", &Pins { cpus: "1-7".parse().unwrap(), ..Pins::default() });
    assert_eq!(known.next_retry(), None);
}
