//! The real binary under kubelets of 1.26 to 1.31, which speak the node services of classic DRA.

use std::fs;

use hostler_fake::KILL_EXIT_CODE;
use hostler_testing::{
    host::{Host, SCRIPT, wait_for},
    kubelet::{
        KubeletResult,
        classic::{AllocatedClaim, ClassicKubelet, ClassicRelease},
    },
    node::{ClaimTraces, TestNode, kill_at, named, uid},
};
use serde_json::{Value, json};

const DRIVER: &str = "hostler.dev";

/// A node whose daemon an old kubelet knows.
struct ClassicNode {
    node: TestNode,
    kubelet: ClassicKubelet,
}

impl ClassicNode {
    fn started(release: ClassicRelease) -> Self {
        Self::configured(release, "")
    }

    /// Makes a node with configuration behind that of the backend.
    fn configured(release: ClassicRelease, extra: &str) -> Self {
        let node = TestNode::new(Host::bare_with(SCRIPT, extra));
        let kubelet = ClassicKubelet::new(node.path("kubelet"), release);
        let mut this = Self { node, kubelet };
        this.begin();
        this
    }

    /// Starts the daemon; the kubelet has seen the last one's socket go.
    fn begin(&mut self) {
        self.node.start();
        self.kubelet.deregister();
        self.register().unwrap();
    }

    fn register(&mut self) -> KubeletResult<Vec<String>> {
        self.node.block_on(self.kubelet.register()).map(|info| info.supported_versions)
    }

    fn prepare(&mut self, claims: &[AllocatedClaim]) -> KubeletResult<Vec<Vec<String>>> {
        self.node.block_on(self.kubelet.prepare(claims))
    }

    fn prepare_one(&mut self, claim: &AllocatedClaim) -> Vec<String> {
        self.prepare(std::slice::from_ref(claim)).unwrap().remove(0)
    }

    fn unprepare(&mut self, name: &str) -> KubeletResult<()> {
        self.node.block_on(self.kubelet.unprepare(&[uid(name)]))
    }

    /// Every name is a device of the claim's CDI file.
    fn assert_in_cdi(&self, name: &str, cdi_ids: &[String]) {
        let file = fs::read(self.node.path(&self.node.cdi_path(name))).unwrap();
        let file: Value = serde_json::from_slice(&file).unwrap();
        let kind = file["kind"].as_str().unwrap();
        let in_file: Vec<String> = file["devices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|device| format!("{kind}={}", device["name"].as_str().unwrap()))
            .collect();
        assert!(!cdi_ids.is_empty() && cdi_ids.iter().all(|id| in_file.contains(id)), "{cdi_ids:?} of {in_file:?}");
    }
}

/// A handle as the controller writes it for a claim with these devices: `pool:3` is three units of the pool.
fn handle(devices: &[&str]) -> Value {
    let results: Vec<Value> = devices
        .iter()
        .map(|device| match device.split_once(':') {
            Some((device, units)) => json!({"request": "part", "driver": DRIVER, "pool": "node/fake", "device": device,
                "shareID": "5f0c7b9e-0000-4000-8000-000000000001", "consumedCapacity": {"units": units}}),
            None => json!({"request": "whole", "driver": DRIVER, "pool": "node/fake", "device": device}),
        })
        .collect();
    json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "ResourceHandle", "node": "node", "results": results})
}

fn allocated(name: &str, devices: &[&str]) -> AllocatedClaim {
    AllocatedClaim::new(named(name), DRIVER, &handle(devices).to_string())
}

fn with_handle(name: &str, data: &str) -> AllocatedClaim {
    AllocatedClaim::new(named(name), DRIVER, data)
}

#[test]
fn a_claim_of_every_release_is_prepared_repeated_and_taken_back() {
    for release in ClassicRelease::ALL {
        let mut on = ClassicNode::started(release);
        let devices = ["card-1", "pool:3", "card-2"];
        // Where the kubelet passes no handle, the claim is read.
        if release == ClassicRelease::V1_31 {
            on.node.allocate("train", &devices);
        }
        let claim = allocated("train", &devices);
        let cdi_ids = on.prepare_one(&claim);
        assert_eq!(cdi_ids.len(), 3, "{release:?}");
        on.assert_in_cdi("train", &cdi_ids);
        assert!(on.node.traces("train").is_whole(3), "{release:?}");

        // A kubelet that starts asks again for what it starts, and so does one that finds no pods in its memory.
        on.kubelet.restart();
        on.register().unwrap();
        assert_eq!(on.prepare_one(&claim), cdi_ids, "{release:?}: after a start of the kubelet");
        on.node.stop();
        on.begin();
        on.kubelet.restart();
        on.register().unwrap();
        assert_eq!(on.prepare_one(&claim), cdi_ids, "{release:?}: after a start of the daemon");

        // The claim may be gone by then: only the UID is needed.
        let _ = fs::remove_dir_all(on.node.path("manifests"));
        on.unprepare("train").unwrap();
        assert!(on.node.traces("train").is_gone(), "{release:?}");
        assert!(on.node.stop().success());
    }
}

