//! `kubectl hostler why`: each cause for which a pod waits is told in a sentence, with what helps.

use hostler_testing::apiserver::{ApiServerRelease, PolicyRule};
use serde_json::{Value, json};

use super::scene::{
    OPERATOR, PluginScene, claim, class, event, given, kept, node, out_of_service, pod, reserve, slice,
};

/// A cause: objects beside node n1, class gpu and the devices a and b; the sentence; and a word of the fix.
struct CauseCase {
    put: fn(&PluginScene),
    sentence: &'static str,
    fix: &'static str,
}

/// Puts pod ml/train, and its claim.
fn pending(scene: &PluginScene, spec: Value, request: Value) {
    scene.put(claim("train-gpu", request));
    scene.put(pod(spec, json!({})));
}

fn plain(scene: &PluginScene) {
    pending(scene, json!({}), json!({}));
}

/// Replaces the devices of node n1.
fn devices(scene: &PluginScene, devices: Value) {
    scene.server.delete("resourceslices", "n1-gpu");
    scene.put(slice("n1", devices));
}

/// Runs the cases, each in a cluster of its own, and tells all that differ.
async fn check(cases: &[CauseCase]) {
    let mut wrong = Vec::new();
    for CauseCase { put, sentence, fix } in cases {
        let scene = PluginScene::new().await;
        put(&scene);
        let said = scene.ask(&["why", "train"]).await;
        let mut lines = said.out.lines();
        let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let has_fix = if fix.is_empty() {
            !second.starts_with("Fix: ")
        } else {
            second.starts_with("Fix: ") && second.contains(fix)
        };
        if said.code != Some(0) || first != *sentence || !has_fix {
            wrong.push(format!("expected: {sentence}\n  fix: {fix}\nsaid:\n{}{}", said.out, said.err));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n---\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_gate_cannot_be_removed_is_told_the_refusal() {
    check(&[
        CauseCase {
            put: |scene| {
                pending(scene, json!({"schedulingGates": [{"name": "hostler.dev/reservation"}]}), json!({}));
                scene.put(event("hostler-controller", "GateNotRemoved", "policy no-patch refuses the change"));
            },
            sentence: "Pod ml/train waits: scheduling gate hostler.dev/reservation holds it back, and cannot be removed: policy \
                       no-patch refuses the change.",
            fix: "remove the gate hostler.dev/reservation by hand",
        },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_no_scheduler_looks_at_is_told_why() {
    check(&[
        CauseCase {
            put: |scene| pending(scene, json!({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}), json!({})),
            sentence: "Pod ml/train waits: scheduling gate kueue.x-k8s.io/admission holds it back: no scheduler looks at it.",
            fix: "kubectl get workloads",
        },
        CauseCase {
            put: |scene| pending(scene, json!({"schedulingGates": [{"name": "hostler.dev/placement"}]}), json!({})),
            sentence: "Pod ml/train waits: scheduling gate hostler.dev/placement holds it back: no scheduler looks at it.",
            fix: "hostler's controller removes it",
        },
        CauseCase {
            put: |scene| {
                pending(scene, json!({"schedulingGates": [{"name": "hostler.dev/reservation"}]}), json!({}));
                scene.server.create(json!({
                    "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation", "metadata": {"name": "evening"},
                    "spec": {"template": {"metadata": {"namespace": "ml"}}, "owners": [{"object": {"namespace": "ml", "name": "train"}}]},
                }));
                let place = json!({"number": 0, "state": "Held", "requests": {"cpu": "1"}, "nodeName": "n1"});
                scene.server.set_status("reservations", "evening", json!({"phase": "Available", "held": 0, "places": [place]}));
            },
            sentence: "Pod ml/train waits: scheduling gate hostler.dev/reservation holds it back until it has what it waits for: \
                       a place of Reservation evening.",
            fix: "once the place of the pod is free",
        },
        CauseCase {
            put: |scene| pending(scene, json!({"schedulingGates": [{"name": "a"}, {"name": "b"}]}), json!({})),
            sentence: "Pod ml/train waits: scheduling gates a, b hold it back: no scheduler looks at it.",
            fix: "the program that set the gate removes it",
        },
        CauseCase {
            put: |scene| pending(scene, json!({"schedulerName": "volcano"}), json!({})),
            sentence: "Pod ml/train waits: room is on n1, but scheduler volcano places it, and has not yet.",
            fix: "check that volcano runs",
        },
        CauseCase {
            put: |scene| {
                scene.put(claim("train-gpu", json!({})));
                let mut pod = pod(json!({}), json!({}));
                pod["metadata"]["annotations"] = json!({"autoscaling.x-k8s.io/consume-provisioning-request": "night"});
                scene.put(pod);
                scene.put(json!({
                    "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
                    "metadata": {"name": "night", "namespace": "ml"},
                    "spec": {
                        "provisioningClassName": "check-capacity.hostler.dev",
                        "podSets": [{"count": 1, "podTemplateRef": {"name": "t"}}],
                    },
                    "status": {"conditions": [{
                        "type": "Provisioned", "status": "False", "reason": "CapacityIsNotFound",
                        "message": "2 devices are lacking", "lastTransitionTime": "2026-11-01T10:00:00Z",
                    }]},
                }));
            },
            sentence: "Pod ml/train waits: its ProvisioningRequest ml/night was not told yes yet: 2 devices are lacking.",
            fix: "kubectl hostler explain provreq -n ml night",
        },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_not_as_the_pod_needs_it_is_told() {
    check(&[
        CauseCase {
            put: |scene| {
                scene.put(claim("train-gpus", json!({})));
                scene.put(pod(json!({}), json!({})));
            },
            sentence: "Pod ml/train waits: its claim gpu names ResourceClaim ml/train-gpu, which does not exist; \
                did you mean train-gpus?",
            fix: "create the claim",
        },
        CauseCase {
            put: |scene| {
                let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]);
                scene.put(pod(json!({"resourceClaims": claims}), json!({})));
            },
            sentence: "Pod ml/train waits: its claim gpu names ResourceClaimTemplate ml/one, which does not exist.",
            fix: "create the template",
        },
        CauseCase {
            put: |scene| {
                scene.put(json!({
                    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                    "metadata": {"name": "one", "namespace": "ml"},
                    "spec": {"spec": claim("x", json!({}))["spec"]},
                }));
                let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]);
                scene.put(pod(json!({"resourceClaims": claims}), json!({})));
                scene.put(event("resource_claim", "FailedResourceClaimCreation", "exceeded quota: gpus"));
            },
            sentence: "Pod ml/train waits: its claim gpu was not made from ResourceClaimTemplate ml/one yet: \
                exceeded quota: gpus.",
            fix: "kubectl describe quota -n ml",
        },
        CauseCase {
            put: |scene| {
                scene.put(given("train-gpu", "a", "other"));
                scene.put(pod(json!({}), json!({})));
                let time = json!("2026-11-01T10:00:00Z");
                scene.server.edit("resourceclaims", "ml/train-gpu", |it| it["metadata"]["deletionTimestamp"] = time);
            },
            sentence: "Pod ml/train waits: ResourceClaim ml/train-gpu is being deleted; it goes once its pods have ended: other.",
            fix: "create the claim anew",
        },
        CauseCase {
            put: |scene| pending(scene, json!({}), json!({"deviceClassName": "gpus"})),
            sentence: "Pod ml/train waits: request one of its claim gpu names DeviceClass gpus, which does not exist; \
                did you mean gpu?",
            fix: "kubectl get deviceclasses",
        },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_no_node_has_are_counted() {
    check(&[
        CauseCase {
            put: |scene| {
                scene.put(class("fpga"));
                pending(scene, json!({}), json!({"deviceClassName": "fpga"}));
            },
            sentence: "Pod ml/train waits: no device of the cluster is of class fpga, which request one of its claim gpu asks for.",
            fix: "kubectl hostler availability",
        },
        CauseCase {
            put: |scene| {
                let selector = json!([{"cel": {"expression": "device.attributes['gpu.example'].model == 'h200'"}}]);
                devices(scene, json!([{"name": "a", "attributes": {"model": {"string": "a100"}}},
                    {"name": "b", "attributes": {"model": {"string": "a100"}}}]));
                pending(scene, json!({}), json!({"selectors": selector}));
            },
            sentence: "Pod ml/train waits: the cluster has 2 devices of class gpu, and none matches the selectors of request one of its claim gpu.",
            fix: "change the selectors",
        },
        CauseCase {
            put: |scene| pending(scene, json!({}), json!({"allocationMode": "ExactCount", "count": 3})),
            sentence: "Pod ml/train waits: request one of its claim gpu wants 3 devices of one node, and no node has more than 2 that match.",
            fix: "2 devices match in the whole cluster",
        },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_others_have_are_counted_with_who_has_them() {
    check(&[
        CauseCase {
            put: |scene| {
                scene.put(given("x", "a", "other-0"));
                scene.put(given("y", "b", "other-1"));
                plain(scene);
            },
            sentence: "Pod ml/train waits: request one of its claim gpu wants 1 device, and 2 match: 2 are allocated to \
                pod ml/other-0, pod ml/other-1.",
            fix: "wait until a holder has ended",
        },
        CauseCase {
            put: |scene| {
                let value = reserve(scene, "night", json!({"object": {"namespace": "ml", "name": "other"}}));
                devices(scene, json!([kept("a", &value)]));
                plain(scene);
            },
            sentence: "Pod ml/train waits: request one of its claim gpu wants 1 device, and 1 matches: 1 is kept by \
                Reservation night for Pod ml/other (for ever).",
            fix: "until the Reservation ends",
        },
        CauseCase {
            put: |scene| devices_out_of_service(scene, "drained", "operator"),
            sentence: "Pod ml/train waits: request one of its claim gpu wants 1 device, and 2 match: 2 are drained (n1).",
            fix: "hostler device undrain",
        },
        CauseCase {
            put: |scene| devices_out_of_service(scene, "unhealthy", "failed"),
            sentence: "Pod ml/train waits: request one of its claim gpu wants 1 device, and 2 match: 2 are unhealthy (n1).",
            fix: "repair the devices",
        },
        CauseCase {
            put: |scene| {
                let value = reserve(scene, "night", json!({"object": {"namespace": "ml", "name": "other"}}));
                devices(scene, json!([{"name": "a"}, kept("b", &value)]));
                scene.put(given("x", "a", "other-0"));
                plain(scene);
            },
            sentence: "Pod ml/train waits: request one of its claim gpu wants 1 device, and 2 match: 1 is allocated to \
                pod ml/other-0, 1 is kept by Reservation night for Pod ml/other (for ever).",
            fix: "kubectl hostler node",
        },
    ])
    .await;
}

fn devices_out_of_service(scene: &PluginScene, reason: &str, value: &str) {
    devices(scene, json!([out_of_service("a", reason, value), out_of_service("b", reason, value)]));
    plain(scene);
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_are_kept_for_the_pod_need_a_toleration() {
    let scene = PluginScene::new().await;
    let value = reserve(&scene, "mine", json!({"labelSelector": {"matchLabels": {"app": "train"}}}));
    devices(&scene, json!([kept("a", &value)]));
    plain(&scene);
    let said = scene.ask(&["why", "train"]).await;
    let expected = format!(
        "Pod ml/train waits: Reservation mine keeps devices for it, and request one of its claim gpu does not tolerate \
         hostler.dev/held={value}.\nFix: add the toleration"
    );
    assert!(said.out.starts_with(&expected), "{}{}", said.out, said.err);
    let toleration = json!([{"key": "hostler.dev/held", "operator": "Equal", "value": value}]);
    scene.server.delete("resourceclaims", "ml/train-gpu");
    scene.put(claim("train-gpu", json!({"tolerations": toleration})));
    let said = scene.ask(&["why", "train"]).await;
    assert!(said.out.starts_with("Pod ml/train waits: room is on n1"), "{}{}", said.out, said.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_have_the_devices_and_refuse_the_pod_are_named() {
    check(&[
        CauseCase {
            put: |scene| {
                scene.server.edit("nodes", "n1", |node| node["spec"]["unschedulable"] = true.into());
                plain(scene);
            },
            sentence: "Pod ml/train waits: node n1 has what its claims ask for, but the node takes no new pods (spec.unschedulable).",
            fix: "kubectl uncordon n1",
        },
        CauseCase {
            put: |scene| {
                let taint = json!([{"key": "team", "value": "web", "effect": "NoSchedule"}]);
                scene.server.edit("nodes", "n1", |node| node["spec"]["taints"] = taint);
                plain(scene);
            },
            sentence: "Pod ml/train waits: node n1 has what its claims ask for, but taint team=web:NoSchedule of the node is not tolerated.",
            fix: "tolerate the taint",
        },
        CauseCase {
            put: |scene| {
                let container = json!({"name": "main", "image": "i", "resources": {"requests": {"cpu": "9"}, "claims": [{"name": "gpu"}]}});
                pending(scene, json!({"containers": [container]}), json!({}));
            },
            sentence: "Pod ml/train waits: node n1 has what its claims ask for, but not enough cpu: 9 of it are not free.",
            fix: "ask for less",
        },
        CauseCase {
            put: |scene| {
                scene.put(node("n2"));
                pending(scene, json!({"nodeSelector": {"kubernetes.io/hostname": "n2"}}), json!({}));
            },
            sentence: "Pod ml/train waits: node n1 has what its claims ask for, but the node has no label \
                kubernetes.io/hostname=n2, which nodeSelector wants.",
            fix: "label the nodes",
        },
        CauseCase {
            put: |scene| {
                scene.put(claim("train-gpu", json!({})));
                let condition = json!([{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]);
                scene.put(pod(json!({}), json!({"conditions": condition})));
            },
            sentence: "Pod ml/train waits: room is on n1, and the scheduler has not placed it yet; it last said: 0/1 nodes are available.",
            fix: "tries again",
        },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_on_a_node_is_told_how_it_is() {
    check(&[
        CauseCase {
            put: |scene| {
                scene.put(given("train-gpu", "a", "train"));
                scene.put(pod(json!({"nodeName": "n1"}), json!({"phase": "Running"})));
            },
            sentence: "Pod ml/train runs on node n1 with gpu.example/n1/a (claim gpu).",
            fix: "",
        },
        CauseCase {
            put: |scene| {
                scene.put(given("train-gpu", "a", "train"));
                scene.put(pod(json!({"nodeName": "n1"}), json!({})));
                scene.put(event("gpu.example", "DeviceHeld", "device a is held by claim ml/x"));
            },
            sentence: "Pod ml/train does not run yet: node n1 cannot prepare its devices: device a is held by claim ml/x (DeviceHeld).",
            fix: "kubectl hostler node n1",
        },
        CauseCase {
            put: |scene| {
                scene.put(given("train-gpu", "a", "train"));
                scene.put(pod(json!({"nodeName": "n1"}), json!({})));
                scene.put(event("kubelet", "FailedPrepareDynamicResources", "no driver"));
            },
            sentence: "Pod ml/train does not run yet: node n1 cannot prepare its devices: no driver (FailedPrepareDynamicResources).",
            fix: "the driver's log on node n1",
        },
        CauseCase {
            put: |scene| {
                scene.put(given("train-gpu", "a", "train"));
                let waits = json!([{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]);
                scene.put(pod(json!({"nodeName": "n1"}), json!({"containerStatuses": waits})));
            },
            sentence: "Pod ml/train does not run yet: on node n1; its container main waits: ImagePullBackOff: no such image.",
            fix: "image's name",
        },
        CauseCase {
            put: |scene| {
                scene.put(pod(json!({}), json!({"phase": "Failed", "reason": "Evicted", "message": "a device was tainted"})));
            },
            sentence: "Pod ml/train has ended: Failed: Evicted: a device was tainted.",
            fix: "",
        },
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_claims_of_today_is_told() {
    let scene = PluginScene::empty(ApiServerRelease::V1_30).await;
    scene.put(pod(json!({}), json!({})));
    let said = scene.ask(&["why", "train"]).await;
    let expected = "Pod ml/train waits: it has claims, and the API server of Kubernetes 1.30 serves resource.k8s.io in none of \
        the versions v1, v1beta2 and v1beta1.\nFix: use Kubernetes 1.34 or newer";
    assert!(said.out.starts_with(expected), "{}{}", said.out, said.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_without_rights_in_the_cluster_gets_the_words_of_the_scheduler() {
    let scene = PluginScene::new().await;
    scene.put(claim("train-gpu", json!({})));
    let condition = json!([{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]);
    scene.put(pod(json!({}), json!({"conditions": condition})));
    scene.allow("tenant", &["", "resource.k8s.io"], &["pods", "resourceclaims", "events"]);
    let said = scene.ask_as("tenant", &["why", "train"]).await;
    let expected =
        "Pod ml/train waits: the scheduler says: 0/1 nodes are available.\nFix: get the right to list nodes,";
    assert!(said.out.starts_with(expected), "{}{}", said.out, said.err);
    assert!(said.out.contains("Note: you may not list nodes, deviceclasses, resourceslices"), "{}", said.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_shows_requests_holders_and_nodes_and_programs_get_all_of_it() {
    let scene = PluginScene::new().await;
    scene.put(given("x", "a", "other-0"));
    scene.put(given("y", "b", "other-1"));
    plain(&scene);
    let said = scene.ask(&["explain", "pod", "ml/train"]).await;
    for line in [
        "gpu    one      gpu         1      2     0          2     0      0  not allocated",
        "ml/x          1  n1    other-0",
        "NODES  NAMES",
    ] {
        assert!(said.out.contains(line), "{line}: {}{}", said.out, said.err);
    }
    let said = scene.ask(&["why", "pod/train", "-o", "json"]).await;
    let answer: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&answer["kind"], &answer["cause"]), (&json!("Why"), &json!("allocated")), "{answer}");
    assert_eq!(answer["claims"][0]["matching"], 2);
    assert_eq!(answer["holders"][1], json!({"claim": "ml/y", "pods": ["other-1"], "devices": 1, "nodes": ["n1"]}));
    let said = scene.ask(&["why"]).await;
    assert!(said.out.contains("train  allocated  request one of its claim gpu"), "{}{}", said.out, said.err);
    let said = scene.ask(&["explain", "claim", "train-gpu"]).await;
    let expected = "ResourceClaim ml/train-gpu: it has no devices yet\n  Pod ml/train waits: request one";
    assert!(said.out.starts_with(expected), "{}{}", said.out, said.err);
    let said = scene.ask(&["explain", "claim", "x"]).await;
    assert_eq!(
        said.out,
        "ResourceClaim ml/x: it has 1 device\n  request one: device gpu.example/n1/a\n  used by other-0\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_not_there_is_told_in_words_of_its_reason() {
    let state = async |scene: &PluginScene, user: &str| {
        let said = scene.ask_as(user, &["why", "train", "-o", "json"]).await;
        let answer: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}", said.err));
        answer["claims"][0]["state"].as_str().unwrap().to_owned()
    };
    let ended = PluginScene::new().await;
    ended.put(pod(json!({}), json!({"phase": "Succeeded"})));
    assert_eq!(state(&ended, OPERATOR).await, "deleted: the pod has ended");
    let waiting = PluginScene::new().await;
    waiting.put(pod(json!({}), json!({})));
    assert_eq!(state(&waiting, OPERATOR).await, "does not exist");
    let list = |group: &str, resource: &str, namespace: Option<&str>| PolicyRule {
        api_groups: vec![group.to_owned()],
        resources: vec![resource.to_owned()],
        verbs: vec!["list".to_owned()],
        namespace: namespace.map(str::to_owned),
        ..PolicyRule::default()
    };
    let rules = vec![list("", "pods", None), list("resource.k8s.io", "resourceclaims", Some("ml"))];
    waiting.server.allow("tenant", rules);
    assert_eq!(state(&waiting, "tenant").await, "not found, or may not be read");
}
