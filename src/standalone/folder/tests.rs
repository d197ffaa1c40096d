//! Manifests in a folder: found, added, removed, refused.

use std::os::unix::fs::{PermissionsExt, symlink};

use hostler_api::{Chain, ClaimUid};
use nix::{sys::stat::Mode, unistd::mkfifo};
use proptest::prelude::*;

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

/// The manifest [`GOOD`], of the claim `ml/<name>`.
fn text(name: &str) -> String {
    GOOD.replace("\"train\"", &format!("\"{name}\""))
}

fn is_missing(manifests: &ManifestFolder, name: &str) -> bool {
    matches!(manifests.find("ml", name), Err(ManifestsError::Missing { .. }))
}

fn file_of(manifests: &ManifestFolder, name: &str) -> String {
    manifests.find("ml", name).unwrap().path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn each_change_of_the_folder_is_seen_at_the_next_question() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, aside) = (temp.path().join("folder"), temp.path().join("aside"));
    let path = |name: &str| folder.join(name);
    let manifests = manifests(&folder);
    assert!(is_missing(&manifests, "aa"), "the folder is not there yet");
    fs::create_dir(&folder).unwrap();
    assert!(is_missing(&manifests, "aa"));
    fs::write(path("1.yaml"), text("aa")).unwrap();
    assert_eq!(file_of(&manifests, "aa"), "1.yaml");
    // In place, with the same size, at once.
    fs::write(path("1.yaml"), text("bb")).unwrap();
    assert_eq!((is_missing(&manifests, "aa"), &*file_of(&manifests, "bb")), (true, "1.yaml"));
    fs::rename(path("1.yaml"), path("2.json")).unwrap();
    assert_eq!(file_of(&manifests, "bb"), "2.json");
    fs::write(&aside, text("cc")).unwrap();
    fs::rename(&aside, path("2.json")).unwrap();
    assert_eq!((is_missing(&manifests, "bb"), &*file_of(&manifests, "cc")), (true, "2.json"));
    fs::write(&aside, text("dd")).unwrap();
    fs::rename(&aside, path("3.yml")).unwrap();
    assert_eq!((file_of(&manifests, "dd"), file_of(&manifests, "cc")), ("3.yml".to_owned(), "2.json".to_owned()));
    fs::write(path("0.yml"), text("dd")).unwrap();
    assert_eq!(file_of(&manifests, "dd"), "0.yml", "of two, the first by name");
    fs::remove_file(path("0.yml")).unwrap();
    fs::rename(path("3.yml"), path(".3.yml")).unwrap();
    assert!(is_missing(&manifests, "dd"), "a hidden file is no manifest");

    fs::rename(&folder, &aside).unwrap();
    assert!(is_missing(&manifests, "cc"));
    fs::create_dir(&folder).unwrap();
    fs::write(path("4.yml"), text("ee")).unwrap();
    assert_eq!((file_of(&manifests, "ee"), is_missing(&manifests, "cc")), ("4.yml".to_owned(), true));
}

#[test]
fn changes_that_the_folder_has_no_event_of_are_seen_too() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, aside) = (temp.path().join("folder"), temp.path().join("aside"));
    fs::create_dir(&folder).unwrap();
    let manifests = manifests(&folder);
    symlink(&aside, folder.join("link.yaml")).unwrap();
    assert!(is_missing(&manifests, "aa"), "the link leads nowhere");
    for name in ["aa", "bb"] {
        fs::write(&aside, text(name)).unwrap();
        assert_eq!(file_of(&manifests, name), "link.yaml");
    }
    assert!(is_missing(&manifests, "aa"));
    fs::remove_file(folder.join("link.yaml")).unwrap();
    assert!(is_missing(&manifests, "bb"));

    fs::write(folder.join("own.yaml"), text("aa")).unwrap();
    assert_eq!(file_of(&manifests, "aa"), "own.yaml");
    fs::hard_link(folder.join("own.yaml"), temp.path().join("other")).unwrap();
    fs::write(temp.path().join("other"), text("bb")).unwrap();
    assert_eq!((is_missing(&manifests, "aa"), &*file_of(&manifests, "bb")), (true, "own.yaml"));
}

