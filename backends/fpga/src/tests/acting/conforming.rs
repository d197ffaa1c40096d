//! What every backend promises, kind by kind: kinds differ in what a claim may say, and in whether it changes anything.

use hostler_api::BackendName;
use hostler_backend::{
    ContainerEdits, Enumeration, ForeignEdits,
    testkit::{Effect, Samples, conformance},
};
use hostler_linux::{testkit::PciKernel, vfio};

use super::*;

/// A backend of which only one kind is looked at.
struct OneKind {
    backend: FpgaBackend,
    kind: &'static str,
}

impl Backend for OneKind {
    fn name(&self) -> BackendName {
        self.backend.name()
    }

    fn subsystems(&self) -> &[&'static str] {
        self.backend.subsystems()
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        let mut found = self.backend.enumerate()?;
        found.devices.retain(|device| device.attributes["kind"] == self.kind.into());
        Ok(found)
    }

    fn plan(&self, work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
        self.backend.plan(work)
    }

    fn prepare(&self, work: &PrepareWork<'_>) -> Result<PrepareOutcome, BackendError> {
        self.backend.prepare(work)
    }

    fn unprepare(&self, work: &UnprepareWork<'_>) -> Result<(), BackendError> {
        self.backend.unprepare(work)
    }

    fn verify(&self, work: &VerifyWork<'_>) -> Result<(), BackendError> {
        self.backend.verify(work)
    }

    fn check_edits(&self, work: &VerifyWork<'_>, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
        self.backend.check_edits(work, edits)
    }
}

#[test]
fn regions_keep_the_promises_of_a_backend() {
    let machine = FpgaMachine::blanking();
    machine.add("nlb", NLB);
    let digest = machine.add("fft", FFT).digest;
    let restart = || -> Box<dyn Backend> { Box::new(OneKind { backend: machine.backend(), kind: "region" }) };
    let configs =
        vec![vec![configuration(json!({ "bitstream": "nlb" }))], vec![configuration(json!({ "bitstream": digest }))]];
    let observe = || machine.observe();
    let samples = Samples { configs, effect: Effect::Visible, observe: Some(&observe), restart: Some(&restart) };
    conformance(&*restart(), &samples);
    assert!(machine.kernel.disturbed().is_empty());
}

#[test]
fn functions_and_cards_keep_the_promises_of_a_backend() {
    for kind in ["afu", "card"] {
        let machine = FpgaMachine::blanking();
        let observe = || machine.observe();
        let samples = Samples { observe: Some(&observe), ..Samples::default() };
        conformance(&OneKind { backend: machine.backend(), kind }, &samples);
    }
}

#[test]
fn functions_that_are_passed_on_keep_the_promises_of_a_backend() {
    let tree = MachineTree::new();
    for (address, group) in [("0000:05:00.0", 4), ("0000:06:00.0", 5)] {
        let function = FakePciFunction {
            iommu_group: Some(group),
            driver: Some("xdma".to_owned()),
            ..FakePciFunction::new(address, 0x10ee, 0x7024)
        };
        function.plug(&tree);
    }
    let kernel = Arc::new(PciKernel::new(&tree));
    let root = tree.root().tapped(kernel);
    let config = FpgaBackendConfig { vfio: vec!["10ee:7024".to_owned()], ..FpgaBackendConfig::default() };
    let observe = || {
        let state = |address: &str| vfio::binding(&root, address.parse().unwrap()).unwrap();
        format!("{:?} {:?}", state("0000:05:00.0"), state("0000:06:00.0"))
    };
    let restart = || Box::new(FpgaBackend::new(root.clone(), config.clone())) as Box<dyn Backend>;
    let samples =
        Samples { effect: Effect::Visible, observe: Some(&observe), restart: Some(&restart), ..Samples::default() };
    conformance(&*restart(), &samples);
}
