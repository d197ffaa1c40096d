//! Which claims are read ahead, and what becomes of what was read.

use std::sync::Arc;

use hostler_api::Grant;

use super::*;
use crate::pods::{PodContainer, PodContainerKind, PodName};

fn pod(name: &str, uid: &str, claims: &[PodClaim]) -> NodePod {
    let claims = claims.iter().enumerate().map(|(index, claim)| (index.to_string(), claim.clone())).collect();
    let container =
        PodContainer { name: "main".to_owned(), kind: PodContainerKind::Regular, claims: Vec::new(), runtime_id: None };
    let name = PodName { namespace: "ml".to_owned(), name: name.to_owned() };
    NodePod { name, uid: uid.to_owned(), ended: false, deleting: false, containers: vec![container], claims }
}

fn made(name: &str) -> PodClaim {
    PodClaim::Generated(Some(name.to_owned()))
}

fn known(pods: &[NodePod]) -> PodsOfNode {
    PodsOfNode::Known(Arc::new(pods.iter().map(|pod| (pod.name.clone(), Arc::new(pod.clone()))).collect()))
}

fn names(pods: &[NodePod]) -> Vec<(String, String)> {
    wanted(&known(pods)).into_iter().map(|(claim, pod)| (claim.name, pod)).collect()
}

fn pair(claim: &str, pod: &str) -> (String, String) {
    (claim.to_owned(), pod.to_owned())
}

fn call(name: &str, uid: &str) -> ClaimRef {
    ClaimRef { namespace: "ml".to_owned(), name: name.to_owned(), uid: ClaimUid::new(uid).unwrap() }
}

fn allocation(pool: &str) -> Allocation {
    let grant = serde_json::json!({"request": "r", "pool": pool, "device": "card-0"});
    let grant: Grant = serde_json::from_value(grant).unwrap();
    Allocation { grants: vec![grant], ..Allocation::default() }
}

fn found(uid: &str, pool: &str) -> Option<(ClaimUid, Allocation)> {
    Some((ClaimUid::new(uid).unwrap(), allocation(pool)))
}

/// The claims of these pods, with the first one's read under way.
fn begun(pods: &[NodePod]) -> (AheadClaims, AheadRead) {
    let mut ahead = AheadClaims::default();
    ahead.want(&wanted(&known(pods)));
    let read = ahead.begin_next().unwrap();
    (ahead, read)
}

fn is_nothing(answer: &AheadAnswer) -> bool {
    matches!(answer, AheadAnswer::Nothing)
}

#[test]
fn claims_that_were_made_for_pods_that_wait_are_wanted_and_no_others() {
    let waiting = pod("a", "p1", &[made("a-x"), PodClaim::Generated(None), PodClaim::Nothing]);
    let named = pod("b", "p2", &[PodClaim::Named("shared".to_owned())]);
    let mut running = pod("c", "p3", &[made("c-x")]);
    running.containers[0].runtime_id = Some("f00".to_owned());
    let ended = NodePod { ended: true, ..pod("d", "p4", &[made("d-x")]) };
    let deleting = NodePod { deleting: true, ..pod("e", "p5", &[made("e-x")]) };
    assert_eq!(names(&[waiting, named, running, ended, deleting]), [pair("a-x", "p1")]);
}

#[test]
fn a_claim_that_another_pod_names_is_nobodys_own() {
    let owner = pod("a", "p1", &[made("a-x")]);
    let guest = pod("b", "p2", &[PodClaim::Named("a-x".to_owned())]);
    assert!(names(&[owner.clone(), guest.clone()]).is_empty());
    let mut elsewhere = guest;
    elsewhere.name.namespace = "other".to_owned();
    assert_eq!(names(&[owner, elsewhere]), [pair("a-x", "p1")], "names are of a namespace");
}

#[test]
fn nothing_is_wanted_of_pods_that_are_not_known() {
    let PodsOfNode::Known(pods) = known(&[pod("a", "p1", &[made("a-x")])]) else { unreachable!() };
    for pods in
        [PodsOfNode::Unwatched, PodsOfNode::Unknown("no".to_owned()), PodsOfNode::Stale(pods, "away".to_owned())]
    {
        assert!(wanted(&pods).is_empty(), "{pods:?}");
    }
}

