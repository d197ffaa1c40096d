//! Devices that are handed over as they are: functions, whole cards, cards with drivers of their own, and functions that are
//! passed on.

use hostler_backend::{
    Sharing,
    testkit::{Samples, conformance},
};
use hostler_linux::{
    testkit::{FakeXrtCard, PciKernel},
    vfio,
};

use super::*;
use crate::plan::FpgaPlan;

#[test]
fn nothing_of_the_last_tenant_stays_in_a_function() {
    let machine = FpgaMachine::new();
    let claim = machine.claim(AFU, Value::Null).planned();
    assert_eq!(paths(&claim.prepare().unwrap()), ["/dev/dfl-port.0"]);
    claim.verify().unwrap();
    machine.kernel.soil(0);
    claim.unprepare().unwrap();
    assert_eq!(machine.observe(), format!("{BLANK} clean, {BLANK} clean"));
}

#[test]
fn a_function_that_was_replaced_is_noticed() {
    let machine = FpgaMachine::new();
    let claim = machine.claim(AFU, json!({ "afuID": BLANK })).planned();
    machine.tree.file(card().port(0).join("afu_id"), FFT);
    let text = message(claim.verify());
    assert_eq!(text, format!("device is not usable: AFU {BLANK} should be behind /dev/dfl-port.0, and {FFT} is"));
    machine.tree.file(card().port(0).join("afu_id"), BLANK).remove("dev/dfl-port.0");
    assert_eq!(message(claim.verify()), "device is not usable: /dev/dfl-port.0 is absent");
}

#[test]
fn a_whole_card_is_blank_and_reset_in_the_end_as_far_as_it_can_be() {
    let machine = FpgaMachine::blanking();
    let claim = machine.claim("card-0000-b1-00-0", Value::Null).planned();
    assert_eq!(paths(&claim.prepare().unwrap()), ["/dev/dfl-fme.0", "/dev/dfl-port.0", "/dev/dfl-port.1"]);
    claim.verify().unwrap();
    for port in 0..2 {
        machine.tree.file(card().port(port).join("afu_id"), NLB);
        machine.kernel.soil(port);
    }
    machine.kernel.open(0);
    assert!(message(claim.unprepare()).contains("/dev/dfl-port.0 is in use by "));
    assert_eq!(machine.observe(), format!("{NLB} dirty, {BLANK} clean"));
    machine.kernel.close(0);
    claim.unprepare().unwrap();
    assert_eq!(machine.observe(), format!("{BLANK} clean, {BLANK} clean"));
}

#[test]
fn a_card_is_not_called_clean_as_long_as_somebody_can_program_it() {
    let machine = FpgaMachine::blanking();
    let claim = machine.claim("card-0000-b1-00-0", Value::Null).planned();
    claim.prepare().unwrap();
    machine.kernel.open_engine(0);
    assert!(message(claim.unprepare()).contains("/dev/dfl-fme.0 is in use by "));
    machine.kernel.close_engine(0);
    claim.unprepare().unwrap();
}

/// A plan for a device that only says itself whether it is ready.
fn lent(device: crate::FpgaDevice) -> DevicePlan {
    let data = serde_json::to_value(FpgaPlan::Lend { device, afu_id: None, blanks: Vec::new() }).unwrap();
    DevicePlan { data, ..DevicePlan::default() }
}

fn verify(tree: &MachineTree, plan: &DevicePlan) -> Result<(), BackendError> {
    let machine = FpgaMachine::new();
    let claim = ClaimRun { plan: plan.clone(), ..machine.claim(AFU, Value::Null) };
    let work = VerifyWork { claim: &claim.uid, grant: &claim.grant, plan: &claim.plan };
    FpgaBackend::new(tree.root(), FpgaBackendConfig::default()).verify(&work)
}

