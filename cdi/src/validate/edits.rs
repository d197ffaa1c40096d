//! Checks of container edits, wherever they stand in a spec.

use std::collections::HashSet;

use super::{Found, place::Place, quoted};
use crate::spec::{ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice};

pub(super) fn check(edits: &ContainerEdits, place: &Place<'_>, found: &mut Found) {
    check_env(&edits.env, &place.field("env"), found);
    check_nodes(&edits.device_nodes, &place.field("deviceNodes"), found);
    check_net_devices(&edits.net_devices, &place.field("netDevices"), found);
    for (index, hook) in edits.hooks.iter().enumerate() {
        check_hook(hook, &place.field("hooks").at(index), found);
    }
    check_mounts(&edits.mounts, &place.field("mounts"), found);
    if let Some(rdt) = &edits.intel_rdt {
        check_rdt(rdt, &place.field("intelRdt"), found);
    }
    check_groups(&edits.additional_gids, &place.field("additionalGids"), found);
}

fn check_env(env: &[String], place: &Place<'_>, found: &mut Found) {
    for (index, variable) in env.iter().enumerate() {
        let place = place.at(index);
        if variable.find('=').unwrap_or(0) == 0 {
            found.refused(&place, format!("{} is not of the form NAME=value", quoted(variable)), "write NAME=value");
        }
        check_no_nul(variable, &place, found);
    }
}

/// A string with a NUL cannot be handed to the kernel: the container fails to start.
fn check_no_nul(text: &str, place: &Place<'_>, found: &mut Found) {
    if text.contains('\0') {
        found.risky(place, format!("{} has a NUL character", quoted(text)), "take it out");
    }
}

fn check_path(path: &str, place: &Place<'_>, found: &mut Found) {
    if path.is_empty() {
        found.refused(place, "the path is missing", "write an absolute path");
    } else if !path.starts_with('/') {
        found.risky(place, format!("{} is not absolute", quoted(path)), "write an absolute path");
    }
    check_no_nul(path, place, found);
}

/// Later entries for the same place in the container silently replace earlier ones.
fn check_repeated<'a>(paths: impl Iterator<Item = &'a str>, list: &Place<'_>, name: &'static str, found: &mut Found) {
    let mut seen = HashSet::new();
    for (index, path) in paths.enumerate() {
        if !path.is_empty() && !seen.insert(path) {
            let message = format!("{} is in an earlier entry too, which this one replaces", quoted(path));
            found.risky(&list.at(index).field(name), message, "keep one of them");
        }
    }
}

fn check_nodes(nodes: &[DeviceNode], place: &Place<'_>, found: &mut Found) {
    for (index, node) in nodes.iter().enumerate() {
        check_node(node, &place.at(index), found);
    }
    check_repeated(nodes.iter().map(|node| node.path.as_str()), place, "path", found);
}

fn check_node(node: &DeviceNode, place: &Place<'_>, found: &mut Found) {
    check_path(&node.path, &place.field("path"), found);
    if let Some(path) = node.host_path.as_deref() {
        check_host_node_path(path, &place.field("hostPath"), found);
    }
    if let Some(kind) = node.node_type.as_deref().filter(|kind| !["", "b", "c", "u", "p"].contains(kind)) {
        let message = format!("{} is no type of a device node", quoted(kind));
        found.refused(
            &place.field("type"),
            message,
            "write b (block), c or u (character) or p (FIFO), or leave it out",
        );
    }
    check_permissions(node.permissions.as_deref().unwrap_or_default(), &place.field("permissions"), found);
    if let Some(mode) = node.file_mode.filter(|mode| *mode > 0o7777) {
        let message = format!("{mode} (octal {mode:o}) has more than permission bits");
        found.risky(&place.field("fileMode"), message, format!("write {}, in decimal", mode & 0o7777));
    }
    for (name, number) in [("major", node.major), ("minor", node.minor)] {
        if let Some(number) = number.filter(|number| *number < 0) {
            let fix = "write the number that `ls -l` shows, or leave out both to take the host's";
            found.risky(&place.field(name), format!("{number} is negative"), fix);
        }
    }
}

/// An empty `hostPath` counts as absent in Go, and as the path "" in Rust, where the container then fails to start.
fn check_host_node_path(path: &str, place: &Place<'_>, found: &mut Found) {
    if path.is_empty() {
        found.risky(place, "the path is empty", "leave the field out where the host's path is the container's");
    } else {
        check_path(path, place, found);
    }
}

fn check_permissions(permissions: &str, place: &Place<'_>, found: &mut Found) {
    if permissions == "none" {
        let fix = "write a combination of r, w and m, or leave the device node out";
        found.refused(place, "\"none\" is known only to libraries newer than CDI 1.1.0", fix);
    } else if !permissions.chars().all(|c| "rwm".contains(c)) {
        let message = format!("{} is no combination of r, w and m", quoted(permissions));
        found.refused(place, message, "write for example \"rw\", or leave it out for all three");
    }
}

