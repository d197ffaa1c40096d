//! Cards that leave the system, and are scrubbed before another host gets them.

use hostler_api::{Chain, fabric::ErasureMethod};
use hostler_backend::{CardSerials, DeviceOperation, Erasure, OperateWork};
use hostler_linux::testkit::{ConfigSpace, PciKernel};

use super::*;

const NAME: &str = "card-0000-b1-00-0";
const SERIAL: u64 = 0x4000_0000_0000_1001;
const REMOVE: DeviceOperation = DeviceOperation::Detach { sanitize: false, overwrite: false, remove: true };
const ERASE: DeviceOperation = DeviceOperation::Detach { sanitize: true, overwrite: false, remove: false };
const BOTH: DeviceOperation = DeviceOperation::Detach { sanitize: true, overwrite: false, remove: true };

/// A machine with a card that has a serial number, a second function beside it, and an operator who says that the blank
/// image clears the card's memory.
struct Scene {
    machine: FpgaMachine,
    kernel: Arc<PciKernel>,
}

fn config_space(serial: u64) -> Vec<u8> {
    let mut config = ConfigSpace::new(0x8086, 0xbcce);
    config.capability(3, 1, &serial.to_le_bytes());
    config.bytes()
}

fn scene() -> Scene {
    let mut machine = FpgaMachine::blanking();
    machine.config.blank_erases = vec![INTERFACE.to_owned()];
    machine.tree.bytes(card().function.folder().join("config"), config_space(SERIAL));
    FakePciFunction::new("0000:b1:00.1", 0x8086, 0x1234).plug(&machine.tree);
    FakePciFunction::new("0000:b2:00.0", 0x8086, 0x1234).plug(&machine.tree);
    let kernel = Arc::new(PciKernel::new(&machine.tree));
    kernel.take_writes();
    Scene { machine, kernel }
}

impl Scene {
    fn backend(&self) -> FpgaBackend {
        let Self { machine, kernel } = self;
        let root = machine.root().tapped(kernel.clone());
        FpgaBackend::with_dfl(root, machine.config.clone(), Arc::new(machine.kernel.clone()))
    }

    /// Leaves a tenant's function in both regions.
    fn used(self) -> Self {
        for port in 0..2 {
            self.machine.tree.file(card().port(port).join("afu_id"), NLB);
            self.machine.kernel.soil(port);
        }
        self
    }

    fn order(&self, device: &Device, operation: DeviceOperation) -> Result<String, String> {
        self.held_order(device, operation, &[])
    }

