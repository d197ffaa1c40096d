//! Sentences about attachments, phase by phase.

use serde_json::{Value, json};

use super::*;

const DEVICE: &str = "0000000000001001-0001";
const NOW: &str = "2026-11-28T10:00:00Z";

fn attachment(claim_uid: &str, status: &Value) -> FabricAttachment {
    serde_json::from_value(json!({
        "metadata": {"name": DEVICE},
        "spec": {
            "manager": "row1", "domain": "cxl", "device": "00-00-00-00-00-00-10-01:0001", "nodeName": "n2",
            "claim": {"namespace": "ml", "name": "train", "uid": claim_uid}, "attempt": 1,
        },
        "status": status,
    }))
    .unwrap()
}

/// Claim ml/train, which has the device.
fn claim(pool: &str) -> ResourceClaim {
    let result = json!({"request": "r", "driver": "hostler.dev", "pool": pool, "device": DEVICE});
    serde_json::from_value(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "train", "namespace": "ml", "uid": "u"},
        "spec": {}, "status": {"allocation": {"devices": {"results": [result]}}},
    }))
    .unwrap()
}

fn with<T>(attachment: Option<FabricAttachment>, ask: impl FnOnce(&AttachmentFacts<'_>) -> T) -> T {
    let attachments = attachment.map(|it| (DEVICE.to_owned(), it)).into_iter().collect();
    ask(&AttachmentFacts { attachments: &attachments, is_readable: true, now: since_1970(NOW).unwrap() })
}

fn of_claim(status: &Value) -> Vec<String> {
    with(Some(attachment("u", status)), |facts| facts.of_claim(&claim("fabric/row1/cxl")))
}

#[test]
fn each_phase_says_what_is_so_until_when_and_what_comes_next() {
    let since = "2026-11-28T09:59:00Z";
    let with_deadline =
        |phase: &str| json!({"phase": phase, "since": since, "deadline": "2026-11-28T10:07:00Z", "message": "m"});
    let end = "the claim is given another device if the device is not ready at 2026-11-28T10:07:00Z";
    for (status, expected) in [
        (
            with_deadline("Pending"),
            &["is to be attached to node n2 for claim ml/train", end, "next fabric manager row1 attaches the device"][..],
        ),
        (
            with_deadline("Attaching"),
            &["is being attached to node n2 for claim ml/train", end, "next fabric manager row1 attaches the device"],
        ),
        (
            with_deadline("Attached"),
            &[
                "is attached for claim ml/train, and node n2 has not found it in order yet",
                "node n2 has not reported on the device yet",
                end,
                "next the daemon of node n2 finds and checks the device: hostler status there, and its log, say more",
            ],
        ),
        (
            with_deadline("Ready"),
            &[
                "is attached to node n2 for claim ml/train, and ready there",
                "next the pod is bound, and prepared on its node",
            ],
        ),
        (
            with_deadline("Failed"),
            &["was not attached to node n2 for claim ml/train", "next the scheduler gives the claim another device"],
        ),
        (
            with_deadline("Releasing"),
            &[
                "is given back by node n2, which had it for claim ml/train",
                "node n2 has not reported on the device yet",
                "next node n2 lets go of the device: end what uses it there; where the machine is off for good, delete its Node",
            ],
        ),
        (
            with_deadline("Detaching"),
            &[
                "is being detached from node n2, which had it for claim ml/train",
                "next fabric manager row1 detaches the device",
            ],
        ),
    ] {
        let mut expected: Vec<String> = expected.iter().map(|line| (*line).to_owned()).collect();
        expected[0] = format!("device {DEVICE} {} (since {since}): m", expected[0]);
        assert_eq!(of_claim(&status), expected, "{status}");
    }
}

#[test]
fn the_report_of_the_node_and_a_deadline_that_is_over_are_told() {
    let report = json!({
        "attempt": 1, "state": "Found", "since": "2026-11-28T09:55:00Z", "message": "it is being erased",
    });
    let told = of_claim(&json!({"phase": "Attached", "deadline": "2026-11-28T09:59:59Z", "node": report}));
    assert_eq!(told[1], "node n2 reports Found (since 2026-11-28T09:55:00Z): it is being erased");
    assert_eq!(
        told[2],
        "the time for it was over at 2026-11-28T09:59:59Z: the controller that leads gives the attempt up"
    );
}

#[test]
fn a_device_that_another_claim_has_not_let_go_of_is_not_the_claims_yet() {
    let of_another = attachment("other", &json!({"phase": "Releasing"}));
    let told = with(Some(of_another), |facts| facts.of_claim(&claim("fabric/row1/cxl")));
    let expected = format!("device {DEVICE} is not the claim's yet: device {DEVICE} is given back by node n2");
    assert!(told[0].starts_with(&expected), "{told:?}");
}

#[test]
fn a_device_without_an_attachment_is_told_and_a_device_of_a_node_is_not() {
    let told = with(None, |facts| facts.of_claim(&claim("fabric/row1/cxl")));
    assert!(told[0].contains("has no FabricAttachment yet"), "{told:?}");
    let nothing = BTreeMap::new();
    let unreadable = AttachmentFacts { attachments: &nothing, is_readable: false, now: Duration::ZERO };
    assert!(unreadable.of_claim(&claim("fabric/row1/cxl"))[0].ends_with("you may not read"));
    assert_eq!(with(None, |facts| facts.of_claim(&claim("n2/cxl"))), Vec::<String>::new());
}

#[test]
fn hidden_devices_are_those_under_way_and_those_whose_pause_is_not_over() {
    let hidden = |status: Value| with(Some(attachment("u", &status)), |facts| facts.hidden()).pop();
    assert_eq!(hidden(json!({"phase": "Ready"})), None, "its claim is named as its holder");
    assert_eq!(hidden(json!({"phase": "Detached", "used": true, "reason": "HoldsData"})), None, "it is offered");
    assert_eq!(hidden(json!({"phase": "Detached", "retryAt": "2026-11-28T09:59:00Z", "failures": 1})), None);
    let later = "2026-11-28T12:00:00Z";
    let quarantined = json!({
        "phase": "Detached", "reason": "Quarantined", "retryAt": later, "failures": 5, "message": "no link",
    });
    assert_eq!(
        hidden(quarantined).unwrap(),
        format!("device {DEVICE} is quarantined until {later}, after 5 failed attachments in a row: no link")
    );
    let once = json!({"phase": "Detached", "reason": "Failed", "retryAt": later, "failures": 1});
    assert_eq!(
        hidden(once).unwrap(),
        format!("device {DEVICE} is not offered until {later}, after 1 failed attachment")
    );
    let releasing = json!({"phase": "Releasing", "message": "memory is in use"});
    assert_eq!(
        hidden(releasing).unwrap(),
        format!("device {DEVICE} is given back by node n2, which had it for claim ml/train: memory is in use")
    );
}
