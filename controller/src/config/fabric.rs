//! `[fabric]`: managers of devices behind switches, and how devices are attached.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::fabric::SystemUuid;
use hostler_fabric::redfish::RedfishSettings;
use hostler_process::config::{ConfigMistake, ConfigReader};
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::is_object_name;

/// A minute is the least that a manager takes for an attachment and a node to find the device; an hour is beyond every
/// scheduler's patience.
const ATTACH_SECONDS: [u32; 2] = [60, 3600];
/// Managers are small computers, and each attachment under way is a call.
const WORKERS: [u32; 2] = [1, 64];
const POLL_SECONDS: [u32; 2] = [1, 3600];
/// Devices and hosts of a fabric in memory: more would be of no use to look at.
const FAKE_DEVICES: [u32; 2] = [1, 1024];
const FAKE_HOSTS: usize = 1024;
const FAKE_GIB: [u32; 2] = [1, 1 << 20];
const FAKE_FIRST: [u32; 2] = [0, 1 << 24];
/// A manager that takes longer than a minute is given up by its client.
const FAKE_ANSWER_MS: [u32; 2] = [0, 60_000];

/// `[fabric]`: managers of devices behind switches, and how devices are attached.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct FabricConfig {
    /// Seconds from the allocation of a claim after which it is given another device. Less than the scheduler's
    /// `bindingTimeout`.
    pub(crate) attach_seconds: u32,
    /// The most attachments that are worked on at a time.
    pub(crate) workers: u32,
    /// Seconds between two reads of a manager.
    pub(crate) poll_seconds: u32,
    /// The managers. Without any, nothing of this is done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) managers: Vec<FabricManagerConfig>,
}

/// `[[fabric.managers]]`: a manager of devices behind switches.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct FabricManagerConfig {
    /// Name of the manager; it is a part of the names of pools.
    pub(crate) name: String,
    /// The manager, where it is a Redfish service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) redfish: Option<RedfishSettings>,
    /// The manager, where it is a fabric in memory, for trials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fake: Option<FakeManagerConfig>,
    /// UUIDs of nodes whose boards tell none that can be used, by the name of the node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) nodes: BTreeMap<String, String>,
}

/// A fabric in memory: one switch, hosts, and memory devices.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct FakeManagerConfig {
    /// UUIDs of the hosts.
    pub(crate) hosts: Vec<String>,
    /// Number of devices.
    pub(crate) devices: u32,
    /// Size of each device in GiB.
    pub(crate) gib: u32,
    /// Size in GiB of memory that all devices share, instead of each having its own: claims ask for amounts of it.
    pub(crate) shared_gib: u32,
    /// Number of the first device: fabrics in memory beside each other have devices of their own.
    pub(crate) first: u32,
    /// Milliseconds that the manager takes for each answer.
    pub(crate) answer_ms: u32,
}

impl Default for FabricConfig {
    fn default() -> Self {
        // The scheduler waits for 600 s by itself: two minutes are left to tell it of another device.
        Self { attach_seconds: 480, workers: 20, poll_seconds: 30, managers: Vec::new() }
    }
}

impl Default for FakeManagerConfig {
    fn default() -> Self {
        Self { hosts: Vec::new(), devices: 4, gib: 64, shared_gib: 0, first: 0, answer_ms: 0 }
    }
}

impl FabricConfig {
    /// Reads the section with the managers, each by itself.
    pub(super) fn read<'t>(reader: &mut ConfigReader<'t>, root: &mut DeTable<'t>) -> Self {
        let mut table = reader.table("fabric", root);
        let managers = reader.tables("fabric.managers", &mut table);
        let managers =
            managers.into_iter().map(|(path, table)| FabricManagerConfig::read(reader, &path, table)).collect();
        Self { managers, ..reader.keys("fabric", table, &["managers"]) }
    }

    /// Returns mistakes of values that their types do not exclude.
    pub(super) fn mistakes(&self) -> Vec<ConfigMistake> {
        let numbers = [
            ("attach_seconds", self.attach_seconds, ATTACH_SECONDS),
            ("workers", self.workers, WORKERS),
            ("poll_seconds", self.poll_seconds, POLL_SECONDS),
        ];
        let mut mistakes: Vec<ConfigMistake> = numbers
            .into_iter()
            .filter_map(|(key, value, range)| outside(format!("fabric.{key}"), value, range))
            .collect();
        let mut names = BTreeSet::new();
        for (at, manager) in self.managers.iter().enumerate() {
            let path = format!("fabric.managers[{at}]");
            if !names.insert(&manager.name) {
                let what = format!("is {:?}, as that of another manager", manager.name);
                mistakes.push(ConfigMistake::new(format!("{path}.name"), what, "give each manager its own name"));
            }
            mistakes.extend(manager.mistakes(&path));
        }
        mistakes
    }
}

