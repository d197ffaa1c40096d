//! Accelerators leave the system, and their memory is cleared by a reset where one is known to clear it.

use std::sync::Arc;

use hostler_api::{Chain, fabric::ErasureMethod};
use hostler_backend::{Backend, Device, DeviceOperation, Erasure, OperateWork};
use hostler_linux::testkit::{FakePciFunction, MachineTree, PciKernel, cxl_function, plug_node};

use crate::{
    CxlBackend, CxlBackendConfig,
    dvsec::{CxlFunction, DvsecRange},
    gate::{DangerousWrite, MemoryGate},
    objects::CxlObjects,
};

const ADDRESS: &str = "0000:21:00.0";
const REMOVE: DeviceOperation = DeviceOperation::Detach { sanitize: false, overwrite: false, remove: true };
const ERASE: DeviceOperation = DeviceOperation::Detach { sanitize: true, overwrite: false, remove: false };
const BOTH: DeviceOperation = DeviceOperation::Detach { sanitize: true, overwrite: false, remove: true };

struct Scene {
    tree: MachineTree,
    kernel: Arc<PciKernel>,
    function: FakePciFunction,
    backend: CxlBackend,
}

/// An accelerator with 16 GiB and a driver, and an operator who says that a reset clears the memory of these models.
fn scene(models: &[&str]) -> Scene {
    let tree = MachineTree::new();
    let mut function = cxl_function(ADDRESS, 2, true, 16 << 30);
    function.driver = Some("shiny".to_owned());
    function.attributes.push(("reset".to_owned(), String::new()));
    function.plug(&tree);
    plug_node(&tree, &function, "accel/accel0", "accel/accel0", "261:0");
    let kernel = Arc::new(PciKernel::new(&tree));
    let reset_erases = models.iter().map(|model| (*model).to_owned()).collect();
    let config = CxlBackendConfig { reset_erases, ..CxlBackendConfig::default() };
    let backend = CxlBackend::new(tree.root().tapped(kernel.clone()), config);
    kernel.take_writes();
    Scene { tree, kernel, function, backend }
}

impl Scene {
    fn device(&self) -> Device {
        self.backend.enumerate().unwrap().devices.remove(0)
    }

    fn order(&self, device: &Device, operation: DeviceOperation) -> Result<String, String> {
        let work = OperateWork { device, operation, held: &[] };
        self.kernel.take_writes();
        let rehearsed = self.backend.rehearse(&work).map(|outcome| outcome.to_string());
        assert_eq!(self.kernel.take_writes(), Vec::<String>::new(), "a rehearsal writes nothing");
        let done = self.backend.operate(&work).map(|outcome| outcome.to_string());
        if let Ok(done) = &done {
            assert_eq!(rehearsed.as_ref().unwrap(), done);
        }
        done.map_err(|error| Chain(&error).to_string())
    }
}

#[test]
fn it_is_reset_and_removed_and_keeps_its_driver_where_it_stays() {
    let scene = scene(&["1234:0c02"]);
    let device = scene.device();
    assert_eq!(device.erasure, Erasure::By(ErasureMethod::Reset));
    let unbind = format!("sys/bus/pci/drivers/shiny/unbind={ADDRESS}");
    let reset = format!("sys/bus/pci/devices/{ADDRESS}/reset=1");
    let said = scene.order(&device, ERASE).unwrap();
    assert_eq!(
        said,
        format!("driver shiny taken from PCI function {ADDRESS}; PCI function {ADDRESS} reset, its memory cleared")
    );
    let probe = format!("sys/bus/pci/drivers_probe={ADDRESS}");
    assert_eq!(scene.kernel.take_writes(), [unbind.clone(), reset.clone(), probe]);
    assert_eq!(scene.device(), device, "it is as it was");
    scene.order(&device, BOTH).unwrap();
    let remove = format!("sys/bus/pci/devices/{ADDRESS}/remove=1");
    assert_eq!(scene.kernel.take_writes(), [unbind, reset, remove]);
    assert!(scene.backend.enumerate().unwrap().devices.is_empty());
}

