//! ProvisioningRequests, as a batch system writes them, and what is kept for them.

use serde_json::{Value, json};

use crate::{CARDS, HoldingCluster, OURS, apply, deployed, eventually};

const GROUP: &str = "/apis/autoscaling.x-k8s.io/v1";

/// The kind, as far as requests are told by it: whoever runs Cluster Autoscaler has it installed.
fn definition() -> Value {
    let pod_set = json!({
        "type": "object", "required": ["podTemplateRef", "count"], "properties": {
            "podTemplateRef": {"type": "object", "properties": {"name": {"type": "string"}}},
            "count": {"type": "integer", "format": "int32", "minimum": 1},
        },
    });
    let spec = json!({
        "type": "object", "required": ["podSets", "provisioningClassName"],
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}],
        "properties": {
            "podSets": {"type": "array", "minItems": 1, "maxItems": 32, "items": pod_set},
            "provisioningClassName": {"type": "string", "maxLength": 253},
            "parameters": {
                "type": "object", "maxProperties": 100, "additionalProperties": {"type": "string", "maxLength": 255},
            },
        },
    });
    let condition = json!({
        "type": "object", "required": ["type", "status", "lastTransitionTime", "reason", "message"], "properties": {
            "type": {"type": "string"}, "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string", "minLength": 1}, "message": {"type": "string", "maxLength": 32768},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64"},
        },
    });
    let status = json!({"type": "object", "properties": {
        "conditions": {
            "type": "array", "items": condition, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        },
        "provisioningClassDetails": {
            "type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 32768},
        },
    }});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "provisioningrequests.autoscaling.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"},
        },
        "spec": {
            "group": "autoscaling.x-k8s.io", "scope": "Namespaced",
            "names": {
                "kind": "ProvisioningRequest", "listKind": "ProvisioningRequestList", "plural": "provisioningrequests",
                "singular": "provisioningrequest", "shortNames": ["provreq"],
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    })
}

impl HoldingCluster {
    /// Asks for so many pods with a card each, as Kueue names what it makes.
    fn request(&self, name: &str, count: usize, parameters: &Value) {
        let claims = json!([{"name": "card", "resourceClaimTemplateName": "any"}]);
        let container = json!({"name": "c", "image": "i", "resources": {"claims": [{"name": "card"}]}});
        self.node.create(
            &self.node.of("/api/v1", "podtemplates"),
            &json!({
                "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": format!("ppt-{name}-main")},
                "template": {"spec": {"containers": [container], "resourceClaims": claims}},
            }),
        );
        let pod_set = json!({"podTemplateRef": {"name": format!("ppt-{name}-main")}, "count": count});
        let spec = json!({
            "provisioningClassName": "check-capacity.hostler.dev", "podSets": [pod_set], "parameters": parameters,
        });
        self.node.create(
            &self.node.of(GROUP, "provisioningrequests"),
            &json!({
                "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": {"name": name},
                "spec": spec,
            }),
        );
    }

    /// The condition of a request, once it has this status.
    fn until_told(&self, request: &str, kind: &str, status: &str) -> Value {
        let path = self.node.of(GROUP, &format!("provisioningrequests/{request}"));
        eventually(&format!("{request} to be told {kind}={status}"), || {
            let object = self.node.get(&path)?;
            let conditions = object["status"]["conditions"].as_array()?;
            conditions.iter().find(|it| it["type"] == kind && it["status"] == status).cloned()
        })
    }

    fn reservations(&self) -> Vec<Value> {
        let all = self.node.get(&format!("{OURS}/reservations")).unwrap();
        all["items"].as_array().cloned().unwrap_or_default()
    }
}

#[test]
fn a_request_is_told_yes_when_its_devices_are_kept_and_they_outlive_it() {
    let Some(cluster) = HoldingCluster::start_with("provisioning = \"on\"\n") else { return };
    apply(&cluster.node, &[definition()]);
    apply(&cluster.node, &deployed("provisioning/rbac.yaml"));
    cluster.template("any", &json!([])).unwrap();
    cluster.request("job-hostler-1", CARDS - 1, &json!({"bookingSeconds": "300"}));
    cluster.until_told("job-hostler-1", "Accepted", "True");
    let yes = cluster.until_told("job-hostler-1", "Provisioned", "True");
    assert_eq!(yes["reason"], "CapacityIsFound");
    let kept = cluster.reservations();
    let held: u64 = kept.iter().map(|it| it["status"]["held"].as_u64().unwrap()).sum();
    assert!(kept.iter().all(|it| it["status"]["phase"] == "Available"), "{kept:?}");
    assert_eq!((held, cluster.held()), (3, CARDS - 1));
    let request = cluster.node.get(&cluster.node.of(GROUP, "provisioningrequests/job-hostler-1")).unwrap();
    let details = &request["status"]["provisioningClassDetails"];
    assert_eq!(details["node"], cluster.node.name());
    // Who asks for more than is left is told why, and nothing of what is kept is his.
    cluster.request("other-hostler-1", 2, &json!({}));
    let no = cluster.until_told("other-hostler-1", "Provisioned", "False");
    assert_eq!(no["reason"], "CapacityIsNotFound");
    cluster.request("final-hostler-1", 2, &json!({"noRetry": "true"}));
    cluster.until_told("final-hostler-1", "Failed", "True");
    // A pod without a request gets the last card, and the next one none.
    cluster.pod("quick", "any");
    eventually("the container of who came without a request", || cluster.node.pid("quick"));
    cluster.pod("late", "any");
    eventually("the refusal", || {
        cluster.node.events("Pod", "late").iter().any(|it| it.contains("cannot allocate all claims")).then_some(())
    });
    cluster.node.delete(&cluster.node.of(GROUP, "provisioningrequests/job-hostler-1"), 0);
    eventually("the request to be gone", || {
        cluster.node.get(&cluster.node.of(GROUP, "provisioningrequests/job-hostler-1")).is_none().then_some(())
    });
    assert_eq!((cluster.reservations().len(), cluster.held()), (kept.len(), CARDS - 1));
    for reservation in &kept {
        cluster.release(reservation["metadata"]["name"].as_str().unwrap());
    }
    eventually("a card for who waits", || cluster.node.pid("late"));
    for pod in ["quick", "late"] {
        cluster.node.delete(&cluster.node.of("/api/v1", &format!("pods/{pod}")), 1);
    }
    for request in ["other-hostler-1", "final-hostler-1"] {
        cluster.node.delete(&cluster.node.of(GROUP, &format!("provisioningrequests/{request}")), 0);
    }
    cluster.stop();
}
