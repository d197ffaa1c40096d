//! Containers with claims.

use hostler::admin::types::AdminClaim;
use hostler_linux::testkit::CpuLayout;
use hostler_proto::nri::{LinuxCpu, LinuxResources, OptionalInt64, OptionalUInt64};
use hostler_testing::nri::{ContainerSpec, NriVersion, RivalPlugin};
use serde_json::json;

use super::rig::{ALL, Rig, SharedPool, set};

/// Returns the kubelet's request when a pod is resized.
fn resized(cpus: &str, mems: &str) -> LinuxResources {
    let cpu = LinuxCpu {
        shares: Some(OptionalUInt64 { value: 512 }),
        quota: Some(OptionalInt64 { value: 150_000 }),
        cpus: cpus.to_owned(),
        mems: mems.to_owned(),
        ..LinuxCpu::default()
    };
    LinuxResources { cpu: Some(cpu), ..LinuxResources::default() }
}

#[test]
fn a_container_is_made_with_the_cpus_and_nodes_of_its_claim() {
    let rig = Rig::new(SharedPool::Off);
    let claim = rig.claim("a", &["cpu/numa1,cpus=2", "memory/node1,memory=64Mi"]);
    assert_eq!((claim.cpus.len(), claim.mems.to_string().as_str()), (2, "1"));
    let id = rig.runtime.create(&rig.container("pod", "main", &[&claim])).unwrap();
    rig.assert_bound(&id, &claim);
    assert_eq!(rig.runtime.cpus_so_far(&id).len(), 1, "it was made so, and not changed later");
}

#[test]
fn a_container_with_two_claims_has_the_union_in_any_order() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let one = rig.claim("a", &["cpu/numa0,cpus=2", "memory/node0,memory=64Mi"]);
    let other = rig.claim("b", &["cpu/numa1,cpus=3", "memory/node1,memory=64Mi"]);
    for claims in [[&one, &other], [&other, &one]] {
        let id = rig.run_container("pod", "main", &claims);
        assert_eq!(rig.runtime.cpus(&id), one.cpus.union(&other.cpus).to_string());
        assert_eq!(rig.runtime.mems(&id), "0-1");
    }
}

#[test]
fn a_claim_for_memory_alone_binds_no_cpus() {
    let rig = Rig::new(SharedPool::Off);
    let claim = rig.claim("a", &["memory/node1,memory=64Mi"]);
    let id = rig.run_container("pod", "main", &[&claim]);
    assert_eq!((rig.runtime.cpus(&id), rig.runtime.mems(&id)), (String::new(), "1".to_owned()));
}

#[test]
fn init_containers_and_sidecars_share_a_claim_with_the_main_container() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2"]);
    let init = rig.run_container("pod", "init", &[&claim]);
    rig.assert_bound(&init, &claim);
    rig.runtime.stop_container(&init).unwrap();
    let sidecar = rig.run_container("pod", "sidecar", &[&claim]);
    rig.runtime.remove_container(&init).unwrap();
    let main = rig.run_container("pod", "main", &[&claim]);
    for id in [&sidecar, &main] {
        rig.assert_bound(id, &claim);
    }
    // A container that starts again gets the same CPUs.
    rig.runtime.remove_container(&main).unwrap();
    let again = rig.run_container("pod", "main", &[&claim]);
    rig.assert_bound(&again, &claim);
    rig.assert_bound(&sidecar, &claim);
}

#[test]
fn a_resize_in_place_keeps_cpus_and_nodes() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2", "memory/node0,memory=64Mi"]);
    let id = rig.run_container("pod", "main", &[&claim]);
    // The kubelet names no CPUs, all of them, or those of its own manager.
    for (cpus, mems) in [("", ""), (ALL, "0-1"), ("14-15", "1")] {
        let has = rig.runtime.update_container(&id, &resized(cpus, mems)).unwrap();
        rig.assert_bound(&id, &claim);
        let cpu = has.cpu.unwrap();
        assert_eq!((cpu.shares.unwrap().value, cpu.quota.unwrap().value), (512, 150_000), "the rest is as asked for");
    }
}

#[test]
fn a_resize_of_a_container_without_a_claim_leaves_it_in_the_pool() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2"]);
    let id = rig.run_container("pod", "main", &[]);
    rig.runtime.update_container(&id, &resized(ALL, "")).unwrap();
    assert_eq!(rig.runtime.cpus(&id), super::rig::without(&[&claim]));
}