#[test]
fn a_file_that_cannot_be_read_may_be_the_one_that_is_meant_until_it_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.yaml");
    let manifests = manifests(folder.path());
    fs::write(folder.path().join("y.yaml"), text("bb")).unwrap();
    mkfifo(&path, Mode::S_IRUSR).unwrap();
    for _ in 0..2 {
        let error = Chain(&manifests.find("ml", "aa").unwrap_err()).to_string();
        assert!(error.contains("x.yaml") && error.contains("it is a FIFO"), "{error}");
        assert!(manifests.refuse_taken("ml", "aa").is_err());
        assert_eq!(manifests.mistakes().unwrap().len(), 1);
        assert_eq!(file_of(&manifests, "bb"), "y.yaml");
    }
    fs::remove_file(&path).unwrap();
    fs::write(&path, text("aa")).unwrap();
    assert_eq!((file_of(&manifests, "aa"), manifests.mistakes().unwrap().len()), ("x.yaml".to_owned(), 0));
    fs::write(&path, text("aa").replace("hostler.dev", "hostler/dev")).unwrap();
    manifests.find("ml", "aa").unwrap();
    fs::write(&path, text("aa").replace("\"d0\"", "\"D 0\"")).unwrap();
    assert_eq!(manifests.mistakes().unwrap().len(), 1, "its allocation cannot be read");
}

#[test]
fn manifests_are_found_by_uid_and_by_name_and_of_one_uid_the_first_counts() {
    let folder = tempfile::tempdir().unwrap();
    let manifests = manifests(folder.path());
    let named = |asked: &str| {
        let found = manifests.named("ml", asked).unwrap();
        found.iter().map(|found| found.path.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let with_uid = |name: &str, uid: &str| text(name).replace("\"uid\": \"u1\"", &format!("\"uid\": \"{uid}\""));
    fs::write(folder.path().join("1.yaml"), with_uid("aa", "u1")).unwrap();
    fs::write(folder.path().join("2.yaml"), with_uid("bb", "u1")).unwrap();
    fs::write(folder.path().join("3.yaml"), with_uid("u1", "u3")).unwrap();
    fs::write(folder.path().join("4.yaml"), with_uid("aa", "u4")).unwrap();
    assert_eq!(named("aa"), ["1.yaml", "4.yaml"]);
    assert_eq!(named("u1"), ["1.yaml", "3.yaml"]);
    assert_eq!((named("bb"), named("u3"), named("cc")), (Vec::new(), vec!["3.yaml".to_owned()], Vec::new()));
    fs::remove_file(folder.path().join("1.yaml")).unwrap();
    assert_eq!((named("bb"), named("aa")), (vec!["2.yaml".to_owned()], vec!["4.yaml".to_owned()]));
}

/// Finds a manifest by reading all of them.
fn found_by_reading_all(manifests: &ManifestFolder, name: &str) -> Option<String> {
    // One that cannot be read is the claim's all the same.
    let path = manifests.read_named(&format!("ml_{name}")).ok()?.map(|found| found.path).or_else(|| {
        let all = manifests.all().unwrap().into_iter().flatten();
        all.filter(|found| found.is_called("ml", name)).map(|found| found.path).next()
    });
    Some(path?.file_name().unwrap().to_str().unwrap().to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_happens_to_the_folder_the_index_finds_what_reading_all_files_does(
        steps in proptest::collection::vec((0..9_usize, 0..5_usize, 0..5_usize, 0..4_usize, any::<bool>()), 1..40)
    ) {
        const FILES: [&str; 5] = ["a.yaml", "b.json", "ml_aa.yaml", "ml_bb.yml", "z.yml"];
        const NAMES: [&str; 4] = ["aa", "bb", "cc", "dd"];
        let temp = tempfile::tempdir().unwrap();
        let (folder, aside) = (temp.path().join("folder"), temp.path().join("aside"));
        fs::create_dir(&folder).unwrap();
        let manifests = manifests(&folder);
        for (step, one, other, name, asks) in steps {
            let (one, other, text) = (folder.join(FILES[one]), folder.join(FILES[other]), text(NAMES[name]));
            // Each may fail: there may be no such file, or one already.
            let _ = match step {
                0 => fs::write(&one, text),
                1 => fs::rename(&one, &other),
                2 => fs::remove_file(&one),
                3 => fs::write(&aside, text).and_then(|()| fs::rename(&aside, &one)),
                4 => fs::hard_link(&one, &other),
                5 => symlink(&other, &one),
                6 => fs::rename(&one, &aside),
                7 => fs::write(&aside, text).and_then(|()| fs::hard_link(&aside, &one)),
                _ => fs::write(&aside, text),
            };
            if asks {
                for name in NAMES {
                    let found = manifests.find("ml", name).ok().map(|found| found.path);
                    let found = found.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
                    prop_assert_eq!(found, found_by_reading_all(&manifests, name), "{}", name);
                }
            }
        }
    }
}
