//! The bundles in `deploy/` as a user applies them, in a real cluster whose one node is this machine: images made of
//! the binaries that were built, pods that a real kubelet runs, a claim, a roll to another image under load, and
//! everything deleted again.
//!
//! `tests/support/src/real_node.rs` says how to name the node; its kubelet's root folder is `/var/lib/kubelet` and its
//! runtime reads CDI files from `/var/run/cdi`, as the bundles have it. The tests also need a kubectl with kustomize.
//! Without all that they are skipped.

#![allow(unreachable_pub, reason = "modules of a program")]
#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and shows what it measured"
)]

mod bundle;
mod classic;
mod controller;
mod image;
mod load;
mod token;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use hostler_testing::real_node::eventually;
use serde_json::json;

use self::bundle::Installation;

/// A folder whose `deploy` is that of the sources, for overlays beside it.
fn copied_deploy() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(Path::new("deploy"), &copy.path().join("deploy"));
    copy
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Runs the whole life of an installation: pods run, a claim is prepared, a second image takes over under load, all
/// goes.
fn live_and_go(cluster: &Installation, folder: &Path) {
    let began = Instant::now();
    cluster.apply(folder);
    cluster.until_daemons_are("0.2.0");
    cluster.until_published();
    cluster.prepares_a_claim();
    let figures = load::roll_under_load(cluster);
    cluster.delete(folder);
    cluster.nothing_is_left();
    println!("{}: {figures}; {} s in all", folder.display(), began.elapsed().as_secs());
}

#[test]
fn the_daemon_runs_as_it_is_deployed_rolls_under_load_and_leaves_nothing() {
    let Some(cluster) = Installation::find() else { return };
    live_and_go(&cluster, Path::new("deploy"));
}

#[test]
fn the_privileged_daemon_runs_as_it_is_deployed_rolls_under_load_and_leaves_nothing() {
    let Some(cluster) = Installation::find() else { return };
    live_and_go(&cluster, Path::new("deploy/hardware"));
}

/// The overlay changes the values that users are told to change: the image, and the system's CPUs, of which the
/// smallest node has few.
#[test]
fn an_overlay_with_all_components_runs_rolls_under_load_and_leaves_nothing() {
    let Some(cluster) = Installation::find() else { return };
    cluster.others_kinds();
    let copy = copied_deploy();
    let overlay = copy.path().join("deploy/examples/overlay");
    let file = overlay.join("kustomization.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("registry.example.org/hostler", "docker.io/library/hostler")).unwrap();
    let file = overlay.join("hostler.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("reserved = \"0-1\"", "reserved = \"0\"")).unwrap();
    cluster.apply(&overlay);
    cluster.until_daemons_are("0.2.0");
    cluster.until_topology_is_told();
    live_and_go(&cluster, &overlay);
}

#[test]
fn each_component_alone_is_added_to_a_daemon_that_runs() {
    let Some(cluster) = Installation::find() else { return };
    cluster.others_kinds();
    let copy = copied_deploy();
    let all = fs::read_dir("deploy/components").unwrap().map(|entry| entry.unwrap().path());
    // The components of the controller are in its own overlay.
    let mut folders: Vec<PathBuf> = all.filter(|path| !path.to_str().unwrap().ends_with("-controller")).collect();
    folders.sort();
    cluster.apply(Path::new("deploy"));
    for component in folders {
        let name = component.file_name().unwrap().to_str().unwrap();
        let folder = copy.path().join("deploy").join(format!("with-{name}"));
        fs::create_dir(&folder).unwrap();
        let text = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "resources": ["../base"], "components": [format!("../components/{name}")],
        });
        fs::write(folder.join("kustomization.yaml"), text.to_string()).unwrap();
        cluster.apply(&folder);
        cluster.until_daemons_are("0.2.0");
        cluster.until_published();
        cluster.prepares_a_claim();
        println!("{name}: runs");
        cluster.delete_component(&folder);
    }
    cluster.delete(Path::new("deploy"));
    cluster.nothing_is_left();
}

/// The cluster's side for hosts with the systemd unit: it is there, and goes.
#[test]
fn what_a_cluster_needs_is_applied_and_deleted() {
    let Some(cluster) = Installation::find() else { return };
    cluster.apply(Path::new("deploy/cluster"));
    eventually("the classes", || cluster.node.get("/apis/resource.k8s.io/v1/deviceclasses/cpu.hostler.dev"));
    cluster.delete(Path::new("deploy/cluster"));
    cluster.nothing_is_left();
}
