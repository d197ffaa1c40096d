//! Definitions of hostler's kinds: those of the cluster against those of this version.

use hostler_api::few;
use serde_json::Value;

use super::{
    UpgradeFinding,
    schema::{SchemaDifference, difference},
};
use crate::deployed::{DEFINITIONS, DeployedObjects, ExpectedManifest, list, name_of, texts};

const KIND: &str = "CustomResourceDefinition";

/// Compares all definitions.
pub(crate) fn findings(deployed: &DeployedObjects) -> Vec<UpgradeFinding> {
    let expected = DEFINITIONS.iter().flat_map(|manifest| manifest.objects().into_iter().map(move |it| (manifest, it)));
    expected.flat_map(|(manifest, definition)| check(deployed, manifest, &definition)).collect()
}

/// Returns the schema of a version; `None` if the definition does not serve it.
pub(super) fn schema_of<'a>(definition: &'a Value, version: &str) -> Option<&'a Value> {
    let served = list(&definition["spec"]["versions"]).find(|it| it["name"] == version && it["served"] != false)?;
    Some(&served["schema"]["openAPIV3Schema"])
}

fn check(deployed: &DeployedObjects, manifest: &ExpectedManifest, expected: &Value) -> Vec<UpgradeFinding> {
    let name = name_of(expected);
    let title = format!("{KIND} {name}");
    let Some(there) = deployed.named(KIND, name) else {
        let is_missed = deployed.lacks(KIND, name) && !manifest.is_optional;
        let finding = || UpgradeFinding::first(&*title, "it is missing").mended_by(manifest.command());
        return is_missed.then(finding).into_iter().collect();
    };
    let mut found = Vec::new();
    for version in list(&expected["spec"]["versions"]).filter_map(|version| version["name"].as_str()) {
        let schemas = schema_of(there, version).zip(schema_of(expected, version));
        found.extend(match schemas {
            Some((there, expected)) => told(&title, &difference(there, expected), manifest),
            None => Some(
                UpgradeFinding::first(&*title, format!("it does not serve {version}")).mended_by(manifest.command()),
            ),
        });
    }
    found.extend(stored(&title, name, there, expected));
    found
}

/// Describes a difference. A definition that has more than this version knows stays: an older one would make the API
/// server drop the fields.
fn told(title: &str, difference: &SchemaDifference, manifest: &ExpectedManifest) -> Option<UpgradeFinding> {
    let SchemaDifference { lacking, unknown, differing } = difference;
    let finding = match (lacking.is_empty(), unknown.is_empty(), differing.is_empty()) {
        (true, true, true) => return None,
        (false, ..) => UpgradeFinding::first(
            title,
            format!("it is of another version: the API server drops or refuses {}", few(lacking)),
        ),
        (true, false, _) => {
            let words =
                format!("it is newer than this version, which does not know {}; leave it as it is", few(unknown));
            return Some(UpgradeFinding::note(title, words));
        }
        (true, true, false) => {
            UpgradeFinding::note(title, format!("it has other rules than this version for {}", few(differing)))
        }
    };
    Some(finding.mended_by(manifest.command()))
}

/// Objects must not be stored in a version that goes away.
fn stored(title: &str, name: &str, there: &Value, expected: &Value) -> Option<UpgradeFinding> {
    let kept: Vec<&str> =
        texts(&there["status"]["storedVersions"]).filter(|version| schema_of(expected, version).is_none()).collect();
    let last = list(&expected["spec"]["versions"]).find(|version| version["storage"] == true)?["name"].as_str()?;
    let words = format!("objects may be stored in {}, which this version does not serve", kept.join(", "));
    let command = format!(
        "kubectl get {name} -A -o json | kubectl replace -f - && kubectl patch crd {name} --subresource=status \
         --type=merge -p '{{\"status\":{{\"storedVersions\":[\"{last}\"]}}}}'"
    );
    (!kept.is_empty()).then(|| UpgradeFinding::first(title, words).mended_by(command))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::FindingUrgency, *};

    fn cluster(definitions: Vec<Value>) -> DeployedObjects {
        DeployedObjects { serves_claims: Some(true), objects: definitions, ..DeployedObjects::default() }
    }

    fn of_this_version() -> Vec<Value> {
        DEFINITIONS.iter().flat_map(ExpectedManifest::objects).collect()
    }

    fn changed(name: &str, change: impl FnOnce(&mut Value)) -> Vec<UpgradeFinding> {
        let mut all = of_this_version();
        change(all.iter_mut().find(|it| name_of(it) == name).unwrap());
        findings(&cluster(all))
    }

    #[test]
    fn definitions_of_this_version_need_nothing() {
        assert_eq!(findings(&cluster(of_this_version())), []);
        assert_eq!(findings(&cluster(of_this_version().into_iter().take(3).collect())), [], "without classic DRA");
    }

    #[test]
    fn what_is_missing_or_older_comes_first_and_what_is_newer_stays() {
        let missing: Vec<String> = findings(&cluster(Vec::new())).into_iter().map(|it| it.object).collect();
        assert_eq!(missing.len(), 3, "{missing:?}");

        let spec = |it: &mut Value| {
            it["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].take()
        };
        let older = changed("reservations.hostler.dev", |it| {
            let mut fields = spec(it);
            fields.as_object_mut().unwrap().remove("plannedDevices");
            it["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = fields;
        });
        assert_eq!(older.len(), 1, "{older:?}");
        assert_eq!(older[0].urgency, FindingUrgency::First);
        assert!(older[0].message.ends_with("drops or refuses spec.plannedDevices"), "{older:?}");
        assert_eq!(older[0].command.as_deref(), Some("kubectl apply -k deploy/crds"));

        let newer = changed("reservations.hostler.dev", |it| {
            let mut fields = spec(it);
            fields["later"] = json!({ "type": "string" });
            it["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = fields;
        });
        assert_eq!((newer.len(), newer[0].urgency, &newer[0].command), (1, FindingUrgency::Note, &None), "{newer:?}");
        assert!(newer[0].message.contains("does not know spec.later"), "{newer:?}");
    }

    #[test]
    fn objects_in_a_version_that_goes_are_rewritten_first() {
        let found = changed("nodehardware.hostler.dev", |it| {
            it["status"] = json!({ "storedVersions": ["v1alpha0", "v1alpha1"] });
        });
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("stored in v1alpha0"), "{found:?}");
        let command = found[0].command.as_deref().unwrap();
        assert!(command.ends_with(r#"-p '{"status":{"storedVersions":["v1alpha1"]}}'"#), "{command}");
    }
}
