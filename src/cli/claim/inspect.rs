//! `hostler claim inspect`: everything that the daemon knows of one claim, in one document.

use std::{io::Write, path::PathBuf, time::SystemTime};

use serde::{Deserialize, Serialize};

use super::show;
use crate::{
    admin::types::{AdminClaim, AdminDeviceDetails, AdminPod},
    cli::{
        CliFailure,
        client::{ClientError, DaemonClient, segment},
        device::show::details as device_details,
        names::NamedClaim,
        output::{OutputFormat, write_object},
    },
    explain::Explanation,
};

/// A claim with all that belongs to it.
#[derive(Deserialize, Serialize)]
struct ClaimInspection {
    #[serde(flatten)]
    claim: AdminClaim,
    /// Pods that have it.
    pods: Vec<InspectedPod>,
    /// Why it is as it is; absent where the daemon cannot say.
    explanation: Option<Explanation>,
    /// Devices of the claim that are known, with health, capacities and attributes.
    hardware: Vec<AdminDeviceDetails>,
}

/// A pod that has the claim.
#[derive(Deserialize, Serialize)]
struct InspectedPod {
    namespace: String,
    name: String,
    /// `api`, `runtime`, `note` or `reservation`.
    known_by: Option<String>,
    /// Containers of the pod that have it.
    containers: Vec<String>,
}

/// Asks for all of it, and shows it.
pub(super) fn run(
    name: &NamedClaim,
    client: &DaemonClient,
    format: OutputFormat,
    out: &mut dyn Write,
) -> Result<(), CliFailure> {
    let claim: AdminClaim = client.get(&name.path(""))?;
    let pods: Vec<AdminPod> = client.get("/v1/pods")?;
    let inspection = ClaimInspection {
        pods: pods.iter().filter_map(|pod| inspected(pod, &claim.uid)).collect(),
        explanation: known(client.get(&name.path("/explain")))?,
        hardware: hardware(client, &claim)?,
        claim,
    };
    let inspection = format.for_reader(inspection);
    write_object("ClaimInspection", &inspection, format, out, || in_words(&inspection, SystemTime::now()))?;
    Ok(())
}

/// The pod, if one of its containers has the claim or the claim is reserved for it.
fn inspected(pod: &AdminPod, uid: &str) -> Option<InspectedPod> {
    let having = pod.containers.iter().filter(|container| container.claims.iter().any(|claim| claim.uid == uid));
    let containers: Vec<String> = having.map(|container| container.name.clone()).collect();
    let is_reserved = pod.claims.iter().any(|claim| claim.uid == uid);
    let (namespace, name, known_by) = (pod.namespace.clone(), pod.name.clone(), pod.known_by.clone());
    // The entry without a name has what no pod is known to use.
    let has = !name.is_empty() && (is_reserved || !containers.is_empty());
    has.then_some(InspectedPod { namespace, name, known_by, containers })
}

/// Each device of the claim once. One that is gone has no facts.
fn hardware(client: &DaemonClient, claim: &AdminClaim) -> Result<Vec<AdminDeviceDetails>, ClientError> {
    let backend = |pool: &str| pool.rsplit('/').next().unwrap_or_default().to_owned();
    let mut paths: Vec<String> =
        claim.devices.iter().map(|device| format!("{}/{}", backend(&device.pool), device.device)).collect();
    paths.sort_unstable();
    paths.dedup();
    let shown = paths.iter().map(|path| known(client.get(&format!("/v1/devices/{}", segment(path)))));
    shown.filter_map(Result::transpose).collect()
}

/// Nothing where the daemon says no.
fn known<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Err(ClientError::Refused(_)) => Ok(None),
        answer => answer.map(Some),
    }
}

