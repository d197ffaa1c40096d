//! Claims on cards whose kernel is played: what is programmed, handed over, checked and taken back.

mod conforming;
mod failing;
mod leaving;
mod lending;
mod planning;

use std::{fs, sync::Arc};

use hostler_api::{Access, ClaimUid, Grant};
use hostler_backend::{
    Backend, BackendError, Device, DevicePlan, HeldDevice, PlanWork, PrepareOutcome, PrepareWork, UnprepareWork,
    VerifyWork,
};
use hostler_linux::{
    SysRoot,
    testkit::{DflKernel, FakeDflCard, FakeDflPort, FakePciFunction, MachineTree},
};
use serde_json::{Value, json};

use super::{names, nodes};
use crate::{
    FpgaBackend, FpgaBackendConfig,
    bitstream::Guid,
    store::{Bitstream, BitstreamDetails, BitstreamStore, chain},
};

const INTERFACE: &str = "1a4222186dba448eb302425cbcde1406";
const OTHER_INTERFACE: &str = "00000000000000000000000000000bad";
const BLANK: &str = "00000000000000000000000000000b1a";
const NLB: &str = "d8424dc4a4a3c413f89e433683f9040b";
const FFT: &str = "f7df405cbd7acf7222f144b0b93acd18";
const CARD: &str = "0000:b1:00.0";
const REGION: &str = "region-0000-b1-00-0-0";
const AFU: &str = "afu-0000-b1-00-0-0";

/// A card with two regions, both blank, and a store.
struct FpgaMachine {
    tree: MachineTree,
    kernel: DflKernel,
    folder: tempfile::TempDir,
    config: FpgaBackendConfig,
}

impl FpgaMachine {
    fn new() -> Self {
        let tree = MachineTree::new();
        card().plug(&tree);
        let folder = tempfile::tempdir().unwrap();
        let config = FpgaBackendConfig { bitstreams: folder.path().join("store"), ..FpgaBackendConfig::default() };
        Self { kernel: DflKernel::new(&tree), tree, folder, config }
    }

    /// As [`FpgaMachine::new`], and regions are blanked when claims end.
    fn blanking() -> Self {
        let mut machine = Self::new();
        machine.add("blank", BLANK);
        machine.config.blank.insert(INTERFACE.to_owned(), "blank".to_owned());
        machine
    }

    /// Adds an image for the regions of the card that brings a function.
    fn add(&self, name: &str, afu_id: &str) -> Bitstream {
        self.add_bytes(name, INTERFACE, afu_id, &DflKernel::image(INTERFACE, afu_id))
    }

    fn add_bytes(&self, name: &str, interface_id: &str, afu_id: &str, bytes: &[u8]) -> Bitstream {
        let path = self.folder.path().join(format!("{name}.rbf"));
        fs::write(&path, bytes).unwrap();
        let details =
            BitstreamDetails { name: None, interface_id: Guid::parse(interface_id), afu_id: Guid::parse(afu_id) };
        self.store().add(&path, &details).unwrap().bitstream
    }

    fn store(&self) -> BitstreamStore {
        BitstreamStore::new(&self.config.bitstreams)
    }

    fn root(&self) -> SysRoot {
        self.tree.root()
    }

    /// A new instance, as after a restart.
    fn backend(&self) -> FpgaBackend {
        FpgaBackend::with_dfl(self.root(), self.config.clone(), Arc::new(self.kernel.clone()))
    }

    fn device(&self, name: &str) -> Device {
        let devices = self.backend().enumerate().unwrap().devices;
        let found = devices.iter().find(|device| device.name.as_str() == name);
        found.unwrap_or_else(|| panic!("no {name} in {:?}", names(&devices))).clone()
    }

    fn claim(&self, device: &str, config: Value) -> ClaimRun<'_> {
        let device = self.device(device);
        let config = if config.is_null() { Vec::new() } else { vec![configuration(config)] };
        let grant = Grant {
            request: "fpga".to_owned(),
            pool: "node/fpga".to_owned(),
            device: device.name.clone(),
            share_id: None,
            access: Access::Use,
            consumed: Default::default(),
            config,
        };
        ClaimRun { machine: self, uid: ClaimUid::new("c1").unwrap(), device, grant, plan: DevicePlan::default() }
    }

    /// A planned claim that has a region programmed.
    fn programming(&self, bitstream: &str) -> ClaimRun<'_> {
        self.claim(REGION, json!({ "bitstream": bitstream })).planned()
    }

    fn afu_id(&self, port: u32) -> String {
        self.tree.text(card().port(port).join("afu_id"))
    }

    /// What the hardware is, in a line.
    fn observe(&self) -> String {
        let port =
            |port| format!("{} {}", self.afu_id(port), if self.kernel.is_dirty(port) { "dirty" } else { "clean" });
        format!("{}, {}", port(0), port(1))
    }
}

fn configuration(mut fields: Value) -> Value {
    fields["apiVersion"] = "hostler.dev/v1alpha1".into();
    fields["kind"] = "FpgaConfig".into();
    fields
}

/// A claim, step by step, each by a new instance of the backend.
struct ClaimRun<'a> {
    machine: &'a FpgaMachine,
    uid: ClaimUid,
    device: Device,
    grant: Grant,
    plan: DevicePlan,
}

