//! `hostler man`: manual pages, one per subcommand, and one for the configuration file.

use std::io::Write;

use clap::CommandFactory;
use hostler_cli::man::{ManArgs, ManPages, config_page};

use super::{Cli, CliFailure, CliOutcome, completions::COMPLETIONS};

/// The example that `make install` puts down: its comments are the one place where the keys are explained.
const EXAMPLE: &str = include_str!("../../systemd/hostler.toml");

const FILES: &str = r#".TP
.I /etc/hostler/hostler.toml
The configuration; see
.BR hostler.toml (5).
.TP
.I /etc/hostler/claims/
Manifests of claims, on hosts without Kubernetes.
.TP
.I /var/lib/hostler/
Records of claims, drained devices, bitstreams. They survive a reboot.
.TP
.I /var/run/cdi/
CDI files, one per claim, for container runtimes.
.TP
.I /run/hostler/admin.sock
Where the daemon listens for these commands; for root alone.
.TP
.I /run/hostler/metrics.sock
Figures and probes, for root and the group hostler.
"#;

const ENVIRONMENT: &str = r#".TP
.B HOSTLER_NODE_NAME
The node's name where the configuration has none.
"#;

const SEE_ALSO: &str = ".BR hostler (1),\n.BR hostler.toml (5)\n";

pub(super) fn run(args: &ManArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let see_also = ".BR hostler (1),\n.BR hostler\\-config (1)\n";
    let pages = ManPages {
        command: Cli::command(),
        files: FILES,
        environment: ENVIRONMENT,
        completions: COMPLETIONS.variable,
        see_also: SEE_ALSO,
        config: ("hostler.toml.5", config_page("hostler.toml", "the hostler daemon", EXAMPLE, see_also)),
    };
    pages.write(args)?;
    writeln!(out, "wrote the manual pages to {}", args.dir.display())?;
    Ok(CliOutcome::Done)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::{DaemonConfig, ScrapeAddress, TopologyManagerPolicy, TopologyManagerScope};

    fn pages() -> (tempfile::TempDir, impl Fn(&str) -> String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("man");
        run(&ManArgs { dir: path.clone() }, &mut Vec::new()).unwrap();
        (dir, move |page| fs::read_to_string(path.join(page)).unwrap_or_else(|error| panic!("{page}: {error}")))
    }

    #[test]
    fn every_subcommand_has_a_page_with_files_and_environment() {
        let (_dir, page) = pages();
        for name in ["hostler", "hostler-run", "hostler-inventory", "hostler-claim-create", "hostler-bitstream-remove"]
        {
            let text = page(&format!("man1/{name}.1"));
            for section in ["NAME", "SYNOPSIS", "FILES", "ENVIRONMENT", "SEE ALSO"] {
                assert!(
                    text.lines().any(|line| line == format!(".SH {section}") || line == format!(".SH \"{section}\"")),
                    "{name} lacks {section}: {text}"
                );
            }
            assert!(text.is_ascii(), "{name}: other characters need a formatter that is told of them");
            assert!(text.contains("/etc/hostler/hostler.toml") && text.contains("HOSTLER_NODE_NAME"), "{name}");
        }
    }

    #[test]
    fn the_configuration_has_a_page_with_its_sections_and_defaults() {
        let (_dir, page) = pages();
        let text = page("man5/hostler.toml.5");
        for part in [".TH hostler.toml 5", ".SS [paths]", ".SS [backends.cpu]", "state = \\(dq/var/lib/hostler\\(dq"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    /// The keys that stand below each section of the page.
    fn documented(page: &str) -> Vec<String> {
        let mut section = String::new();
        let mut keys = Vec::new();
        for line in page.lines() {
            if let Some(name) = line.strip_prefix(".SS [") {
                section = format!("{}.", name.trim_end_matches(']'));
            } else if let Some((key, _)) = line.strip_prefix(".B ").and_then(|line| line.split_once(" = ")) {
                keys.push(format!("{section}{key}"));
            }
        }
        keys
    }

    /// Every key that the daemon knows; those without a value get one, since only what has one is written.
    fn known() -> Vec<String> {
        let mut config = DaemonConfig { hook_dir: Some("/x".into()), ..DaemonConfig::default() };
        config.cluster.kubeconfig = Some("/x".into());
        config.metrics.listen = Some(config.metrics_listen());
        config.metrics.scrape = Some(ScrapeAddress("127.0.0.1:1".parse().unwrap()));
        config.topology_export.topology_manager_policy = Some(TopologyManagerPolicy::None);
        config.topology_export.topology_manager_scope = Some(TopologyManagerScope::Pod);
        config.nri.socket = Some("/x".into());
        config.pod_resources.socket = Some(config.pod_resources_socket());
        config.pod_resources.kubelet_socket = Some(config.kubelet_pod_resources_socket());
        config.backends.fake.config.script = "/x".into();
        config.backends.fake.config.state_dir = Some("/x".into());
        let table: toml::Table = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
        let mut keys = Vec::new();
        list(&table, "", &mut keys);
        keys
    }

    fn list(table: &toml::Table, section: &str, keys: &mut Vec<String>) {
        for (name, value) in table {
            match value {
                // Maps that are values of a key.
                toml::Value::Table(inner) if !["reserved", "blank"].contains(&&**name) => {
                    list(inner, &format!("{section}{name}."), keys);
                }
                _ => keys.push(format!("{section}{name}")),
            }
        }
    }

    #[test]
    fn the_page_has_every_key_and_no_other() {
        let (_dir, page) = pages();
        let (mut documented, mut known) = (documented(&page("man5/hostler.toml.5")), known());
        documented.sort();
        known.sort();
        assert_eq!(documented, known);
    }
}
