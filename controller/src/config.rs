//! The controller's configuration: every key, its default, and the mistakes that it can have.

mod fabric;
mod listen;
mod provisioning;
mod reservations;
mod switch;
mod webhook;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use hostler_files::read_argument;
use hostler_process::{
    config::{ConfigErrors, ConfigMistake, ConfigReader},
    log::LogConfig,
};
use serde::{Deserialize, Serialize};

use crate::observed::ObservedKind;

pub(crate) use self::{
    fabric::FabricConfig,
    listen::ListenAddress,
    provisioning::ProvisioningConfig,
    reservations::{ReservationsConfig, release_of},
    switch::{MeantVerb, SwitchMode},
    webhook::WebhookConfig,
};

/// The configuration file that the controller reads, if it exists, when no file is named.
pub(crate) const DEFAULT_FILE: &str = "/etc/hostler/controller.toml";

/// The limit of the file's size: a file with every key has less than a kilobyte.
const MOST_BYTES: u64 = 1 << 20;

/// The whole configuration.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct ControllerConfig {
    /// Kubeconfig of the controller. Default: the service account of the pod that it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Driver as which claims of classic DRA are allocated: that of the daemons.
    pub(crate) driver: String,
    /// Address of the HTTP server.
    pub(crate) listen: ListenAddress,
    /// A socket for probes alone, to which only the user of the controller can connect. Default: one in the
    /// controller's own folder below `/run`, where that exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) probe_socket: Option<PathBuf>,
    /// Work that the controller does where the cluster has all that the work takes.
    pub(crate) capabilities: CapabilitiesConfig,
    /// Settings of ProvisioningRequests.
    pub(crate) provisioning: ProvisioningConfig,
    /// Settings of Reservations.
    pub(crate) reservations: ReservationsConfig,
    /// Settings of the webhook that lets pods use kept devices.
    pub(crate) webhook: WebhookConfig,
    /// The Lease that decides which of several controllers writes.
    pub(crate) lease: LeaseConfig,
    /// Settings of the log.
    pub(crate) log: LogConfig,
}

/// The default socket of probes. The unit and the Deployment make its folder.
const PROBE_SOCKET: &str = "/run/hostler-controller/probe.sock";

impl ControllerConfig {
    /// The socket of probes.
    pub(crate) fn probe_socket(&self) -> &Path {
        self.probe_socket.as_deref().unwrap_or(Path::new(PROBE_SOCKET))
    }

    /// True if probes are served: always for a socket that the configuration names, else where the default folder
    /// exists.
    pub(crate) fn has_probes(&self) -> bool {
        self.probe_socket.is_some() || self.probe_socket().parent().is_some_and(Path::is_dir)
    }
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            driver: "hostler.dev".to_owned(),
            listen: ListenAddress::default(),
            probe_socket: None,
            capabilities: CapabilitiesConfig::default(),
            provisioning: ProvisioningConfig::default(),
            reservations: ReservationsConfig::default(),
            webhook: WebhookConfig::default(),
            lease: LeaseConfig::default(),
            log: LogConfig::default(),
        }
    }
}

/// `[capabilities]`: switches of the controller's work.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct CapabilitiesConfig {
    /// Reading the reports of the nodes' daemons (NodeHardware).
    pub(crate) node_reports: CapabilityMode,
    /// Writing the sums of the cluster (ClusterHardware), as the one controller that leads.
    pub(crate) cluster_hardware: CapabilityMode,
    /// Taking DeviceTaintRules into account.
    pub(crate) device_taint_rules: CapabilityMode,
    /// Allocating claims in clusters of 1.26 to 1.31, as the one controller that leads.
    pub(crate) classic_dra: CapabilityMode,
    /// Answering ProvisioningRequests, as the one controller that leads. Off by itself: it takes rights of its own.
    pub(crate) provisioning: CapabilityMode,
    /// Keeping devices for their promised owners (Reservation), as the one controller that leads.
    pub(crate) reservations: CapabilityMode,
    /// Serving Koordinator's Reservations in place, beside those of hostler. Off by itself: it takes rights of its own.
    pub(crate) koordinator: CapabilityMode,
}

impl Default for CapabilitiesConfig {
    fn default() -> Self {
        let auto = CapabilityMode::Auto;
        Self {
            node_reports: auto,
            cluster_hardware: auto,
            device_taint_rules: auto,
            classic_dra: auto,
            provisioning: CapabilityMode::Off,
            reservations: auto,
            koordinator: CapabilityMode::Off,
        }
    }
}

/// Switch of work for which a cluster may lack something.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CapabilityMode {
    /// The work is done; the controller is not ready as long as it cannot be.
    On,
    /// The work is not done.
    Off,
    /// The work is done where it can be.
    #[default]
    Auto,
}