impl ClaimRun<'_> {
    fn plan(&self) -> Result<DevicePlan, BackendError> {
        let Self { uid, device, grant, .. } = self;
        let work = PlanWork { claim: uid, claim_name: "default/a", grant, device, held: &[], within: None };
        self.machine.backend().plan(&work)
    }

    fn planned(mut self) -> Self {
        self.plan = self.plan().unwrap();
        self
    }

    fn prepare(&self) -> Result<PrepareOutcome, BackendError> {
        let Self { uid, device, grant, plan, .. } = self;
        self.machine.backend().prepare(&PrepareWork { claim: uid, grant, device, plan })
    }

    fn verify(&self) -> Result<(), BackendError> {
        let Self { uid, grant, plan, .. } = self;
        self.machine.backend().verify(&VerifyWork { claim: uid, grant, plan })
    }

    fn unprepare(&self) -> Result<(), BackendError> {
        let Self { uid, grant, plan, .. } = self;
        self.machine.backend().unprepare(&UnprepareWork { claim: uid, grant, plan })
    }
}

fn message<T: std::fmt::Debug>(result: Result<T, BackendError>) -> String {
    chain(&result.unwrap_err())
}

fn paths(prepared: &PrepareOutcome) -> Vec<&str> {
    prepared.edits.device_nodes.iter().map(|node| node.path.as_str()).collect()
}

/// The card, as long as it is not plugged in anew.
fn card() -> FakeDflCard {
    let port = |id| FakeDflPort { afu_id: Some(BLANK.to_owned()), ..FakeDflPort::new(id) };
    FakeDflCard { interface_id: INTERFACE.to_owned(), ports: vec![port(0), port(1)], ..FakeDflCard::new(CARD) }
}

#[test]
fn a_region_is_programmed_handed_over_and_blank_in_the_end() {
    let machine = FpgaMachine::blanking();
    machine.add("nlb", NLB);
    let claim = machine.programming("nlb");
    assert_eq!(machine.observe(), format!("{BLANK} clean, {BLANK} clean"), "planning changes nothing");
    assert!(claim.verify().is_err());
    let prepared = claim.prepare().unwrap();
    assert_eq!(paths(&prepared), ["/dev/dfl-port.0"]);
    claim.verify().unwrap();
    assert_eq!(machine.observe(), format!("{NLB} clean, {BLANK} clean"));
    assert_eq!(machine.device(AFU).attributes["afuID"], NLB.into());
    machine.kernel.soil(0);
    claim.unprepare().unwrap();
    assert_eq!(machine.observe(), format!("{BLANK} clean, {BLANK} clean"));
    assert!(claim.verify().is_err());
    claim.unprepare().unwrap();
}

#[test]
fn without_a_blank_image_the_function_stays_and_is_reset() {
    let machine = FpgaMachine::new();
    machine.add("nlb", NLB);
    let claim = machine.programming("nlb");
    claim.prepare().unwrap();
    machine.kernel.soil(0);
    claim.unprepare().unwrap();
    assert_eq!(machine.observe(), format!("{NLB} clean, {BLANK} clean"));
}

#[test]
fn the_right_function_is_no_proof_and_is_programmed_again() {
    let machine = FpgaMachine::new();
    machine.add("nlb", NLB);
    machine.tree.file(card().port(0).join("afu_id"), NLB);
    let claim = machine.programming("nlb");
    let first = claim.prepare().unwrap();
    assert_eq!(machine.kernel.programmed(), 1);
    assert_eq!(claim.prepare().unwrap(), first);
    assert_eq!(machine.kernel.programmed(), 2);
}

#[test]
fn a_port_is_found_again_when_the_kernel_counts_differently() {
    let machine = FpgaMachine::blanking();
    machine.add("nlb", NLB);
    let claim = machine.programming("nlb");
    claim.prepare().unwrap();
    card().pull(&machine.tree);
    let mut moved = FakeDflCard { number: 1, ..card() };
    moved.ports[0].afu_id = Some(NLB.to_owned());
    moved.plug(&machine.tree);
    claim.verify().unwrap();
    assert_eq!(paths(&claim.prepare().unwrap()), ["/dev/dfl-port.64"]);
    claim.unprepare().unwrap();
    assert_eq!(machine.tree.text(moved.port(0).join("afu_id")), BLANK);
}

#[test]
fn a_port_of_a_virtual_function_is_programmed_through_its_card() {
    let mut machine = FpgaMachine::new();
    card().pull(&machine.tree);
    let mut given = card();
    given.ports[1].function = Some(FakePciFunction {
        driver: Some("dfl-pci".to_owned()),
        ..FakePciFunction::new("0000:b1:00.4", 0x8086, 0xbccf)
    });
    given.plug(&machine.tree);
    machine.add("nlb", NLB);
    machine.kernel = DflKernel::new(&machine.tree);
    let claim = machine.claim("region-0000-b1-00-0-1", json!({ "bitstream": "nlb" })).planned();
    assert_eq!(paths(&claim.prepare().unwrap()), ["/dev/dfl-port.1"]);
    claim.verify().unwrap();
    assert_eq!(machine.tree.text(given.port(1).join("afu_id")), NLB);
    assert_eq!(machine.afu_id(0), BLANK);
    claim.unprepare().unwrap();
}

#[test]
fn a_port_without_an_afu_id_is_believed_when_its_manager_is_content() {
    let machine = FpgaMachine::new();
    machine.add("nlb", NLB);
    machine.tree.remove(card().port(0).join("afu_id")).file(card().manager().join("state"), "unknown");
    let claim = machine.programming("nlb");
    let reason = "the state of the FPGA manager of 0000:b1:00.0 is \"unknown\", not \"operating\"";
    assert!(message(claim.verify()).ends_with(reason));
    machine.tree.file(card().manager().join("state"), "operating");
    claim.verify().unwrap();
}