fn check_mounts(mounts: &[Mount], place: &Place<'_>, found: &mut Found) {
    for (index, mount) in mounts.iter().enumerate() {
        check_mount(mount, &place.at(index), found);
    }
    check_repeated(mounts.iter().map(|mount| mount.container_path.as_str()), place, "containerPath", found);
}

fn check_mount(mount: &Mount, place: &Place<'_>, found: &mut Found) {
    check_path(&mount.container_path, &place.field("containerPath"), found);
    let source = place.field("hostPath");
    if is_bind(mount) || mount.host_path.is_empty() {
        check_path(&mount.host_path, &source, found);
    } else {
        // The source of a mount with a file system of its own need not be a path: `tmpfs`, `none`, an NFS export.
        check_no_nul(&mount.host_path, &source, found);
    }
    for (index, option) in mount.options.iter().enumerate() {
        check_no_nul(option, &place.field("options").at(index), found);
    }
}

fn is_bind(mount: &Mount) -> bool {
    let by_type = matches!(mount.fs_type.as_deref(), None | Some("" | "none" | "bind"));
    by_type || mount.options.iter().any(|option| option == "bind" || option == "rbind")
}

fn check_hook(hook: &Hook, place: &Place<'_>, found: &mut Found) {
    check_path(&hook.path, &place.field("path"), found);
    for (index, arg) in hook.args.iter().enumerate() {
        check_no_nul(arg, &place.field("args").at(index), found);
    }
    check_env(&hook.env, &place.field("env"), found);
    let Some(seconds) = hook.timeout else { return };
    let place = place.field("timeout");
    let fix = "write a positive number of seconds, or leave it out to wait for ever";
    if u32::try_from(seconds).is_err() {
        found.refused(&place, format!("{seconds} is not between 1 and {}", u32::MAX), fix);
    } else if seconds == 0 {
        found.risky(&place, "0 seconds is no time", fix);
    }
}

fn check_rdt(rdt: &IntelRdt, place: &Place<'_>, found: &mut Found) {
    if let Some(id) = rdt.clos_id.as_deref() {
        check_clos_id(id, &place.field("closID"), found);
    }
    if rdt.schemata.as_ref().is_some_and(Vec::is_empty) {
        found.risky(&place.field("schemata"), "the list is empty, and needs CDI 1.1.0 all the same", "leave it out");
    }
    for (index, line) in rdt.schemata.iter().flatten().enumerate() {
        if line.is_empty() || line.contains(['\n', '\0']) {
            let message = format!("{} is not one schemata line", quoted(line));
            found.risky(&place.field("schemata").at(index), message, "write one line each, for example L3:0=ff");
        }
    }
}

/// The class is a folder name under `/sys/fs/resctrl`.
fn check_clos_id(id: &str, place: &Place<'_>, found: &mut Found) {
    let fix = "write a plain folder name";
    if id == "/" {
        // The root class: runtimes with a Go library of 1.1.0 or newer take it, all others refuse the file.
        found.refused(place, "\"/\" (the root class) is refused by most runtimes", fix);
    } else if id.len() >= 4096 || id == "." || id == ".." || id.contains(['/', '\n']) {
        found.refused(place, format!("{} is no folder name", quoted(id)), fix);
    }
    check_no_nul(id, place, found);
}

fn check_groups(groups: &[u32], place: &Place<'_>, found: &mut Found) {
    for (index, _) in groups.iter().enumerate().filter(|(_, group)| **group == 0) {
        found.risky(&place.at(index), "runtimes ignore group 0", "take it out");
    }
}

fn check_net_devices(devices: &[NetDevice], place: &Place<'_>, found: &mut Found) {
    let mut host_names = HashSet::new();
    let mut names = HashSet::new();
    for (index, device) in devices.iter().enumerate() {
        let place = place.at(index);
        let ends =
            [("hostInterfaceName", &device.host_interface_name, &mut host_names), ("name", &device.name, &mut names)];
        for (field, name, seen) in ends {
            let place = place.field(field);
            check_interface_name(name, &place, found);
            if !seen.insert(name.as_str()) {
                let message = format!("{} is in an earlier entry too", quoted(name));
                found.refused(&place, message, "name each interface once");
            }
        }
    }
}

fn check_interface_name(name: &str, place: &Place<'_>, found: &mut Found) {
    // IFNAMSIZ of the kernel is 16, with the terminating NUL.
    const MAX_BYTES: usize = 15;
    let is_bad = |c: char| c.is_whitespace() || c == '/' || c == ':' || c == '\0';
    if name.is_empty() {
        found.refused(place, "the name of the interface is missing", "write it");
    } else if name.len() > MAX_BYTES || name == "." || name == ".." || name.contains(is_bad) {
        let message = format!("{} is no name that the kernel gives an interface", quoted(name));
        found.risky(place, message, format!("use at most {MAX_BYTES} bytes without white space, '/' and ':'"));
    }
}
