//! `hostler bitstream` as a shell sees it, on a store of its own.
use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use hostler::claims::store::{ClaimRecord, RecordDir};
use serde_json::json;

const INTERFACE: &str = "1a422218-6dba-448e-b302-425cbcde1406";
const AFU: &str = "d8424dc4a4a3c413f89e433683f9040b";

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let state = folder.path().join("state");
        let config = format!("[paths]\nstate = {state:?}\n[backends.fpga]\nbitstreams = {store:?}\n");
        fs::write(folder.path().join("hostler.toml"), config).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hostler"));
        command.arg("bitstream").args(args).arg("--config").arg(self.path("hostler.toml")).output().unwrap()
    }

    /// Runs a command; returns exit code, standard output and standard error.
    fn said(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let output = self.run(args);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// The bitstreams of the store.
    fn list(&self) -> serde_json::Value {
        let (code, said, error) = self.said(&["list", "-o", "json"]);
        assert_eq!((code, &*error), (Some(0), ""));
        let mut list: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&list["apiVersion"], &list["kind"]), (&"output.hostler.dev/v1".into(), &"BitstreamList".into()));
        list["items"].take()
    }

    /// Records a claim that needs a bitstream, as the daemon does; returns the folder.
    fn record(&self, uid: &str, digest: &str) -> RecordDir {
        let record: ClaimRecord = serde_json::from_value(json!({
            "claim": { "namespace": "default", "name": uid, "uid": uid }, "state": "prepared", "boot_id": "boot",
            "devices": [{
                "backend": "fpga", "grant": { "request": "fpga", "pool": "n1/fpga", "device": "region-0" },
                "plan": { "data": { "digest": digest } },
            }],
        }))
        .unwrap();
        let records = RecordDir::open(self.path("state/claims"), "boot").unwrap();
        records.write(&[&record]).unwrap();
        records
    }

    fn add(&self, name: &str, bytes: &[u8]) -> (Option<i32>, String, String) {
        let path = self.path(&format!("{name}.rbf"));
        fs::write(&path, bytes).unwrap();
        self.said(&["add", path.to_str().unwrap(), "--interface-id", INTERFACE, "--afu-id", AFU])
    }
}

#[test]
fn what_is_added_is_listed_and_in_order() {
    let place = Place::new();
    assert_eq!(place.list(), serde_json::json!([]));
    let (code, said, error) = place.add("nlb", b"image");
    assert_eq!((code, &*error), (Some(0), ""));
    assert!(
        said.starts_with("nlb added: ") && said.contains("interface id 1a4222186dba448eb302425cbcde1406"),
        "{said}"
    );
    assert!(place.add("nlb", b"image").1.starts_with("nlb is there already: "));

    let list = place.list();
    assert_eq!(list[0]["name"], "nlb");
    assert_eq!((&list[0]["format"], &list[0]["sizeBytes"]), (&"raw".into(), &5.into()));
    assert_eq!((&list[0]["interfaceID"], &list[0]["afuID"]), (&INTERFACE.replace('-', "").into(), &AFU.into()));
    // sha256sum of the five bytes.
    let digest = "6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d";
    assert_eq!(list[0]["digest"], digest);
    assert!(place.said(&["list"]).1.contains(digest));
    for args in [&["verify"][..], &["verify", "nlb"], &["verify", digest]] {
        let expected = "nlb: in order\n1 checked, 0 not in order\n".to_owned();
        assert_eq!(place.said(args), (Some(0), expected, String::new()));
    }
}

#[test]
fn what_was_changed_since_is_found() {
    let place = Place::new();
    place.add("good", b"good");
    place.add("bad", b"bad");
    let list = place.list();
    assert_eq!(list[0]["name"], "bad");
    let content = place.path("store").join(format!("{}.bin", list[0]["digest"].as_str().unwrap()));
    fs::write(content, "worse").unwrap();
    let (code, said, _) = place.said(&["verify"]);
    assert_eq!(code, Some(1));
    assert!(said.contains(" is damaged: its digest is ") && said.ends_with("2 checked, 1 not in order\n"), "{said}");
    assert_eq!(place.said(&["verify", "good"]).0, Some(0));
    let (code, said, _) = place.said(&["verify", "-o", "json", "bad"]);
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(code, Some(1));
    assert!(found["items"][0]["problem"].as_str().unwrap().contains(" is damaged"), "{said}");
}