#[test]
fn what_was_read_serves_one_call() {
    let (mut ahead, read) = begun(&[pod("a", "p1", &[made("a-x")])]);
    ahead.finish(&read, found("c1", "n/fake"));
    let taken = ahead.take(&call("a-x", "c1")).into_allocation();
    assert_eq!(taken, Some(allocation("n/fake")));
    assert!(is_nothing(&ahead.take(&call("a-x", "c1"))));
    ahead.want(&wanted(&known(&[pod("a", "p1", &[made("a-x")])])));
    assert!(ahead.begin_next().is_none(), "it is not read a second time for the same pod");
}

#[test]
fn a_claim_of_the_same_name_with_another_uid_is_read_when_it_is_asked_for() {
    let (mut ahead, read) = begun(&[pod("a", "p1", &[made("a-x")])]);
    ahead.finish(&read, found("c1", "n/fake"));
    assert!(is_nothing(&ahead.take(&call("a-x", "c2"))));
    assert!(is_nothing(&ahead.take(&call("a-x", "c1"))), "one of the two is wrong, and nobody knows which");
}

#[test]
fn a_claim_goes_with_its_pod() {
    let own = pod("a", "p1", &[made("a-x")]);
    let mut started = own.clone();
    started.containers[0].runtime_id = Some("f00".to_owned());
    let ended = NodePod { ended: true, ..own.clone() };
    let anew = pod("a", "p2", &[PodClaim::Named("a-x".to_owned())]);
    for next in [vec![], vec![started], vec![ended], vec![anew]] {
        let (mut ahead, read) = begun(std::slice::from_ref(&own));
        ahead.finish(&read, found("c1", "n/fake"));
        ahead.want(&wanted(&known(&next)));
        assert!(is_nothing(&ahead.take(&call("a-x", "c1"))), "{next:?}");
    }
    let (mut ahead, read) = begun(&[own]);
    ahead.finish(&read, found("c1", "n/fake"));
    ahead.want(&wanted(&PodsOfNode::Unknown("the role is gone".to_owned())));
    assert!(is_nothing(&ahead.take(&call("a-x", "c1"))), "the watch is lost");
}

#[test]
fn a_read_that_ends_after_its_pod_has_changed_is_not_believed() {
    let (mut ahead, read) = begun(&[pod("a", "p1", &[made("a-x")])]);
    ahead.want(&wanted(&known(&[pod("a", "p2", &[made("a-x")])])));
    ahead.finish(&read, found("c1", "n/fake"));
    assert!(is_nothing(&ahead.take(&call("a-x", "c1"))));
}

#[test]
fn a_call_joins_what_is_under_way_and_does_not_wait_for_what_has_not_begun() {
    let pods = [pod("a", "p1", &[made("a-x")]), pod("b", "p2", &[made("b-x")])];
    let (mut ahead, read) = begun(&pods);
    let AheadAnswer::UnderWay(done_rx) = ahead.take(&call("a-x", "c1")) else { panic!("it is not under way") };
    assert!(is_nothing(&ahead.take(&call("b-x", "c2"))));
    assert!(ahead.begin_next().is_none(), "whoever asked reads it himself");
    ahead.finish(&read, found("c1", "n/fake"));
    assert!(done_rx.has_changed().is_ok(), "not before what was found can be taken");
    drop(read);
    assert!(done_rx.has_changed().is_err());
    assert!(matches!(ahead.give_up(&call("a-x", "c1")), AheadAnswer::Read(_)));
}

#[test]
fn who_has_given_up_on_a_read_is_not_followed_by_its_result() {
    let (mut ahead, read) = begun(&[pod("a", "p1", &[made("a-x")])]);
    assert!(is_nothing(&ahead.give_up(&call("a-x", "c1"))));
    ahead.finish(&read, found("c1", "n/fake"));
    assert!(is_nothing(&ahead.take(&call("a-x", "c1"))));
}

#[test]
fn a_read_of_which_nothing_can_be_believed_is_not_repeated() {
    let (mut ahead, read) = begun(&[pod("a", "p1", &[made("a-x")])]);
    ahead.finish(&read, None);
    assert!(ahead.begin_next().is_none());
    assert!(is_nothing(&ahead.take(&call("a-x", "c1"))));
}

#[test]
fn a_flood_of_pods_takes_no_more_than_its_share() {
    let pods: Vec<NodePod> = (0..3 * MOST)
        .map(|index| pod(&format!("p{index}"), &index.to_string(), &[made(&format!("c{index}"))]))
        .collect();
    let mut ahead = AheadClaims::default();
    ahead.want(&wanted(&known(&pods)));
    assert_eq!(ahead.0.len(), MOST);
    ahead.want(&wanted(&known(&pods[..1])));
    assert_eq!(ahead.0.len(), 1);
}
