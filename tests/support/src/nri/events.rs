//! Events of containers, and the calls to plugins about them, in the order and under the locks of the real runtimes.

use hostler_proto::nri::{
    Container, ContainerState, ContainerUpdate, CreateContainerRequest, CreateContainerResponse, Empty, Event,
    LinuxResources, PodSandbox, PostCreateContainerRequest, PostStartContainerRequest, PostUpdateContainerRequest,
    RemoveContainerRequest, StartContainerRequest, StateChangeEvent, StopContainerRequest, StopContainerResponse,
    UpdateContainerRequest, UpdateContainerResponse,
};
use prost::Message;

use std::sync::{Arc, atomic::Ordering};

use super::{CallError, ContainerSpec, PluginLink, Runtime, RuntimeContainer, adjust::Wishes, containers::merged};

impl Runtime {
    /// Makes a container; its id.
    ///
    /// # Errors
    /// When a plugin refuses, or plugins do not agree: the container is not made.
    pub fn create(&self, asked: &ContainerSpec) -> Result<String, String> {
        let container = self.next(asked);
        let guard = self.locks.for_event()?;
        match self.ask_for_adjustment(&container) {
            Ok(wishes) => {
                let _ = self.apply(&wishes.updates);
                self.add(container.clone(), &wishes);
            }
            Err(refusal) => {
                drop(guard);
                self.undo(&container);
                return Err(refusal);
            }
        }
        drop(guard);
        self.notify(Event::PostCreateContainer, "PostCreateContainer", &self.container(&container.id))?;
        Ok(container.id)
    }

    /// Makes a container without a word to any plugin, as happens while one is being synchronized; its id.
    pub fn create_untold(&self, asked: &ContainerSpec) -> String {
        let container = self.next(asked);
        self.add(container.clone(), &Wishes::default());
        container.id
    }

    /// Starts a container.
    ///
    /// # Errors
    /// When a plugin refuses.
    pub fn start_container(&self, id: &str) -> Result<(), String> {
        self.notify(Event::StartContainer, "StartContainer", &self.container(id))?;
        // There is no process: a test that needs one has a real container.
        self.set_state(id, ContainerState::ContainerRunning, 0);
        self.notify(Event::PostStartContainer, "PostStartContainer", &self.container(id))
    }

    /// Makes and starts a container; its id.
    ///
    /// # Errors
    /// When a plugin refuses.
    pub fn run(&self, asked: &ContainerSpec) -> Result<String, String> {
        let id = self.create(asked)?;
        self.start_container(&id).map(|()| id)
    }

    /// Sets the process of a container.
    pub fn set_pid(&self, id: &str, pid: u32) {
        self.set_state(id, ContainerState::ContainerRunning, pid);
    }

    /// Ends a container.
    ///
    /// # Errors
    /// When a plugin refuses.
    pub fn stop_container(&self, id: &str) -> Result<(), String> {
        let guard = self.locks.for_event()?;
        let container = self.container(id);
        let request = StopContainerRequest { pod: pod(&container), container: self.message(&container) };
        let mut wishes = Wishes::default();
        for plugin in self.subscribed(Event::StopContainer) {
            let response: Option<StopContainerResponse> = self.ask(&plugin, "StopContainer", &request)?;
            wishes.update(&plugin.name(), None, &self.checked(response.unwrap_or_default().update))?;
        }
        self.set_state(id, ContainerState::ContainerStopped, 0);
        let _ = self.apply(&wishes.updates);
        drop(guard);
        Ok(())
    }

    /// Ends a container, if it runs, and forgets it.
    ///
    /// # Errors
    /// When a plugin refuses.
    pub fn remove_container(&self, id: &str) -> Result<(), String> {
        if self.container(id).is_told() {
            self.stop_container(id)?;
        }
        let container = self.container(id);
        self.state.lock().unwrap().containers.remove(id);
        self.notify(Event::RemoveContainer, "RemoveContainer", &container)
    }

