//! CDI file and device list: a record as container runtimes and the kubelet see it. Pure.

use std::collections::BTreeSet;

use hostler_api::{ClaimUid, opaque::MemoryMode};
use hostler_backend::{ContainerEdits, MemoryPolicy, Pinning};
use hostler_cdi::{CdiDevice, CdiHook, CdiSpec, HookName};
use hostler_linux::IdSet;

use super::{
    PreparedDevice, metadata,
    naming::CdiNaming,
    store::{ClaimHoldings, ClaimRecord, RecordDevice},
};
use crate::pinning::Pins;

/// Annotation with what the claim holds, for the day on which its record cannot be read.
pub const HOLDINGS_ANNOTATION: &str = "hostler.dev/holdings";

/// Seconds after which a runtime gives up on the hook: far above what it needs, far below a kubelet's patience.
const HOOK_TIMEOUT_SECONDS: i64 = 10;

/// CDI device name of the device at `index` of a claim. It holds the claim's UID, so it is never used again.
fn cdi_name(uid: &ClaimUid, index: usize, device: &RecordDevice) -> String {
    format!("{uid}-{index}-{}", device.grant.device)
}

/// The device list that the kubelet gets: the same for the same record, to the byte.
pub fn prepared_devices(record: &ClaimRecord, naming: &CdiNaming) -> Vec<PreparedDevice> {
    let uid = &record.claim.uid;
    let answer = |(index, device): (usize, &RecordDevice)| PreparedDevice {
        request_names: vec![device.grant.top_level_request().to_owned()],
        pool: device.grant.pool.clone(),
        device: device.grant.device.clone(),
        cdi_ids: vec![format!("{}={}", naming.kind(), cdi_name(uid, index, device))],
        share_id: device.grant.share_id.clone(),
    };
    record.devices.iter().enumerate().map(answer).collect()
}

/// The claim's CDI file. Everything that a container needs is in it.
pub fn cdi_spec(record: &ClaimRecord, naming: &CdiNaming) -> CdiSpec {
    let mut spec = CdiSpec {
        cdi_version: String::new(),
        kind: naming.kind(),
        annotations: [(HOLDINGS_ANNOTATION.to_owned(), holdings(record))].into(),
        devices: record.devices.iter().enumerate().map(|(index, _)| cdi_device(record, index, naming)).collect(),
        // Once per container, however many devices of the claim it has.
        container_edits: ContainerEdits {
            hooks: vec![recording_hook(&record.claim.uid, naming)],
            ..Default::default()
        },
    };
    spec.cdi_version = hostler_cdi::minimum_version(&spec).to_string();
    spec
}

/// Serialises what the claim holds, without edits (the file has them anyway), state and boot: the file must stay the
/// same to the byte.
fn holdings(record: &ClaimRecord) -> String {
    let mut holdings = ClaimHoldings { claim: record.claim.clone(), devices: record.devices.clone() };
    holdings.devices.iter_mut().for_each(|device| device.edits = ContainerEdits::default());
    serde_json::json!(holdings).to_string()
}

fn cdi_device(record: &ClaimRecord, index: usize, naming: &CdiNaming) -> CdiDevice {
    let device = &record.devices[index];
    let uid = &record.claim.uid;
    let mut container_edits = ContainerEdits {
        // CDI wants at least one edit per device; this one also tells a program which hardware it got.
        env: vec![format!(
            "HOSTLER_DEVICE_{}_{index}={}/{}",
            uid.as_str().replace('-', "_"),
            device.grant.pool,
            device.grant.device
        )],
        ..ContainerEdits::default()
    };
    container_edits.append(&device.edits);
    let request = device.grant.top_level_request();
    // A container gets a whole request, so the file comes with the request's first device.
    if record.devices[..index].iter().all(|earlier| earlier.grant.top_level_request() != request) {
        container_edits.mounts.extend(metadata::mount(record, request, naming));
    }
    let own = bound(record, device);
    container_edits.env.extend(pinning_env(uid, &shared(record, device, &own)));
    if own.binds() {
        container_edits.hooks.push(pinning_hook(uid, &own, naming));
    }
    CdiDevice { name: cdi_name(uid, index, device), annotations: Default::default(), container_edits }
}

