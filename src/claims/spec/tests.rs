//! What a record becomes for the runtime and the kubelet.

use super::{
    super::{store::RecordState, testing::*},
    *,
};

/// A claim with two CPU devices and a memory device in request `a`, one CPU device in request `b`, and a plain device.
fn claim_of_all_kinds() -> ClaimRecord {
    let mut record = record("u1", RecordState::Prepared, "boot");
    let device = |request: &str, name: &str, cpus: &[u32], mems: &[u32]| RecordDevice {
        local: None,
        grant: hostler_api::Grant { request: request.to_owned(), ..grant(name) },
        plan: hostler_backend::DevicePlan {
            pinning: Pinning {
                cpus: cpus.iter().copied().collect(),
                mems: mems.iter().copied().collect(),
                policy: None,
            },
            data: serde_json::Value::Null,
        },
        ..record.devices[0].clone()
    };
    record.devices = vec![
        device("a", "numa0", &[0, 1], &[]),
        device("a", "numa1", &[8, 9], &[]),
        device("a", "node0", &[], &[0]),
        device("b/small", "numa2", &[16], &[]),
        device("c", "card", &[], &[]),
    ];
    record
}

#[test]
fn every_device_has_a_cdi_id_of_its_own_that_holds_the_uid() {
    let devices = prepared_devices(&claim_of_all_kinds(), &naming());
    let first: BTreeSet<&str> = devices.iter().map(|device| device.cdi_ids[0].as_str()).collect();
    assert_eq!(first.len(), 5);
    assert_eq!(devices[0].cdi_ids, ["hostler.dev/claim=u1-0-numa0"]);
    assert_eq!(devices[3].request_names, ["b"], "the kubelet knows top-level requests only");
    let spec = cdi_spec(&claim_of_all_kinds(), &naming());
    let in_file: Vec<String> = spec.devices.iter().map(|device| format!("{}={}", spec.kind, device.name)).collect();
    assert_eq!(in_file, devices.iter().map(|device| device.cdi_ids[0].clone()).collect::<Vec<_>>());
}

#[test]
fn the_file_is_valid_and_asks_for_no_more_than_the_version_it_needs() {
    let spec = cdi_spec(&claim_of_all_kinds(), &naming());
    spec.validate().unwrap();
    assert_eq!(spec.cdi_version, "0.6.0", "annotations are the newest thing in it");
}

#[test]
fn variables_name_what_the_request_got_and_nothing_more() {
    let spec = cdi_spec(&claim_of_all_kinds(), &naming());
    let env = |index: usize| spec.devices[index].container_edits.env.clone();
    assert_eq!(env(0)[0], "HOSTLER_DEVICE_u1_0=node/bench/numa0");
    assert_eq!(env(0)[2..], ["HOSTLER_CPUS=0-1,8-9", "DRA_CPUSET_u1=0-1,8-9"]);
    assert_eq!(env(2)[2..], ["HOSTLER_MEMS=0"]);
    assert_eq!(env(3)[2..], ["HOSTLER_CPUS=16", "DRA_CPUSET_u1=16"]);
    assert_eq!(env(4)[2..], [""; 0]);
    assert!(spec.container_edits.env.is_empty(), "a container gets what it asked for");
}

#[test]
fn only_pinned_devices_bring_the_hook_each_with_its_own_sets() {
    let spec = cdi_spec(&claim_of_all_kinds(), &naming());
    let args = |index: usize| spec.devices[index].container_edits.hooks.iter().map(|hook| hook.args.join(" "));
    assert_eq!(args(1).collect::<Vec<_>>(), ["hostler hook cpuset --claim u1 --cpus 8-9"]);
    assert_eq!(args(2).collect::<Vec<_>>(), ["hostler hook cpuset --claim u1 --mems 0"]);
    assert_eq!(args(4).count(), 0);
}

#[test]
fn every_container_with_any_device_is_noted_once() {
    let spec = cdi_spec(&claim_of_all_kinds(), &naming());
    let [hook] = &*spec.container_edits.hooks else { panic!("{:?}", spec.container_edits) };
    assert_eq!(hook.args.join(" "), "hostler hook record --claim u1 --containers /state/containers");
    assert_eq!((hook.hook_name, &*hook.path), (HookName::CreateRuntime, "/usr/bin/hostler"));
}

#[test]
fn the_file_says_what_is_held_for_the_day_on_which_the_record_is_lost() {
    let record = claim_of_all_kinds();
    let spec = cdi_spec(&record, &naming());
    let held: ClaimHoldings = serde_json::from_str(&spec.annotations[HOLDINGS_ANNOTATION]).unwrap();
    assert_eq!(held.claim, record.claim);
    assert_eq!(held.devices[1].plan, record.devices[1].plan);
}

#[test]
fn only_the_names_of_claim_files_are_read_as_such() {
    let naming = naming();
    assert_eq!(naming.claim_of_stem(&naming.stem(&uid("u1"))), Some(uid("u1")));
    for foreign in ["hostler.dev-claim_", "hostler.dev-gpu_u1", "other.dev-claim_u1", "hostler.dev-claim_../x"] {
        assert_eq!(naming.claim_of_stem(foreign), None, "{foreign}");
    }
}

#[test]
fn a_memory_policy_is_told_and_only_interleaving_goes_beyond_the_request() {
    let mut record = claim_of_all_kinds();
    let plain = record.devices[2].clone();
    let device = |request: &str, node: u32, mode: MemoryMode| {
        let mut device = plain.clone();
        device.grant.request = request.to_owned();
        let mems = if mode == MemoryMode::Preferred { BTreeSet::new() } else { [node].into() };
        let policy = Some(MemoryPolicy { mode, nodes: [node].into() });
        device.plan.pinning = Pinning { cpus: BTreeSet::new(), mems, policy };
        device
    };
    for (mode, policy, hook) in [
        (MemoryMode::Bind, "bind:0", Some("0")),
        (MemoryMode::Preferred, "preferred:0,2", None),
        (MemoryMode::Interleave, "interleave:0,2", Some("0,2")),
    ] {
        record.devices = vec![device("a", 0, mode), device("b", 2, mode)];
        let edits = &cdi_spec(&record, &naming()).devices[0].container_edits;
        let told = edits.env.iter().filter_map(|env| env.strip_prefix("HOSTLER_MEMPOLICY="));
        assert_eq!(told.collect::<Vec<_>>(), [policy]);
        let mems = edits.env.iter().find_map(|env| env.strip_prefix("HOSTLER_MEMS="));
        assert_eq!(mems, hook, "{policy}");
        let bound = edits.hooks.iter().map(|hook| hook.args[5..].join(" ")).collect::<Vec<_>>();
        assert_eq!(bound, hook.iter().map(|mems| format!("--mems {mems}")).collect::<Vec<_>>());
    }
}

#[test]
fn one_request_with_several_nodes_has_one_policy_of_all_of_them() {
    let mut record = claim_of_all_kinds();
    let mut first = record.devices[2].clone();
    first.plan.pinning.policy = Some(MemoryPolicy { mode: MemoryMode::Bind, nodes: [0].into() });
    let mut second = first.clone();
    second.plan.pinning.mems = [1].into();
    second.plan.pinning.policy = Some(MemoryPolicy { mode: MemoryMode::Bind, nodes: [1].into() });
    record.devices = vec![first, second];
    for device in cdi_spec(&record, &naming()).devices {
        assert!(device.container_edits.env.contains(&"HOSTLER_MEMPOLICY=bind:0-1".to_owned()));
    }
}
