//! The store on real files: what goes in, what comes out, and what is refused.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use super::*;

const INTERFACE: &str = "1a4222186dba448eb302425cbcde1406";
const AFU: &str = "d8424dc4a4a3c413f89e433683f9040b";

struct StoreFolder {
    folder: tempfile::TempDir,
    store: BitstreamStore,
}

impl StoreFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = BitstreamStore::new(folder.path().join("store"));
        Self { folder, store }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn add(&self, name: &str, bytes: &[u8]) -> Result<AddedBitstream, StoreError> {
        self.store.add(&self.file(name, bytes), &ids())
    }

    fn modes(&self) -> Vec<u32> {
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let files = fs::read_dir(self.store.folder()).unwrap().map(|entry| entry.unwrap().path());
        [self.store.folder().to_owned()].into_iter().chain(files).map(mode).collect()
    }
}

fn ids() -> BitstreamDetails {
    BitstreamDetails { name: None, interface_id: Guid::parse(INTERFACE), afu_id: Guid::parse(AFU) }
}

fn gbs(interface: &str, afu: &str, image: &[u8]) -> Vec<u8> {
    let json = serde_json::json!({
        "version": 640,
        "platform-name": "",
        "afu-image": {
            "interface-uuid": interface,
            "magic-no": 488_605_312,
            "accelerator-clusters": [{ "name": "nlb", "total-contexts": 1, "accelerator-type-uuid": afu }],
        },
    })
    .to_string();
    let length = u32::try_from(json.len()).unwrap();
    [&b"XeonFPGA\xb7GBSv001"[..], &length.to_le_bytes(), json.as_bytes(), image].concat()
}

fn message<T: fmt::Debug>(result: Result<T, StoreError>) -> String {
    let error = result.unwrap_err();
    let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}

#[test]
fn a_green_bitstream_brings_its_ids_and_is_programmed_without_its_header() {
    let place = StoreFolder::new();
    let path = place.file("nlb_400.gbs", &gbs("1A422218-6dba-448e-b302-425cbcde1406", AFU, b"image"));
    let added = place.store.add(&path, &BitstreamDetails::default()).unwrap();
    assert!(!added.already);
    let Bitstream { name, format, interface_id, afu_id, .. } = &added.bitstream;
    assert_eq!((name.as_str(), *format), ("nlb_400", BitstreamFormat::Gbs));
    assert_eq!((interface_id.as_str(), afu_id.as_str()), (INTERFACE, AFU));
    assert_eq!(place.store.list().unwrap(), std::slice::from_ref(&added.bitstream));
    assert_eq!(place.store.image(&added.bitstream.digest).unwrap(), b"image");
    let all: Vec<StoreFinding> = place.store.verify(&[]).unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].problem, None);
}

#[test]
fn what_is_in_the_store_is_its_owners_alone() {
    let place = StoreFolder::new();
    place.add("a.rbf", b"image").unwrap();
    assert_eq!(place.modes(), [0o700, 0o600, 0o600]);
}

#[test]
fn a_raw_image_needs_its_ids_from_the_one_who_adds_it() {
    let place = StoreFolder::new();
    let path = place.file("a.rbf", b"image");
    let refusal = message(place.store.add(&path, &BitstreamDetails::default()));
    assert_eq!(refusal, "the file does not say its interface id; give it with --interface-id");
    let details = BitstreamDetails { afu_id: None, ..ids() };
    assert_eq!(message(place.store.add(&path, &details)), "the file does not say its AFU id; give it with --afu-id");
    let added = place.store.add(&path, &ids()).unwrap().bitstream;
    assert_eq!((added.format, added.size_bytes), (BitstreamFormat::Raw, 5));
    assert_eq!(place.store.image(&added.digest).unwrap(), b"image");
    assert_eq!(fs::read_dir(place.store.folder()).unwrap().count(), 2, "refusals leave nothing behind");
}

#[test]
fn a_file_that_contradicts_the_one_who_adds_it_is_refused() {
    let place = StoreFolder::new();
    let refusal = message(place.add("a.gbs", &gbs("00000000000000000000000000000001", AFU, b"image")));
    assert!(
        refusal.starts_with("the file says interface id 00000000000000000000000000000001, and --interface-id says")
    );
}

