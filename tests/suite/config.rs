//! The installed example configuration: it must be right and complete, and change only the values that it says.
use std::path::Path;

use hostler::{config::DaemonConfig, kubelet::KubeletSocketPaths};

fn example() -> (DaemonConfig, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/hostler.toml");
    let config = DaemonConfig::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
    (config, std::fs::read_to_string(path).unwrap())
}

#[test]
fn the_example_gives_the_defaults() {
    let (example, _) = example();
    let default = DaemonConfig::default();
    let metrics = hostler::config::MetricsConfig { listen: Some(default.metrics_listen()), scrape: None };
    assert_eq!(example, DaemonConfig { hook: "/usr/bin/hostler".into(), metrics, ..default });
}

#[test]
fn the_example_explains_every_key() {
    let (mut config, text) = example();
    // Keys without a value are not written; give each one.
    config.backends.fake.config.script = "/x".into();
    config.topology_export.topology_manager_policy = Some(hostler::config::TopologyManagerPolicy::None);
    config.topology_export.topology_manager_scope = Some(hostler::config::TopologyManagerScope::Pod);
    config.metrics.scrape = Some(hostler::config::ScrapeAddress("[::]:9464".parse().unwrap()));
    config.pod_resources.socket = Some(config.pod_resources_socket());
    config.pod_resources.kubelet_socket = Some(config.kubelet_pod_resources_socket());
    let all: toml::Table = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
    let mut missing = Vec::new();
    look_for(&all, "", &text, &mut missing);
    assert!(missing.is_empty(), "systemd/hostler.toml does not mention {missing:?}");
}

#[test]
fn the_socket_paths_that_are_checked_are_those_that_are_bound() {
    let config = DaemonConfig::default();
    let bound = KubeletSocketPaths::new(&config.driver, &config.paths.kubelet);
    assert_eq!(config.kubelet_sockets(), bound);
}

/// A key stands in its section, set or commented out, with a comment above it or above the section.
fn look_for(table: &toml::Table, section: &str, text: &str, missing: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let header = format!("[{section}]");
    let start = lines.iter().position(|line| *line == header).unwrap_or(0);
    let end = lines[start + 1..].iter().position(|line| line.starts_with('[')).map_or(lines.len(), |at| start + 1 + at);
    // The comment above a section belongs to it.
    let body = &lines[start.saturating_sub(1)..end];
    for (key, value) in table {
        let path = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
        match value {
            toml::Value::Table(inner) if key != "reserved" => look_for(inner, &path, text, missing),
            _ => {
                let set = format!("{key} =");
                let at = body.iter().position(|line| line.trim_start_matches('#').starts_with(&set));
                if !at.is_some_and(|at| body[..at].iter().any(|line| line.starts_with("# "))) {
                    missing.push(path);
                }
            }
        }
    }
}