    /// Changes a container's resources, as the kubelet does; what the container has then.
    ///
    /// # Errors
    /// When a plugin refuses, or the container cannot have them.
    pub fn update_container(&self, id: &str, wanted: &LinuxResources) -> Result<LinuxResources, String> {
        let guard = self.locks.for_event()?;
        let container = self.container(id);
        let request = UpdateContainerRequest {
            pod: pod(&container),
            container: self.message(&container),
            linux_resources: Some(as_told(wanted)),
        };
        let mut wishes = Wishes::default();
        for plugin in self.subscribed(Event::UpdateContainer) {
            let response: Option<UpdateContainerResponse> = self.ask(&plugin, "UpdateContainer", &request)?;
            wishes.update(&plugin.name(), None, &self.checked(response.unwrap_or_default().update))?;
        }
        let (own, others): (Vec<_>, Vec<_>) = wishes.updates.into_iter().partition(|wish| wish.container_id == id);
        let _ = self.apply(&others);
        drop(guard);
        let asked = own.iter().filter_map(|wish| wish.linux.as_ref()?.resources.as_ref());
        let resources = asked.fold(wanted.clone(), |resources, wish| merged(&resources, wish));
        self.change(id, &resources)?;
        self.notify(Event::PostUpdateContainer, "PostUpdateContainer", &self.container(id))?;
        Ok(self.container(id).resources)
    }

    fn next(&self, asked: &ContainerSpec) -> RuntimeContainer {
        let mut state = self.state.lock().unwrap();
        state.made += 1;
        RuntimeContainer::new(format!("{}-{}-{}", asked.pod, asked.name, state.made), asked.clone())
    }

    fn add(&self, mut container: RuntimeContainer, wishes: &Wishes) {
        container.update(&wishes.adjusted);
        let mut state = self.state.lock().unwrap();
        state.applied.push((container.id.clone(), container.cpus().to_owned()));
        state.containers.insert(container.id.clone(), container);
    }

    fn ask_for_adjustment(&self, container: &RuntimeContainer) -> Result<Wishes, String> {
        let mut request = CreateContainerRequest { pod: pod(container), container: self.message(container) };
        // Plugins see a container that is about to exist in no state.
        request.container.as_mut().unwrap().state = ContainerState::ContainerUnknown.into();
        let (id, mut wishes) = (&container.id, Wishes::default());
        let rival = self.rival.lock().unwrap().clone();
        if let Some(rival) = &rival {
            wishes.adjust(&rival.name, id, &adjustment(&rival.cpus))?;
        }
        for plugin in self.subscribed(Event::CreateContainer) {
            let response: Option<CreateContainerResponse> = self.ask(&plugin, "CreateContainer", &request)?;
            let Some(response) = response else { continue };
            if let Some(adjustment) = &response.adjust {
                wishes.adjust(&plugin.name(), id, adjustment)?;
            }
            wishes.update(&plugin.name(), Some(id), &self.checked(response.update))?;
        }
        Ok(wishes)
    }

    /// A container that was refused is stopped and removed, as if it had been there.
    fn undo(&self, container: &RuntimeContainer) {
        let Ok(guard) = self.locks.for_event() else { return };
        let request = StopContainerRequest { pod: pod(container), container: self.message(container) };
        for plugin in self.subscribed(Event::StopContainer) {
            let updates = self.ask(&plugin, "StopContainer", &request).ok().flatten();
            let _ = self.apply(&updates.map(|response: StopContainerResponse| response.update).unwrap_or_default());
        }
        drop(guard);
        let _ = self.notify(Event::RemoveContainer, "RemoveContainer", container);
    }

    fn message(&self, container: &RuntimeContainer) -> Option<Container> {
        Some(container.message(self.version.lock().unwrap().has_cdi_devices))
    }

    fn subscribed(&self, event: Event) -> Vec<Arc<PluginLink>> {
        let mut plugins = self.plugins.lock().unwrap();
        plugins.retain(|plugin| !plugin.is_closed());
        plugins.iter().filter(|plugin| plugin.is_subscribed(event as i32)).cloned().collect()
    }