#[test]
fn a_resize_of_a_container_that_nobody_binds_is_as_asked_for() {
    let rig = Rig::new(SharedPool::Off);
    let id = rig.run_container("pod", "main", &[]);
    rig.runtime.update_container(&id, &resized("3", "")).unwrap();
    assert_eq!(rig.runtime.cpus(&id), "3");
}

#[test]
fn variables_of_an_image_bind_nothing() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let (own, others) = (rig.claim("a", &["cpu/numa0,cpus=2"]), rig.claim("b", &["cpu/numa0,cpus=2"]));
    let forge = |container: ContainerSpec| {
        container
            .env(&format!("HOSTLER_CPUS={ALL}"))
            .env("HOSTLER_MEMS=0-1")
            .env(&format!("DRA_CPUSET_{}={}", others.uid, others.cpus))
            .env(&format!("DRA_CPUSET_{}={ALL}", own.uid))
            .env("DRA_CPUSET_=\u{1f}")
    };
    let bound = rig.runtime.run(&forge(rig.container("pod", "bound", &[&own]))).unwrap();
    assert_eq!(rig.runtime.cpus(&bound), own.cpus.to_string());
    let free = rig.runtime.run(&forge(rig.container("pod", "free", &[]))).unwrap();
    assert_eq!(rig.runtime.cpus(&free), super::rig::without(&[&own, &others]));
    assert_eq!(rig.runtime.mems(&free), "");
}

#[test]
fn cpus_above_1024_are_cpus() {
    let layout = CpuLayout { nodes: 2, cores: 640, threads: 1, blocks: 1 };
    let rig = Rig::with(SharedPool::ExcludeExclusive, layout, NriVersion::V0_12_2);
    let claim = rig.claim("a", &["cpu/numa1,cpus=600"]);
    assert!(claim.cpus.iter().any(|cpu| cpu > 1024), "{}", claim.cpus);
    let bound = rig.run_container("pod", "bound", &[&claim]);
    rig.assert_bound(&bound, &claim);
    let free = rig.run_container("pod", "free", &[]);
    assert_eq!(rig.runtime.cpus(&free), set("0-1279").difference(&claim.cpus).to_string());
}

#[test]
fn a_container_that_another_plugin_would_bind_elsewhere_is_not_made() {
    let rig = Rig::new(SharedPool::Off);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2"]);
    rig.runtime.rival(RivalPlugin { name: "10-rival".into(), cpus: "15".into() });
    let refusal = rig.runtime.create(&rig.container("pod", "main", &[&claim])).unwrap_err();
    assert!(refusal.contains("both tried to set CPUset cpus"), "{refusal}");
    // It fails for this container alone; the plugin is still there.
    let id = rig.run_container("pod", "other", &[]);
    assert_eq!(rig.runtime.cpus(&id), "15");
    assert_eq!(rig.runtime.connections(), 1);
}

#[test]
fn a_container_of_a_claim_that_was_taken_back_is_refused() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2"]);
    let late = rig.container("pod", "main", &[&claim]);
    rig.release(&claim);
    let refusal = rig.runtime.create(&late).unwrap_err();
    assert!(refusal.contains(&claim.uid), "{refusal}");
    // By now its CPUs belong to another claim.
    let other = rig.claim("b", &["cpu/numa0,cpus=8"]);
    let id = rig.run_container("pod", "other", &[&other]);
    rig.assert_bound(&id, &other);
}

#[test]
fn a_claim_of_a_manifest_has_whatever_uid_its_author_gave_it() {
    let rig = Rig::new(SharedPool::ExcludeExclusive);
    let long = "a-claim-with-a-name-that-is-longer-than-any-uid-of-a-cluster";
    for (name, uid) in [("short", "short-5f0c"), ("long", long)] {
        rig.manifest(name, uid, &[("cpus", "cpu", "numa0", json!({"cpus": "2"}))]);
        let claim: AdminClaim = serde_json::from_str(&rig.run_ok(&["claim", "prepare", name, "-o", "json"])).unwrap();
        let [device] = &*claim.devices else { panic!("{:?}", claim.devices) };
        let container = ContainerSpec::new("pod", name).devices(&rig.path("cdi"), &device.cdi_ids);
        let id = rig.runtime.create(&container).unwrap();
        assert_eq!((rig.runtime.cpus(&id), set(&device.cpus).len()), (device.cpus.clone(), 2));
    }
}