#[test]
fn what_was_never_prepared_is_taken_back_and_so_is_what_was_taken_back() {
    for release in ClassicRelease::ALL {
        let mut on = ClassicNode::started(release);
        on.node.allocate("train", &["card-1"]);
        let claim = allocated("train", &["card-1"]);
        on.prepare_one(&claim);
        // Its answer got lost: the kubelet asks again.
        let before = on.kubelet.clone();
        on.unprepare("train").unwrap();
        on.kubelet = before;
        on.unprepare("train").unwrap();
        assert_eq!(on.node.traces("train"), ClaimTraces::default(), "{release:?}");
    }
}

#[test]
fn a_kill_at_any_step_leaves_nothing_half_and_the_repeated_call_gets_the_same() {
    for release in ClassicRelease::ALL {
        let mut on = ClassicNode::started(release);
        on.node.allocate("train", &["card-1", "card-2"]);
        let claim = allocated("train", &["card-1", "card-2"]);
        let list = on.prepare_one(&claim);
        on.unprepare("train").unwrap();
        // The last step is after all work on the devices: only the answer is left.
        for (step, at) in [("prepare", "before"), ("prepare", "after"), ("verify", "after")] {
            on.node.script(&kill_at(step, at, "card-2"));
            on.prepare(std::slice::from_ref(&claim)).expect_err("the daemon is killed");
            assert_eq!(on.node.wait().code(), Some(KILL_EXIT_CODE));
            on.node.script(SCRIPT);
            on.begin();
            assert_eq!(on.prepare_one(&claim), list, "{release:?}: {at} {step}");
            assert!(on.node.traces("train").is_whole(2), "{release:?}: {at} {step}");
            on.node.script(&kill_at("unprepare", at, "card-1"));
            on.unprepare("train").expect_err("the daemon is killed");
            assert_eq!(on.node.wait().code(), Some(KILL_EXIT_CODE));
            on.node.script(SCRIPT);
            on.begin();
            on.unprepare("train").unwrap();
            assert!(on.node.traces("train").is_gone(), "{release:?}: {at} unprepare");
        }
    }
}

/// Returns a claim's files except its record, which names the boot.
fn outside_of_records(on: &ClassicNode, name: &str) -> ClaimTraces {
    ClaimTraces { record: None, ..on.node.traces(name).contents() }
}

