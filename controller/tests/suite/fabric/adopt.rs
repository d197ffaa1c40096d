//! Connections that hostler did not make, or whose FabricAttachment was lost: shown, taken over by the command, and ended by
//! the running controller after the node has let go.

use std::process::{Command, Output};

use hostler_testing::{
    apiserver::{AdmissionAttributes, ApiServer, ApiServerView},
    controller::RunningController,
    redfish::{PlayedRedfish, host_uuid},
};
use serde_json::{Value, json};

use super::{BTreeMap, cluster, controller_for, device, until_offered};

const ATTACHMENTS: &str = "fabricattachments";

fn adopt(server: &ApiServer, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hostler-controller"))
        .args(["fabric", "adopt", "--kubeconfig"])
        .arg(server.kubeconfig("an operator"))
        .args(args)
        .output()
        .unwrap()
}

#[track_caller]
fn said(output: &Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn in_use() -> String {
    format!("in-use.{}", host_uuid(1).to_lowercase())
}

/// The node of the device reports on the present attempt.
fn report(server: &ApiServer, state: &str) {
    server.edit(ATTACHMENTS, &device(0), |object| {
        object["status"]["node"] = json!({"attempt": object["spec"]["attempt"], "state": state});
        if state == "Released" {
            object["status"]["node"]["erased"] = json!("Sanitize");
        }
    });
}

async fn until_phase(server: &ApiServer, phase: &str) -> Value {
    let has_phase = |view: &ApiServerView<'_>| {
        view.get(ATTACHMENTS, &device(0)).filter(|object| object["status"]["phase"] == phase)
    };
    server.until(&format!("the attachment is {phase}"), has_phase).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_a_person_made_is_ended_by_consent_after_the_node_has_let_go() {
    let rack = PlayedRedfish::rack(3, 2).await;
    rack.connect_by_hand("7", 1, 0);
    let server = cluster(BTreeMap::new()).await;
    let controller = RunningController::start(&controller_for(&server, &rack)).await;
    until_offered(&server, &[(0, Some(&in_use())), (1, None)]).await;

    let plan: Value = serde_json::from_str(&said(&adopt(&server, &["--all", "--dry-run", "-o", "json"]), 0)).unwrap();
    let row = &plan["devices"][0];
    assert_eq!(
        (&plan["kind"], &plan["dryRun"], plan["devices"].as_array().unwrap().len()),
        (&json!("FabricAdoption"), &json!(true), 1)
    );
    assert_eq!((&row["name"], &row["nodeName"], &row["state"]), (&json!(device(0)), &json!("n1"), &json!("Adoptable")));
    assert_eq!(server.list(ATTACHMENTS), Vec::<Value>::new(), "--dry-run writes nothing");
    assert!(said(&adopt(&server, &[&device(1)]), 1).contains("no connection of others has it"));
    assert!(said(&adopt(&server, &[]), 2).is_empty(), "all is never meant by silence");

    assert!(said(&adopt(&server, &[&device(0)]), 0).contains("Adopted"));
    let twice = said(&adopt(&server, &[&device(0)]), 1);
    assert!(twice.contains("its FabricAttachment is "), "{twice}");
    let releasing = until_phase(&server, "Releasing").await;
    assert_eq!((&releasing["status"]["used"], &releasing["spec"]["release"]), (&json!(true), &json!(true)));
    assert_eq!((rack.count("DELETE"), rack.connections()), (0, vec!["7".to_owned()]), "the node has not let go");
    report(&server, "Released");
    let free = until_phase(&server, "Detached").await;
    assert_eq!((rack.count("DELETE"), rack.connections().len()), (1, 0));
    assert_eq!((&free["status"]["used"], &free["status"]["connection"]), (&Value::Null, &Value::Null));
    until_offered(&server, &[(0, None), (1, None)]).await;
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_object_was_lost_goes_on_with_its_device_until_it_is_gone() {
    let rack = PlayedRedfish::rack(3, 1).await;
    // Under a key of an object that is no more.
    rack.connect_by_hand("0d9bd8f6-0000-4000-8000-000000000001-3", 1, 0);
    let server = cluster(BTreeMap::new()).await;
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
    let place = json!({"driver": "hostler.dev", "pool": super::POOL, "device": device(0)});
    let mut result = place.clone();
    result["request"] = json!("r");
    result["bindingConditions"] = json!(["hostler.dev/attached"]);
    result["bindingFailureConditions"] = json!(["hostler.dev/attach-failed"]);
    let mut told = place;
    told["conditions"] = json!([{
        "type": "hostler.dev/attached", "status": "True", "reason": "Attached", "message": "ready",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"namespace": "default", "name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "cxl"}}]}},
    }));
    server.edit("resourceclaims", "default/c", |claim| {
        claim["status"] = json!({
            "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}},
            "devices": [told],
        });
    });
    let controller = RunningController::start(&controller_for(&server, &rack)).await;
    until_offered(&server, &[(0, Some(&in_use()))]).await;
    assert!(server.list(ATTACHMENTS).is_empty(), "nothing is attached anew for the claim");

    let text = said(&adopt(&server, &["--all"]), 0);
    assert!(text.contains("claim default/c uses it and keeps it"), "{text}");
    let attached = until_phase(&server, "Attached").await;
    assert_eq!(attached["spec"]["claim"]["name"], "c");
    report(&server, "Ready");
    until_phase(&server, "Ready").await;
    until_offered(&server, &[(0, Some("attached"))]).await;
    server.delete("resourceclaims", "default/c");
    until_phase(&server, "Releasing").await;
    assert_eq!(rack.connections().len(), 1);
    report(&server, "Released");
    until_phase(&server, "Detached").await;
    assert!(rack.connections().is_empty());
    until_offered(&server, &[(0, None)]).await;
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_refused_hides_no_other_one() {
    let rack = PlayedRedfish::rack(3, 2).await;
    rack.connect_by_hand("7", 1, 0);
    rack.connect_by_hand("8", 1, 1);
    let server = cluster(BTreeMap::new()).await;
    let controller = RunningController::start(&controller_for(&server, &rack)).await;
    until_offered(&server, &[(0, Some(&in_use())), (1, Some(&in_use()))]).await;
    assert_eq!(controller.stop().await, Some(0));
    server.admit(|write: &AdmissionAttributes<'_>| {
        let is_refused = write.resource == ATTACHMENTS && write.name == device(0);
        if is_refused { Err("not this one".to_owned()) } else { Ok(()) }
    });
    let answer: Value = serde_json::from_str(&said(&adopt(&server, &["--all", "-o", "json"]), 1)).unwrap();
    let states = answer["devices"].as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap());
    assert_eq!(states.collect::<Vec<_>>(), ["Refused", "Adopted"]);
    let why = answer["devices"][0]["message"].as_str().unwrap();
    assert!(why.contains("not this one") && why.contains("verbs get, create and update"), "{why}");
    let written = server.list(ATTACHMENTS);
    assert_eq!(written.iter().map(|it| &it["metadata"]["name"]).collect::<Vec<_>>(), [&json!(device(1))]);
}