#[test]
fn adding_twice_is_adding_once_and_a_name_is_given_once() {
    let place = StoreFolder::new();
    let first = place.add("a.rbf", b"image").unwrap();
    let again = place.add("a.rbf", b"image").unwrap();
    assert_eq!((again.bitstream, again.already), (first.bitstream.clone(), true));
    let other = message(place.add("a.rbf", b"another image"));
    assert_eq!(other, format!("the name a is taken by {}; choose another one with --name", first.bitstream.digest));
    let renamed = message(place.add("b.rbf", b"image"));
    assert!(renamed.starts_with("the store has this file already, as a with interface id "), "{renamed}");
}

#[test]
fn adding_again_mends_what_was_lost() {
    let place = StoreFolder::new();
    let digest = place.add("a.rbf", b"image").unwrap().bitstream.digest;
    fs::write(place.store.content_path(&digest), "imago").unwrap();
    assert!(!place.add("a.rbf", b"image").unwrap().already);
    assert_eq!(place.store.image(&digest).unwrap(), b"image");
}

#[test]
fn names_that_would_be_mistaken_are_refused() {
    let place = StoreFolder::new();
    let long = "x".repeat(65);
    let digest = "a".repeat(64);
    for name in ["", "a/b", "../a", ".hidden", "ä", long.as_str(), digest.as_str()] {
        let details = BitstreamDetails { name: Some(name.to_owned()), ..ids() };
        let refusal = message(place.store.add(&place.file("a.rbf", b"image"), &details));
        assert!(refusal.contains("--name"), "{name:?}: {refusal}");
    }
    assert!(!place.store.folder().exists());
}

#[test]
fn files_that_nothing_can_program_are_refused() {
    let place = StoreFolder::new();
    let digits = "0".repeat(32);
    for (bytes, reason) in [
        (b"".to_vec(), "the file is empty"),
        (b"xclbin2\0rest".to_vec(), "the file is an xclbin, which programs load themselves through XRT"),
        (b"XeonFPGA\xb7GBSv001\xff\xff\xff\xff".to_vec(), "the header of the green bitstream is damaged"),
        (gbs(&digits, AFU, b""), "the header of the green bitstream is damaged"),
        (gbs("nonsense", AFU, b"image"), "the header of the green bitstream is damaged"),
    ] {
        let refusal = message(place.add("a.gbs", &bytes));
        assert!(refusal.contains(" cannot be added: ") && refusal.contains(reason), "{refusal}");
    }
    let details = BitstreamDetails { name: Some("folder".to_owned()), ..ids() };
    let refusal = message(place.store.add(place.folder.path(), &details));
    assert!(refusal.ends_with(": it is a folder; put a regular file in its place"), "{refusal}");
}

#[test]
fn a_bitstream_is_found_by_digest_name_and_path() {
    let place = StoreFolder::new();
    let one = place.add("one.rbf", b"one").unwrap().bitstream;
    place.add("two.rbf", b"two").unwrap();
    let path = place.store.content_path(&one.digest).to_str().unwrap().to_owned();
    let upper = one.digest.as_str().to_uppercase();
    for reference in ["one", one.digest.as_str(), &upper, &format!("sha256:{}", one.digest), &path] {
        assert_eq!(place.store.find(reference).unwrap(), one, "{reference}");
    }
}

#[test]
fn what_is_not_in_the_store_is_refused_with_what_is() {
    let place = StoreFolder::new();
    let empty = "\"x\" is no bitstream of the store: it is empty; `hostler bitstream add` fills it";
    assert_eq!(message(place.store.find("x")), empty);
    let one = place.add("one.rbf", b"one").unwrap().bitstream;
    let expected = format!("\"x\" is no bitstream of the store: it has one ({})", one.digest.short());
    assert_eq!(message(place.store.find("x")), expected);
}

#[test]
fn references_cannot_lead_out_of_the_store() {
    let place = StoreFolder::new();
    place.add("one.rbf", b"one").unwrap();
    let inside = place.store.folder().to_str().unwrap().to_owned();
    for reference in
        ["/etc/passwd", "../one", "..", "", &format!("{inside}/../a.rbf"), &format!("{inside}/a/b"), &inside]
    {
        let refusal = message(place.store.find(reference));
        assert!(refusal.contains(" leads out of the store of bitstreams, "), "{reference}: {refusal}");
    }
}

