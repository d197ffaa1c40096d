//! The CPUs of captured machines: what is offered must add up to what the machine has.

use std::collections::BTreeSet;

use hostler_api::{Access, ClaimUid, Grant};
use hostler_backend::{
    Backend, Device, DevicePlan, HeldDevice, PlanWork, Sharing,
    testkit::{Samples, conformance},
};
use hostler_linux::{IdSet, archive::UnpackedCapture, testkit::captures, topology::Topology};

use super::wishes::{ClaimedMachine, CpuRequest, wishes};
use crate::{CpuBackend, CpuBackendConfig, CpuGrouping, enumeration};

const MODES: [CpuGrouping; 5] =
    [CpuGrouping::Numa, CpuGrouping::L3, CpuGrouping::Socket, CpuGrouping::Machine, CpuGrouping::Core];

/// The CPUs that a claim on the whole of `device` gets, beside `held`.
fn whole(backend: &CpuBackend, device: &Device, held: &[HeldDevice<'_>]) -> (Grant, DevicePlan) {
    let grant = Grant {
        request: "cpus".to_owned(),
        pool: "node/cpu".to_owned(),
        device: device.name.clone(),
        share_id: None,
        access: Access::Use,
        consumed: device.capacity.keys().cloned().zip(device.capacity.values().map(|it| it.value)).collect(),
        config: Vec::new(),
    };
    let claim = ClaimUid::new("claim").unwrap();
    let plan = backend
        .plan(&PlanWork { claim: &claim, claim_name: "default/claim", grant: &grant, device, held, within: None })
        .unwrap();
    (grant, plan)
}

/// Gives every device whole to one claim and returns all CPUs that were given; none may be given twice.
fn all_cpus(backend: &CpuBackend, devices: &[Device]) -> IdSet {
    let mut cpus = BTreeSet::new();
    for device in devices {
        let (_, plan) = whole(backend, device, &[]);
        let promised = device.capacity.get("cpus").and_then(|capacity| capacity.value.as_whole());
        if device.sharing == Sharing::Shared {
            assert_eq!(promised, Some(plan.pinning.cpus.len() as u64), "{}", device.name);
        }
        for cpu in plan.pinning.cpus {
            assert!(cpus.insert(cpu), "CPU {cpu} of {} was given before", device.name);
        }
    }
    cpus.into()
}

/// What is offered in a mode must be what the host lets us hand out, in whole cores where that is wanted.
fn check_sum(capture: &UnpackedCapture, topology: &Topology, config: &CpuBackendConfig, label: &str) {
    let found = enumeration(topology, config).unwrap();
    for device in &found.devices {
        assert_eq!(device.problems(), [], "{label}");
    }
    let given = all_cpus(&CpuBackend::new(capture.root(), config.clone()), &found.devices);
    if !config.full_cores {
        assert_eq!(given, topology.allowed_cpus, "{label}");
        return;
    }
    assert!(given.is_subset(&topology.allowed_cpus), "{label}");
    let mut touched = topology.cores.iter().filter(|core| !core.cpus.is_disjoint(&given));
    assert!(touched.all(|core| core.cpus.is_subset(&given)), "{label}");
    // What is not offered is reported.
    let left_over = topology.allowed_cpus.difference(&given);
    let reported = found.warnings.iter().any(|warning| warning.reason.contains("are not offered"));
    assert_eq!(!left_over.is_empty(), reported, "{label}: {left_over} left over");
}

/// Lets claims with every wish come to the first devices of each mode; what they get is checked there.
fn wish(topology: &Topology) {
    let mut planned = 0;
    for mode in MODES {
        let mut host = ClaimedMachine::new(
            topology.clone(),
            &CpuBackendConfig { mode, full_cores: false, ..CpuBackendConfig::default() },
        );
        let names: Vec<String> = host.devices.iter().take(3).map(|device| device.name.to_string()).collect();
        for (index, (config, on)) in wishes().into_iter().zip(names.iter().cycle()).enumerate() {
            let claim = format!("claim-{index}");
            // What cannot be had is refused, and nothing is held.
            let _ = host.take(&CpuRequest { claim: &claim, namespace: "default", on, cpus: 2, config, within: None });
        }
        planned += host.planned.len();
    }
    assert!(planned > 0, "no wish could be granted");
}

#[test]
fn captured_machines_are_offered_completely_and_keep_the_promises_of_a_backend() {
    for path in captures() {
        // Unpacking thousands of small files is what takes long here, so each capture is unpacked once.
        let capture = UnpackedCapture::open(&path).unwrap();
        let topology = Topology::read(&capture.root()).unwrap();
        if topology.cpus.is_empty() {
            // A capture of PCI devices alone.
            assert!(
                CpuBackend::new(capture.root(), CpuBackendConfig::default()).enumerate().is_err(),
                "{}",
                path.display()
            );
            continue;
        }
        wish(&topology);
        for mode in MODES {
            for full_cores in [true, false] {
                let config = CpuBackendConfig { mode, full_cores, ..CpuBackendConfig::default() };
                let label = format!("{} {mode:?} full_cores={full_cores}", path.display());
                check_sum(&capture, &topology, &config, &label);
            }
            conformance(
                &CpuBackend::new(capture.root(), CpuBackendConfig { mode, ..CpuBackendConfig::default() }),
                &Samples::default(),
            );
        }
    }
}
