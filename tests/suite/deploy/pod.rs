//! The daemon's pod, as a kubelet makes it: the folders of its volumes, and the shipped configuration.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerOptions},
    binary::binary,
    host::{DaemonProcess, wait_for},
};
use serde_json::{Value, json};

use super::{deploy, objects};

/// The folders of a pod below one folder.
struct PodFolders {
    root: tempfile::TempDir,
}

impl PodFolders {
    /// Makes the folders as a kubelet does: every user may write an emptyDir in memory, and a ConfigMap's files are
    /// links.
    fn new(configuration: &str) -> Self {
        let folders = Self { root: tempfile::Builder::new().prefix("p").tempdir_in("/tmp").unwrap() };
        let (_, set) = objects("DaemonSet").remove(0);
        let pod = &set["spec"]["template"]["spec"];
        for mount in pod["containers"][0]["volumeMounts"].as_array().unwrap() {
            let place = folders.at(mount["mountPath"].as_str().unwrap());
            let volume =
                pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == mount["name"]).unwrap();
            fs::create_dir_all(&place).unwrap();
            if !volume["emptyDir"].is_null() {
                fs::set_permissions(&place, Permissions::from_mode(0o1777)).unwrap();
            } else if !volume["configMap"].is_null() {
                fs::set_permissions(&place, Permissions::from_mode(0o1777)).unwrap();
                let data = place.join("..2026_11_23_12_00_00.1");
                fs::create_dir(&data).unwrap();
                fs::write(data.join("hostler.toml"), folders.placed(configuration)).unwrap();
                symlink(data.file_name().unwrap(), place.join("..data")).unwrap();
                symlink("..data/hostler.toml", place.join("hostler.toml")).unwrap();
            }
        }
        folders
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// The text with every path below the root.
    fn placed(&self, text: &str) -> String {
        text.replace("= \"/", &format!("= \"{}/", self.root.path().display()))
    }

    /// Starts the daemon, which logs into the file of that name.
    fn start(&self, log: &str) -> DaemonProcess {
        let log = File::create(self.root.path().join(log)).unwrap();
        let mut command = Command::new(binary());
        command.arg("run").arg("--config").arg(self.at("/etc/hostler/hostler.toml")).env("HOSTLER_NODE_NAME", "node");
        DaemonProcess::of(command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }

    /// Waits until the probe of liveness succeeds.
    fn wait_until_alive(&self, log: &str) {
        let alive = || {
            let mut probe = Command::new(binary());
            probe.args(["ready", "--alive", "--config"]).arg(self.at("/etc/hostler/hostler.toml"));
            let logged = fs::read_to_string(self.root.path().join(log)).unwrap();
            assert!(!logged.contains("must be its own"), "{logged}");
            probe.output().unwrap().status.success().then_some(())
        };
        wait_for("the daemon to live", alive);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_starts_in_the_folders_that_a_kubelet_makes_and_has_its_sockets_for_itself() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}));
    let kubeconfig = server.kubeconfig("system:serviceaccount:hostler-system:hostler");
    let shipped = fs::read_to_string(deploy().join("base/hostler.toml")).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folders = PodFolders::new("");
    let text = folders.placed(&shipped).replace("0.0.0.0:9464", &free.to_string());
    let text = text.replace("[cluster]\n", &format!("[cluster]\nkubeconfig = \"{}\"\n", kubeconfig.display()));
    fs::write(folders.at("/etc/hostler/..data/hostler.toml"), text).unwrap();
    let daemon = folders.start("log");
    folders.wait_until_alive("log");
    let run = folders.at("/run/hostler/daemon");
    assert_eq!((mode(&run), mode(&folders.at("/run/hostler"))), (0o700, 0o1777));
    let sockets = fs::read_dir(&run).unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert!(sockets.collect::<Vec<_>>().contains(&"admin.sock".to_owned()));
    // The state folder is trusted at the next start, and the folders of devices are those of the host.
    let daemon = {
        drop(daemon);
        folders.start("again")
    };
    folders.wait_until_alive("again");
    drop(daemon);
}

/// The pod that a rolling update starts beside the daemon has a folder of its own: the volume goes with its pod.
#[test]
fn sockets_of_the_command_line_are_in_a_volume_of_the_pod() {
    let config = super::configuration();
    let (_, set) = objects("DaemonSet").remove(0);
    let pod = &set["spec"]["template"]["spec"];
    let volume = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "run").unwrap();
    assert_ne!(volume["emptyDir"], Value::Null);
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["name"] == "run").unwrap()["mountPath"].as_str().unwrap();
    // Every user may write the volume itself.
    assert!(config.paths.run.starts_with(mount) && config.paths.run != Path::new(mount));
}