#[test]
fn an_xrt_card_has_to_be_ready_and_to_have_its_node() {
    let tree = MachineTree::new();
    let function = FakePciFunction::new("0000:03:00.1", 0x10ee, 0x5001);
    let folder = function.plug(&tree);
    let plan = lent(crate::FpgaDevice::Xrt { user: "0000:03:00.1".parse().unwrap(), management: None });
    assert!(message(verify(&tree, &plan)).ends_with("the card 0000:03:00.1 is gone"));
    tree.files(&folder, &[("user_pf", ""), ("ready", "1"), ("dev_offline", "0")]).folder(folder.join("drm/renderD129"));
    assert!(message(verify(&tree, &plan)).ends_with("/dev/dri/renderD129 is absent"));
    tree.file("dev/dri/renderD129", "");
    verify(&tree, &plan).unwrap();
    tree.file(folder.join("dev_offline"), "1");
    assert!(message(verify(&tree, &plan)).ends_with("says that it is not ready"));
}

/// That a second claim is refused where cards are exclusive is the daemon's rule for all backends (`claims::admit`).
#[test]
fn a_card_with_the_xrt_drivers_that_is_shared_is_lent_to_two_claims_at_once() {
    let tree = MachineTree::new();
    FakeXrtCard::new("0000:b1:00").plug(&tree);
    let config = FpgaBackendConfig { share_xrt: true, ..FpgaBackendConfig::default() };
    let backend = || FpgaBackend::new(tree.root(), config.clone());
    let device = backend().enumerate().unwrap().devices.remove(0);
    assert_eq!(device.sharing, Sharing::Shared);
    let machine = FpgaMachine::new();
    let mut grant = machine.claim(AFU, Value::Null).grant;
    grant.device = device.name.clone();
    let grant = &grant;
    let [first, second] = ["c1", "c2"].map(|uid| ClaimUid::new(uid).unwrap());
    let plan = |claim, claim_name, held: &[HeldDevice<'_>]| {
        backend().plan(&PlanWork { claim, claim_name, grant, device: &device, held, within: None }).unwrap()
    };
    let of_first = plan(&first, "default/a", &[]);
    let held = HeldDevice { claim: &first, claim_name: "default/a", grant, plan: &of_first };
    let of_second = plan(&second, "default/b", &[held]);
    for (claim, plan) in [(&first, &of_first), (&second, &of_second)] {
        let prepared = backend().prepare(&PrepareWork { claim, grant, device: &device, plan }).unwrap();
        assert_eq!(paths(&prepared), ["/dev/dri/renderD128"]);
    }
    backend().unprepare(&UnprepareWork { claim: &first, grant, plan: &of_first }).unwrap();
    backend().verify(&VerifyWork { claim: &second, grant, plan: &of_second }).unwrap();
    let alone = FpgaBackend::new(tree.root(), FpgaBackendConfig::default());
    assert_eq!(alone.enumerate().unwrap().devices[0].sharing, Sharing::Exclusive, "the daemon admits one claim");
    conformance(&backend(), &Samples::default());
}

#[test]
fn an_ami_card_has_to_be_ready_and_to_have_its_node() {
    let tree = MachineTree::new();
    let function =
        FakePciFunction { driver: Some("ami".to_owned()), ..FakePciFunction::new("0000:21:00.0", 0x10ee, 0x50b4) };
    let folder = function.plug(&tree);
    tree.file(folder.join("dev_state"), "READY").file("sys/bus/pci/drivers/ami/devices", "1\n21:00.0 0 12");
    let plan = lent(crate::FpgaDevice::Ami { function: "0000:21:00.0".parse().unwrap() });
    assert!(message(verify(&tree, &plan)).ends_with("/dev/ami0 is absent"));
    tree.file("dev/ami0", "");
    verify(&tree, &plan).unwrap();
    tree.file(folder.join("dev_state"), "SHUTDOWN");
    assert!(message(verify(&tree, &plan)).ends_with("dev_state of the card 0000:21:00.0 is SHUTDOWN"));
}

