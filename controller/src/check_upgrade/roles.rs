//! Roles of both programs: what the deployed ones allow against what this version needs. Roles that are not deployed are
//! bundles that are not installed.

use hostler_api::few;
use serde_json::Value;

use super::{UpgradeFinding, configuration};
use crate::deployed::{DeployedObjects, ExpectedManifest, ROLES, RoleRight, name_of, rights};

/// The role of the daemons, and their DaemonSet.
const DAEMON: &str = "hostler";

/// Compares all roles.
pub(super) fn findings(deployed: &DeployedObjects) -> Vec<UpgradeFinding> {
    let mut found = Vec::new();
    for manifest in ROLES {
        let objects = manifest.objects();
        let roles =
            objects.iter().filter(|it| ["Role", "ClusterRole"].contains(&it["kind"].as_str().unwrap_or_default()));
        found.extend(roles.flat_map(|role| check(deployed, &manifest, role)));
    }
    found
}

fn check(deployed: &DeployedObjects, manifest: &ExpectedManifest, expected: &Value) -> Vec<UpgradeFinding> {
    let (kind, name) = (expected["kind"].as_str().unwrap_or_default(), name_of(expected));
    let title = format!("{kind} {name}");
    let Some(there) = deployed.named(kind, name) else {
        let finding = || UpgradeFinding::first(&*title, "it is missing").mended_by(manifest.command());
        return is_needed(deployed, name).then(finding).into_iter().collect();
    };
    let (has, needs) = (rights(there), rights(expected));
    let names = |rights: &[&RoleRight]| {
        let mut words: Vec<String> = rights.iter().map(|right| right.words()).collect();
        words.dedup();
        few(words)
    };
    let off = if name == DAEMON { configuration::unused_resources(deployed) } else { Vec::new() };
    let is_used = |right: &RoleRight| !off.contains(&&*right.resource);
    let lacks = |right: &&RoleRight| is_used(right) && !has.iter().any(|it| it.covers(right));
    let lacking: Vec<&RoleRight> = needs.iter().filter(lacks).collect();
    let surplus: Vec<&RoleRight> = has.iter().filter(|right| !needs.iter().any(|it| it.covers(right))).collect();
    let less = || UpgradeFinding::first(&*title, format!("it does not allow {}", names(&lacking)));
    let more = || UpgradeFinding::note(&*title, format!("it allows more than this version uses: {}", names(&surplus)));
    let found = [(!lacking.is_empty()).then(less), (!surplus.is_empty()).then(more)];
    found.into_iter().flatten().map(|finding| finding.mended_by(manifest.command())).collect()
}

/// True if the program with the name of the role is deployed: it can do nothing without.
fn is_needed(deployed: &DeployedObjects, role: &str) -> bool {
    let is_there = |kind| deployed.named(kind, role).is_some();
    ["DaemonSet", "Deployment"].into_iter().any(is_there) && deployed.lacks("ClusterRole", role)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployed() -> Vec<Value> {
        ROLES.iter().flat_map(ExpectedManifest::objects).collect()
    }

    fn found(objects: Vec<Value>) -> Vec<UpgradeFinding> {
        findings(&DeployedObjects { serves_claims: Some(true), objects, ..DeployedObjects::default() })
    }

    fn role<'a>(objects: &'a mut [Value], name: &str) -> &'a mut Value {
        objects.iter_mut().find(|it| it["kind"] == "ClusterRole" && name_of(it) == name).unwrap()
    }

    #[test]
    fn roles_of_this_version_are_in_order_and_absent_bundles_are_no_fault() {
        assert_eq!(found(deployed()), []);
        assert_eq!(found(Vec::new()), []);
    }

    #[test]
    fn a_role_of_before_lacks_what_came_since_and_keeps_what_went() {
        let mut objects = deployed();
        let rules = role(&mut objects, "hostler-controller")["rules"].as_array_mut().unwrap();
        rules.retain(|rule| rule["resources"] != json!(["resourcequotas"]));
        rules.push(json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }));
        let found = found(objects);
        let words: Vec<&str> = found.iter().map(|it| &*it.message).collect();
        let expected = [
            "it does not allow list resourcequotas, watch resourcequotas",
            "it allows more than this version uses: get secrets",
        ];
        assert_eq!(words, expected);
        assert!(found.iter().all(|it| it.command.as_deref() == Some("kubectl apply -k deploy/controller")));
    }

    #[test]
    fn a_wildcard_allows_all_and_names_narrow_a_right() {
        let mut objects = deployed();
        role(&mut objects, "hostler-pods")["rules"] =
            json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
        assert_eq!(found(objects).len(), 1, "only that it is too wide");
        let mut objects = deployed();
        role(&mut objects, "hostler-pods")["rules"][0]["resourceNames"] = json!(["one"]);
        assert!(found(objects)[0].message.starts_with("it does not allow list pods"));
    }

    #[test]
    fn a_program_without_its_role_is_told() {
        let workload = json!({ "kind": "DaemonSet", "metadata": { "name": "hostler", "namespace": "hostler-system" } });
        assert_eq!(found(vec![workload])[0].object, "ClusterRole hostler");
    }
}
