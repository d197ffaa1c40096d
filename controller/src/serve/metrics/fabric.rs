//! Figures of devices behind switches, where this controller leads; nothing elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::AtomicU64,
    time::Duration,
};

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::{LabelledGauge, gauges, number};
use crate::{
    fabric::{AttachmentSums, FabricFigures, FabricStatus},
    observed::FabricObjects,
};

/// Parts of the figures.
pub(super) struct FabricMetrics<'a> {
    pub(super) status: &'a FabricStatus,
    pub(super) counted: &'a FabricFigures,
    pub(super) objects: &'a FabricObjects,
    /// Time since 1970.
    pub(super) now: Duration,
}

impl FabricMetrics<'_> {
    pub(super) fn register(&self, registry: &mut Registry) {
        self.register_offer(registry);
        self.register_attachments(registry);
        self.register_managers(registry);
    }

    fn register_offer(&self, registry: &mut Registry) {
        let devices = LabelledGauge::<2>::default();
        for ((pool, state), count) in &self.status.devices {
            devices.get_or_create(&[("pool", pool.clone()), ("state", (*state).to_owned())]).set(number(*count));
        }
        registry.register(
            "fabric_devices",
            "Devices behind switches by pool and state, where this controller leads",
            devices,
        );
        let is_read = |(name, error): (&String, &Option<String>)| (name.clone(), i64::from(error.is_none()));
        let help = "1 if the last read of the fabric manager succeeded, where this controller leads";
        gauges(registry, ("fabric_manager_read", help, "manager"), self.status.managers.iter().map(is_read));
    }

    /// Registers the sums of all FabricAttachments; a manager without any has zeros.
    fn register_attachments(&self, registry: &mut Registry) {
        let attachments = self.objects.attachments.values().map(|object| &object.attachment);
        let sums = match self.status.managers.is_empty() {
            true => BTreeMap::new(),
            false => AttachmentSums::by_manager(attachments, self.now),
        };
        let none = AttachmentSums::default();
        let of_configured = self.status.managers.keys().map(|name| (name.as_str(), &none));
        let sums: BTreeMap<&str, &AttachmentSums> =
            of_configured.chain(sums.iter().map(|(name, it)| (*name, it))).collect();
        let phases = LabelledGauge::<2>::default();
        for (manager, of) in &sums {
            for (phase, count) in &of.phases {
                let labels = [("manager", (*manager).to_owned()), ("phase", (*phase).to_owned())];
                phases.get_or_create(&labels).set(number(*count));
            }
        }
        let help = "FabricAttachments by manager and phase, where this controller leads";
        registry.register("fabric_attachments", help, phases);
        let mut each = |name, help, value: fn(&AttachmentSums) -> i64| {
            let values = sums.iter().map(|(manager, of)| (*manager, value(of)));
            gauges(registry, (name, help, "manager"), values);
        };
        each(
            "fabric_oldest_under_way_seconds",
            "The longest time for which a FabricAttachment is in a phase that is to pass",
            |of| number(of.oldest.as_secs()),
        );
        each(
            "fabric_release_waits_seconds",
            "The longest time for which a node has not let go of a device behind a switch",
            |of| number(of.release.as_secs()),
        );
        each("fabric_overdue_attachments", "FabricAttachments beyond their deadline", |of| number(of.overdue));
        each(
            "fabric_quarantined_devices",
            "Devices behind switches that failed five times or more in a row, and are on no node",
            |of| number(of.quarantined),
        );
        each(
            "fabric_devices_holding_data",
            "Devices behind switches that are on no node and may hold data of an earlier claim",
            |of| number(of.holding_data),
        );
    }

    /// Registers what the readers of managers and the part that attaches devices have counted.
    fn register_managers(&self, registry: &mut Registry) {
        let managers = &self.counted.managers;
        let unread = |since: &Option<Duration>| since.map_or(0, |since| self.now.saturating_sub(since).as_secs());
        gauges(
            registry,
            (
                "fabric_manager_unread_seconds",
                "Time for which the fabric manager cannot be read; 0 where its last read succeeded",
                "manager",
            ),
            managers.iter().map(|(name, of)| (name, unread(&of.unread_since))),
        );
        gauges(
            registry,
            (
                "fabric_foreign_devices",
                "Devices behind switches that a connection gives to a host which hostler did not make",
                "manager",
            ),
            managers.iter().map(|(name, of)| (name, self.foreign(&of.foreign))),
        );
        let failed = Family::<[(&'static str, String); 2], Counter<u64, AtomicU64>>::default();
        for ((manager, reason), count) in &self.counted.failed_attempts {
            failed.get_or_create(&[("manager", manager.clone()), ("reason", reason.clone())]).inc_by(*count);
        }
        let help = "Attempts to attach a device that failed since this controller leads, by manager and reason";
        registry.register("fabric_failed_attempts", help, failed);
    }

    /// Counts devices that no FabricAttachment is about: the manager may show the others before it knows of their key.
    fn foreign(&self, devices: &BTreeSet<String>) -> usize {
        let is_ours = |device: &&String| {
            let object = self.objects.attachments.get(*device);
            object.is_some_and(|object| object.attachment.status.phase.is_under_way())
        };
        devices.iter().filter(|device| !is_ours(device)).count()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use hostler_reconcile::ObjectStamp;
    use serde_json::json;

    use super::*;
    use crate::{observed::AttachmentObject, testkit::over};

    /// Series of [`scene_with_all`], with their values.
    pub(crate) const SERIES: [(&str, f64); 11] = [
        ("hostler_controller_fabric_devices{pool=\"fabric/row1/cxl\",state=\"free\"}", 3.0),
        ("hostler_controller_fabric_manager_read{manager=\"row1\"}", 0.0),
        ("hostler_controller_fabric_attachments{manager=\"row1\",phase=\"Releasing\"}", 1.0),
        ("hostler_controller_fabric_oldest_under_way_seconds{manager=\"row1\"}", 1000.0),
        ("hostler_controller_fabric_release_waits_seconds{manager=\"row1\"}", 1000.0),
        ("hostler_controller_fabric_overdue_attachments{manager=\"row1\"}", 0.0),
        ("hostler_controller_fabric_quarantined_devices{manager=\"row2\"}", 0.0),
        ("hostler_controller_fabric_devices_holding_data{manager=\"row1\"}", 0.0),
        ("hostler_controller_fabric_manager_unread_seconds{manager=\"row1\"}", 60.0),
        ("hostler_controller_fabric_foreign_devices{manager=\"row1\"}", 1.0),
        ("hostler_controller_fabric_failed_attempts_total{manager=\"row1\",reason=\"Refused\"}", 2.0),
    ];

    const OURS: &str = "0000000000001001-0001";

    fn releasing() -> AttachmentObject {
        let attachment = serde_json::from_value(json!({
            "metadata": {"name": OURS},
            "spec": {"manager": "row1", "device": "00-00-00-00-00-00-10-01:0001", "nodeName": "n"},
            "status": {"phase": "Releasing", "since": "1970-01-01T00:00:00Z"},
        }));
        AttachmentObject { stamp: ObjectStamp::from(&over("u", "1")), attachment: attachment.unwrap() }
    }

    /// Hands over a scene in which every figure has a series.
    pub(crate) fn scene_with_all(take: impl FnOnce(&FabricMetrics<'_>)) {
        let mut counted = FabricFigures {
            failed_attempts: [(("row1".to_owned(), "Refused".to_owned()), 2)].into(),
            ..FabricFigures::default()
        };
        let unread = counted.managers.entry("row1".to_owned()).or_default();
        unread.unread_since = Some(Duration::from_secs(940));
        unread.foreign = [OURS, "0000000000001002-0001"].map(str::to_owned).into();
        let status = FabricStatus {
            devices: [(("fabric/row1/cxl".to_owned(), "free"), 3)].into(),
            managers: [("row1".to_owned(), Some("timeout".to_owned())), ("row2".to_owned(), None)].into(),
            ..FabricStatus::default()
        };
        let mut objects = FabricObjects::default();
        objects.attachments.insert(OURS.to_owned(), Arc::new(releasing()));
        take(&FabricMetrics { status: &status, counted: &counted, objects: &objects, now: Duration::from_secs(1000) });
    }
}
