//! Rights of the controller: what each bundle's role has to give, against what the API server allows.

use hostler_api::few;
use hostler_cli::doctor::DoctorFinding;
use hostler_cluster::AskedDeed;

use super::facts::{BundleNeed, BundleRights, DoctorFacts};
use crate::{
    config::{CapabilityMode, ControllerConfig, ListenAddress, SwitchMode},
    deployed::{ExpectedManifest, ROLES, RoleRight, rights},
};

/// The bundle without which there is no controller.
const CONTROLLER: &str = "deploy/controller";

/// Folders with roles of the daemons.
const OF_DAEMONS: [&str; 3] = ["deploy/cluster", "deploy/components", "deploy/fabric/node"];

/// A bundle whose work the configuration wants.
#[derive(Clone, Debug)]
pub(super) struct WantedBundle {
    /// The folder that `kubectl apply -k` takes.
    pub(super) folder: &'static str,
    pub(super) need: BundleNeed,
    /// The rights that the bundle gives.
    pub(super) rights: Vec<AskedRight>,
}

/// A right, and the namespace of the role that gives it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct AskedRight {
    right: RoleRight,
    namespace: Option<String>,
    /// True if no other bundle gives the right: it tells if the bundle is installed.
    pub(super) is_own: bool,
}

impl AskedRight {
    /// Returns the question to the API server.
    pub(super) fn deed(&self) -> AskedDeed<'_> {
        let RoleRight { verb, group, resource, name } = &self.right;
        AskedDeed::Object { verb, group, resource, namespace: self.namespace.as_deref(), name: name.as_deref() }
    }

    /// Returns the right as people name it.
    pub(super) fn words(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} in {namespace}", self.right.words()),
            None => self.right.words(),
        }
    }
}