#[test]
fn it_is_not_called_erased_where_nothing_says_that_a_reset_does_it() {
    for (model, has_reset) in [("8086:0ddb", true), ("1234:0c02", false)] {
        let scene = scene(&[model]);
        if !has_reset {
            std::fs::remove_file(scene.tree.path(scene.function.folder()).join("reset")).unwrap();
        }
        let device = scene.device();
        assert_eq!(device.erasure.method(), None);
        let refusal = scene.order(&device, BOTH).unwrap_err();
        assert!(refusal.contains("name the model in backends.cxl.reset_erases; nothing is changed"), "{refusal}");
        assert_eq!(scene.kernel.take_writes(), Vec::<String>::new());
        scene.order(&device, REMOVE).unwrap();
    }
}

#[test]
fn nothing_is_taken_from_those_who_use_it() {
    let scene = scene(&["1234:0c02"]);
    let device = scene.device();
    let refusal =
        scene.order(&device, DeviceOperation::Detach { sanitize: false, overwrite: false, remove: false }).unwrap_err();
    assert!(refusal.contains("(--remove)"), "{refusal}");
    let refusal = scene.order(&device, DeviceOperation::Attach).unwrap_err();
    assert!(refusal.contains("always attached"), "{refusal}");
    let flags = scene.function.folder().join("net/enp33s0/flags");
    scene.tree.file(&flags, "0x1003");
    let refusal = scene.order(&device, BOTH).unwrap_err();
    assert!(refusal.contains("its network interface enp33s0 is up; nothing is changed"), "{refusal}");
    scene.tree.file(&flags, "0x1002");
    scene.tree.link("proc/77/fd/4", "dev/accel/accel0").file("proc/77/comm", "train");
    let refusal = scene.order(&device, BOTH).unwrap_err();
    assert!(refusal.contains("is in use by process 77 (train); nothing is changed"), "{refusal}");
    assert_eq!(scene.kernel.take_writes(), Vec::<String>::new());
}

#[test]
fn a_card_in_the_same_slot_with_another_serial_number_is_left_alone() {
    let scene = scene(&["1234:0c02"]);
    let device = scene.device();
    let config = scene.function.folder().join("config");
    let mut other = scene.function.config.clone();
    let at = other.windows(4).position(|bytes| bytes == [0x78, 0x56, 0x34, 0x12]).unwrap();
    other[at] = 0x79;
    std::fs::write(scene.tree.path(&config), other).unwrap();
    let refusal = scene.order(&device, BOTH).unwrap_err();
    assert!(refusal.contains("is not the card that it was"), "{refusal}");
    assert_eq!(scene.kernel.take_writes(), Vec::<String>::new());
}

#[test]
fn a_driver_that_does_not_take_it_back_is_told_with_what_was_done() {
    let scene = scene(&["1234:0c02"]);
    let device = scene.device();
    scene.kernel.fails("shiny");
    let refusal = scene.order(&device, ERASE).unwrap_err();
    assert!(refusal.contains("done before: driver shiny taken from"), "{refusal}");
    // The next order, which no longer knows its driver, has the kernel look for one.
    scene.kernel.works("shiny");
    scene.order(&scene.device(), ERASE).unwrap();
    assert_eq!(scene.device(), device);
}

#[test]
fn memory_of_it_that_the_system_uses_keeps_the_gate_shut() {
    let scene = scene(&[]);
    let root = scene.tree.root();
    scene.tree.file("sys/devices/system/memory/block_size_bytes", "8000000");
    scene
        .tree
        .file("sys/devices/system/memory/memory2/state", "online")
        .file("sys/devices/system/memory/memory2/phys_index", "00000002");
    let objects = CxlObjects::read(&root).unwrap();
    let address = ADDRESS.parse().unwrap();
    let pass = |base: u64| {
        let range = DvsecRange { bytes: 1 << 28, base, active: true };
        let function = CxlFunction { ranges: [range, DvsecRange::default()], ..CxlFunction::default() };
        let gate = MemoryGate::of_function(&root, &objects, address, &function).unwrap();
        gate.pass(&DangerousWrite::Remove { address }).map_err(|error| error.to_string())
    };
    let refusal = pass(1 << 28).unwrap_err();
    assert!(refusal.contains("online"), "{refusal}");
    scene.tree.file(scene.function.folder().join("remove"), "");
    pass(1 << 30).unwrap();
}
