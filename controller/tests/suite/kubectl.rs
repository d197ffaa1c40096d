//! The binary as the plugin `kubectl hostler`: by that name and no other one, through kubectl where there is one, against
//! the API server of `tests/support`.

mod causes;
mod manners;
mod nodes;
mod scene;
mod switches;

use std::{os::unix::fs::symlink, path::Path, process::Command};

/// Links the binary under the names that kubectl looks for; what is called gets the folder first in its PATH.
fn link(folder: &Path) {
    for name in ["kubectl-hostler", "kubectl_complete-hostler"] {
        symlink(env!("CARGO_BIN_EXE_hostler-controller"), folder.join(name)).unwrap();
    }
}

/// A command of the plugin, without a cluster of this machine.
fn plugin(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(folder.join("kubectl-hostler"));
    command.args(args).env("HOME", folder).env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    command
}
