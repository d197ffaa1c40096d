//! A container of a claim, started by the host's runc with what the claim's CDI file asks for.

use std::fs;

use serde_json::{Value, json};

use crate::debian::Host;

/// Adds the hooks of every CDI file to a runtime configuration, as a runtime does.
fn add_hooks(config: &mut Value, file: &Value) {
    let hooks = file["devices"].as_array().unwrap().iter().chain([file]);
    for hook in hooks.filter_map(|edits| edits["containerEdits"]["hooks"].as_array()).flatten() {
        let stage = hook["hookName"].as_str().unwrap().to_owned();
        let entry = json!({ "path": hook["path"], "args": hook["args"], "env": hook.get("env").cloned().unwrap_or_else(|| json!([])) });
        let list = &mut config["hooks"][stage];
        if list.is_null() {
            *list = json!([]);
        }
        list.as_array_mut().unwrap().push(entry);
    }
}

/// Starts a container that uses the claim, and compares the CPUs that the kernel gives it with those of the claim.
pub fn is_bound_to_its_claim(host: &Host, claim: &str) {
    let shown: Value = serde_json::from_str(&host.run(&format!("hostler claim show {claim} -o json"))).unwrap();
    let uid = shown["uid"].as_str().unwrap_or_else(|| panic!("{shown}"));
    let file: Value = serde_json::from_str(&host.run(&format!("cat /run/cdi/hostler.dev-claim_{uid}.json"))).unwrap();
    host.run("rm -rf /run/bundle; mkdir -p /run/bundle/rootfs/bin; cp /bin/busybox /run/bundle/rootfs/bin; cd /run/bundle && runc spec");
    let mut config: Value = serde_json::from_str(&host.run("cat /run/bundle/config.json")).unwrap();
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["/bin/busybox", "grep", "Cpus_allowed_list", "/proc/self/status"]);
    add_hooks(&mut config, &file);
    fs::write(host.root().join("bundle.json"), config.to_string()).unwrap();
    // systemd-nspawn leaves the controllers of cgroup v1 for reading alone.
    host.run("for at in /sys/fs/cgroup/*; do mount -o remount,bind,rw \"$at\" 2>/dev/null || true; done");
    let bound = host.run("cp /bundle.json /run/bundle/config.json; cd /run/bundle && runc run claimed");
    let environment = file.to_string();
    let cpus = environment.split("HOSTLER_CPUS=").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(bound.split_whitespace().last(), Some(cpus), "{bound}");
}
