//! A host with a kubelet that calls its daemon, and what claims leave on the host: records, CDI files, hardware.

use std::{
    collections::BTreeMap,
    fs,
    ops::{Deref, DerefMut},
    os::unix::fs::MetadataExt,
};

use hostler_proto::dra_v1::{Claim, Device};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    host::{Host, SCRIPT, script_with},
    kubelet::{ClaimAnswers, Kubelet, KubeletPlugin, KubeletRelease, KubeletResult, claim},
};

/// A fault that ends the daemon.
pub fn kill_at(step: &str, at: &str, device: &str) -> String {
    script_with(&format!("[[fault]]\nstep = \"{step}\"\nat = \"{at}\"\ndevice = \"{device}\"\nkill = true"))
}

/// The UID of the claim with this name.
pub fn uid(name: &str) -> String {
    format!("{name}-5f0c")
}

/// The claim with this name.
pub fn named(name: &str) -> Claim {
    claim("default", name, &uid(name))
}

/// A host with its kubelet.
pub struct TestNode {
    host: Host,
    runtime: Runtime,
    plugin: Option<KubeletPlugin>,
}

impl Deref for TestNode {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl DerefMut for TestNode {
    fn deref_mut(&mut self) -> &mut Host {
        &mut self.host
    }
}

impl TestNode {
    /// A node whose daemon does not run yet.
    pub fn new(host: Host) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { host, runtime, plugin: None }
    }

    /// A node with the devices of [`SCRIPT`]; the daemon runs and is registered.
    pub fn started() -> Self {
        let mut node = Self::new(Host::bare(SCRIPT));
        node.begin();
        node
    }

    /// Starts the daemon and registers it with the kubelet.
    pub fn begin(&mut self) {
        self.host.start();
        self.register();
    }

    /// Registers the daemon that runs.
    pub fn register(&mut self) {
        self.plugin = Some(self.connected());
    }

    /// Another connection of the kubelet.
    pub fn connected(&self) -> KubeletPlugin {
        let kubelet = Kubelet::new(self.host.path("kubelet"), KubeletRelease::V1_36);
        self.block_on(kubelet.register()).unwrap()
    }

    /// Changes the files of a daemon that does not run as a reboot does: CDI files and hardware are gone, records are
    /// not.
    pub fn reboot(&mut self, boot_id: &str) {
        for folder in ["cdi", "hardware"] {
            let _ = fs::remove_dir_all(self.host.path(folder));
        }
        self.host.boot(boot_id);
    }

    /// Waits for something of the kubelet's.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Spawns something of the kubelet's.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(future)
    }

    /// Puts a manifest there that gives these devices to a claim; `pool:3` gives three units of the pool.
    pub fn allocate(&self, name: &str, devices: &[&str]) {
        let results: Vec<_> = devices
            .iter()
            .map(|device| match device.split_once(':') {
                Some((device, units)) => ("part", "fake", device, json!({ "units": units })),
                None => ("whole", "fake", *device, json!(null)),
            })
            .collect();
        self.host.manifest(name, &uid(name), &results);
    }

    /// Calls NodePrepareResources for claims.
    pub fn call_prepare(&mut self, names: &[&str]) -> KubeletResult<ClaimAnswers<Vec<Device>>> {
        let claims: Vec<Claim> = names.iter().map(|name| named(name)).collect();
        let plugin = self.plugin.as_mut().expect("the driver is registered");
        self.runtime.block_on(plugin.prepare(&claims))
    }

    /// Calls NodeUnprepareResources for claims.
    pub fn call_unprepare(&mut self, names: &[&str]) -> KubeletResult<ClaimAnswers<()>> {
        let claims: Vec<Claim> = names.iter().map(|name| named(name)).collect();
        let plugin = self.plugin.as_mut().expect("the driver is registered");
        self.runtime.block_on(plugin.unprepare(&claims))
    }

    /// The devices of a claim that can be prepared.
    pub fn prepare(&mut self, name: &str) -> Vec<Device> {
        let mut answers = self.call_prepare(&[name]).unwrap();
        answers.remove(&uid(name)).unwrap().unwrap_or_else(|error| panic!("{name} is not prepared: {error}"))
    }

    /// Returns the error of a prepare that must fail.
    pub fn prepare_error(&mut self, name: &str) -> String {
        self.call_prepare(&[name]).unwrap().remove(&uid(name)).unwrap().expect_err("the claim was prepared")
    }

    /// Takes back a claim that can be taken back.
    pub fn unprepare(&mut self, name: &str) {
        let mut answers = self.call_unprepare(&[name]).unwrap();
        answers.remove(&uid(name)).unwrap().unwrap_or_else(|error| panic!("{name} is not taken back: {error}"));
    }

    /// Returns the error of an unprepare that must fail.
    pub fn unprepare_error(&mut self, name: &str) -> String {
        self.call_unprepare(&[name]).unwrap().remove(&uid(name)).unwrap().expect_err("the claim was taken back")
    }

    /// Below the root.
    pub fn record_path(&self, name: &str) -> String {
        format!("state/claims/{}.json", uid(name))
    }

    /// Below the root.
    pub fn cdi_path(&self, name: &str) -> String {
        format!("cdi/hostler.dev-claim_{}.json", uid(name))
    }

    /// Returns the files of a claim.
    pub fn traces(&self, name: &str) -> ClaimTraces {
        let hardware = self.files("hardware").into_iter().filter(|file| file.starts_with(&format!("{}.", uid(name))));
        ClaimTraces {
            record: self.trace(&self.record_path(name)),
            cdi: self.trace(&self.cdi_path(name)),
            hardware: hardware.map(|file| (file.clone(), self.trace(&format!("hardware/{file}")).unwrap())).collect(),
        }
    }

    fn trace(&self, path: &str) -> Option<TraceFile> {
        let path = self.path(path);
        let bytes = fs::read(&path).ok()?;
        Some(TraceFile { bytes, inode: path.metadata().unwrap().ino() })
    }

    /// Names of everything in the folders that claims leave traces in, temporary files included. The file that shows
    /// whether a version without a journal was here is always there.
    pub fn all_traces(&self) -> Vec<String> {
        let names = |folder: &'static str| {
            let entries = fs::read_dir(self.path(folder)).into_iter().flatten();
            entries.map(move |entry| format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap()))
        };
        let traces = ["state/claims", "cdi", "hardware"].into_iter().flat_map(names);
        traces.filter(|path| path != "state/claims/.journal_kept.tmp").collect()
    }

    /// The state of a claim as the admin socket tells it; `None` if it does not know the claim.
    pub fn state(&self, name: &str) -> Option<String> {
        let (code, claim) = self.request("GET", &format!("/v1/claims/{}", uid(name)), "");
        (code == 200).then(|| claim["state"].as_str().unwrap().to_owned())
    }
}