impl CapabilityMode {
    /// True if the work is to be done, where it can be.
    pub(crate) fn is_wanted(self) -> bool {
        self != Self::Off
    }
}

/// `[lease]`: the Lease that decides which of several controllers writes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct LeaseConfig {
    /// Namespace of the Lease. Default: that of the pod that it runs in, else `hostler-controller`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// Name of the Lease: controllers with the same name stand in for one another.
    pub(crate) name: String,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self { namespace: None, name: "hostler-controller".to_owned() }
    }
}

impl CapabilitiesConfig {
    /// True if any of the work is the leader's alone.
    pub(crate) fn leads(&self) -> bool {
        [self.cluster_hardware, self.classic_dra, self.provisioning, self.reservations]
            .into_iter()
            .any(CapabilityMode::is_wanted)
    }

    /// True if a kind is watched.
    pub(crate) fn watches(&self, kind: ObservedKind) -> bool {
        let mode = match kind {
            ObservedKind::NodeHardware => self.node_reports,
            ObservedKind::DeviceTaintRule => self.device_taint_rules,
            ObservedKind::PodTemplate | ObservedKind::ProvisioningRequest => self.provisioning,
            ObservedKind::Reservation => self.reservations,
            ObservedKind::KoordinatorReservation if self.reservations.is_wanted() => self.koordinator,
            ObservedKind::KoordinatorReservation => CapabilityMode::Off,
            // Nothing attaches devices yet.
            ObservedKind::FabricAttachment => CapabilityMode::Off,
            ObservedKind::ResourceQuota if self.reservations == CapabilityMode::Off => self.provisioning,
            ObservedKind::ResourceQuota => self.reservations,
            _ => CapabilityMode::On,
        };
        mode != CapabilityMode::Off
    }
}

/// Sections that are parsed one by one.
const SECTIONS: &[&str] = &["capabilities", "lease", "log", "provisioning", "reservations", "webhook"];

impl ControllerConfig {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigErrors> {
        let text = read_argument(path, MOST_BYTES).map_err(|error| ConfigErrors::unreadable(path, &error.source))?;
        Self::parse(&text).map_err(|problems| ConfigErrors { path: Some(path.to_owned()), problems })
    }

    /// Reads and checks the text of a file; returns every mistake, in the order of the text.
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<ConfigMistake>> {
        let (mut reader, mut root) = ConfigReader::new(text);
        let capabilities = reader.section("capabilities", &mut root);
        let lease = reader.section("lease", &mut root);
        let log = reader.section("log", &mut root);
        let provisioning = reader.section("provisioning", &mut root);
        let reservations = reader.section("reservations", &mut root);
        let webhook = reader.section("webhook", &mut root);
        let scalars: Self = reader.keys("", root, SECTIONS);
        let config = Self { capabilities, lease, log, provisioning, reservations, webhook, ..scalars };
        config.mistakes().into_iter().for_each(|mistake| reader.mistake(mistake));
        let (mut problems, _) = reader.end();
        problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// Returns mistakes of values that their types do not exclude.
    fn mistakes(&self) -> Vec<ConfigMistake> {
        let mut mistakes = Vec::new();
        if let Some(path) = self.kubeconfig.as_ref().filter(|path| path.is_relative()) {
            // A relative path would name another file in every folder that the controller is started from.
            let what = format!("is {}, which is relative", path.display());
            mistakes.push(ConfigMistake::new("kubeconfig", what, "write an absolute path"));
        }
        if !is_driver_name(&self.driver) {
            let fix =
                "write the name that the daemons have as `driver`: at most 63 lower-case letters, digits, '-' and '.'";
            mistakes.push(ConfigMistake::new("driver", format!("is {:?}, which is no driver", self.driver), fix));
        }
        mistakes.extend(self.provisioning.mistakes());
        mistakes.extend(self.reservations.mistakes());
        mistakes.extend(self.webhook.mistakes());
        let names = [("lease.name", Some(&self.lease.name)), ("lease.namespace", self.lease.namespace.as_ref())];
        for (key, name) in names {
            if let Some(name) = name.filter(|name| !is_object_name(name)) {
                let fix = "write lower-case letters, digits, and hyphens inside";
                mistakes.push(ConfigMistake::new(key, format!("is {name:?}, which no object can be called"), fix));
            }
        }
        mistakes
    }
}

/// True if the text is a DNS subdomain: labels between dots.
fn is_driver_name(name: &str) -> bool {
    name.len() <= 63 && name.split('.').all(is_object_name)
}

/// True if the text is a DNS label, as Kubernetes requires for both names. It becomes part of a path.
fn is_object_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(is_inner) && !name.starts_with('-') && !name.ends_with('-')
}

