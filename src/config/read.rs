//! Reads the daemon's sections, key by key.

use hostler_process::config::{ConfigReader, KeyLines};
use serde::de::DeserializeOwned;
use toml::de::DeTable;

use super::{BackendSection, BackendsConfig, ConfigMistake, DaemonConfig};

/// Reads a text: the configuration with every key that could be read, a mistake for each other key, and the keys'
/// lines.
pub(super) fn read(text: &str) -> (DaemonConfig, Vec<ConfigMistake>, KeyLines) {
    let (mut reader, mut root) = ConfigReader::new(text);
    let paths = reader.section("paths", &mut root);
    let cluster = reader.section("cluster", &mut root);
    let topology_export = reader.section("topology_export", &mut root);
    let kubelet = reader.section("kubelet", &mut root);
    let inventory = reader.section("inventory", &mut root);
    let log = reader.section("log", &mut root);
    let metrics = reader.section("metrics", &mut root);
    let nri = reader.section("nri", &mut root);
    let audit = reader.section("audit", &mut root);
    let pod_resources = reader.section("pod_resources", &mut root);
    let backends = backends(&mut reader, &mut root);
    let scalars: DaemonConfig = reader.keys("", root, &["backends"]);
    let config = DaemonConfig {
        paths,
        cluster,
        topology_export,
        kubelet,
        inventory,
        log,
        metrics,
        nri,
        audit,
        pod_resources,
        backends,
        ..scalars
    };
    let (problems, lines) = reader.end();
    (config, problems, lines)
}

fn backends<'t>(reader: &mut ConfigReader<'t>, root: &mut DeTable<'t>) -> BackendsConfig {
    let mut table = reader.table("backends", root);
    let default = BackendsConfig::default();
    let backends = BackendsConfig {
        cpu: switched(reader, "backends.cpu", &mut table, default.cpu.enabled),
        memory: switched(reader, "backends.memory", &mut table, default.memory.enabled),
        fpga: switched(reader, "backends.fpga", &mut table, default.fpga.enabled),
        cxl: switched(reader, "backends.cxl", &mut table, default.cxl.enabled),
        fake: switched(reader, "backends.fake", &mut table, default.fake.enabled),
    };
    reader.refuse_unknown("backends", &mut table, &["cpu", "memory", "fpga", "cxl", "fake"]);
    backends
}

fn switched<'t, T>(
    reader: &mut ConfigReader<'t>,
    path: &str,
    parent: &mut DeTable<'t>,
    enabled: bool,
) -> BackendSection<T>
where
    T: DeserializeOwned + Default,
{
    let mut table = reader.table(path, parent);
    let written = table.remove_entry("enabled").and_then(|(key, value)| {
        let path = reader.place(path, &key);
        value.get_ref().as_bool().or_else(|| {
            let problem = ConfigMistake::new(&*path, "is neither true nor false", "write true or false without quotes");
            reader.mistake(problem);
            None
        })
    });
    let config = reader.keys(path, table, &["enabled"]);
    BackendSection { enabled: written.unwrap_or(enabled), config }
}