/// A file that a claim has left.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TraceFile {
    /// The file's content.
    pub bytes: Vec<u8>,
    /// Another one if the file was written anew.
    pub inode: u64,
}

/// The files of a claim on a host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClaimTraces {
    /// The claim's record.
    pub record: Option<TraceFile>,
    /// The claim's CDI file.
    pub cdi: Option<TraceFile>,
    /// Files of the fake hardware for the claim.
    pub hardware: BTreeMap<String, TraceFile>,
}

impl ClaimTraces {
    /// Returns true if there are no files.
    pub fn is_gone(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if all files are there for a claim with so many devices.
    pub fn is_whole(&self, devices: usize) -> bool {
        let prepared = |record: &TraceFile| is_prepared(&record.bytes, devices);
        self.record.as_ref().is_some_and(prepared) && self.cdi.is_some() && self.hardware.len() == devices
    }

    /// The contents alone: what has to be the same when it was made anew.
    pub fn contents(&self) -> Self {
        let content = |trace: &TraceFile| TraceFile { bytes: trace.bytes.clone(), inode: 0 };
        Self {
            record: self.record.as_ref().map(|trace| TraceFile { bytes: without_time(&trace.bytes), inode: 0 }),
            cdi: self.cdi.as_ref().map(content),
            hardware: self.hardware.iter().map(|(file, trace)| (file.clone(), content(trace))).collect(),
        }
    }
}

/// A record without when it was made, as which entry of the journal, and without the checksum over both: what is made
/// anew is made later.
fn without_time(file: &[u8]) -> Vec<u8> {
    let Ok(mut envelope) = serde_json::from_slice::<Value>(file) else { return file.to_owned() };
    if let Some(record) = envelope.get_mut("record").and_then(Value::as_object_mut) {
        record.remove("since");
        record.remove("journal_entry");
    }
    if let Some(checksum) = envelope.get_mut("checksum") {
        *checksum = Value::Null;
    }
    envelope.to_string().into_bytes()
}

/// Returns true if a file is an undamaged record, in the version that the daemon writes, of a prepared claim with so
/// many devices.
fn is_prepared(file: &[u8], devices: usize) -> bool {
    let Ok(envelope) = serde_json::from_slice::<Value>(file) else { return false };
    let record = &envelope["record"];
    envelope["version"] == 1
        && envelope["checksum"] == format!("crc32:{:08x}", crc32fast::hash(record.to_string().as_bytes()))
        && record["state"] == "prepared"
        && record["devices"].as_array().is_some_and(|list| list.len() == devices)
}
