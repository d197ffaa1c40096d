//! No error of a read is taken for "not there": if a file cannot be opened, read or listed during a scan, the scan sees
//! the same, or fails, or warns; and a failure or a warning names the file.
//!
//! A small made-up machine is tried at every access. Captured machines are sampled by a fixed stride, as a scan of a
//! large one takes a while; `HOSTLER_FAULTS=all` tries all of theirs, with every error, in minutes.
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use hostler::{config::DaemonConfig, registry};
use hostler_api::{Access, BackendName, Chain, ClaimUid, Grant};
use hostler_backend::{Backend, Device, DevicePlan, Enumeration, PlanWork, VerifyWork};
use hostler_linux::{
    PathAccess, SysRoot, SysRootTap,
    archive::UnpackedCapture,
    testkit::{
        AccessCounts, CpuLayout, CxlCard, CxlHost, Errno, FakeDflCard, FakeXrtCard, MachineTree, RegionUse, captures,
        cxl_function,
    },
    topology::Topology,
};

/// Errors of a read of a file that exists. Each means that the process lacks a resource, or that this file is not
/// readable or not in order.
const ERRORS: [Errno; 7] =
    [Errno::EMFILE, Errno::EIO, Errno::ENOMEM, Errno::EACCES, Errno::ENFILE, Errno::ELOOP, Errno::EINTR];

/// Number of accesses that are tried in one scan of a captured machine.
const SAMPLES: usize = 3;

/// Fails at one access. A signal comes once, any other error stays.
#[derive(Debug)]
struct FaultAt {
    access: PathAccess,
    path: PathBuf,
    errno: Errno,
    times: AtomicUsize,
}

impl SysRootTap for FaultAt {
    fn access(&self, access: PathAccess, path: &Path) -> io::Result<()> {
        let here = access == self.access && path == self.path;
        let left = || self.times.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if here && left() { Err(self.errno.into()) } else { Ok(()) }
    }
}

/// The result of a scan.
#[derive(Debug, PartialEq)]
struct SeenMachine {
    /// Everything that was seen, without warnings.
    text: String,
    /// The paths in warnings.
    warned: Vec<String>,
}

/// The result of one way to scan a tree, or the reason of its failure.
type LookResult = Result<SeenMachine, String>;

fn backend(name: &str, root: &SysRoot) -> Arc<dyn Backend> {
    let all = registry::from_config(&DaemonConfig::default(), root);
    Arc::clone(all.get(&BackendName::new(name).unwrap()).unwrap())
}

/// Scans a tree with a backend, or with `topology` as the command line does. Nothing is remembered from one scan to the
/// next.
fn look(name: &str, root: &SysRoot) -> LookResult {
    if name == "topology" {
        let mut seen = Topology::read(root).map_err(|error| Chain(&error).to_string())?;
        let warnings = std::mem::take(&mut seen.warnings);
        let warned = warnings.into_iter().map(|warning| warning.path).collect();
        return Ok(SeenMachine { text: format!("{seen:?}"), warned });
    }
    match backend(name, root).enumerate() {
        Ok(Enumeration { devices, counter_sets, warnings }) => Ok(SeenMachine {
            text: format!("{devices:?} {counter_sets:?}"),
            warned: warnings.into_iter().map(|warning| warning.path).collect(),
        }),
        Err(error) => Err(Chain(&error).to_string()),
    }
}

/// Returns the accesses of `act`, in order.
fn touched<T>(root: &SysRoot, act: impl FnOnce(&SysRoot) -> T) -> (Vec<(PathAccess, PathBuf)>, T) {
    let counts = Arc::new(AccessCounts::default());
    let result = act(&root.clone().tapped(counts.clone()));
    (counts.take().into_keys().collect(), result)
}

fn with_fault(root: &SysRoot, (access, path): &(PathAccess, PathBuf), errno: Errno) -> SysRoot {
    let times = AtomicUsize::new(if errno == Errno::EINTR { 1 } else { usize::MAX });
    root.clone().tapped(Arc::new(FaultAt { access: *access, path: path.clone(), errno, times }))
}

/// Scans again with a fault, and checks that every difference has a warning.
fn try_fault(name: &str, root: &SysRoot, plain: &LookResult, at: &(PathAccess, PathBuf), errno: Errno) {
    let path = format!("/{}", at.1.display());
    let found = look(name, &with_fault(root, at, errno));
    let place = format!("{name}, {errno} at {at:?}");
    if errno == Errno::EINTR {
        assert_eq!(&found, plain, "{place}");
        return;
    }
    match (&found, plain) {
        (Err(told), _) => assert!(told.contains(&path) || found == *plain, "{place}: {told}"),
        (Ok(seen), Ok(plain)) => {
            // The health text names a file by its end.
            let end = at.1.iter().rev().take(2).collect::<PathBuf>();
            let end = end.iter().rev().collect::<PathBuf>().display().to_string();
            let warned = seen.warned.contains(&path) && !plain.warned.contains(&path);
            let told = seen.text.contains(&end) && !plain.text.contains(&end);
            assert!(seen.text == plain.text || warned || told, "{place}: {seen:?} instead of {plain:?}");
        }
        (Ok(seen), Err(error)) => panic!("{place}: {seen:?} instead of {error}"),
    }
}

