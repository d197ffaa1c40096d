//! A report without the fields that have no reader: the controller keeps five thousand of them.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

use hostler_api::{
    Quantity,
    hardware::{BackendHardware, BackendKnowledge, NodeHardware, ZoneHardware},
};

/// A daemon's report of its node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ReportedHardware {
    /// Driver under which the daemon publishes devices.
    pub(crate) driver: Arc<str>,
    /// Version of the daemon.
    pub(crate) hostler_version: Arc<str>,
    /// Troubles, in sentences.
    pub(crate) troubles: Box<[Arc<str>]>,
    /// Pools, one for each backend.
    pub(crate) pools: Box<[ReportedPool]>,
}

/// A daemon's report of a backend's devices.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReportedPool {
    /// Pool of the devices.
    pub(crate) pool: Arc<str>,
    /// True if the state of the devices is known.
    pub(crate) is_known: bool,
    /// Rows by class and NUMA node.
    pub(crate) rows: Box<[ReportedRow]>,
}

/// A daemon's report of the devices of a class on a NUMA node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReportedRow {
    /// The class.
    pub(crate) class: Arc<str>,
    /// The NUMA node, if the devices are on a single one.
    pub(crate) numa_node: Option<u32>,
    /// Number of devices that claims have, including claims that only the node knows.
    pub(crate) allocated: u32,
    /// Amounts that claims have of each capacity that is shared, by its name.
    pub(crate) amounts: Box<[(Arc<str>, Quantity)]>,
}

/// Texts that most reports share.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportWords(BTreeSet<Arc<str>>);

impl ReportWords {
    fn get(&mut self, word: &str) -> Arc<str> {
        if let Some(known) = self.0.get(word) {
            return known.clone();
        }
        let word: Arc<str> = word.into();
        self.0.insert(word.clone());
        word
    }
}

/// Returns a number that differs for every report that a daemon writes: the time is part of it.
pub(super) fn report_mark(report: &NodeHardware) -> u64 {
    let text = serde_json::to_string(&report.status).unwrap_or_default();
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
}

impl ReportedHardware {
    pub(super) fn pack(report: &NodeHardware, words: &mut ReportWords) -> Self {
        let status = &report.status;
        let troubles = status.conditions.iter().filter(|condition| !condition.is_true());
        let sentence = |kind: &str, message: &str| Arc::from(format!("{kind}: {message}"));
        let node = &report.metadata.name;
        Self {
            driver: words.get(&status.driver),
            hostler_version: words.get(&status.hostler_version),
            troubles: troubles.map(|condition| sentence(&condition.kind, &condition.message)).collect(),
            pools: status.backends.iter().map(|backend| ReportedPool::pack(node, backend, words)).collect(),
        }
    }
}

impl ReportedPool {
    fn pack(node: &str, backend: &BackendHardware, words: &mut ReportWords) -> Self {
        let classes = backend.classes.iter().flat_map(|class| class.zones.iter().map(move |zone| (class, zone)));
        Self {
            pool: format!("{node}/{}", backend.name).into(),
            is_known: backend.knowledge != BackendKnowledge::Unknown,
            rows: classes.map(|(class, zone)| ReportedRow::pack(&class.name, zone, words)).collect(),
        }
    }
}

impl ReportedRow {
    fn pack(class: &str, zone: &ZoneHardware, words: &mut ReportWords) -> Self {
        Self {
            class: words.get(class),
            numa_node: zone.numa_node,
            allocated: zone.devices.allocated,
            amounts: zone.amounts.iter().map(|(name, amounts)| (words.get(name), amounts.allocated)).collect(),
        }
    }
}
