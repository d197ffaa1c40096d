//! FPGAs from the store and a claim's manifest to the CDI file, with the real binary over a made-up card. Its device nodes are
//! plain files: they can be opened, and refuse every order, as a card does that no longer answers.
use std::fs;

use hostler_linux::testkit::{FakeDflCard, MachineTree};
use hostler_testing::host::{self, Host};
use serde_json::{Value, json};

const AFU: &str = "f7df405cbd7acf7222f144b0b93acd18";
const REGION: &str = "region-0000-b1-00-0-0";

struct Rig {
    host: Host,
    _tree: MachineTree,
}

impl Rig {
    fn new() -> Self {
        let tree = MachineTree::new();
        FakeDflCard::new("0000:b1:00.0").plug(&tree);
        tree.file("proc/sys/kernel/random/boot_id", "00000000-0000-4000-8000-000000000001");
        let mut host = Host::bare(host::SCRIPT);
        let file = host.path("hostler.toml");
        let config = fs::read_to_string(&file).unwrap();
        let machine = format!("root = \"{}\"", host.path("machine").display());
        assert!(config.contains(&machine) && config.contains("[backends.fpga]\nenabled = false"));
        let store = format!("[backends.fpga]\nbitstreams = \"{}\"", host.path("bitstreams").display());
        let config = config
            .replace(&machine, &format!("root = \"{}\"", tree.path("").display()))
            .replace("[backends.fpga]\nenabled = false", &store);
        fs::write(file, config).unwrap();
        host.start();
        Self { host, _tree: tree }
    }

    /// Adds an image of a few bytes.
    fn add(&self, name: &str, interface_id: &str) {
        let file = self.host.path(&format!("{name}.rbf"));
        fs::write(&file, name).unwrap();
        let file = file.to_str().unwrap();
        self.host.run_ok(&["bitstream", "add", file, "--interface-id", interface_id, "--afu-id", AFU]);
    }

    /// Puts the manifest of a claim for one device there.
    fn claim(&self, name: &str, uid: &str, device: &str, config: Option<Value>) {
        let results = [json!({ "request": "fpga", "driver": "hostler.dev", "pool": "node/fpga", "device": device })];
        let config: Vec<Value> = config
            .into_iter()
            .map(|mut parameters| {
                parameters["apiVersion"] = "hostler.dev/v1alpha1".into();
                parameters["kind"] = "FpgaConfig".into();
                json!({ "source": "FromClaim", "opaque": { "driver": "hostler.dev", "parameters": parameters } })
            })
            .collect();
        let manifest = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": { "name": name, "namespace": "default", "uid": uid },
            "status": { "allocation": { "devices": { "results": results, "config": config } } },
        });
        fs::create_dir_all(self.host.path("manifests")).unwrap();
        fs::write(self.host.path(&format!("manifests/default_{name}.json")), manifest.to_string()).unwrap();
    }
}

#[test]
fn claims_that_cannot_be_met_say_why_and_leave_nothing() {
    let rig = Rig::new();
    let other = "00000000000000000000000000000bad";
    rig.add("old", other);
    for (name, config, reason) in [
        ("none", None, "which names no bitstream".to_owned()),
        ("absent", Some(json!({ "bitstream": "new" })), "it has old (".to_owned()),
        ("outside", Some(json!({ "bitstream": "/etc/shadow" })), "leads out of the store".to_owned()),
        ("wrong", Some(json!({ "bitstream": "old" })), format!("for interface id {other}, and {REGION} has ")),
    ] {
        rig.claim(name, &format!("uid-of-{name}"), REGION, config);
        let said = rig.host.run_refused(&["claim", "prepare", name]);
        assert!(said.contains(&reason), "{name}: {said}");
    }
    assert_eq!(rig.host.files("cdi"), Vec::<String>::new());
    assert_eq!(rig.host.files("state/claims"), Vec::<String>::new());
}

#[test]
fn a_region_whose_card_does_not_answer_is_not_handed_over_and_stays_taken() {
    let rig = Rig::new();
    rig.add("fft", FakeDflCard::INTERFACE_ID);
    rig.claim("fft", "5f0c0000-0000-4000-8000-000000000002", REGION, Some(json!({ "bitstream": "fft" })));
    let said = rig.host.run_refused(&["claim", "prepare", "fft"]);
    assert!(said.contains("failed to reset /dev/dfl-port.0: Inappropriate ioctl for device"), "{said}");
    assert_eq!(rig.host.files("cdi"), Vec::<String>::new());
    rig.claim("next", "5f0c0000-0000-4000-8000-000000000003", REGION, Some(json!({ "bitstream": "fft" })));
    let said = rig.host.run_refused(&["claim", "prepare", "next"]);
    assert!(said.contains("default/fft"), "the holder is named: {said}");
}

#[test]
fn a_function_is_handed_over_by_its_node() {
    let rig = Rig::new();
    let afu = "afu-0000-b1-00-0-0";
    rig.claim("nlb", "5f0c0000-0000-4000-8000-000000000004", afu, Some(json!({ "afuID": FakeDflCard::AFU_ID })));
    rig.host.run_ok(&["claim", "prepare", "nlb"]);
    let [file] = &rig.host.files("cdi")[..] else { panic!("not one CDI file") };
    let spec: Value =
        serde_json::from_str(&fs::read_to_string(rig.host.path(&format!("cdi/{file}"))).unwrap()).unwrap();
    assert!(spec["devices"].to_string().contains("/dev/dfl-port.0"), "{spec}");
    let said = rig.host.run_refused(&["claim", "delete", "nlb"]);
    assert!(said.contains("failed to reset /dev/dfl-port.0"), "{said}");
}
