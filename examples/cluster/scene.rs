//! The cluster of the demonstration: the programs in it, and how one asks them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease, PolicyRule},
    binary::controller_binary,
    control_plane::ControlPlane,
    controller::{ControllerOptions, RunningController},
    host::Host,
    provisioning::definition,
};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::{nodes, say::step};

const CONTROLLER: &str = "system:serviceaccount:hostler-controller:hostler-controller";
const ADMINISTRATOR: &str = "administrator";
const VISITOR: &str = "visitor";
/// The shipped files that install hostler's kinds and classes.
const INSTALLED: [&str; 4] = [
    "deploy/crds/nodehardware.yaml",
    "deploy/crds/clusterhardware.yaml",
    "deploy/crds/reservations.yaml",
    "deploy/cluster/deviceclasses.yaml",
];
/// The shipped roles of the controller.
const ROLES: [&str; 3] =
    ["deploy/controller/base/rbac.yaml", "deploy/holds/base/rbac.yaml", "deploy/provisioning/rbac.yaml"];

/// A cluster on this machine, and everything that runs in it.
pub(crate) struct DemoCluster {
    pub(crate) server: Arc<ApiServer>,
    control_plane: JoinHandle<()>,
    hosts: Vec<Host>,
    controller: RunningController,
    kubeconfig: PathBuf,
}

/// The source tree.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the source tree");
    root.to_owned()
}

/// A file of the source tree.
pub(crate) fn shipped(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

impl DemoCluster {
    pub(crate) async fn start() -> Self {
        step("A cluster starts, all of it on this machine");
        println!(
            "The API server and a small scheduler are parts of this demonstration; the scheduler asks hostler's copy of\n\
             kube-scheduler's allocator. The daemons and the controller are the real programs. No container runs."
        );
        let server = Arc::new(ApiServer::of(ApiServerRelease::V1_36).await);
        server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "hostler-controller" } }));
        for file in INSTALLED {
            server.create_yaml(&shipped(file));
        }
        server.create(definition(&["v1"]));
        let control_plane = ControlPlane::new().run(&server);
        let hosts = nodes::start(&server).await;
        for (node, capture) in nodes::NODES {
            println!("{node}: a daemon on the captured machine {capture}");
        }
        let controller = RunningController::start(&options(&server)).await;
        controller.until_figure("hostler_controller_condition{type=\"Reservations\",status=\"True\"} 1").await;
        controller.until_answers("/readyz", 200).await;
        println!("hostler-controller: ready\n");
        let kubeconfig = server.kubeconfig(ADMINISTRATOR);
        Self { server, control_plane, hosts, controller, kubeconfig }
    }

    /// Runs the controller's program as people do, and shows call and answer.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        let quoted = |word: &&str| if word.contains(' ') { format!("'{word}'") } else { (*word).to_owned() };
        println!("$ hostler-controller {}", arguments.iter().map(quoted).collect::<Vec<_>>().join(" "));
        let output = Command::new(controller_binary())
            .args(arguments)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .current_dir(root())
            .output()
            .expect("the controller's program runs");
        let answer = String::from_utf8(output.stdout).expect("it speaks UTF-8");
        // 1 is an answer too: not all that was asked for fits.
        let is_answer = matches!(output.status.code(), Some(0 | 1));
        assert!(is_answer, "{arguments:?}: {answer}{}", String::from_utf8_lossy(&output.stderr));
        println!("{answer}");
        answer
    }

    /// Says where the page is, and how one signs in.
    pub(crate) fn show_page(&self) {
        step("The page, for a browser");
        let rule = |resource: &&str| PolicyRule {
            api_groups: vec!["*".to_owned()],
            resources: vec![(*resource).to_owned()],
            verbs: vec!["list".to_owned()],
            ..PolicyRule::default()
        };
        let seen = ["nodehardware", "resourceclaims", "resourceslices", "reservations"];
        self.server.allow(VISITOR, seen.iter().map(rule).collect());
        let (address, token) = (self.controller.address(), self.server.user(VISITOR, None));
        println!("open http://{address}/ and sign in with the token {token}");
        println!("kubectl works as well, for as long as this runs: export KUBECONFIG={}\n", self.kubeconfig.display());
    }

    /// Ends all programs.
    pub(crate) async fn stop(self) {
        // After a Ctrl-C in a terminal they have got the signal too, and may be gone.
        self.controller.stop().await;
        for mut host in self.hosts {
            tokio::task::block_in_place(|| host.stop());
        }
        self.control_plane.abort();
    }
}

fn options(server: &ApiServer) -> ControllerOptions {
    server.allow(CONTROLLER, ROLES.iter().flat_map(|file| PolicyRule::from_yaml(&shipped(file))).collect());
    ControllerOptions {
        binary: controller_binary(),
        kubeconfig: server.kubeconfig(CONTROLLER),
        // A second is enough for a scheduler that runs in the process of the API server.
        config: "[capabilities]\nreservations = 'on'\nprovisioning = 'on'\n[reservations]\nsettle_seconds = 1\n"
            .to_owned(),
        ..ControllerOptions::default()
    }
}