    /// `None` where the plugin is lost over it: what it was asked for goes on without it.
    fn ask<R: Message + Default>(
        &self,
        plugin: &PluginLink,
        method: &'static str,
        request: &impl Message,
    ) -> Result<Option<R>, String> {
        match self.call(plugin, method, request) {
            Ok(response) => Ok(Some(response)),
            Err(error) if error.is_fatal() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Reports an event that plugins cannot change.
    fn notify(&self, event: Event, method: &'static str, container: &RuntimeContainer) -> Result<(), String> {
        let _guard = self.locks.for_event()?;
        let (pod, message) = (pod(container), self.message(container));
        for plugin in self.subscribed(event) {
            if self.version.lock().unwrap().has_own_calls {
                match self.tell(&plugin, method, pod.clone(), message.clone()) {
                    Err(CallError::Refused { code: super::UNIMPLEMENTED, .. }) => {}
                    outcome => {
                        refused(outcome)?;
                        continue;
                    }
                }
            }
            let change = StateChangeEvent { event: event.into(), pod: pod.clone(), container: message.clone() };
            refused(self.call::<Empty>(&plugin, "StateChange", &change))?;
        }
        Ok(())
    }

    fn tell(
        &self,
        plugin: &PluginLink,
        method: &'static str,
        pod: Option<PodSandbox>,
        container: Option<Container>,
    ) -> Result<Empty, CallError> {
        match method {
            "PostCreateContainer" => self.call(plugin, method, &PostCreateContainerRequest { pod, container }),
            "StartContainer" => self.call(plugin, method, &StartContainerRequest { pod, container }),
            "PostStartContainer" => self.call(plugin, method, &PostStartContainerRequest { pod, container }),
            "PostUpdateContainer" => self.call(plugin, method, &PostUpdateContainerRequest { pod, container }),
            _ => self.call(plugin, method, &RemoveContainerRequest { pod, container }),
        }
    }

    /// An update that names no container is dropped by the real ones, without a word.
    fn checked(&self, updates: Vec<ContainerUpdate>) -> Vec<ContainerUpdate> {
        if updates.iter().any(|update| update.container_id.is_empty()) {
            self.complaints.add("an update without the id of a container");
        }
        updates
    }

    /// Does what plugins want of other containers; those that failed.
    pub(super) fn apply(&self, updates: &[ContainerUpdate]) -> Vec<ContainerUpdate> {
        let failed = |update: &&ContainerUpdate| {
            let resources = update.linux.as_ref().and_then(|linux| linux.resources.clone()).unwrap_or_default();
            let is_known = self.state.lock().unwrap().containers.contains_key(&update.container_id);
            is_known && self.change(&update.container_id, &resources).is_err() && !update.ignore_failure
        };
        self.checked(updates.to_vec()).iter().filter(failed).cloned().collect()
    }

    fn change(&self, id: &str, resources: &LinuxResources) -> Result<(), String> {
        let mut state = self.state.lock().unwrap();
        if state.stubborn.iter().any(|stubborn| stubborn == id) {
            return Err(format!("{id} cannot be updated"));
        }
        let container = state.containers.get_mut(id).ok_or("no such container")?;
        container.update(resources);
        let cpus = container.cpus().to_owned();
        state.applied.push((id.to_owned(), cpus));
        Ok(())
    }

    fn set_state(&self, id: &str, is: ContainerState, pid: u32) {
        let mut state = self.state.lock().unwrap();
        if let Some(container) = state.containers.get_mut(id) {
            (container.state, container.pid) = (is, pid);
        }
    }

    /// Waits until a plugin has been synchronized so often.
    pub fn wait_for_synchronization(&self, times: usize) {
        crate::host::wait_for(&format!("synchronization {times}"), || {
            (self.synchronized.load(Ordering::SeqCst) >= times).then_some(())
        });
    }
}

fn pod(container: &RuntimeContainer) -> Option<PodSandbox> {
    Some(container.asked.sandbox())
}

/// Returns resources with zeros for fields that the kubelet does not set.
fn as_told(wanted: &LinuxResources) -> LinuxResources {
    let mut told = wanted.clone();
    let cpu = told.cpu.get_or_insert_default();
    cpu.quota.get_or_insert_default();
    cpu.period.get_or_insert_default();
    told.memory.get_or_insert_default().limit.get_or_insert_default();
    told
}

fn refused(outcome: Result<Empty, CallError>) -> Result<(), String> {
    match outcome {
        Err(error) if !error.is_fatal() => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn adjustment(cpus: &str) -> hostler_proto::nri::ContainerAdjustment {
    use hostler_proto::nri::{ContainerAdjustment, LinuxContainerAdjustment, LinuxCpu};
    let cpu = LinuxCpu { cpus: cpus.to_owned(), ..LinuxCpu::default() };
    let resources = LinuxResources { cpu: Some(cpu), ..LinuxResources::default() };
    let linux = LinuxContainerAdjustment { resources: Some(resources), ..LinuxContainerAdjustment::default() };
    ContainerAdjustment { linux: Some(linux), ..ContainerAdjustment::default() }
}