impl FabricManagerConfig {
    fn read<'t>(reader: &mut ConfigReader<'t>, path: &str, mut table: DeTable<'t>) -> Self {
        let has = |key: &str| table.keys().any(|it| it.get_ref() == key);
        let (has_redfish, has_fake) = (has("redfish"), has("fake"));
        let redfish = has_redfish.then(|| reader.section(&format!("{path}.redfish"), &mut table));
        let fake = has_fake.then(|| reader.section(&format!("{path}.fake"), &mut table));
        Self { redfish, fake, ..reader.keys(path, table, &[]) }
    }

    /// The UUID that the configuration gives a node.
    pub(crate) fn uuid_of(&self, node: &str) -> Option<SystemUuid> {
        self.nodes.get(node)?.parse().ok()
    }

    fn mistakes(&self, path: &str) -> Vec<ConfigMistake> {
        let mut mistakes = Vec::new();
        if !is_object_name(&self.name) {
            let (what, fix) = match &*self.name {
                "" => (
                    "is missing".to_owned(),
                    "give the manager a name of lower-case letters, digits, and hyphens inside",
                ),
                name => (
                    format!("is {name:?}, which no pool can be called"),
                    "write lower-case letters, digits, and hyphens inside",
                ),
            };
            mistakes.push(ConfigMistake::new(format!("{path}.name"), what, fix));
        }
        match (&self.redfish, &self.fake) {
            (Some(redfish), None) => mistakes.extend(redfish.problems().into_iter().map(|problem| {
                // A problem says what to do by itself.
                ConfigMistake::new(format!("{path}.redfish.{}", problem.field), problem.reason, "")
            })),
            (None, Some(fake)) => mistakes.extend(fake.mistakes(&format!("{path}.fake"))),
            (Some(_), Some(_)) => {
                let what = "has redfish and fake".to_owned();
                mistakes.push(ConfigMistake::new(path, what, "leave out one of them: a manager is one service"));
            }
            (None, None) => {
                let what = "has no address".to_owned();
                let fix =
                    "write redfish = { address = \"https://HOST:PORT\", … }, or fake = { hosts = […] } for a trial";
                mistakes.push(ConfigMistake::new(path, what, fix));
            }
        }
        mistakes.extend(uuid_mistakes(self.nodes.iter().map(|(node, uuid)| (format!("{path}.nodes.{node}"), uuid))));
        mistakes
    }
}

impl FakeManagerConfig {
    fn mistakes(&self, path: &str) -> Vec<ConfigMistake> {
        let numbers = [
            ("devices", self.devices, FAKE_DEVICES),
            ("gib", self.gib, FAKE_GIB),
            ("shared_gib", self.shared_gib, [0, FAKE_GIB[1]]),
            ("first", self.first, FAKE_FIRST),
            ("answer_ms", self.answer_ms, FAKE_ANSWER_MS),
        ];
        let mut mistakes: Vec<ConfigMistake> = numbers
            .into_iter()
            .filter_map(|(key, value, range)| outside(format!("{path}.{key}"), value, range))
            .collect();
        let hosts = format!("{path}.hosts");
        if self.hosts.is_empty() || self.hosts.len() > FAKE_HOSTS {
            let what = format!("has {} hosts", self.hosts.len());
            mistakes.push(ConfigMistake::new(&hosts, what, format!("write the UUIDs of 1 to {FAKE_HOSTS} nodes")));
        }
        mistakes.extend(uuid_mistakes(self.hosts.iter().map(|uuid| (hosts.clone(), uuid))));
        mistakes
    }
}

/// Mistakes of texts that are to be UUIDs, each of one host.
fn uuid_mistakes<'a>(texts: impl Iterator<Item = (String, &'a String)>) -> Vec<ConfigMistake> {
    let mut seen = BTreeSet::new();
    let mistake = |(key, text): (String, &String)| match text.parse::<SystemUuid>() {
        // The error says what one reads like.
        Err(error) => Some(ConfigMistake::new(key, error.to_string(), "")),
        Ok(uuid) if seen.insert(uuid.clone()) => None,
        Ok(_) => Some(ConfigMistake::new(key, format!("has {text:?} twice"), "write each UUID once")),
    };
    texts.filter_map(mistake).collect()
}

fn outside(key: String, value: u32, [least, most]: [u32; 2]) -> Option<ConfigMistake> {
    let is_outside = value < least || value > most;
    is_outside.then(|| ConfigMistake::new(key, format!("is {value}"), format!("write {least} to {most}")))
}