fn in_words(inspection: &ClaimInspection, now: SystemTime) -> String {
    let ClaimInspection { claim, pods, explanation, hardware } = inspection;
    let mut text = show::details(claim, now);
    let mut list = |title: &str, lines: &[String]| {
        if !lines.is_empty() {
            text.push_str(&format!("\n{title}:\n"));
            lines.iter().for_each(|line| text.push_str(&format!("  - {line}\n")));
        }
    };
    list("pods", &pods.iter().map(pod_in_words).collect::<Vec<_>>());
    list("files", &claim.files.iter().map(|file: &PathBuf| file.display().to_string()).collect::<Vec<_>>());
    if let Some(Explanation { summary, facts, next, .. }) = explanation {
        list("why", std::slice::from_ref(summary));
        list("what is known", facts);
        list("what to do", next);
    }
    hardware.iter().for_each(|device| text.push_str(&format!("\n{}", device_details(device, now))));
    text
}

fn pod_in_words(pod: &InspectedPod) -> String {
    let containers = if pod.containers.is_empty() { String::new() } else { format!(": {}", pod.containers.join(", ")) };
    let known_by = pod.known_by.as_ref().map(|source| format!(" (known by {source})")).unwrap_or_default();
    format!("{}/{}{containers}{known_by}", pod.namespace, pod.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn inspection() -> ClaimInspection {
        let held = json!({"pool": "n1/cpu", "device": "numa0", "request": "r", "cdi_ids": ["hostler.dev/claim=u1-0"],
            "cpus": "0-3", "mems": "0", "consumed": {"cpus": "4"}});
        serde_json::from_value(json!({
            "namespace": "ml", "name": "train", "uid": "u1", "state": "prepared", "recorded": null, "problem": null,
            "devices": [held], "files": ["/state/claims/u1.json"],
            "pods": [{"namespace": "ml", "name": "train-0", "known_by": "api", "containers": ["main", "log"]}],
            "explanation": {"claim": "ml/train", "uid": "u1", "state": "prepared", "summary": "it holds 1 device",
                "facts": ["on record"], "next": [], "failure": null},
            "hardware": [{"name": "numa0", "backend": "cpu", "pool": "n1/cpu", "health": "Healthy",
                "health_reason": null, "drained": null, "holders": ["ml/train"], "sharing": "Shared",
                "attributes": {"numaNode": 0}, "capacity": {"cpus": {"value": "8"}}}],
        }))
        .unwrap()
    }

    #[test]
    fn people_see_the_claim_its_pods_files_reasons_and_the_facts_of_its_devices() {
        let text = in_words(&inspection(), SystemTime::now());
        for expected in [
            "claim    ml/train\n",
            "\npods:\n  - ml/train-0: main, log (known by api)\n",
            "\nfiles:\n  - /state/claims/u1.json\n",
            "\nwhy:\n  - it holds 1 device\n\nwhat is known:\n  - on record\n",
            "\ndevice   cpu/numa0\n",
            "ATTRIBUTE  VALUE\nnumaNode       0\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("what to do"), "{text}");
    }

    #[test]
    fn programs_get_the_claim_as_it_is_shown_with_more_beside_it() {
        let value = serde_json::to_value(inspection()).unwrap();
        assert_eq!((&value["uid"], &value["hardware"][0]["backend"]), (&json!("u1"), &json!("cpu")));
        assert_eq!(value["explanation"]["facts"], json!(["on record"]));
    }

    #[test]
    fn a_pod_has_the_claim_by_its_containers_or_because_it_is_reserved() {
        let claim = |uid: &str| json!({"namespace": "ml", "name": uid, "uid": uid, "state": "prepared", "devices": []});
        let pod = |name: &str, of_container: &[&str], reserved: &[&str]| -> AdminPod {
            let all = |uids: &[&str]| uids.iter().map(|uid| claim(uid)).collect::<Vec<_>>();
            let container = json!({"name": "main", "claims": all(of_container)});
            serde_json::from_value(
                json!({"namespace": "ml", "name": name, "containers": [container], "claims": all(reserved)}),
            )
            .unwrap()
        };
        let containers = |pod: &AdminPod| inspected(pod, "u1").map(|pod| pod.containers);
        assert_eq!(containers(&pod("a", &["u2", "u1"], &[])), Some(vec!["main".to_owned()]));
        assert_eq!(containers(&pod("b", &["u2"], &["u1"])), Some(Vec::new()));
        assert_eq!(containers(&pod("c", &["u2"], &[])), None);
        assert_eq!(containers(&pod("", &[], &["u1"])), None);
    }
}
