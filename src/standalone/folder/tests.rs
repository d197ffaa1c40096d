//! Manifests in a folder: found, added, removed, refused.

use std::os::unix::fs::PermissionsExt;

use hostler_api::{Chain, ClaimUid};

use super::*;

const GOOD: &str = r#"{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
    "metadata": {"name": "train", "namespace": "ml", "uid": "u1"},
    "status": {"allocation": {"devices": {"results": [
        {"request": "r", "driver": "hostler.dev", "pool": "n/fake", "device": "d0"}]}}}}"#;

fn manifests(folder: &Path) -> ManifestFolder {
    ManifestFolder::new(folder, "hostler.dev", &Tasks::new().0)
}

fn claim(uid: &str) -> ClaimRef {
    ClaimRef { namespace: "ml".to_owned(), name: "train".to_owned(), uid: ClaimUid::new(uid).unwrap() }
}

#[test]
fn a_manifest_is_found_under_its_own_name_and_under_any_other() {
    for file in ["ml_train.json", "ml_train.yaml", "whatever.yml"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(file), GOOD).unwrap();
        let allocation = manifests(folder.path()).allocation(&claim("u1")).unwrap();
        assert_eq!(allocation.grants[0].device.as_str(), "d0", "{file}");
    }
}

#[test]
fn a_missing_manifest_is_an_error_that_names_the_file_to_add() {
    let folder = tempfile::tempdir().unwrap();
    let error = manifests(folder.path()).allocation(&claim("u1")).unwrap_err().to_string();
    assert!(error.contains("no manifest of claim ml/train") && error.contains("/ml_train.yaml"), "{error}");
    let nowhere = manifests(&folder.path().join("nowhere")).allocation(&claim("u1"));
    assert!(matches!(nowhere, Err(ManifestsError::Missing { .. })));
}

#[test]
fn a_claim_made_anew_under_the_same_name_is_not_confused_with_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ml_train.json"), GOOD).unwrap();
    let error = manifests(folder.path()).allocation(&claim("u2")).unwrap_err().to_string();
    assert!(error.contains("is of claim uid u1, asked for is u2"), "{error}");
}

#[test]
fn a_wrong_manifest_is_named_with_file_and_field() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x.json"), GOOD.replace("\"device\"", "\"devise\"")).unwrap();
    let error = manifests(folder.path()).allocation(&claim("u1")).unwrap_err();
    let chain = Chain(&error).to_string();
    assert!(chain.contains("x.json is not valid: field status.allocation.devices.results[0]"), "{chain}");
}

#[test]
fn no_name_leads_out_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["../train", "a/b", "", ".hidden", "UPPER", "a\0b"] {
        assert!(matches!(manifests(folder.path()).find("ml", name), Err(ManifestsError::Name(_))), "{name:?}");
    }
}

#[test]
fn an_added_manifest_belongs_to_its_owner_alone_and_is_added_once() {
    let folder = tempfile::tempdir().unwrap();
    let manifests = manifests(&folder.path().join("new"));
    let manifest = manifest::parse(GOOD).unwrap();
    let path = manifests.add(&manifest).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(manifests.find("ml", "train").unwrap().manifest, manifest);
    assert!(matches!(manifests.add(&manifest), Err(ManifestsError::Exists { .. })));
    manifests.remove(&path).unwrap();
    manifests.remove(&path).unwrap();
    assert!(matches!(manifests.find("ml", "train"), Err(ManifestsError::Missing { .. })));
}