    fn held_order(
        &self,
        device: &Device,
        operation: DeviceOperation,
        held: &[HeldDevice<'_>],
    ) -> Result<String, String> {
        let (work, before) = (OperateWork { device, operation, held }, self.machine.kernel.programmed());
        let rehearsed = self.backend().rehearse(&work).map(|outcome| outcome.to_string());
        assert_eq!((self.kernel.take_writes(), self.machine.kernel.programmed()), (Vec::new(), before), "a rehearsal");
        let done = self.backend().operate(&work).map(|outcome| outcome.to_string());
        if let Ok(done) = &done {
            assert_eq!(rehearsed.as_ref().unwrap(), done);
        }
        done.map_err(|error| Chain(&error).to_string())
    }

    /// Gives an order that is refused, and checks that nothing was done.
    fn refused(&self, device: &Device, operation: DeviceOperation) -> String {
        let before = self.machine.observe();
        let refusal = self.order(device, operation).unwrap_err();
        assert!(refusal.ends_with("; nothing is changed"), "{refusal}");
        assert_eq!((self.kernel.take_writes(), self.machine.observe()), (Vec::new(), before));
        refusal
    }
}

#[test]
fn a_card_is_scrubbed_and_leaves_with_all_its_functions() {
    let scene = scene().used();
    let device = scene.machine.device(NAME);
    assert_eq!(device.erasure, Erasure::By(ErasureMethod::Scrub));
    let done = scene.order(&device, BOTH).unwrap();
    let scrubbed = "FPGA 0000:b1:00.0 scrubbed: its 2 regions programmed with their blank images; ";
    assert!(done.starts_with(scrubbed), "{done}");
    assert_eq!(scene.machine.kernel.programmed(), 2);
    let writes = ["sys/bus/pci/devices/0000:b1:00.1/remove=1", "sys/bus/pci/devices/0000:b1:00.0/remove=1"];
    assert_eq!(scene.kernel.take_writes(), writes);
    let left = scene.machine.root().names("sys/bus/pci/devices").unwrap();
    assert_eq!(left, ["0000:b2:00.0"]);
}

#[test]
fn a_daemon_that_dies_between_two_functions_finds_the_card_again() {
    let scene = scene().used();
    scene.order(&scene.machine.device(NAME), ERASE).unwrap();
    let root = scene.machine.root().tapped(scene.kernel.clone());
    hostler_linux::pci::remove(&root, "0000:b1:00.1".parse().unwrap()).unwrap();
    let device = scene.machine.device(NAME);
    assert_eq!((&device.cards, device.erasure.method()), (&CardSerials::Whole(SERIAL), Some(ErasureMethod::Scrub)));
    scene.kernel.take_writes();
    scene.order(&device, BOTH).unwrap();
    assert_eq!(scene.kernel.take_writes(), ["sys/bus/pci/devices/0000:b1:00.0/remove=1"]);
}

#[test]
fn a_card_that_stays_is_scrubbed_and_keeps_its_driver() {
    let scene = scene().used();
    let device = scene.machine.device(NAME);
    scene.order(&device, ERASE).unwrap();
    assert_eq!(scene.machine.observe(), format!("{BLANK} clean, {BLANK} clean"));
    assert_eq!(scene.kernel.take_writes(), Vec::<String>::new());
    assert_eq!(scene.machine.device(NAME), device);
}

#[test]
fn it_is_not_called_scrubbed_where_nothing_says_that_the_blank_image_clears_it() {
    let mut scene = scene().used();
    scene.machine.config.blank_erases.clear();
    let device = scene.machine.device(NAME);
    let refusal = scene.refused(&device, BOTH);
    assert!(refusal.contains("in backends.fpga.blank_erases"), "{refusal}");
    let removed = scene.order(&device, REMOVE).unwrap();
    assert!(!removed.contains("scrubbed"), "{removed}");
    assert_eq!(scene.machine.kernel.programmed(), 0);
}

#[test]
fn a_card_with_a_port_elsewhere_is_not_called_scrubbed() {
    let scene = scene();
    card().pull(&scene.machine.tree);
    let mut without = card();
    without.ports[1].present = false;
    without.function.config = config_space(SERIAL);
    without.plug(&scene.machine.tree);
    let device = scene.machine.device(NAME);
    assert!(device.erasure.obstacle().unwrap().contains("a port of it is not on this host"));
    // An order that was decided on while all ports were here.
    let stale = Device { erasure: Erasure::By(ErasureMethod::Scrub), ..device };
    let refusal = scene.order(&stale, BOTH).unwrap_err();
    assert!(refusal.contains("a port of it is not on this host"), "{refusal}");
    assert_eq!(scene.machine.kernel.programmed(), 0);
}

#[test]
fn images_that_had_no_effect_are_no_erasure_and_the_card_stays() {
    let scene = scene().used();
    let device = scene.machine.device(NAME);
    scene.machine.kernel.ignore_images(true);
    let refusal = scene.order(&device, BOTH).unwrap_err();
    assert!(refusal.contains(&format!("AFU {BLANK} should be behind /dev/dfl-port.0, and {NLB} is")), "{refusal}");
    assert_eq!(scene.kernel.take_writes(), Vec::<String>::new());
    scene.machine.kernel.ignore_images(false);
    scene.machine.kernel.fail_programming(Some(nix::errno::Errno::EIO));
    assert!(scene.order(&device, BOTH).unwrap_err().contains("Input/output error"));
    scene.machine.kernel.fail_programming(None);
    scene.order(&device, BOTH).unwrap();
}

#[test]
fn nothing_is_taken_from_those_who_use_it() {
    let scene = scene().used();
    let device = scene.machine.device(NAME);
    assert!(scene.order(&device, DeviceOperation::Attach).unwrap_err().contains("always attached"));
    let neither = DeviceOperation::Detach { sanitize: false, overwrite: false, remove: false };
    assert!(scene.refused(&device, neither).contains("(--remove)"));
    let overwrite = DeviceOperation::Detach { sanitize: false, overwrite: true, remove: true };
    assert!(scene.refused(&device, overwrite).contains("cannot be overwritten"));
    let region = scene.machine.device(REGION);
    assert!(scene.order(&region, BOTH).unwrap_err().contains("orders are for whole cards"));
    scene.machine.kernel.open(0);
    assert!(scene.order(&device, BOTH).unwrap_err().contains("/dev/dfl-port.0 is in use by"));
    scene.machine.kernel.close(0);
    scene.machine.kernel.open_engine(0);
    assert!(scene.order(&device, BOTH).unwrap_err().contains("/dev/dfl-fme.0 is in use by"));
    scene.machine.kernel.close_engine(0);
    scene.machine.tree.link("proc/77/fd/4", "dev/dfl-port.1").file("proc/77/comm", "train");
    assert!(scene.refused(&device, REMOVE).contains("is in use by process 77 (train)"));
    assert_eq!(scene.kernel.take_writes(), Vec::<String>::new());
    scene.machine.tree.remove("proc/77");
    let flags = "sys/bus/pci/devices/0000:b1:00.1/net/eth0/flags";
    scene.machine.tree.file(flags, "0x1003");
    assert!(scene.refused(&device, BOTH).contains("network interface eth0 is up"));
}

#[test]
fn a_claim_on_any_part_of_the_card_keeps_it() {
    let scene = scene();
    scene.machine.add("nlb", NLB);
    let device = scene.machine.device(NAME);
    for claim in [scene.machine.programming("nlb"), scene.machine.claim(AFU, Value::Null).planned()] {
        let held = HeldDevice { claim: &claim.uid, claim_name: "ml/train", grant: &claim.grant, plan: &claim.plan };
        let refusal = scene.held_order(&device, BOTH, &[held]).unwrap_err();
        let name = &claim.device.name;
        assert_eq!(refusal, format!("{NAME} cannot be detached: it is held by ml/train (claim {name})"));
    }
    assert_eq!((scene.kernel.take_writes(), scene.machine.kernel.programmed()), (Vec::new(), 0));
}

#[test]
fn another_card_in_its_slot_is_left_alone() {
    let scene = scene().used();
    let device = scene.machine.device(NAME);
    scene.machine.tree.bytes(card().function.folder().join("config"), config_space(SERIAL + 1));
    assert!(scene.refused(&device, BOTH).contains("is not the card that it was"));
}

#[test]
fn what_may_be_elsewhere_or_be_memory_of_the_system_is_left_alone() {
    let scene = scene().used();
    let device = scene.machine.device(NAME);
    let virtual_functions = card().function.folder().join("sriov_numvfs");
    scene.machine.tree.file(card().function.folder().join("sriov_totalvfs"), "4").file(&virtual_functions, "1");
    assert!(scene.refused(&device, REMOVE).contains("has virtual functions"));
    scene.machine.tree.file(&virtual_functions, "0");
    let mut config = ConfigSpace::new(0x8086, 0xbcce);
    config.capability(3, 1, &SERIAL.to_le_bytes());
    config.dvsec(0x1e98, 0, 1, &[0; 46]);
    scene.machine.tree.bytes(card().function.folder().join("config"), config.bytes());
    assert!(scene.refused(&device, BOTH).contains("is one of CXL"));
}

#[test]
fn a_card_is_known_by_its_serial_number_and_its_parts_with_it() {
    let scene = scene();
    let cards = |name: &str| scene.machine.device(name).cards;
    assert_eq!(cards(NAME), CardSerials::Whole(SERIAL));
    assert_eq!((cards(REGION), cards(AFU)), (CardSerials::Among([SERIAL].into()), CardSerials::Among([SERIAL].into())));
    scene.machine.tree.file(card().function.folder().join("power_state"), "D3cold");
    assert_eq!(cards(NAME), CardSerials::Hidden);
    scene.machine.tree.remove(card().function.folder().join("power_state"));
    scene.machine.tree.bytes(card().function.folder().join("config"), config_space(0));
    assert_eq!(cards(NAME), CardSerials::Unknown);
}

#[test]
fn a_function_that_is_passed_on_is_the_card_where_it_is_alone() {
    let serials = |functions: &[&str]| {
        let tree = MachineTree::new();
        for address in functions {
            let function = FakePciFunction {
                driver: Some("vfio-pci".to_owned()),
                class: 0x12_0000,
                config: config_space(SERIAL),
                ..FakePciFunction::new(address, 0x1172, 0xe001)
            };
            function.plug(&tree);
        }
        let found = FpgaBackend::new(tree.root(), FpgaBackendConfig::default()).enumerate().unwrap();
        found.devices.into_iter().map(|device| device.cards).collect::<Vec<_>>()
    };
    assert_eq!(serials(&["0000:c1:00.0"]), [CardSerials::Whole(SERIAL)]);
    let part = CardSerials::Among([SERIAL].into());
    assert_eq!(serials(&["0000:c1:00.0", "0000:c1:00.1"]), [part.clone(), part]);
}