/// A boot that the node has not seen.
fn boot(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

#[test]
fn killed_twice_while_preparing_with_a_reboot_after_each_nothing_is_left_and_the_next_call_gets_the_same() {
    for release in ClassicRelease::ALL {
        let mut on = ClassicNode::started(release);
        on.node.allocate("train", &["card-1", "card-2"]);
        on.node.allocate("other", &["card-0", "pool:2"]);
        let (claim, other) = (allocated("train", &["card-1", "card-2"]), allocated("other", &["card-0", "pool:2"]));
        let (list, other_list) = (on.prepare_one(&claim), on.prepare_one(&other));
        let (whole, other_whole) = (outside_of_records(&on, "train"), outside_of_records(&on, "other"));
        on.unprepare("train").unwrap();
        for (number, (step, at)) in [("prepare", "after"), ("verify", "before")].into_iter().enumerate() {
            let case = format!("{release:?}: killed {at} {step}");
            on.node.script(&kill_at(step, at, "card-2"));
            on.prepare(std::slice::from_ref(&claim)).expect_err(&case);
            assert_eq!(on.node.wait().code(), Some(KILL_EXIT_CODE), "{case}");
            on.node.reboot(&boot(number + 2));
            on.node.script(SCRIPT);
            on.begin();
            wait_for(&case, || (on.node.state("other").as_deref() == Some("prepared")).then_some(()));
            assert!(on.node.traces("train").is_gone(), "{case}");
            assert_eq!(outside_of_records(&on, "other"), other_whole, "{case}: the other claim");
        }
        assert_eq!(on.prepare_one(&claim), list, "{release:?}");
        assert_eq!(outside_of_records(&on, "train"), whole, "{release:?}");
        assert_eq!(on.prepare_one(&other), other_list, "{release:?}: the other claim");
        assert!(on.node.stop().success());
    }
}

#[test]
fn killed_twice_while_claims_are_made_anew_with_a_reboot_between_they_are_what_the_kubelet_was_told() {
    for release in ClassicRelease::ALL {
        let mut on = ClassicNode::started(release);
        on.node.allocate("train", &["card-1", "card-2"]);
        let claim = allocated("train", &["card-1", "card-2"]);
        let list = on.prepare_one(&claim);
        let whole = outside_of_records(&on, "train");
        on.node.kill();
        for (number, (step, at)) in [("prepare", "after"), ("verify", "after")].into_iter().enumerate() {
            on.node.reboot(&boot(number + 2));
            on.node.script(&kill_at(step, at, "card-2"));
            Host::spawn(&mut on.node);
            assert_eq!(on.node.wait().code(), Some(KILL_EXIT_CODE), "{release:?}: {at} {step}");
        }
        on.node.script(SCRIPT);
        // The handle is in the kubelet's memory alone, or the claim is gone: neither is needed.
        let _ = fs::remove_dir_all(on.node.path("manifests"));
        on.begin();
        on.kubelet.restart();
        on.register().unwrap();
        wait_for("the claim", || (on.node.state("train").as_deref() == Some("prepared")).then_some(()));
        assert_eq!(outside_of_records(&on, "train"), whole, "{release:?}");
        assert_eq!(on.prepare_one(&claim), list, "{release:?}");
        on.unprepare("train").unwrap();
        assert!(on.node.traces("train").is_gone(), "{release:?}");
        assert!(on.node.stop().success());
    }
}

#[test]
fn a_handle_that_cannot_be_used_is_refused_with_its_field_and_a_mended_one_works() {
    let mut foreign = handle(&["card-1"]);
    foreign["results"][0]["driver"] = json!("gpu.example.com");
    let foreign = foreign.to_string();
    let newer = handle(&["card-1"]).to_string().replace("hostler.dev/v1alpha1", "hostler.dev/v9");
    let elsewhere = handle(&["card-1"]).to_string().replace(r#""node":"node""#, r#""node":"node-b""#);
    let whole = handle(&["card-1"]).to_string();
    for release in ClassicRelease::WITH_HANDLES {
        let mut on = ClassicNode::started(release);
        for (what, data, words) in [
            ("another driver's", "numa0,numa1", "another controller's"),
            ("damaged", &whole[..whole.len() - 9], "damaged"),
            ("too large", &"x".repeat(16 * 1024 + 1), "16385 bytes, and 16384 are allowed"),
            ("newer", &newer, "hostler.dev/v9"),
            ("for another driver", &foreign, "none of them has driver"),
            ("for another node", &elsewhere, "for node node-b, and this is node node"),
        ] {
            let error = on.prepare(&[with_handle("train", data)]).unwrap_err().to_string();
            let has_field = error.contains("field status.allocation.resourceHandles[].data: ");
            assert!(has_field && error.contains(words), "{release:?}: {what}: {error}");
            assert!(on.node.traces("train").is_gone(), "{release:?}: {what}");
        }
        assert_eq!(on.prepare_one(&allocated("train", &["card-1"])).len(), 1, "{release:?}");
        // A recorded claim needs no handle any more.
        on.kubelet.restart();
        on.register().unwrap();
        assert_eq!(on.prepare_one(&with_handle("train", "damaged")).len(), 1, "{release:?}");
    }
}

#[test]
fn a_claim_without_a_handle_says_that_nobody_allocated_it() {
    for release in [ClassicRelease::V1_26, ClassicRelease::V1_27] {
        let mut on = ClassicNode::started(release);
        let error = on.prepare(&[with_handle("train", "")]).unwrap_err().to_string();
        assert!(error.contains("must have driverName: hostler.dev"), "{release:?}: {error}");
    }
    // An older shape without any handle looks like a newer one; the answer is read alike, and configuration can tell.
    let mut on = ClassicNode::started(ClassicRelease::V1_30);
    let error = on.prepare(&[with_handle("train", "")]).unwrap_err().to_string();
    assert!(error.contains("failed to read the allocation"), "{error}");
    let mut on = ClassicNode::configured(ClassicRelease::V1_30, "[kubelet]\nclassic = \"handles\"\n");
    let error = on.prepare(&[with_handle("train", "")]).unwrap_err().to_string();
    assert!(error.contains("must have driverName: hostler.dev"), "{error}");
}

#[test]
fn of_the_claims_of_a_pod_each_has_its_own_answer() {
    for release in [ClassicRelease::V1_28, ClassicRelease::V1_30] {
        let mut on = ClassicNode::started(release);
        let (one, bad, other) =
            (allocated("one", &["card-1"]), with_handle("bad", "?"), allocated("other", &["card-2", "pool:2"]));
        let error = on.prepare(&[one.clone(), bad, other.clone()]).unwrap_err().to_string();
        assert!(error.contains("claim bad: "), "{error}");
        assert!(on.node.traces("one").is_whole(1) && on.node.traces("other").is_whole(2), "{release:?}");
        let cdi_ids = on.prepare(&[one, other]).unwrap();
        assert_eq!(cdi_ids.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2], "{release:?}");
    }
}

#[test]
fn handles_of_other_drivers_are_not_ours_to_read() {
    for release in [ClassicRelease::V1_27, ClassicRelease::V1_28, ClassicRelease::V1_30] {
        let mut on = ClassicNode::started(release);
        let mut claim = allocated("train", &["card-1"]);
        "gpu.example.com".clone_into(&mut claim.driver);
        claim.handles = vec![(String::new(), "gpu-0".to_owned()), (DRIVER.to_owned(), handle(&["card-1"]).to_string())];
        assert_eq!(on.prepare_one(&claim).len(), 1, "{release:?}");
        on.unprepare("train").unwrap();
        assert!(on.node.traces("train").is_gone(), "{release:?}");
    }
}

#[test]
fn a_claim_that_can_do_without_devices_starts_without_them() {
    let empty = json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "ResourceHandle", "node": "node", "results": [],
        "absent": ["card"]});
    for release in [ClassicRelease::V1_28, ClassicRelease::V1_30] {
        let mut on = ClassicNode::started(release);
        assert_eq!(on.prepare_one(&with_handle("train", &empty.to_string())), [""; 0], "{release:?}");
        on.unprepare("train").unwrap();
        assert!(on.node.traces("train").is_gone(), "{release:?}");
    }
    // A container runtime of these releases could not read the names.
    for release in [ClassicRelease::V1_26, ClassicRelease::V1_27] {
        let mut on = ClassicNode::started(release);
        let error = on.prepare(&[with_handle("train", &empty.to_string())]).unwrap_err().to_string();
        assert!(error.contains("let one of its requests be without optional"), "{release:?}: {error}");
    }
}