/// Two CPUs with two threads in each of two nodes, a CXL card as a node and one as a dax device, an accelerator, and
/// FPGAs of two makers.
fn small_machine() -> MachineTree {
    let tree = MachineTree::new();
    CpuLayout { nodes: 2, cores: 2, threads: 2, blocks: 2 }.plug(&tree);
    let mut cxl = CxlHost::new(&tree);
    for (serial, used) in [(1, RegionUse::SystemRam(5)), (2, RegionUse::DevDax(6))] {
        let card = cxl.plug(&CxlCard::new(serial));
        cxl.region(&[&card], used);
    }
    cxl_function("0003:00:00.0", 2, true, 16 << 30).plug(&tree);
    FakeDflCard::nth(0).plug(&tree);
    FakeXrtCard::new("0002:01:00").plug(&tree);
    tree
}

fn small_machine_survives(name: &str) {
    let tree = small_machine();
    let root = tree.root();
    let (accesses, plain) = touched(&root, |root| look(name, root));
    assert!(plain.is_ok() && accesses.len() > 10, "{name}: {} accesses, {plain:?}", accesses.len());
    for (index, at) in accesses.iter().enumerate() {
        // Every other error, so that each access meets a lack of resources and a bad file, and each error meets all
        // kinds of files.
        for errno in ERRORS.iter().cycle().skip(index).step_by(2).take(2) {
            try_fault(name, &root, &plain, at, *errno);
        }
    }
}

#[test]
fn no_error_makes_another_machine_of_cpus() {
    small_machine_survives("cpu");
}

#[test]
fn no_error_makes_another_machine_of_memory() {
    small_machine_survives("memory");
}

#[test]
fn no_error_makes_another_machine_of_fpgas() {
    small_machine_survives("fpga");
}

#[test]
fn no_error_makes_another_machine_of_cxl_devices() {
    small_machine_survives("cxl");
}

#[test]
fn no_error_makes_another_machine_for_the_command_line() {
    small_machine_survives("topology");
}

#[test]
fn no_error_makes_another_machine_of_a_captured_one() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("backends/linux/tests/trees/qemu-cxl-7.3.4-regions.tar.zst");
    let all = std::env::var_os("HOSTLER_FAULTS").is_some_and(|faults| faults == "all");
    for (number, file) in captures().into_iter().chain([own]).enumerate() {
        let root = UnpackedCapture::open(&file).unwrap();
        let root = root.root();
        for name in ["cpu", "memory", "fpga", "cxl", "topology"] {
            let (accesses, plain) = touched(&root, |root| look(name, root));
            let stride = if all { 1 } else { accesses.len().div_ceil(SAMPLES).max(1) };
            for (index, at) in accesses.iter().enumerate().skip(number % stride).step_by(stride) {
                let errors = if all { ERRORS.len() } else { 1 };
                for errno in ERRORS.iter().cycle().skip(index + number).take(errors) {
                    try_fault(name, &root, &plain, at, *errno);
                }
            }
        }
    }
}

/// A plan for all of a device.
fn planned(backend: &dyn Backend, device: &Device) -> Option<(Grant, DevicePlan)> {
    let grant = Grant {
        request: "r".to_owned(),
        pool: "n/x".to_owned(),
        device: device.name.clone(),
        share_id: None,
        access: Access::Use,
        consumed: BTreeMap::new(),
        config: Vec::new(),
    };
    let claim = ClaimUid::new("u1").unwrap();
    let plan = backend.plan(&PlanWork {
        claim: &claim,
        claim_name: "default/u1",
        grant: &grant,
        device,
        held: &[],
        within: None,
    });
    plan.ok().map(|plan| (grant, plan))
}

#[test]
fn no_error_makes_a_prepared_device_look_gone() {
    let tree = small_machine();
    let root = tree.root();
    let claim = ClaimUid::new("u1").unwrap();
    let mut verified = Vec::new();
    for name in ["cpu", "memory", "fpga", "cxl"] {
        let there = backend(name, &root);
        for device in there.enumerate().unwrap().devices {
            let Some((grant, plan)) = planned(&*there, &device) else { continue };
            let verify =
                |root: &SysRoot| backend(name, root).verify(&VerifyWork { claim: &claim, grant: &grant, plan: &plan });
            let (accesses, plain) = touched(&root, verify);
            if plain.is_err() {
                continue;
            }
            verified.push(format!("{name}/{}", device.name));
            for (at, errno) in accesses.iter().flat_map(|at| ERRORS.iter().map(move |errno| (at, *errno))) {
                let Err(error) = verify(&with_fault(&root, at, errno)) else { continue };
                let told = Chain(&error).to_string();
                assert!(told.contains(&format!("failed to read /{}", at.1.display())), "{errno} at {at:?}: {told}");
                assert_ne!(errno, Errno::EINTR, "{at:?}: {told}");
            }
        }
    }
    for backend in ["cpu/", "memory/", "fpga/", "cxl/"] {
        assert!(verified.iter().any(|name| name.starts_with(backend)), "none of {backend} in {verified:?}");
    }
}
