//! The filter of the key `/`: holders and devices with a text in their names or states.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    cli::picture::words,
    usage::holders::{DeviceUsage, MachineUsage, UsageHolder},
};

/// No name of Kubernetes is longer.
const LONGEST: usize = 253;

/// A text that is looked for, in letters of either case. An empty one is in every name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct PageFilter(String);

/// The holders and devices that a filter lets through.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct FilteredUsage {
    /// Places of holders.
    pub(super) holders: BTreeSet<usize>,
    /// Paths of devices.
    pub(super) devices: BTreeSet<String>,
}

impl PageFilter {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Adds a character.
    pub(super) fn push(&mut self, typed: char) {
        if self.0.chars().count() < LONGEST {
            self.0.push(typed.to_ascii_lowercase());
        }
    }

    /// Takes the last character away.
    pub(super) fn pop(&mut self) {
        self.0.pop();
    }

    /// Returns holders with the text in their names or states, holders of devices with it, and the other way round.
    pub(super) fn of(&self, usage: &MachineUsage) -> FilteredUsage {
        let named: BTreeSet<usize> =
            (0..usage.holders.len()).filter(|place| self.names_holder(&usage.holders[*place])).collect();
        let mut filtered = FilteredUsage { holders: named.clone(), devices: BTreeSet::new() };
        for device in &usage.devices {
            let is_named = self.names_device(device);
            if is_named {
                filtered.holders.extend(device.holds.iter().map(|hold| hold.holder));
            }
            if is_named || device.holds.iter().any(|hold| named.contains(&hold.holder)) {
                filtered.devices.insert(device.path());
            }
        }
        filtered
    }

    fn names_holder(&self, holder: &UsageHolder) -> bool {
        self.is_in(&holder.full_name()) || self.is_in(holder.state.as_str())
    }

    fn names_device(&self, device: &DeviceUsage) -> bool {
        self.is_in(&device.path()) || self.is_in(&words::device_state(device).short)
    }

    fn is_in(&self, text: &str) -> bool {
        text.to_ascii_lowercase().contains(&self.0)
    }
}

/// The devices of each NUMA node that a filter lets through.
pub(super) fn shown_devices<'u>(
    usage: &'u MachineUsage,
    filtered: Option<&FilteredUsage>,
) -> BTreeMap<Option<u32>, Vec<&'u DeviceUsage>> {
    let mut all = words::devices_by_node(usage);
    if let Some(filtered) = filtered {
        all.values_mut().for_each(|devices| devices.retain(|device| filtered.devices.contains(&device.path())));
        all.retain(|_, devices| !devices.is_empty());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::testing::small;

    fn filter(text: &str) -> PageFilter {
        let mut filter = PageFilter::default();
        text.chars().for_each(|typed| filter.push(typed));
        filter
    }

    fn filtered(text: &str) -> (Vec<usize>, Vec<String>) {
        let found = filter(text).of(&small());
        (found.holders.into_iter().collect(), found.devices.into_iter().collect())
    }

    #[test]
    fn a_holder_comes_with_its_devices_and_a_device_with_its_holders() {
        let devices = |names: &[&str]| -> Vec<String> { names.iter().map(ToString::to_string).collect() };
        assert_eq!(filtered("web"), (vec![1], devices(&["cpu/numa0"])));
        assert_eq!(filtered("ML/Tr"), (vec![0], devices(&["cpu/numa0", "fpga/card-0", "memory/node0"])));
        assert_eq!(filtered("numa0"), (vec![0, 1], devices(&["cpu/numa0"])));
        assert_eq!(filtered("unhealthy"), (Vec::new(), devices(&["fpga/card-1"])));
        assert_eq!(filtered("nothing-of-this"), (Vec::new(), Vec::new()));
        assert_eq!(filtered("").1.len(), small().devices.len());
    }

    #[test]
    fn what_was_typed_can_be_taken_back_and_has_an_end() {
        let mut filter = filter(&"x".repeat(LONGEST + 7));
        assert_eq!(filter.text().len(), LONGEST);
        (0..LONGEST + 7).for_each(|_| filter.pop());
        assert!(filter.is_empty());
    }
}
