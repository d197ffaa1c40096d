//! Uevents that concern backends. Pure.
//!
//! A backend names kernel subsystems, or a part of one: `platform/dfl-` are the platform devices whose names begin
//! with `dfl-`. Rescans are asked for by those words, not by the kernel's. Events that concern no backend are dropped
//! before they are collected: hosts that start containers are full of events about networks and disks, and none of
//! them should make a new card wait.

use std::collections::BTreeSet;

use hostler_api::BackendName;
use hostler_linux::uevent::{MonitorEvent, UeventHint};

use crate::registry::BackendRegistry;

/// Words for the uevents that the backends of a daemon want to hear of.
#[derive(Clone, Debug, Default)]
pub struct UeventInterests(BTreeSet<&'static str>);

impl UeventInterests {
    /// Collects the words that the backends name.
    pub fn of(backends: &BackendRegistry) -> Self {
        Self(backends.iter().flat_map(|(_, backend)| backend.subsystems().iter().copied()).collect())
    }

    /// Translates an event into the words of the backends: once for each word that means it.
    pub fn words(&self, event: MonitorEvent) -> Vec<MonitorEvent> {
        let MonitorEvent::Hint(hint) = event else { return vec![event] };
        let meant = self.0.iter().filter(|word| means(word, &hint));
        meant.map(|word| MonitorEvent::Hint(UeventHint { subsystem: (*word).to_owned(), ..hint.clone() })).collect()
    }
}

fn means(word: &str, hint: &UeventHint) -> bool {
    match word.split_once('/') {
        None => word == hint.subsystem,
        Some((subsystem, prefix)) => {
            let name = hint.devpath.rsplit('/').next().unwrap_or_default();
            subsystem == hint.subsystem && name.starts_with(prefix)
        }
    }
}

/// Returns the backends that name one of these words.
pub fn concerned(backends: &BackendRegistry, words: &BTreeSet<String>) -> Vec<BackendName> {
    let is_concerned = |subsystems: &[&str]| subsystems.iter().any(|word| words.contains(*word));
    let concerned = backends.iter().filter(|(_, backend)| is_concerned(backend.subsystems()));
    concerned.map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use hostler_linux::{SysRoot, uevent::UeventAction};

    use super::*;
    use crate::{config::DaemonConfig, registry};

    /// Who is scanned, `+`-separated, after an event as the kernel sends it.
    fn scanned(backends: &BackendRegistry, devpath: &str, subsystem: &str) -> String {
        let event = MonitorEvent::Hint(UeventHint {
            subsystem: subsystem.to_owned(),
            action: UeventAction::Change,
            devpath: devpath.to_owned(),
        });
        let words = UeventInterests::of(backends).words(event).into_iter().filter_map(|event| match event {
            MonitorEvent::Hint(hint) => Some(hint.subsystem),
            MonitorEvent::Overflow => None,
        });
        let names: Vec<String> = concerned(backends, &words.collect()).iter().map(ToString::to_string).collect();
        names.join("+")
    }

    /// The actions do not matter here: whatever happens to a device, its subsystem is looked at.
    #[test]
    fn each_kind_of_event_reaches_the_backends_that_need_it_and_no_other() {
        let backends = registry::from_config(&DaemonConfig::default(), &SysRoot::new("/nonexistent"));
        let card = "/devices/pci0000:b0/0000:b0:01.0/0000:b1:00.0";
        for (devpath, subsystem, expected) in [
            // Online and offline.
            ("/devices/system/cpu/cpu3", "cpu", "cpu"),
            // Added, removed, online, offline; of a CXL region as of a DIMM.
            ("/devices/system/memory/memory110", "memory", "cxl+memory"),
            ("/devices/system/node/node5", "node", "cxl+memory"),
            ("/devices/virtual/memory_tiering/memory_tier14", "memory_tiering", "cxl+memory"),
            // Plugged, bound, given virtual functions, recovered from an error.
            (card, "pci", "cxl+fpga"),
            // Objects of one memory device and one region, and the driver's own dax devices.
            ("/devices/platform/ACPI0017:00/root0/decoder0.0/region0", "cxl", "cxl+memory"),
            ("/devices/pci0000:40/0000:40:01.0/0000:42:00.0/mem4", "cxl", "cxl+memory"),
            ("/devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0", "dax", "cxl+memory"),
            (&format!("{card}/fpga_region/region0"), "fpga_region", "fpga"),
            (&format!("{card}/fpga_region/region0/dfl-fme.0/dfl-fme-mgr.0/fpga_manager/fpga0"), "fpga_manager", "fpga"),
            (
                &format!("{card}/fpga_region/region0/dfl-fme.0/dfl-fme-bridge.1.auto/fpga_bridge/br0"),
                "fpga_bridge",
                "fpga",
            ),
            (&format!("{card}/fpga_region/region0/dfl-port.0"), "platform", "fpga"),
            (&format!("{card}/fpga_region/region0/dfl-fme.0/dfl_dev.1"), "dfl", "fpga"),
            (&format!("{card}/fpga_region/region0/dfl-fme.0/hwmon/hwmon4"), "hwmon", "fpga"),
            (&format!("{card}/drm/renderD129"), "drm", "fpga"),
            (&format!("{card}/user_pf/xrt_user.1"), "xrt_user", "fpga"),
            ("/devices/virtual/vfio/26", "vfio", "cxl+fpga"),
            (&format!("{card}/vfio-dev/vfio0"), "vfio-dev", "cxl+fpga"),
            // Of the same subsystems, and nobody's business.
            ("/devices/platform/serial8250", "platform", ""),
            (&format!("{card}/drm/card1"), "drm", ""),
            // What a host that starts containers is full of.
            ("/devices/virtual/net/veth12ab", "net", ""),
            ("/devices/virtual/bdi/0:92", "bdi", ""),
            ("/module/xt_comment", "module", ""),
        ] {
            assert_eq!(scanned(&backends, devpath, subsystem), expected, "{subsystem} {devpath}");
        }
    }

    #[test]
    fn lost_events_concern_everybody_even_who_names_nothing() {
        assert_eq!(UeventInterests::default().words(MonitorEvent::Overflow), [MonitorEvent::Overflow]);
    }
}