/// Returns the bundles whose work is wanted; `is_classic`: the controller allocates in this cluster.
pub(super) fn wanted(config: &ControllerConfig, is_classic: bool) -> Vec<WantedBundle> {
    let of_controller =
        ROLES.iter().filter(|manifest| !OF_DAEMONS.iter().any(|start| manifest.folder.starts_with(start)));
    let all: Vec<(&'static str, Vec<AskedRight>)> =
        of_controller.map(|manifest| (manifest.folder, asked(manifest, config))).collect();
    let gives = |rights: &[AskedRight], right: &AskedRight| {
        rights.iter().any(|it| (&it.right, &it.namespace) == (&right.right, &right.namespace))
    };
    let wanted = all.iter().filter_map(|&(folder, ref rights)| {
        let need = need(folder, config, is_classic)?;
        let is_own = |right: &AskedRight| !all.iter().any(|(other, rights)| *other != folder && gives(rights, right));
        let rights = rights.iter().map(|right| AskedRight { is_own: is_own(right), ..right.clone() }).collect();
        Some(WantedBundle { folder, need, rights })
    });
    wanted.collect()
}

/// Returns the need for a bundle; `None` for one of the daemons, or whose work is off.
fn need(folder: &str, config: &ControllerConfig, is_classic: bool) -> Option<BundleNeed> {
    let of_mode = |mode: CapabilityMode| match mode {
        CapabilityMode::On => Some(BundleNeed::Needed),
        CapabilityMode::Auto => Some(BundleNeed::Optional),
        CapabilityMode::Off => None,
    };
    let of_switch = |mode: SwitchMode| match mode {
        SwitchMode::On => Some(BundleNeed::Needed),
        SwitchMode::Auto => Some(BundleNeed::Optional),
        SwitchMode::Off => None,
    };
    let keeps = of_mode(config.capabilities.reservations);
    let with = |is_wanted: bool| (keeps.is_some() && is_wanted).then_some(BundleNeed::Optional);
    match folder {
        CONTROLLER => Some(BundleNeed::Needed),
        "deploy/classic" => of_mode(config.capabilities.classic_dra).filter(|_| is_classic).map(|_| BundleNeed::Needed),
        // A manager is configured: without the role nothing of it is of use.
        "deploy/fabric" => of_mode(config.capabilities.fabric).map(|_| BundleNeed::Needed),
        "deploy/provisioning" => of_mode(config.capabilities.provisioning),
        "deploy/holds" => keeps,
        "deploy/holds/rules" | "deploy/holds/claims" | "deploy/holds/annotations" | "deploy/holds/evictions" => {
            with(true)
        }
        "deploy/holds/webhook" => with(config.webhook.listen != ListenAddress::Off),
        "deploy/holds/repair" => keeps.and_then(|_| of_switch(config.webhook.repair)),
        "deploy/holds/gates" => of_switch(config.webhook.gates),
        "deploy/holds/koordinator" => keeps.and_then(|_| of_mode(config.capabilities.koordinator)),
        "deploy/holds/direct" => keeps.and_then(|_| of_switch(config.reservations.direct)),
        "deploy/holds/places" => keeps.and_then(|_| of_switch(config.reservations.places)),
        _ => None,
    }
}

/// Returns the rights of a manifest that this configuration takes, with the names that it has for objects.
fn asked(manifest: &ExpectedManifest, config: &ControllerConfig) -> Vec<AskedRight> {
    let objects = manifest.objects();
    let roles = objects.iter().filter(|it| it["kind"] == "ClusterRole" || it["kind"] == "Role");
    let asked = roles.flat_map(|role| {
        let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
        rights(role).into_iter().map(move |right| AskedRight { right, namespace: namespace.clone(), is_own: false })
    });
    asked.filter(|asked| is_used(&asked.right.resource, config)).map(|asked| named(asked, config)).collect()
}

/// True if the controller asks for the resource.
fn is_used(resource: &str, config: &ControllerConfig) -> bool {
    let modes = config.capabilities;
    match resource {
        "nodehardware" => modes.node_reports.is_wanted(),
        "devicetaintrules" => modes.device_taint_rules.is_wanted(),
        "clusterhardware" | "clusterhardware/status" => modes.cluster_hardware.is_wanted(),
        "leases" => modes.leads() || config.webhook.leads(),
        _ => true,
    }
}

fn named(mut asked: AskedRight, config: &ControllerConfig) -> AskedRight {
    let is_of_pods = asked.right.name.as_ref().is_some_and(|name| name.ends_with("-pods"));
    let name = match &*asked.right.resource {
        "leases" => config.lease.name.clone(),
        "mutatingwebhookconfigurations" if is_of_pods => config.webhook.configuration_of_pods(),
        "mutatingwebhookconfigurations" => config.webhook.configuration.clone(),
        "secrets" => config.webhook.service.clone(),
        _ => return asked,
    };
    asked.right.name = asked.right.name.map(|_| name);
    if let Some(namespace) = config.lease.namespace.as_ref().filter(|_| asked.right.resource == "leases") {
        asked.namespace = Some(namespace.clone());
    }
    asked
}

/// Makes a finding for each bundle.
pub(super) fn checks(facts: &DoctorFacts) -> Vec<DoctorFinding> {
    const CHECK: &str = "rights";
    let bundles = match &facts.rights {
        Ok(bundles) => bundles,
        Err(reason) => {
            let fix = "ask as an administrator: kubectl hostler doctor";
            return vec![DoctorFinding::warn(CHECK, format!("not checked: {reason}"), fix)];
        }
    };
    let finding = |bundle: &BundleRights| {
        let BundleRights { folder, need, is_installed, all, lacking } = bundle;
        let whose = &facts.rights_of;
        if lacking.is_empty() {
            return DoctorFinding::ok(CHECK, format!("{folder}: {whose} has all {all}"));
        }
        if *need == BundleNeed::Optional && !is_installed {
            return DoctorFinding::ok(CHECK, format!("{folder}: not installed, and the controller does without"));
        }
        let found = format!("{folder}: {whose} lacks {} of {all}: {}", lacking.len(), few(lacking));
        DoctorFinding::fail(CHECK, found, format!("kubectl apply -k {folder}"))
    };
    bundles.iter().map(finding).collect()
}
