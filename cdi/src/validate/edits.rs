//! Checks of container edits, wherever they stand in a spec.

use std::{collections::HashSet, fmt::Arguments};

use super::{SpecLint, quoted, rules};
use crate::spec::{CdiHook, CdiMount, ContainerEdits, DeviceNode, IntelRdt, NetDevice};

impl SpecLint {
    pub(super) fn edits(&mut self, at: Arguments<'_>, edits: &ContainerEdits) {
        self.texts(format_args!("{at}.env"), &edits.env, rules::ENVIRONMENT_VARIABLE);
        for (index, node) in edits.device_nodes.iter().enumerate() {
            self.node(format_args!("{at}.deviceNodes[{index}]"), node);
        }
        let nodes = edits.device_nodes.iter().map(|node| &*node.path);
        self.repeated(format_args!("{at}.deviceNodes"), "path", nodes);
        self.net_devices(format_args!("{at}.netDevices"), &edits.net_devices);
        for (index, hook) in edits.hooks.iter().enumerate() {
            self.hook(format_args!("{at}.hooks[{index}]"), hook);
        }
        for (index, mount) in edits.mounts.iter().enumerate() {
            self.mount(format_args!("{at}.mounts[{index}]"), mount);
        }
        let mounts = edits.mounts.iter().map(|mount| &*mount.container_path);
        self.repeated(format_args!("{at}.mounts"), "containerPath", mounts);
        if let Some(rdt) = &edits.intel_rdt {
            self.rdt(format_args!("{at}.intelRdt"), rdt);
        }
        for (index, _) in edits.additional_gids.iter().enumerate().filter(|(_, group)| **group == 0) {
            self.risky(format_args!("{at}.additionalGids[{index}]"), "runtimes ignore group 0", "take it out");
        }
    }

    /// Later entries for the same place in the container silently replace earlier ones.
    fn repeated<'a>(&mut self, at: Arguments<'_>, field: &str, paths: impl Iterator<Item = &'a str>) {
        let mut seen = HashSet::new();
        for (index, path) in paths.enumerate() {
            if !path.is_empty() && !seen.insert(path) {
                let message = format!("{} is in an earlier entry too, which this one replaces", quoted(path));
                self.risky(format_args!("{at}[{index}].{field}"), message, "keep one of them");
            }
        }
    }

    fn node(&mut self, at: Arguments<'_>, node: &DeviceNode) {
        self.text(format_args!("{at}.path"), &node.path, rules::PATH);
        self.text(format_args!("{at}.hostPath"), &node.host_path, rules::NODE_HOST_PATH);
        self.text(format_args!("{at}.type"), &node.node_type, rules::NODE_TYPE);
        self.text(format_args!("{at}.permissions"), &node.permissions, rules::NODE_PERMISSIONS);
        if let Some(mode) = node.file_mode.filter(|mode| *mode > 0o7777) {
            let message = format!("{mode} (octal {mode:o}) has more than permission bits");
            self.risky(format_args!("{at}.fileMode"), message, format!("write {}, in decimal", mode & 0o7777));
        }
        for (name, number) in [("major", node.major), ("minor", node.minor)] {
            if let Some(number) = number.filter(|number| *number < 0) {
                let fix = "write the number that `ls -l` shows, or leave out both to take the host's";
                self.risky(format_args!("{at}.{name}"), format!("{number} is negative"), fix);
            }
        }
    }

    fn net_devices(&mut self, at: Arguments<'_>, devices: &[NetDevice]) {
        let mut seen = HashSet::new();
        for (index, device) in devices.iter().enumerate() {
            for (field, name) in [("hostInterfaceName", &device.host_interface_name), ("name", &device.name)] {
                let at = format_args!("{at}[{index}].{field}");
                self.text(at, name, rules::INTERFACE_NAME);
                if !seen.insert((field, name)) {
                    let message = format!("{} is in an earlier entry too", quoted(name));
                    self.refused(at, message, "name each interface once");
                }
            }
        }
    }

    fn hook(&mut self, at: Arguments<'_>, hook: &CdiHook) {
        self.text(format_args!("{at}.path"), &hook.path, rules::PATH);
        self.texts(format_args!("{at}.args"), &hook.args, rules::TEXT);
        self.texts(format_args!("{at}.env"), &hook.env, rules::ENVIRONMENT_VARIABLE);
        let Some(seconds) = hook.timeout else { return };
        let at = format_args!("{at}.timeout");
        let fix = "write a positive number of seconds, or leave it out to wait for ever";
        if u32::try_from(seconds).is_err() {
            self.refused(at, format!("{seconds} is not between 1 and {}", u32::MAX), fix);
        } else if seconds == 0 {
            self.risky(at, "0 seconds is no time", fix);
        }
    }

    fn mount(&mut self, at: Arguments<'_>, mount: &CdiMount) {
        self.text(format_args!("{at}.containerPath"), &mount.container_path, rules::PATH);
        // The source of a mount with a file system of its own need not be a path: `tmpfs`, `none`, an NFS export.
        let source = if is_bind(mount) || mount.host_path.is_empty() { rules::PATH } else { rules::TEXT };
        self.text(format_args!("{at}.hostPath"), &mount.host_path, source);
        self.texts(format_args!("{at}.options"), &mount.options, rules::TEXT);
    }

    fn rdt(&mut self, at: Arguments<'_>, rdt: &IntelRdt) {
        self.text(format_args!("{at}.closID"), &rdt.clos_id, rules::RDT_CLASS);
        let Some(schemata) = &rdt.schemata else { return };
        let at = format_args!("{at}.schemata");
        if schemata.is_empty() {
            self.risky(at, "the list is empty, and needs CDI 1.1.0 all the same", "leave it out");
        }
        self.texts(at, schemata, rules::RDT_SCHEMATA_LINE);
    }
}

fn is_bind(mount: &CdiMount) -> bool {
    let by_type = matches!(mount.fs_type.as_deref(), None | Some("" | "none" | "bind"));
    by_type || mount.options.iter().any(|option| option == "bind" || option == "rbind")
}