#[test]
fn links_in_the_store_are_not_followed() {
    let place = StoreFolder::new();
    let digest = place.add("one.rbf", b"one").unwrap().bitstream.digest;
    let content = place.store.content_path(&digest);
    fs::remove_file(&content).unwrap();
    symlink(place.file("elsewhere", b"one"), &content).unwrap();
    assert!(message(place.store.image(&digest)).contains(" is a link; "));
    let found = place.store.verify(&["one".to_owned()]).unwrap();
    assert!(found[0].problem.as_deref().unwrap().contains(" is a link; "), "{found:?}");
}

#[test]
fn what_others_could_have_changed_is_not_trusted() {
    let place = StoreFolder::new();
    let digest = place.add("one.rbf", b"one").unwrap().bitstream.digest;
    let writable = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o622)).unwrap();
    writable(&place.store.content_path(&digest));
    assert!(message(place.store.image(&digest)).contains(" can be changed by others (mode 622); chmod go-w it"));
    fs::set_permissions(place.store.folder(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(message(place.store.list()).contains(" can be changed by others (mode 777)"));
    assert!(message(place.add("two.rbf", b"two")).contains(" can be changed by others (mode 777)"));
}

#[test]
fn verifying_finds_what_is_damaged_unknown_or_double() {
    let place = StoreFolder::new();
    let good = place.add("good.rbf", b"good").unwrap().bitstream;
    let bad = place.add("bad.rbf", b"bad").unwrap().bitstream;
    let lost = place.add("lost.rbf", b"lost").unwrap().bitstream;
    let orphan = place.add("orphan.rbf", b"orphan").unwrap().bitstream;
    fs::write(place.store.content_path(&bad.digest), "worse").unwrap();
    fs::remove_file(place.store.content_path(&lost.digest)).unwrap();
    fs::remove_file(place.store.record_path(&orphan.digest)).unwrap();
    fs::write(place.store.folder().join("notes.txt"), "?").unwrap();
    let findings = place.store.verify(&[]).unwrap();
    let problem = |name: &str| findings.iter().find(|finding| finding.name == name).unwrap().problem.clone();
    assert_eq!(findings.len(), 5);
    assert_eq!(problem("good"), None);
    assert!(problem("bad").unwrap().contains(" is damaged: its digest is "));
    assert!(problem("lost").unwrap().starts_with("failed to open "));
    assert!(problem(&format!("{}.bin", orphan.digest)).unwrap().starts_with("nothing is known of this file"));
    assert_eq!(problem("notes.txt").unwrap(), "is no file of the store; remove it");
    assert_eq!(place.store.image(&good.digest).unwrap(), b"good");

    let twin = place.add("twin.rbf", b"twin").unwrap().bitstream;
    place.store.write_record(&Bitstream { name: "good".to_owned(), ..twin.clone() }).unwrap();
    let findings = place.store.verify(&[]).unwrap();
    let twins: Vec<&StoreFinding> = findings.iter().filter(|finding| finding.name == "good").collect();
    assert!(twins.len() == 2 && twins.iter().all(|finding| finding.problem.is_some()), "{findings:?}");
    assert!(message(place.store.find("good")).ends_with("; write the digest"));
}

#[test]
fn records_that_make_no_sense_are_named() {
    let place = StoreFolder::new();
    let one = place.add("one.rbf", b"one").unwrap().bitstream;
    let path = place.store.record_path(&one.digest);
    let text = fs::read_to_string(&path).unwrap();
    for (old, new, reason) in [
        ("\"version\": 1", "\"version\": 2", "has version 2; this hostler reads 1"),
        (INTERFACE, "xyz", "is not an id of 32 hexadecimal digits"),
        (&text, "", "EOF while parsing"),
    ] {
        fs::write(&path, text.replace(old, new)).unwrap();
        let error = message(place.store.list());
        assert!(error.contains(path.to_str().unwrap()) && error.contains(reason), "{error}");
        assert_eq!(message(place.store.find("one")), error);
    }
    let two = place.add("two.rbf", b"two").unwrap().bitstream;
    assert_eq!(place.store.find("two").unwrap(), two, "another record is in nobody's way");
    assert!(!place.add("one.rbf", b"one").unwrap().already);
    assert_eq!(place.store.list().unwrap().len(), 2);
}

#[test]
fn a_store_that_is_not_there_is_empty() {
    let place = StoreFolder::new();
    assert_eq!(place.store.list().unwrap(), []);
    assert_eq!(place.store.verify(&[]).unwrap(), []);
    assert!(!place.store.folder().exists());
}
