//! Adjustments of several plugins in one runtime: each resource belongs to the first that asks for it.

use std::collections::BTreeMap;

use hostler_proto::nri::{ContainerAdjustment, ContainerUpdate, LinuxResources};

use super::containers::merged;

/// The wishes of all plugins in answer to one event.
#[derive(Default)]
pub(super) struct Wishes {
    /// Resources of the container that is about to exist.
    pub adjusted: LinuxResources,
    /// Variables that it gets on top.
    pub env: Vec<String>,
    /// Updates of other containers, in the order in which they were first named.
    pub updates: Vec<ContainerUpdate>,
    owners: BTreeMap<(String, String), String>,
}

impl Wishes {
    /// Adds what a plugin wants for container `id`, which is about to exist.
    ///
    /// # Errors
    /// When another plugin has asked for the same.
    pub(super) fn adjust(&mut self, plugin: &str, id: &str, wish: &ContainerAdjustment) -> Result<(), String> {
        for variable in &wish.env {
            self.own(plugin, id, &format!("env {}", variable.key))?;
            self.env.push(format!("{}={}", variable.key, variable.value));
        }
        for key in wish.annotations.keys() {
            self.own(plugin, id, &format!("annotation {key}"))?;
        }
        for mount in &wish.mounts {
            self.own(plugin, id, &format!("mount {}", mount.destination))?;
        }
        for device in &wish.cdi_devices {
            self.own(plugin, id, &format!("CDI device {}", device.name))?;
        }
        if let Some(resources) = wish.linux.as_ref().and_then(|linux| linux.resources.as_ref()) {
            self.own_resources(plugin, id, resources)?;
            self.adjusted = merged(&self.adjusted, resources);
        }
        Ok(())
    }

    /// Adds what a plugin wants for containers other than `created`.
    ///
    /// # Errors
    /// When another plugin has asked for the same, or it is about the container that is about to exist.
    pub(super) fn update(
        &mut self,
        plugin: &str,
        created: Option<&str>,
        wishes: &[ContainerUpdate],
    ) -> Result<(), String> {
        for wish in wishes {
            let id = &wish.container_id;
            if created == Some(id) {
                return Err(format!("plugin {plugin:?} asked update of {id:?} during creation"));
            }
            let empty = LinuxResources::default();
            let resources = wish.linux.as_ref().and_then(|linux| linux.resources.as_ref()).unwrap_or(&empty);
            match self.own_resources(plugin, id, resources) {
                Err(_) if wish.ignore_failure => continue,
                outcome => outcome?,
            }
            self.updates.push(wish.clone());
        }
        Ok(())
    }

    fn own_resources(&mut self, plugin: &str, id: &str, resources: &LinuxResources) -> Result<(), String> {
        let cpu = resources.cpu.clone().unwrap_or_default();
        let wished = [
            ("CPU shares", cpu.shares.is_some()),
            ("CPU quota", cpu.quota.is_some()),
            ("CPU period", cpu.period.is_some()),
            ("CPUset cpus", !cpu.cpus.is_empty()),
            ("CPUset mems", !cpu.mems.is_empty()),
        ];
        for (what, _) in wished.iter().filter(|(_, wished)| *wished) {
            self.own(plugin, id, what)?;
        }
        for key in resources.unified.keys() {
            self.own(plugin, id, &format!("unified resource {key}"))?;
        }
        Ok(())
    }

    fn own(&mut self, plugin: &str, id: &str, what: &str) -> Result<(), String> {
        // A plugin that asks twice for the same in one answer stands in its own way.
        match self.owners.insert((id.to_owned(), what.to_owned()), plugin.to_owned()) {
            None => Ok(()),
            Some(owner) => Err(format!("plugins {plugin:?} and {owner:?} both tried to set {what}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use hostler_proto::nri::{LinuxContainerAdjustment, LinuxContainerUpdate, LinuxCpu};

    use super::*;

    fn resources(cpus: &str, mems: &str) -> Option<LinuxResources> {
        let cpu = LinuxCpu { cpus: cpus.into(), mems: mems.into(), ..LinuxCpu::default() };
        Some(LinuxResources { cpu: Some(cpu), ..LinuxResources::default() })
    }

    fn adjustment(cpus: &str, mems: &str) -> ContainerAdjustment {
        let linux =
            LinuxContainerAdjustment { resources: resources(cpus, mems), ..LinuxContainerAdjustment::default() };
        ContainerAdjustment { linux: Some(linux), ..ContainerAdjustment::default() }
    }

    fn update(id: &str, cpus: &str) -> ContainerUpdate {
        let linux = LinuxContainerUpdate { resources: resources(cpus, "") };
        ContainerUpdate { container_id: id.into(), linux: Some(linux), ..ContainerUpdate::default() }
    }

    #[test]
    fn plugins_may_set_different_things_and_not_the_same() {
        let mut wishes = Wishes::default();
        wishes.adjust("00-a", "c", &adjustment("0-1", "")).unwrap();
        wishes.adjust("10-b", "c", &adjustment("", "1")).unwrap();
        let cpu = wishes.adjusted.cpu.clone().unwrap();
        assert_eq!((cpu.cpus.as_str(), cpu.mems.as_str()), ("0-1", "1"));
        let refusal = wishes.adjust("20-c", "c", &adjustment("2", "")).unwrap_err();
        assert!(refusal.contains("both tried to set CPUset cpus"), "{refusal}");
    }

    #[test]
    fn a_plugin_names_a_container_once_and_not_the_one_that_is_made() {
        let mut wishes = Wishes::default();
        wishes.update("00-a", Some("new"), &[update("x", "0"), update("y", "1")]).unwrap();
        assert!(wishes.update("00-a", Some("new"), &[update("x", "2")]).is_err());
        let refusal = wishes.update("00-a", Some("new"), &[update("new", "2")]).unwrap_err();
        assert!(refusal.contains("during creation"), "{refusal}");
    }
}
