//! Pods and containers of a runtime, and their messages to plugins.

use std::path::Path;

use hostler_proto::nri::{
    CdiDevice, Container, ContainerState, Hook, Hooks, LinuxContainer, LinuxCpu, LinuxPodSandbox, LinuxResources,
    PodSandbox,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::container::inject;

/// A request for a container.
#[derive(Clone, Debug)]
pub struct ContainerSpec {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name; its id and UID are made of it.
    pub pod: String,
    /// The container's name within the pod.
    pub name: String,
    /// The container's OCI specification.
    pub spec: Value,
    /// CDI devices that the kubelet named.
    pub devices: Vec<String>,
    /// The container's cgroup, as runtimes write it.
    pub cgroups_path: String,
}

impl ContainerSpec {
    /// A container that asks for nothing.
    pub fn new(pod: &str, name: &str) -> Self {
        let spec = json!({
            "ociVersion": "1.0.2", "root": {"path": "rootfs"},
            "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["program"], "env": ["PATH=/bin"]},
            "linux": {"resources": {"cpu": {"shares": 2}}},
        });
        Self {
            namespace: "default".into(),
            pod: pod.into(),
            name: name.into(),
            spec,
            devices: Vec::new(),
            cgroups_path: format!("/kubepods/pod{pod}/{name}"),
        }
    }

    /// Adds CDI devices as a runtime does before any plugin is asked: by their names, from the files in a folder.
    pub fn devices(mut self, cdi: &Path, ids: &[String]) -> Self {
        inject(&mut self.spec, cdi, ids).unwrap();
        self.devices.extend_from_slice(ids);
        self
    }

    /// Changes its specification as JSON.
    pub fn edit(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.spec);
        self
    }

    /// Adds a variable that the image, or the pod, sets.
    pub fn env(self, variable: &str) -> Self {
        self.edit(|spec| spec["process"]["env"].as_array_mut().unwrap().push(json!(variable)))
    }

    /// The pod's UID.
    pub fn pod_uid(&self) -> String {
        let name = format!("{}/{}", self.namespace, self.pod);
        // A name makes a UID: pods of one name are one pod here.
        Uuid::from_u128(name.bytes().fold(7, |all: u128, byte| all.wrapping_mul(257).wrapping_add(byte.into())))
            .to_string()
    }

    /// The runtime's id of the pod.
    pub fn pod_id(&self) -> String {
        format!("sandbox-{}", self.pod_uid())
    }

    /// The pod, as the runtime tells of it.
    pub fn sandbox(&self) -> PodSandbox {
        PodSandbox {
            id: self.pod_id(),
            name: self.pod.clone(),
            uid: self.pod_uid(),
            namespace: self.namespace.clone(),
            linux: Some(LinuxPodSandbox {
                cgroup_parent: format!("/kubepods/pod{}", self.pod_uid()),
                ..LinuxPodSandbox::default()
            }),
            ..PodSandbox::default()
        }
    }
}

/// A container of the runtime.
#[derive(Clone, Debug)]
pub struct RuntimeContainer {
    /// The runtime's id.
    pub id: String,
    /// The request for the container.
    pub asked: ContainerSpec,
    /// The state in the container's life.
    pub state: ContainerState,
    /// The container's resources: requested, changed by plugins, changed by updates.
    pub resources: LinuxResources,
    /// The container's first process.
    pub pid: u32,
}

impl RuntimeContainer {
    /// Returns a container that does not exist yet.
    pub fn new(id: String, asked: ContainerSpec) -> Self {
        let resources = resources_of(&asked.spec);
        Self { id, asked, state: ContainerState::ContainerCreated, resources, pid: 0 }
    }

    /// CPUs; empty: nothing was said.
    pub fn cpus(&self) -> &str {
        self.resources.cpu.as_ref().map_or("", |cpu| &cpu.cpus)
    }

    /// NUMA nodes; empty: nothing was said.
    pub fn mems(&self) -> &str {
        self.resources.cpu.as_ref().map_or("", |cpu| &cpu.mems)
    }

    /// Returns true if runtimes report it to a plugin that connects.
    pub fn is_told(&self) -> bool {
        matches!(self.state, ContainerState::ContainerCreated | ContainerState::ContainerRunning)
    }

    /// Returns the container's message to plugins.
    pub fn message(&self, with_devices: bool) -> Container {
        let value = serde_json::to_value(&self.asked.spec).unwrap();
        let devices = self.asked.devices.iter().map(|name| CdiDevice { name: name.clone() });
        Container {
            id: self.id.clone(),
            pod_sandbox_id: self.asked.pod_id(),
            name: self.asked.name.clone(),
            state: self.state.into(),
            args: texts(&value["process"]["args"]),
            env: texts(&value["process"]["env"]),
            hooks: Some(hooks(&value["hooks"])),
            linux: Some(LinuxContainer {
                resources: Some(self.resources.clone()),
                cgroups_path: self.asked.cgroups_path.clone(),
                ..LinuxContainer::default()
            }),
            pid: self.pid,
            cdi_devices: if with_devices { devices.collect() } else { Vec::new() },
            ..Container::default()
        }
    }

    /// Lays an update over what it has: what the update does not say stays.
    pub fn update(&mut self, update: &LinuxResources) {
        let merged = merged(&self.resources, update);
        self.resources = merged;
    }
}

/// Returns `resources` with the fields of `update` laid over.
pub(super) fn merged(resources: &LinuxResources, update: &LinuxResources) -> LinuxResources {
    let (old, new) = (resources.cpu.clone().unwrap_or_default(), update.cpu.clone().unwrap_or_default());
    let text = |new: String, old: String| if new.is_empty() { old } else { new };
    let cpu = LinuxCpu {
        shares: new.shares.or(old.shares),
        quota: new.quota.or(old.quota),
        period: new.period.or(old.period),
        cpus: text(new.cpus, old.cpus),
        mems: text(new.mems, old.mems),
        ..old
    };
    LinuxResources { cpu: Some(cpu), memory: update.memory.or(resources.memory), ..resources.clone() }
}

fn resources_of(spec: &Value) -> LinuxResources {
    let cpu = &spec["linux"]["resources"]["cpu"];
    let text = |name: &str| cpu[name].as_str().unwrap_or_default().to_owned();
    let shares = cpu["shares"].as_u64().map(|value| hostler_proto::nri::OptionalUInt64 { value });
    let cpu = LinuxCpu { cpus: text("cpus"), mems: text("mems"), shares, ..LinuxCpu::default() };
    LinuxResources { cpu: Some(cpu), ..LinuxResources::default() }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn hooks(value: &Value) -> Hooks {
    let list = |moment: &str| {
        let hooks = value[moment].as_array().into_iter().flatten();
        hooks.map(|hook| Hook {
            path: hook["path"].as_str().unwrap_or_default().to_owned(),
            args: texts(&hook["args"]),
            env: texts(&hook["env"]),
            timeout: None,
        })
    };
    Hooks {
        prestart: list("prestart").collect(),
        create_runtime: list("createRuntime").collect(),
        create_container: list("createContainer").collect(),
        start_container: list("startContainer").collect(),
        poststart: list("poststart").collect(),
        poststop: list("poststop").collect(),
    }
}