#[test]
fn refusals_say_what_to_do() {
    let place = Place::new();
    let path = place.path("a.rbf");
    fs::write(&path, "image").unwrap();
    let file = path.to_str().unwrap();
    for (args, code, expected) in [
        (&["add", file][..], 1, "the file does not say its interface id; give it with --interface-id"),
        (&["add", file, "--afu-id", "xyz"], 2, "is not an id of 32 hexadecimal digits"),
        (&["add", "/nonexistent/a.gbs"], 1, "failed to read /nonexistent/a.gbs: No such file"),
        (&["verify", "nlb"], 1, "\"nlb\" is no bitstream of the store: it is empty"),
        (&["verify", "/etc/passwd"], 1, "leads out of the store"),
    ] {
        let (exit, said, error) = place.said(args);
        assert_eq!((exit, &*said), (Some(code), ""), "{args:?}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn what_is_removed_is_gone_and_what_is_needed_stays() {
    let place = Place::new();
    place.add("one", b"one");
    place.add("two", b"two");
    let digest = place.list()[1]["digest"].as_str().unwrap().to_owned();
    let (code, said, error) = place.said(&["remove", "one", "three"]);
    assert_eq!((code, &*said), (Some(1), ""));
    assert!(error.contains("\"three\" is no bitstream of the store"), "{error}");
    assert_eq!(place.said(&["list", "-o", "name"]).1, "one\ntwo\n", "all or none");

    // A claim may be prepared again after a reboot, and a region is made blank in the end.
    place.record("u1", &digest);
    let store = place.path("store");
    let blank = "1a4222186dba448eb302425cbcde1406";
    let config = format!(
        "[paths]\nstate = {:?}\n[backends.fpga]\nbitstreams = {store:?}\nblank = {{ {blank} = \"one\" }}\n",
        place.path("state")
    );
    fs::write(place.path("hostler.toml"), config).unwrap();
    assert!(place.said(&["remove", "one"]).2.contains("one is needed by backends.fpga.blank"));
    let (code, _, error) = place.said(&["remove", &digest]);
    assert_eq!(code, Some(1));
    assert!(error.contains("two is needed by claim u1 of record") && error.contains("u1.json; --force"), "{error}");
    let (code, said, _) = place.said(&["remove", "one", "two", "--force"]);
    assert_eq!((code, said.lines().count()), (Some(0), 2));
    assert_eq!(place.list(), serde_json::json!([]));
    assert_eq!(fs::read_dir(store).unwrap().count(), 0);
}

#[test]
fn nothing_is_removed_while_it_cannot_be_told_what_claims_need() {
    let place = Place::new();
    place.add("one", b"one");
    place.add("two", b"two");
    let digest = place.list()[1]["digest"].as_str().unwrap().to_owned();
    let refused = |name: &str, words: &[&str]| {
        let (code, said, error) = place.said(&["remove", name]);
        assert_eq!((code, &*said), (Some(1), ""), "{error}");
        assert!(words.iter().chain(&["--force"]).all(|word| error.contains(word)), "{words:?}: {error}");
    };
    let records = place.record("u1", &digest);
    let path = place.path("state/claims/u1.json");
    let whole = fs::read(&path).unwrap();

    // As after a power failure: the journal has the records that the files have lost.
    fs::remove_file(&path).unwrap();
    refused("two", &["two is needed by claim u1 of record", "claims.journal"]);
    fs::write(&path, &whole).unwrap();
    records.checkpoint().unwrap();
    refused("two", &["two is needed by claim u1 of record", "u1.json"]);

    fs::write(&path, &whole[..whole.len() / 3]).unwrap();
    refused("one", &["one may be needed by the claim of record", "u1.json", "it is not the JSON of a claim record"]);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused("one", &["one may be needed by the claim of record", "it cannot be read"]);
    fs::remove_dir(&path).unwrap();

    fs::remove_dir_all(place.path("state/claims")).unwrap();
    fs::write(place.path("state/claims"), "no folder").unwrap();
    refused("one", &["failed to read which bitstreams claims need"]);
    fs::remove_file(place.path("state/claims")).unwrap();
    assert_eq!(place.said(&["remove", "one", "two"]).0, Some(0), "no folder, no claims");
}