/// CPUs and NUMA nodes to which the hook of a device binds a container.
pub fn device_pins(record: &ClaimRecord, device: &RecordDevice) -> Pins {
    let bound = bound(record, device);
    Pins { cpus: IdSet::from(bound.cpus), mems: IdSet::from(bound.mems) }
}

/// Binding of a container with this device. Interleaving means all of the claim's interleaved nodes, whichever of its
/// devices a container has.
fn bound(record: &ClaimRecord, device: &RecordDevice) -> Pinning {
    let mut own = device.plan.pinning.clone();
    own.policy = own.policy.map(|policy| MemoryPolicy { nodes: policy_nodes(record, device, policy.mode), ..policy });
    if let Some(MemoryPolicy { mode: MemoryMode::Interleave, nodes }) = &own.policy {
        own.mems.extend(nodes);
    }
    own
}

/// NUMA nodes under one policy: for `Bind` those of the request, as variables name what a request binds; else those
/// of the claim, as a program has one policy.
fn policy_nodes(record: &ClaimRecord, device: &RecordDevice, mode: MemoryMode) -> BTreeSet<u32> {
    let request = device.grant.top_level_request();
    let others =
        record.devices.iter().filter(|other| mode != MemoryMode::Bind || other.grant.top_level_request() == request);
    let policies = others.filter_map(|other| other.plan.pinning.policy.as_ref());
    policies.filter(|policy| policy.mode == mode).flat_map(|policy| &policy.nodes).copied().collect()
}

/// Binding that the variables of a device name. A container gets a whole request, so they name what the request binds
/// of the same kind.
fn shared(record: &ClaimRecord, device: &RecordDevice, own: &Pinning) -> Pinning {
    let request = device.grant.top_level_request();
    let mut shared = own.clone();
    for other in record.devices.iter().filter(|other| other.grant.top_level_request() == request) {
        let pinning = &other.plan.pinning;
        if !own.cpus.is_empty() {
            shared.cpus.extend(&pinning.cpus);
        }
        if !own.mems.is_empty() {
            shared.mems.extend(&pinning.mems);
        }
    }
    shared
}

/// Variables of a binding. `DRA_CPUSET_<uid>` is the name under which KubeVirt and others look for exclusive CPUs.
fn pinning_env(uid: &ClaimUid, pinning: &Pinning) -> Vec<String> {
    let cpuset = format!("DRA_CPUSET_{uid}");
    let list = |ids: &BTreeSet<u32>| IdSet::from(ids.clone());
    let policy = pinning.policy.as_ref();
    let policy = policy.map(|policy| format!("HOSTLER_MEMPOLICY={}:{}", policy.mode, list(&policy.nodes)));
    [("HOSTLER_CPUS", &pinning.cpus), ("HOSTLER_MEMS", &pinning.mems), (&*cpuset, &pinning.cpus)]
        .into_iter()
        .filter(|(_, ids)| !ids.is_empty())
        .map(|(name, ids)| format!("{name}={}", list(ids)))
        .chain(policy)
        .collect()
}

/// The hook that binds the container. Each device brings its own; every one of them applies the union of all.
fn pinning_hook(uid: &ClaimUid, pinning: &Pinning, naming: &CdiNaming) -> CdiHook {
    let mut args: Vec<String> = ["hostler", "hook", "cpuset", "--claim", uid.as_str()].map(str::to_owned).into();
    for (flag, ids) in [("--cpus", &pinning.cpus), ("--mems", &pinning.mems)] {
        if !ids.is_empty() {
            args.extend([flag.to_owned(), IdSet::from(ids.clone()).to_string()]);
        }
    }
    hook(args, naming)
}

/// The hook that notes the container that uses the claim.
fn recording_hook(uid: &ClaimUid, naming: &CdiNaming) -> CdiHook {
    let folder = naming.containers.to_string_lossy();
    let args = ["hostler", "hook", "record", "--claim", uid.as_str(), "--containers", &*folder];
    hook(args.map(str::to_owned).into(), naming)
}

fn hook(args: Vec<String>, naming: &CdiNaming) -> CdiHook {
    CdiHook {
        hook_name: HookName::CreateRuntime,
        path: naming.hook.to_string_lossy().into_owned(),
        args,
        env: Vec::new(),
        timeout: Some(HOOK_TIMEOUT_SECONDS),
    }
}

#[cfg(test)]
mod tests;
