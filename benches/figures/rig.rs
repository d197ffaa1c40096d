//! A daemon to measure: its folders where the figure wants them, its hardware this machine or a captured one.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use hostler_linux::{archive::UnpackedCapture, testkit::captures_folder};
use hostler_proto::{dra_v1::Claim, registration::registration_client::RegistrationClient};
use hostler_testing::{
    binary::binary,
    host::Host,
    kubelet::{self, Kubelet, KubeletPlugin, KubeletRelease},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::{self, Runtime};
use tonic::transport::Channel;

use super::machine;

/// CPUs enough for a hundred claims.
const LARGE: &str = "hwloc-128arm-2pa2n8cluster4co";

/// Unpacks a captured machine in memory; `None` where the captures are absent.
pub(crate) fn capture(name: &str) -> Option<UnpackedCapture> {
    let file = captures_folder()?.join(format!("{name}.tar.zst"));
    file.exists().then(|| UnpackedCapture::open(file).unwrap())
}

/// Makes the script of a host's fake backend. Returns the configuration of the backend.
pub(crate) fn fake_backend(host: &Host, script: &str) -> String {
    host.script(script);
    let [script, hardware] = ["fake.toml", "hardware"].map(|name| host.path(name).display().to_string());
    format!("[backends.fake]\nenabled = true\nscript = {script:?}\nstate_dir = {hardware:?}\n")
}

/// A daemon that is configured and not started.
pub(crate) struct Rig {
    pub(crate) host: Host,
    pub(crate) state: TempDir,
    pub(crate) cdi: TempDir,
    /// The folder of the machine that the daemon sees.
    root: PathBuf,
    /// That folder, where it was unpacked for this.
    _machine: Option<UnpackedCapture>,
    runtime: Runtime,
}

impl Rig {
    /// With the backends that are on by default, on this machine.
    pub(crate) fn here() -> Self {
        Self::new(&machine::disk(), None, "")
    }

    /// On a captured machine with 128 CPUs in four NUMA nodes, its state in a folder below `state`; `None` where the
    /// capture is absent.
    pub(crate) fn large(state: &Path) -> Option<Self> {
        let machine = capture(LARGE)?;
        let boot_id = machine.root().path("proc/sys/kernel/random/boot_id");
        fs::create_dir_all(boot_id.parent().unwrap()).unwrap();
        fs::write(boot_id, "7d3f1a52-9f1e-4c55-8a51-3c1c4f6f0a11\n").unwrap();
        Some(Self::new(state, Some(machine), ""))
    }

    /// On a made-up machine, with more lines of configuration.
    pub(crate) fn on(root: &Path, more: &str) -> Self {
        let mut rig = Self::here();
        rig.root = root.to_owned();
        rig.configure(more);
        rig
    }

    /// On this machine, with more lines of configuration.
    pub(crate) fn with(more: impl FnOnce(&Host) -> String) -> Self {
        Self::with_state(&machine::disk(), more)
    }

    /// As [`Rig::with`], its state in a folder below `state`.
    pub(crate) fn with_state(state: &Path, more: impl FnOnce(&Host) -> String) -> Self {
        let mut rig = Self::new(state, None, "");
        let more = more(&rig.host);
        rig.configure(&more);
        rig
    }

    fn new(state: &Path, machine: Option<UnpackedCapture>, more: &str) -> Self {
        let folder = |above: &Path| tempfile::Builder::new().prefix("figures").tempdir_in(above).unwrap();
        let host = Host::new("");
        // CDI files are in /run by default, which is in memory.
        let (state, cdi) = (folder(state), folder(machine::memory()));
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let root = machine.as_ref().map_or_else(|| PathBuf::from("/"), |machine| machine.root().path(""));
        let mut rig = Self { host, state, cdi, root, _machine: machine, runtime };
        rig.configure(more);
        rig
    }

    /// Writes the configuration, with more lines of it.
    pub(crate) fn configure(&mut self, more: &str) {
        let mut text = String::new();
        let mut line = |key: &str, value: &Path| writeln!(text, "{key} = {:?}", value.to_str().unwrap()).unwrap();
        line("node_name", Path::new("node"));
        line("hook", &binary());
        line("paths.state", self.state.path());
        line("paths.run", &self.host.path("run"));
        line("paths.cdi", self.cdi.path());
        line("paths.kubelet", &self.host.path("kubelet"));
        line("paths.root", &self.root);
        line("cluster.manifests", &self.host.path("manifests"));
        fs::write(self.host.path("hostler.toml"), text + more).unwrap();
    }

    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Registers as the kubelet would.
    pub(crate) fn register(&self) -> KubeletPlugin {
        self.run(Kubelet::new(self.host.path("kubelet"), KubeletRelease::V1_37).register()).unwrap()
    }

    /// A client of the registration service, if it can be reached now.
    pub(crate) async fn registration(&self) -> Option<RegistrationClient<Channel>> {
        let socket = self.host.registration_socket();
        if !socket.exists() {
            return None;
        }
        let channel = kubelet::dial(&socket, &kubelet::authority(&socket)).await.ok()?;
        Some(RegistrationClient::new(channel))
    }

    /// Writes the manifest of a claim for one CPU; claims with different numbers have different UIDs.
    pub(crate) fn cpu_claim(&self, number: usize) -> Claim {
        let name = format!("claim-{}", number % 1000);
        let uid = format!("5f0c6a1e-0000-4000-8000-{number:012}");
        let device = format!("numa{}", number % 4);
        self.host.manifest(&name, &uid, &[("cpu", "cpu", &device, json!({"cpus": "1"}))]);
        kubelet::claim("default", &name, &uid)
    }

    /// Prepares claims, of which each must succeed; gives the time that took.
    pub(crate) fn prepare(&self, plugin: &mut KubeletPlugin, claims: &[Claim]) -> Duration {
        let start = Instant::now();
        let answers = self.run(plugin.prepare(claims)).unwrap();
        let took = start.elapsed();
        answers.values().for_each(|answer| assert!(answer.is_ok(), "{answer:?}"));
        took
    }

    /// As [`Rig::prepare`], the other way.
    pub(crate) fn unprepare(&self, plugin: &mut KubeletPlugin, claims: &[Claim]) -> Duration {
        let start = Instant::now();
        let answers = self.run(plugin.unprepare(claims)).unwrap();
        let took = start.elapsed();
        answers.values().for_each(|answer| assert!(answer.is_ok(), "{answer:?}"));
        took
    }
}
