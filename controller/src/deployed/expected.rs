//! Manifests of this version that a cluster must have before the programs are replaced, as `deploy/` has them.

use serde_json::Value;

/// A manifest of `deploy/`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedManifest {
    /// The folder that `kubectl apply -k` takes.
    pub(crate) folder: &'static str,
    /// True if clusters may do without it: it is compared where it is deployed.
    pub(crate) is_optional: bool,
    text: &'static str,
}

macro_rules! manifest {
    ($folder:literal, $file:literal, $is_optional:literal) => {
        ExpectedManifest {
            folder: $folder,
            is_optional: $is_optional,
            text: include_str!(concat!("../../../deploy/", $file)),
        }
    };
}

/// hostler's own kinds.
pub(crate) const DEFINITIONS: [ExpectedManifest; 6] = [
    manifest!("deploy/crds", "crds/nodehardware.yaml", false),
    manifest!("deploy/crds", "crds/clusterhardware.yaml", false),
    manifest!("deploy/crds", "crds/reservations.yaml", false),
    manifest!("deploy/crds/fabric", "crds/fabric/fabricattachments.yaml", true),
    manifest!("deploy/crds/classic", "crds/classic/claimparameters.yaml", true),
    manifest!("deploy/crds/classic", "crds/classic/classparameters.yaml", true),
];

/// Roles of both programs.
pub(crate) const ROLES: [ExpectedManifest; 19] = [
    manifest!("deploy/cluster", "cluster/rbac.yaml", true),
    manifest!("deploy/controller", "controller/base/rbac.yaml", true),
    manifest!("deploy/classic", "classic/rbac.yaml", true),
    manifest!("deploy/fabric", "fabric/rbac.yaml", true),
    manifest!("deploy/fabric/node", "fabric/node/rbac.yaml", true),
    manifest!("deploy/provisioning", "provisioning/rbac.yaml", true),
    manifest!("deploy/holds", "holds/base/rbac.yaml", true),
    manifest!("deploy/holds/rules", "holds/rules/rbac.yaml", true),
    manifest!("deploy/holds/claims", "holds/claims/rbac.yaml", true),
    manifest!("deploy/holds/annotations", "holds/annotations/rbac.yaml", true),
    manifest!("deploy/holds/evictions", "holds/evictions/rbac.yaml", true),
    manifest!("deploy/holds/webhook", "holds/webhook/rbac.yaml", true),
    manifest!("deploy/holds/repair", "holds/repair/rbac.yaml", true),
    manifest!("deploy/holds/gates", "holds/gates/rbac.yaml", true),
    manifest!("deploy/holds/direct", "holds/direct/rbac.yaml", true),
    manifest!("deploy/holds/places", "holds/places/rbac.yaml", true),
    manifest!("deploy/holds/koordinator", "holds/koordinator/rbac.yaml", true),
    // Components have no folder of their own to apply: an overlay names them.
    manifest!("deploy/components/pods", "components/pods/rbac.yaml", true),
    manifest!("deploy/components/topology", "components/topology/rbac.yaml", true),
];

impl ExpectedManifest {
    /// Returns the objects of the manifest.
    pub(crate) fn objects(&self) -> Vec<Value> {
        // A test reads all of them: a manifest of this program that is no YAML does not get this far.
        serde_saphyr::from_multiple(self.text).unwrap_or_default()
    }

    /// Returns the command that applies the manifest.
    pub(crate) fn command(&self) -> String {
        match self.folder.starts_with("deploy/components") {
            true => "kubectl apply -k OVERLAY".to_owned(),
            false => format!("kubectl apply -k {}", self.folder),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_is_read_and_has_what_its_list_says() {
        for definition in DEFINITIONS {
            let objects = definition.objects();
            assert_eq!(objects.len(), 1, "{}", definition.folder);
            assert_eq!(objects[0]["kind"], "CustomResourceDefinition");
        }
        for roles in ROLES {
            assert!(roles.objects().iter().any(|object| object["kind"] == "ClusterRole"), "{}", roles.folder);
        }
    }

    #[test]
    fn no_role_of_the_programs_is_forgotten() {
        let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        let mut folders = vec![deploy.clone()];
        let mut missed = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let is_chart = path.ends_with("chart");
                if path.is_dir() && !is_chart {
                    folders.push(path);
                } else if path.ends_with("rbac.yaml") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    if !ROLES.iter().any(|role| role.text == text) {
                        missed.push(path);
                    }
                }
            }
        }
        assert!(missed.is_empty(), "{missed:?}");
    }
}