#[test]
fn a_manager_has_to_be_there() {
    let tree = MachineTree::new();
    let folder = "sys/devices/platform/axi/f8007000.devcfg/fpga_manager/fpga0";
    tree.file(format!("{folder}/state"), "operating").link("sys/class/fpga_manager/fpga0", folder);
    let plan = lent(crate::FpgaDevice::Manager { device: "devices/platform/axi/f8007000.devcfg".to_owned() });
    verify(&tree, &plan).unwrap();
    tree.remove("sys/class/fpga_manager/fpga0");
    assert!(message(verify(&tree, &plan)).contains("f8007000.devcfg is gone"));
}

#[test]
fn a_function_is_passed_on_and_goes_back_to_its_driver() {
    let tree = MachineTree::new();
    let function = FakePciFunction {
        iommu_group: Some(4),
        driver: Some("xdma".to_owned()),
        ..FakePciFunction::new("0000:05:00.0", 0x10ee, 0x7024)
    };
    function.plug(&tree);
    let kernel = Arc::new(PciKernel::new(&tree));
    let root = tree.root().tapped(kernel.clone());
    let config = FpgaBackendConfig { vfio: vec!["10ee:7024".to_owned()], ..FpgaBackendConfig::default() };
    let backend = || FpgaBackend::new(root.clone(), config.clone());
    let device = backend().enumerate().unwrap().devices.remove(0);
    assert_eq!(device.name.as_str(), "vfio-0000-05-00-0");
    let machine = FpgaMachine::new();
    let mut claim = ClaimRun { device: device.clone(), ..machine.claim(AFU, Value::Null) };
    claim.grant.device = device.name.clone();
    let ClaimRun { uid, grant, .. } = &claim;
    let plan = backend()
        .plan(&PlanWork { claim: uid, claim_name: "default/a", grant, device: &device, held: &[], within: None })
        .unwrap();
    let prepared = backend().prepare(&PrepareWork { claim: uid, grant, device: &device, plan: &plan }).unwrap();
    assert_eq!(paths(&prepared), ["/dev/vfio/vfio", "/dev/vfio/4"]);
    assert_eq!(nodes(&device), paths(&prepared));
    backend().verify(&VerifyWork { claim: uid, grant, plan: &plan }).unwrap();
    backend().unprepare(&UnprepareWork { claim: uid, grant, plan: &plan }).unwrap();
    let now = vfio::binding(&root, "0000:05:00.0".parse().unwrap()).unwrap();
    assert_eq!(now.driver.as_deref(), Some("xdma"));
    assert!(backend().verify(&VerifyWork { claim: uid, grant, plan: &plan }).is_err());
}

#[test]
fn functions_of_one_group_are_for_one_claim() {
    let tree = MachineTree::new();
    for address in ["0000:05:00.0", "0000:05:00.1"] {
        FakePciFunction { iommu_group: Some(4), ..FakePciFunction::new(address, 0x10ee, 0x7024) }.plug(&tree);
    }
    let root = tree.root().tapped(Arc::new(PciKernel::new(&tree)));
    let config = FpgaBackendConfig { vfio: vec!["10ee:7024".to_owned()], ..FpgaBackendConfig::default() };
    let backend = FpgaBackend::new(root, config);
    let devices = backend.enumerate().unwrap().devices;
    let machine = FpgaMachine::new();
    let claim = machine.claim(AFU, Value::Null);
    let ClaimRun { uid, grant, .. } = &claim;
    let plan = |uid: &ClaimUid, device: &Device, held: &[HeldDevice<'_>]| {
        backend.plan(&PlanWork { claim: uid, claim_name: "default/a", grant, device, held, within: None })
    };
    let first = plan(uid, &devices[0], &[]).unwrap();
    let held = [HeldDevice { claim: uid, claim_name: "default/first", grant, plan: &first }];
    let other = ClaimUid::new("c2").unwrap();
    let text = message(plan(&other, &devices[1], &held));
    let expected =
        "IOMMU group 4 is in the hands of claim default/first, with 0000:05:00.0; one claim can have the whole group";
    assert_eq!(text, expected);
    plan(uid, &devices[1], &held).unwrap();
}