impl fmt::Display for ControllerConfig {
    /// Writes a file that means the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&toml::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(text: &str) -> Result<ControllerConfig, String> {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("controller.toml");
        fs::write(&path, text).unwrap();
        ControllerConfig::read(&path).map_err(|error| error.to_string().replace(path.to_str().unwrap(), "FILE"))
    }

    #[test]
    fn what_is_printed_means_the_same() {
        let text = "kubeconfig = '/etc/hostler/kubeconfig'\nlisten = '0.0.0.0:9440'\n[lease]\nnamespace = 'hw'\n\
                    [capabilities]\nnode_reports = 'off'\ncluster_hardware = 'on'\n[reservations]\ndirect = true\n\
                    [webhook]\nrepair = 'auto'\n[log]\nformat = 'json'";
        let config = read(text).unwrap();
        assert_eq!(config.capabilities.node_reports, CapabilityMode::Off);
        assert_eq!(read(&config.to_string()).unwrap(), config);
        assert_eq!(read("").unwrap(), ControllerConfig::default());
        assert_eq!(read(&ControllerConfig::default().to_string()).unwrap(), ControllerConfig::default());
    }

    #[test]
    fn every_mistake_is_told_with_its_line_and_its_fix() {
        let text =
            "kubconfig = '/x'\nlisten = 'everywhere'\n[lease]\nname = 'A/b'\n[capabilities]\nnode_reports = 'no'";
        assert_eq!(
            read(text).unwrap_err(),
            "FILE:1: kubconfig: is no key that hostler knows; did you mean \"kubeconfig\"?\n\
             FILE:2: listen: \"everywhere\" is not an address; write \"127.0.0.1:9440\" for this host, \"0.0.0.0:9440\" \
             for others too (over TLS), or \"off\"\n\
             FILE:4: lease.name: is \"A/b\", which no object can be called; write lower-case letters, digits, and \
             hyphens inside\n\
             FILE:6: capabilities.node_reports: unknown variant `no`, expected one of `on`, `off`, `auto`"
        );
        let text = "[provisioning]\nbatch = 0\ncheck_capacity_aliases = ['check-capacity.autoscaling.x-k8s.io', 'A', 'a.b']\n\
                    atomic_scale_up_aliases = ['a.b']";
        assert_eq!(
            read(text).unwrap_err(),
            "FILE:2: provisioning.batch: is 0; write at least 1\n\
             FILE:3: provisioning.check_capacity_aliases: has \"check-capacity.autoscaling.x-k8s.io\", which Cluster \
             Autoscaler answers; leave it out; a request of the check class that names this controller in \
             processorInstance is answered anyway\n\
             FILE:3: provisioning.check_capacity_aliases: has \"A\", which no class can be called; write lower-case \
             letters, digits, '-' and '.', at most 253 of them\n\
             FILE:4: provisioning.atomic_scale_up_aliases: has \"a.b\", as has provisioning.check_capacity_aliases; name \
             it in one of them"
        );
        let text = "[webhook]\nkey = 'tls.key'\nservice = 'a.b'\nconfiguration = 'A'";
        assert_eq!(
            read(text).unwrap_err(),
            "FILE:1: webhook.certificate: is missing; write both, or none for a certificate that is made here\n\
             FILE:2: webhook.key: is tls.key, which is relative; write an absolute path\n\
             FILE:3: webhook.service: is \"a.b\", which no object can be called; write the name of the Service: lower-case \
             letters, digits, and hyphens inside\n\
             FILE:4: webhook.configuration: is \"A\", which no object can be called; write the name of the \
             MutatingWebhookConfiguration: lower-case letters, digits, '-' and '.'"
        );
        assert_eq!(
            read("[reservations]\ndirect = 'yes'\n[webhook]\nrepair = 1").unwrap_err(),
            "FILE:2: reservations.direct: invalid value: string \"yes\", expected true, false or \"auto\"\n\
             FILE:4: webhook.repair: invalid type: integer `1`, expected true, false or \"auto\""
        );
        let text = "[reservations]\nreserve_image = ''\nsettle_seconds = 0\ngrace_seconds = 0";
        assert_eq!(
            read(text).unwrap_err(),
            "FILE:2: reservations.reserve_image: is \"\", which is no image; write an image that does nothing, for ever, such as \
             \"registry.k8s.io/pause:3.10\"\n\
             FILE:3: reservations.settle_seconds: is 0; write at least 1: as long as a scheduler takes from its decision to the \
             allocation that everybody sees"
        );
        let error = read("kubeconfig = 'x'").unwrap_err();
        assert_eq!(error, "FILE:1: kubeconfig: is x, which is relative; write an absolute path");
    }
}
