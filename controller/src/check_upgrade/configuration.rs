//! Configurations in the cluster: keys that this version refuses, and work that they switch on or off.

use toml::Table;

use super::UpgradeFinding;
use crate::{
    config::{CapabilityMode, ControllerConfig},
    deployed::{CONTROLLER_NAMESPACE, DAEMON_NAMESPACE, DeployedObjects},
};

/// Switches of the daemon, each with the resources that it needs no rights for where it is off.
const SWITCHES: [(&str, &[&str]); 3] = [
    ("claim_status", &["resourceclaims/status", "resourceclaims/driver"]),
    ("node_hardware", &["nodehardware", "nodehardware/status"]),
    ("events", &["events"]),
];

/// Resources that readers of figures are checked by.
const REVIEWS: [&str; 2] = ["tokenreviews", "subjectaccessreviews"];

/// Folder of the sockets in pods of 0.1. It is a volume, which kubelets open to all users, so the daemon refuses it.
const OLD_RUN: &str = "/run/hostler";

/// Checks both configurations.
pub(super) fn findings(deployed: &DeployedObjects) -> Vec<UpgradeFinding> {
    let mut found: Vec<UpgradeFinding> = run_folder(deployed).into_iter().collect();
    let Some(config) = deployed.configuration("Deployment", "controller.toml") else { return found };
    let title = format!("ConfigMap {CONTROLLER_NAMESPACE}/{}", config.map);
    let edit = format!("kubectl -n {CONTROLLER_NAMESPACE} edit configmap {}", config.map);
    match ControllerConfig::parse(config.text) {
        Ok(read) => found.extend(lacking_roles(deployed, &title, &read)),
        Err(mistakes) => found.extend(mistakes.iter().map(|mistake| {
            let words = format!("this version refuses its controller.toml: {mistake}");
            UpgradeFinding::first(&*title, words).mended_by(&*edit)
        })),
    }
    found
}

/// Returns the resources that the daemons do not ask for, as their configuration says.
pub(super) fn unused_resources(deployed: &DeployedObjects) -> Vec<&'static str> {
    let Some(config) = daemon(deployed) else { return Vec::new() };
    let section = |name: &str| config.get(name).and_then(|it| it.as_table());
    let is_off = |key| section("cluster").and_then(|it| it.get(key)?.as_bool()) == Some(false);
    let mut unused: Vec<&str> =
        SWITCHES.iter().filter(|(key, _)| is_off(*key)).flat_map(|(_, them)| *them).copied().collect();
    if section("metrics").is_none_or(|it| !it.contains_key("scrape")) {
        unused.extend(REVIEWS);
    }
    unused
}

fn daemon(deployed: &DeployedObjects) -> Option<Table> {
    deployed.configuration("DaemonSet", "hostler.toml")?.text.parse().ok()
}

fn run_folder(deployed: &DeployedObjects) -> Option<UpgradeFinding> {
    let config = deployed.configuration("DaemonSet", "hostler.toml")?;
    let run = daemon(deployed)?.get("paths")?.get("run")?.as_str()?.to_owned();
    let words = format!(
        "paths.run is {run:?}, which the daemon of this version refuses in a pod; write \"/run/hostler/daemon\""
    );
    let command = format!("kubectl -n {DAEMON_NAMESPACE} edit configmap {}", config.map);
    let title = format!("ConfigMap {DAEMON_NAMESPACE}/{}", config.map);
    (run.trim_end_matches('/') == OLD_RUN).then(|| UpgradeFinding::first(title, words).mended_by(command))
}

/// Work that is switched on by name, and the role of which is not there.
fn lacking_roles(deployed: &DeployedObjects, title: &str, config: &ControllerConfig) -> Vec<UpgradeFinding> {
    let on = [
        (
            "capabilities.provisioning",
            config.capabilities.provisioning,
            "hostler-controller-provisioning",
            "provisioning",
        ),
        ("capabilities.reservations", config.capabilities.reservations, "hostler-controller-holds", "holds"),
        ("capabilities.classic_dra", config.capabilities.classic_dra, "hostler-controller-classic", "classic"),
    ];
    let lacks = |(_, mode, role, _): &(_, CapabilityMode, &str, _)| {
        *mode == CapabilityMode::On && deployed.lacks("ClusterRole", role)
    };
    let told = |(key, _, role, folder): (&str, _, &str, &str)| {
        let words = format!("{key} is on, and ClusterRole {role} is missing");
        UpgradeFinding::first(title, words).mended_by(format!("kubectl apply -k deploy/{folder}"))
    };
    on.into_iter().filter(lacks).map(told).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployed(kind: &str, name: &str, file: &str, text: &str) -> DeployedObjects {
        let volumes =
            json!([{ "name": "certificates" }, { "name": "configuration", "configMap": { "name": "of-it-77f" } }]);
        let workload = json!({
            "kind": kind, "metadata": { "name": name }, "spec": { "template": { "spec": { "volumes": volumes } } },
        });
        let map = json!({ "kind": "ConfigMap", "metadata": { "name": "of-it-77f" }, "data": { file: text } });
        DeployedObjects { serves_claims: Some(true), objects: vec![workload, map], ..DeployedObjects::default() }
    }

    fn controller(text: &str) -> Vec<String> {
        let found = findings(&deployed("Deployment", "hostler-controller", "controller.toml", text));
        found.into_iter().map(|it| it.message).collect()
    }

    fn daemon(text: &str) -> DeployedObjects {
        deployed("DaemonSet", "hostler", "hostler.toml", text)
    }

    #[test]
    fn a_configuration_that_this_version_refuses_is_told_with_its_line() {
        assert_eq!(controller("listen = '0.0.0.0:9440'"), Vec::<String>::new());
        let refused = controller("[capabilities]\nreservation = 'auto'");
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].contains("reservations"), "{refused:?}");
    }

    #[test]
    fn work_that_is_on_needs_its_role() {
        let expected = "capabilities.provisioning is on, and ClusterRole hostler-controller-provisioning is missing";
        assert_eq!(controller("[capabilities]\nprovisioning = 'on'"), [expected]);
        assert_eq!(controller("[capabilities]\nprovisioning = 'auto'"), Vec::<String>::new());
    }

    #[test]
    fn the_folder_for_sockets_of_before_is_refused() {
        let found = findings(&daemon("[paths]\nrun = '/run/hostler'"));
        assert_eq!(found[0].command.as_deref(), Some("kubectl -n hostler-system edit configmap of-it-77f"));
        assert_eq!(findings(&daemon("[paths]\nrun = '/run/hostler/daemon'")), []);
    }

    #[test]
    fn what_the_daemons_do_not_do_needs_no_rights() {
        let text = "[cluster]\nevents = false\n[metrics]\nscrape = '0.0.0.0:9464'";
        assert_eq!(unused_resources(&daemon(text)), ["events"]);
        assert_eq!(unused_resources(&daemon("")), REVIEWS);
        assert_eq!(unused_resources(&DeployedObjects::default()), Vec::<&str>::new(), "of which nothing is known");
    }
}
