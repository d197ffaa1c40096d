//! What a record means to a container runtime and to the kubelet: CDI file and device list. Pure.

use std::path::PathBuf;

use hostler_backend::{ClaimUid, ContainerEdits, Pinning};
use hostler_cdi::{Device, Hook, HookName, Spec};
use hostler_linux::IdSet;

use super::{
    PreparedDevice,
    store::{Holdings, Record, RecordDevice},
};

/// CDI class of every claim's file.
const CLASS: &str = "claim";

/// Annotation with what the claim holds, for the day on which its record cannot be read.
pub const HOLDINGS_ANNOTATION: &str = "hostler.dev/holdings";

/// Seconds after which a runtime gives up on the hook: far above what it needs, far below a kubelet's patience.
const HOOK_TIMEOUT_SECONDS: i64 = 10;

/// What names in CDI files are made of.
#[derive(Clone, Debug)]
pub struct Naming {
    /// CDI vendor: the driver's name.
    pub driver: String,
    /// The binary that containers' hooks run, as the runtime sees it.
    pub hook: PathBuf,
}

impl Naming {
    /// `vendor/class` of claim files.
    pub fn kind(&self) -> String {
        format!("{}/{CLASS}", self.driver)
    }

    /// Name of a claim's CDI file, without the ending.
    pub fn stem(&self, uid: &ClaimUid) -> String {
        format!("{}-{CLASS}_{uid}", self.driver)
    }

    /// The claim whose CDI file has this name, if it is one.
    pub fn claim_of_stem(&self, stem: &str) -> Option<ClaimUid> {
        ClaimUid::new(stem.strip_prefix(&format!("{}-{CLASS}_", self.driver))?).ok()
    }
}

/// CDI device name of the device at `index` of a claim. It holds the claim's UID, so it is never used again.
fn cdi_name(uid: &ClaimUid, index: usize, device: &RecordDevice) -> String {
    format!("{uid}-{index}-{}", device.grant.device)
}

/// The device list that the kubelet gets: the same for the same record, to the byte.
pub fn prepared_devices(record: &Record, naming: &Naming) -> Vec<PreparedDevice> {
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
pub fn cdi_spec(record: &Record, naming: &Naming) -> Spec {
    let mut spec = Spec {
        cdi_version: String::new(),
        kind: naming.kind(),
        annotations: [(HOLDINGS_ANNOTATION.to_owned(), holdings(record))].into(),
        devices: record.devices.iter().enumerate().map(|(index, _)| cdi_device(record, index, naming)).collect(),
        container_edits: claim_edits(record),
    };
    spec.cdi_version = hostler_cdi::minimum_version(&spec).to_string();
    spec
}

/// Neither edits, which stand in the file anyway, nor state, nor boot: the file must stay the same to the byte.
fn holdings(record: &Record) -> String {
    let mut holdings = Holdings { claim: record.claim.clone(), devices: record.devices.clone() };
    holdings.devices.iter_mut().for_each(|device| device.edits = ContainerEdits::default());
    serde_json::json!(holdings).to_string()
}

/// Edits of every container that uses any part of the claim.
fn claim_edits(record: &Record) -> ContainerEdits {
    let cpus = pinning(record.devices.iter()).cpus;
    let env = if cpus.is_empty() {
        Vec::new()
    } else {
        // The name under which KubeVirt and others look for exclusive CPUs.
        vec![format!("DRA_CPUSET_{}={}", record.claim.uid, IdSet::from(cpus))]
    };
    ContainerEdits { env, ..ContainerEdits::default() }
}

fn cdi_device(record: &Record, index: usize, naming: &Naming) -> Device {
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
    if !device.plan.pinning.is_empty() {
        // A container gets the whole request or none of it, so the variables name the request's CPUs and nodes.
        let request = device.grant.top_level_request();
        let siblings = record.devices.iter().filter(|other| other.grant.top_level_request() == request);
        container_edits.env.extend(pinning_env(&pinning(siblings)));
        container_edits.hooks.push(pinning_hook(uid, &device.plan.pinning, naming));
    }
    Device { name: cdi_name(uid, index, device), annotations: Default::default(), container_edits }
}

fn pinning<'a>(devices: impl Iterator<Item = &'a RecordDevice>) -> Pinning {
    devices.fold(Pinning::default(), |mut all, device| {
        all.extend(&device.plan.pinning);
        all
    })
}

fn pinning_env(pinning: &Pinning) -> Vec<String> {
    [("HOSTLER_CPUS", &pinning.cpus), ("HOSTLER_MEMS", &pinning.mems)]
        .into_iter()
        .filter(|(_, ids)| !ids.is_empty())
        .map(|(name, ids)| format!("{name}={}", IdSet::from(ids.clone())))
        .collect()
}

/// The hook that binds the container. Each device brings its own; every one of them applies the union of all.
fn pinning_hook(uid: &ClaimUid, pinning: &Pinning, naming: &Naming) -> Hook {
    let mut args: Vec<String> = ["hostler", "hook", "cpuset", "--claim", uid.as_str()].map(str::to_owned).into();
    for (flag, ids) in [("--cpus", &pinning.cpus), ("--mems", &pinning.mems)] {
        if !ids.is_empty() {
            args.extend([flag.to_owned(), IdSet::from(ids.clone()).to_string()]);
        }
    }
    Hook {
        hook_name: HookName::CreateRuntime,
        path: naming.hook.to_string_lossy().into_owned(),
        args,
        env: Vec::new(),
        timeout: Some(HOOK_TIMEOUT_SECONDS),
    }
}

#[cfg(test)]
mod tests;
