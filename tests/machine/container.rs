//! A container as far as the kernel sees one: a process in a cgroup of its own, and the hooks of a claim run on it as a
//! container runtime would.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::guest::{Guest, Said};

/// A process in its cgroup.
pub struct Container {
    name: String,
    pid: u32,
}

/// Which processors and memory the kernel lets a process use.
#[derive(Debug, Eq, PartialEq)]
pub struct Bound {
    pub cpus: String,
    pub mems: String,
}

impl Container {
    /// A container whose program waits to be told what to do.
    pub fn create(guest: &mut Guest, name: &str) -> Self {
        guest.ok(&format!("mkdir -p /sys/fs/cgroup/{name} /run/{name}"));
        guest.ok(&format!("mkfifo /run/{name}/go"));
        guest.write(&format!("/run/{name}/program"), &program(name));
        // A shell of its own: the pages of a process move with it to the nodes of its cgroup.
        guest.ok(&format!("cp /bin/busybox /run/{name}/busybox"));
        guest.ok(&format!(
            "/run/{name}/busybox sh /run/{name}/program </dev/null >/run/{name}/log 2>&1 & echo $! >/run/{name}/pid"
        ));
        let pid = guest.ok(&format!("cat /run/{name}/pid")).parse().unwrap();
        // When its nodes change, Linux moves pages of a process from the first of the old nodes to the first of the new ones,
        // from the second to the second, and so on. All are moved to node 0 here, so that none gets to CXL memory
        // later: [`DISTANCES`](crate::emulator::DISTANCES) says why it must not.
        let cgroups = "/sys/fs/cgroup";
        guest.ok(&format!("mkdir -p {cgroups}/start && echo 0 >{cgroups}/start/cpuset.mems"));
        guest.ok(&format!("for to in start {name}; do echo {pid} >{cgroups}/$to/cgroup.procs || exit 1; done"));
        Self { name: name.to_owned(), pid }
    }

    /// Runs the hooks of a claim on it.
    pub fn give(&self, guest: &mut Guest, claim: &str) -> Vec<Said> {
        let hooks = hooks(&guest.json(&format!("cat /run/cdi/hostler.dev-claim_{claim}.json")));
        assert!(!hooks.is_empty(), "claim {claim} has no hooks");
        let name = &self.name;
        let config = json!({"ociVersion": "1.1.0", "hooks": {"createRuntime": &hooks}});
        guest.write(&format!("/run/{name}/config.json"), &config.to_string());
        let bundle = format!("/run/{name}");
        let state = json!({"ociVersion": "1.1.0", "id": name, "status": "creating", "pid": self.pid, "bundle": bundle});
        guest.write(&format!("/run/{name}/state.json"), &state.to_string());
        let mut said = Vec::new();
        for hook in hooks {
            let args: Vec<&str> =
                hook["args"].as_array().unwrap().iter().skip(1).map(|arg| arg.as_str().unwrap()).collect();
            let path = hook["path"].as_str().unwrap();
            said.push(guest.run(&format!("{path} {} </run/{name}/state.json", args.join(" "))));
        }
        said
    }

    /// Creates one with a claim.
    pub fn with_claim(guest: &mut Guest, name: &str, claim: &str) -> Self {
        let container = Self::create(guest, name);
        for said in container.give(guest, claim) {
            assert_eq!(said.code, 0, "{said:?}");
        }
        container
    }

    /// What the kernel allows it.
    pub fn bound(&self, guest: &mut Guest) -> Bound {
        let status = guest.ok(&format!("cat /proc/{}/status", self.pid));
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        Bound { cpus: field("Cpus_allowed_list:"), mems: field("Mems_allowed_list:") }
    }

    /// A file of its cgroup.
    pub fn cgroup_file(&self, guest: &mut Guest, file: &str) -> String {
        guest.ok(&format!("cat /sys/fs/cgroup/{}/{file}", self.name))
    }

    /// Lets its program run a command of the shell, to the end.
    pub fn run(&self, guest: &mut Guest, command: &str) {
        let name = self.name.clone();
        guest.ok(&format!("echo '{command}; echo ended $?' >/run/{name}/go"));
        let ended = guest.wait_for(&format!("the container to run: {command}"), |guest| {
            Some(guest.ok(&format!("tail -n 1 /run/{name}/log"))).filter(|line| line.starts_with("ended"))
        });
        assert_eq!(ended, "ended 0", "{command}");
        guest.ok(&format!("echo >>/run/{name}/log"));
    }

    /// How many bytes of one kind it has on each node.
    pub fn pages(&self, guest: &mut Guest, kind: &str) -> BTreeMap<u32, u64> {
        let stat = self.cgroup_file(guest, "memory.numa_stat");
        let fields = stat.lines().find_map(|line| line.strip_prefix(kind)).unwrap();
        let node = |field: &str| {
            let (node, bytes) = field.strip_prefix('N')?.split_once('=')?;
            Some((node.parse().ok()?, bytes.parse().ok()?))
        };
        fields.split(' ').filter_map(node).collect()
    }

    /// Ends it and removes its cgroup.
    pub fn kill(self, guest: &mut Guest) {
        let cgroup = format!("/sys/fs/cgroup/{}", self.name);
        guest.ok(&format!("echo 1 >{cgroup}/cgroup.kill"));
        guest.wait_for("the container to end", |guest| (guest.run(&format!("rmdir {cgroup}")).code == 0).then_some(()));
    }
}

/// Runs what it is told. A pipe that is opened for reading and writing never ends.
fn program(name: &str) -> String {
    format!("exec 3<>/run/{name}/go\nwhile read -r command <&3; do eval \"$command\"; done")
}

/// All hooks of a CDI file that run when a container is created.
fn hooks(spec: &Value) -> Vec<Value> {
    let devices = spec["devices"].as_array().into_iter().flatten();
    let edits = devices.map(|device| &device["containerEdits"]).chain([&spec["containerEdits"]]);
    let mut hooks: Vec<Value> = Vec::new();
    for hook in edits.filter_map(|edits| edits["hooks"].as_array()).flatten() {
        if hook["hookName"] == "createRuntime" && !hooks.contains(hook) {
            hooks.push(hook.clone());
        }
    }
    hooks
}