#[test]
fn one_device_is_not_given_to_two_claims_whatever_the_handles_say() {
    let mut on = ClassicNode::started(ClassicRelease::V1_28);
    on.prepare_one(&allocated("one", &["card-1"]));
    let error = on.prepare(&[allocated("other", &["card-1"])]).unwrap_err().to_string();
    assert!(error.contains("already prepared for claim"), "{error}");
}

#[test]
fn old_kubelets_take_one_instance_of_the_driver_at_a_time() {
    for release in ClassicRelease::ALL {
        let mut on = ClassicNode::started(release);
        let error = on.register().unwrap_err().to_string();
        assert!(error.contains("already registered"), "{release:?}: {error}");
        on.kubelet.deregister();
        assert!(on.register().unwrap().contains(&"1.0.0".to_owned()), "{release:?}");
    }
}

#[test]
fn a_daemon_that_is_told_so_has_nothing_for_old_kubelets() {
    let node = TestNode::new(Host::bare_with(SCRIPT, "[kubelet]\nclassic = \"off\"\n"));
    let kubelet = ClassicKubelet::new(node.path("kubelet"), ClassicRelease::V1_30);
    let mut on = ClassicNode { node, kubelet };
    on.node.start();
    let error = on.register().unwrap_err().to_string();
    assert!(error.contains("could not find a highest supported version"), "{error}");
    // Kubelets of today do not miss the classic service.
    on.node.register();
    on.node.allocate("train", &["card-1"]);
    on.node.prepare("train");
}
