//! Interrupts that stay away from claims' CPUs, on a kernel that is played: in any order of claims, whatever it refuses,
//! whoever else moves them, and whoever is killed at whichever write.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use hostler_api::{Access, ClaimUid, Grant};
use hostler_backend::{
    Backend, BackendError, Device, DevicePlan, PrepareWork, UnprepareWork,
    testkit::{Samples, conformance},
};
use hostler_linux::{
    SysRoot,
    testkit::{CpuLayout, Errno, IrqKernel, MachineTree},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{CpuBackend, CpuBackendConfig};

/// Two nodes of four CPUs each; four lines, of which 27 has only CPU 7.
struct IrqMachine {
    tree: MachineTree,
    kernel: Arc<IrqKernel>,
    root: SysRoot,
}

const ORIGINAL: &str = "default 0-7, 24 0-7, 25 0-3, 26 6-7, 27 7";

impl IrqMachine {
    fn new() -> Self {
        let tree = MachineTree::new();
        CpuLayout { nodes: 2, cores: 4, threads: 1, blocks: 1 }.plug(&tree);
        let kernel = Arc::new(IrqKernel::new(&tree, 8));
        for (irq, user, cpus) in [(24, "eth0", "0-7"), (25, "sda", "0-3"), (26, "nvme0q6", "6-7"), (27, "nvme0q7", "7")]
        {
            kernel.plug(irq, user);
            kernel.move_to(irq, cpus);
        }
        tree.folder("state");
        let root = tree.root().tapped(kernel.clone());
        let machine = Self { tree, kernel, root };
        assert_eq!(machine.kernel.describe(), ORIGINAL);
        machine
    }

    /// As after a start of the daemon.
    fn backend(&self) -> CpuBackend {
        let config = CpuBackendConfig { full_cores: false, ..CpuBackendConfig::default() };
        CpuBackend::new(self.root.clone(), config).remembering(self.tree.path("state"))
    }

    fn reboot(&self, boot: u32) {
        self.tree.file("proc/sys/kernel/random/boot_id", format!("7d3f1a52-9f1e-4c55-8a51-{boot:012}"));
        self.tree.file("proc/irq/default_smp_affinity", "ff");
        for (irq, cpus) in [(24, "0-7"), (25, "0-3"), (26, "6-7"), (27, "7")] {
            self.kernel.move_to(irq, cpus);
        }
    }

    fn has_ledger(&self) -> bool {
        self.tree.path("state/irqs.json").exists()
    }
}

/// A claim on CPUs that wants no interrupts on them.
#[derive(Clone)]
struct QuietClaim {
    uid: ClaimUid,
    grant: Grant,
    device: Device,
    plan: DevicePlan,
}

impl QuietClaim {
    fn new(name: &str, cpus: &[u32]) -> Self {
        let device = Device::new(hostler_api::DeviceName::new("numa0").unwrap());
        let grant = Grant {
            request: "cpus".to_owned(),
            pool: "node/cpu".to_owned(),
            device: device.name.clone(),
            share_id: None,
            access: Access::Use,
            consumed: Default::default(),
            config: Vec::new(),
        };
        let mut plan = DevicePlan { data: json!({"irqs": true}), ..DevicePlan::default() };
        plan.pinning.cpus = cpus.iter().copied().collect();
        Self { uid: ClaimUid::new(name).unwrap(), grant, device, plan }
    }

    /// What stays on its CPUs.
    fn prepare(&self, backend: &CpuBackend) -> Result<Vec<String>, BackendError> {
        let Self { uid, grant, device, plan } = self;
        backend.prepare(&PrepareWork { claim: uid, grant, device, plan }).map(|outcome| outcome.unmet)
    }

    fn unprepare(&self, backend: &CpuBackend) -> Result<(), BackendError> {
        backend.unprepare(&UnprepareWork { claim: &self.uid, grant: &self.grant, plan: &self.plan })
    }
}

fn wish(fields: &Value) -> Value {
    let mut config = fields.clone();
    config["apiVersion"] = "hostler.dev/v1alpha1".into();
    config["kind"] = "CpuConfig".into();
    config
}

#[test]
fn backends_that_move_interrupts_keep_the_promises_of_a_backend() {
    let machine = IrqMachine::new();
    let observe = || format!("{} {}", machine.kernel.describe(), machine.has_ledger());
    let restart = || -> Box<dyn Backend> { Box::new(machine.backend()) };
    for config in [json!({"irqs": "avoid"}), json!({"irqs": "avoid", "smt": "isolated", "isolation": "l3"})] {
        let configs = vec![vec![wish(&config)]];
        let samples = Samples { configs, observe: Some(&observe), restart: Some(&restart), ..Samples::default() };
        conformance(&machine.backend(), &samples);
    }
    assert_eq!(observe(), format!("{ORIGINAL} false"));
}

#[test]
fn only_a_claim_that_wants_no_interrupts_changes_hardware() {
    let backend = IrqMachine::new().backend();
    assert!(backend.changes_hardware(&QuietClaim::new("a", &[1]).plan));
    assert!(!backend.changes_hardware(&DevicePlan::default()));
    assert!(!backend.changes_hardware(&DevicePlan { data: json!({"idle": "1"}), ..DevicePlan::default() }));
}

#[test]
fn interrupts_leave_the_cpus_of_a_claim_and_come_back() {
    let machine = IrqMachine::new();
    let backend = machine.backend();
    let claim = QuietClaim::new("a", &[2, 3, 7]);
    assert_eq!(claim.prepare(&backend).unwrap(), [""; 0]);
    // A line that has no CPU left where it was goes anywhere else; 27 says of no node that it is near.
    assert_eq!(machine.kernel.describe(), "default 0-1,4-6, 24 0-1,4-6, 25 0-1, 26 6, 27 0-1,4-6");
    machine.kernel.plug(28, "eth1");
    assert_eq!(machine.kernel.take_writes().len(), 5);
    claim.prepare(&backend).unwrap();
    assert_eq!(machine.kernel.take_writes(), [""; 0], "what is there already is not written again");
    claim.unprepare(&backend).unwrap();
    assert_eq!(machine.kernel.describe(), format!("{ORIGINAL}, 28 0-7"), "what came since has what it would have had");
    assert!(!machine.has_ledger());
}

#[test]
fn a_line_without_a_cpu_goes_near_its_device() {
    let machine = IrqMachine::new();
    machine.kernel.on_node(27, 1);
    QuietClaim::new("a", &[7]).prepare(&machine.backend()).unwrap();
    assert!(machine.kernel.describe().ends_with("27 4-6"), "{}", machine.kernel.describe());
}

#[test]
fn claims_that_overlap_in_time_end_where_everything_began_in_any_order() {
    let claims = [QuietClaim::new("a", &[2, 3]), QuietClaim::new("b", &[6, 7]), QuietClaim::new("c", &[0])];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let machine = IrqMachine::new();
        for claim in &claims {
            claim.prepare(&machine.backend()).unwrap();
        }
        assert_eq!(machine.kernel.describe(), "default 1,4-5, 24 1,4-5, 25 1, 26 1,4-5, 27 1,4-5");
        for index in order {
            claims[index].unprepare(&machine.backend()).unwrap();
        }
        assert_eq!(machine.kernel.describe(), ORIGINAL, "{order:?}");
        assert!(!machine.has_ledger());
    }
}

#[test]
fn what_the_kernel_keeps_is_told_and_fails_nothing() {
    let machine = IrqMachine::new();
    machine.kernel.keep(26);
    machine.kernel.keep(27);
    machine.kernel.ignore(24);
    machine.kernel.refuse(25, Errno::ENOSPC);
    let claim = QuietClaim::new("a", &[0, 6, 7]);
    let unmet = claim.prepare(&machine.backend()).unwrap();
    let expected = [
        "interrupts stay on CPUs 0 (24 eth0): the interrupt controller leaves it on CPUs 0-7",
        "interrupts stay on CPUs 6-7 (26 nvme0q6, 27 nvme0q7): the kernel lets nobody move it: it manages it for its driver, or \
         it belongs to one CPU",
        "interrupts stay on CPUs 0 (25 sda): the kernel refuses: ENOSPC: No space left on device",
    ];
    assert_eq!(unmet.len(), expected.len(), "{unmet:#?}");
    assert!(unmet[..2].iter().zip(expected).all(|(said, expected)| said == expected), "{unmet:#?}");
    assert!(unmet[2].starts_with("interrupts stay on CPUs 0 (25 sda): the kernel refuses: "), "{unmet:#?}");
    claim.unprepare(&machine.backend()).unwrap();
    assert_eq!(machine.kernel.describe(), ORIGINAL);
    assert!(!machine.has_ledger());
}

#[test]
fn a_line_that_cannot_be_put_back_now_is_put_back_by_the_repeated_call() {
    let machine = IrqMachine::new();
    let claim = QuietClaim::new("a", &[0]);
    claim.prepare(&machine.backend()).unwrap();
    machine.kernel.refuse(25, Errno::ENOSPC);
    let error = claim.unprepare(&machine.backend()).unwrap_err();
    assert_eq!(error.to_string(), "failed to put interrupt 25 sda back");
    machine.kernel.allow(25);
    claim.unprepare(&machine.backend()).unwrap();
    assert_eq!(machine.kernel.describe(), ORIGINAL);
}

#[test]
fn a_line_that_the_kernel_has_come_to_keep_holds_no_claim_up() {
    let machine = IrqMachine::new();
    let claim = QuietClaim::new("a", &[0]);
    claim.prepare(&machine.backend()).unwrap();
    machine.kernel.keep(25);
    claim.unprepare(&machine.backend()).unwrap();
    assert_eq!(machine.kernel.describe(), ORIGINAL.replace("25 0-3", "25 1-3"));
    assert!(!machine.has_ledger());
}

#[test]
fn what_somebody_else_has_moved_since_stays_where_they_want_it() {
    let machine = IrqMachine::new();
    let (first, second) = (QuietClaim::new("a", &[2, 3]), QuietClaim::new("b", &[6]));
    first.prepare(&machine.backend()).unwrap();
    machine.kernel.move_to(24, "5-6");
    second.prepare(&machine.backend()).unwrap();
    assert_eq!(machine.kernel.describe(), "default 0-1,4-5,7, 24 5, 25 0-1, 26 7, 27 7");
    first.unprepare(&machine.backend()).unwrap();
    machine.kernel.move_to(25, "1");
    second.unprepare(&machine.backend()).unwrap();
    assert_eq!(machine.kernel.describe(), ORIGINAL.replace("24 0-7", "24 5-6").replace("25 0-3", "25 1"));
}

#[test]
fn no_write_leaves_a_line_without_a_running_cpu() {
    let machine = IrqMachine::new();
    machine.kernel.offline("0-2,4-6");
    // Only 3 and 7 run, and both are to be kept free: the played kernel fails a test that tries to send a line nowhere.
    let unmet = QuietClaim::new("a", &[3, 7]).prepare(&machine.backend()).unwrap();
    assert_eq!(unmet.len(), 1, "{unmet:#?}");
    assert!(unmet[0].ends_with("no running CPU is left for it: claims keep interrupts off all others"), "{unmet:#?}");
    assert_eq!(machine.kernel.take_writes(), ["default=0-2,4-6"; 0]);
}

#[test]
fn a_line_whose_cpus_went_offline_is_left_where_the_kernel_has_put_it() {
    let machine = IrqMachine::new();
    let claim = QuietClaim::new("a", &[0, 7]);
    claim.prepare(&machine.backend()).unwrap();
    assert!(machine.kernel.describe().ends_with("26 6, 27 1-6"), "{}", machine.kernel.describe());
    machine.kernel.offline("6-7");
    claim.unprepare(&machine.backend()).unwrap();
    let after = ORIGINAL.replace("26 6-7", "26 0-5").replace("27 7", "27 1-6");
    assert_eq!(machine.kernel.describe(), after);
    assert!(!machine.has_ledger());
}

#[test]
fn nothing_is_moved_that_cannot_be_remembered() {
    let machine = IrqMachine::new();
    let nowhere = CpuBackend::new(machine.root.clone(), CpuBackendConfig::default());
    QuietClaim::new("a", &[0]).prepare(&nowhere).unwrap_err();
    QuietClaim::new("a", &[0]).prepare(&nowhere.remembering("/nonexistent/state")).unwrap_err();
    assert_eq!((machine.kernel.describe().as_str(), machine.kernel.take_writes().len()), (ORIGINAL, 0));
}

#[test]
fn a_damaged_ledger_is_told_of_once_and_holds_nothing_up() {
    let machine = IrqMachine::new();
    let claim = QuietClaim::new("a", &[0]);
    claim.prepare(&machine.backend()).unwrap();
    machine.tree.bytes("state/irqs.json", "{");
    let error = claim.unprepare(&machine.backend()).unwrap_err();
    assert!(hostler_api::Chain(&error).to_string().contains("irqs.json.damaged"), "{}", hostler_api::Chain(&error));
    claim.unprepare(&machine.backend()).unwrap();
    claim.prepare(&machine.backend()).unwrap();
}

/// Runs `work` until it is killed at a write; whether it was.
fn killed(machine: &IrqMachine, writes: usize, work: impl FnOnce() -> Result<(), BackendError>) -> bool {
    machine.kernel.kill_after(Some(writes));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    machine.kernel.kill_after(None);
    outcome.map(Result::unwrap).is_err()
}

/// The moment of a kill: the number of the write after which it comes.
const MOMENTS: std::ops::RangeInclusive<usize> = 1..=5;

#[test]
fn two_kills_at_any_two_writes_of_two_claims_end_where_everything_began() {
    let (a, b) = (QuietClaim::new("a", &[2, 3]), QuietClaim::new("b", &[6, 7]));
    let mut kills = 0;
    for (first, second) in MOMENTS.flat_map(|first| MOMENTS.map(move |second| (first, second))) {
        for reboot in [false, true] {
            let machine = IrqMachine::new();
            let case = format!("killed at write {first}, then {second}, reboot between: {reboot}");
            a.prepare(&machine.backend()).unwrap();
            kills += usize::from(killed(&machine, first, || b.prepare(&machine.backend()).map(drop)));
            if reboot {
                machine.reboot(2);
            }
            // What a start does with a claim that was half prepared.
            kills += usize::from(killed(&machine, second, || b.unprepare(&machine.backend())));
            b.unprepare(&machine.backend()).unwrap();
            if reboot {
                // What a start does with a claim that was ready before.
                a.prepare(&machine.backend()).unwrap();
            }
            assert_eq!(machine.kernel.describe(), "default 0-1,4-7, 24 0-1,4-7, 25 0-1, 26 6-7, 27 7", "{case}");
            kills += usize::from(killed(&machine, first, || a.unprepare(&machine.backend())));
            kills += usize::from(killed(&machine, second, || b.prepare(&machine.backend()).map(drop)));
            a.unprepare(&machine.backend()).unwrap();
            b.unprepare(&machine.backend()).unwrap();
            assert_eq!(machine.kernel.describe(), ORIGINAL, "{case}");
            assert!(!machine.has_ledger(), "{case}");
        }
    }
    assert!(kills > 100, "only {kills} kills met a write");
}

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Prepare(usize),
    Unprepare(usize),
    KilledPrepare(usize, usize),
    KilledUnprepare(usize, usize),
    Plug(u32),
    Refuse(u32),
    Allow(u32),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0..3_usize).prop_map(Happening::Prepare),
        (0..3_usize).prop_map(Happening::Unprepare),
        (0..3_usize, 1..6_usize).prop_map(|(claim, write)| Happening::KilledPrepare(claim, write)),
        (0..3_usize, 1..6_usize).prop_map(|(claim, write)| Happening::KilledUnprepare(claim, write)),
        (28..31_u32).prop_map(Happening::Plug),
        (24..28_u32).prop_map(Happening::Refuse),
        (24..28_u32).prop_map(Happening::Allow),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_happens_everything_ends_where_it_began(happenings in prop::collection::vec(happening(), 1..20)) {
        let claims = [QuietClaim::new("a", &[2, 3]), QuietClaim::new("b", &[6, 7]), QuietClaim::new("c", &[0])];
        let machine = IrqMachine::new();
        let mut plugged = std::collections::BTreeSet::new();
        for happening in happenings {
            let backend = machine.backend();
            match happening {
                Happening::Prepare(claim) => drop(claims[claim].prepare(&backend).unwrap()),
                Happening::Unprepare(claim) => drop(claims[claim].unprepare(&backend)),
                Happening::KilledPrepare(claim, write) => {
                    killed(&machine, write, || claims[claim].prepare(&backend).map(drop));
                }
                Happening::KilledUnprepare(claim, write) => {
                    killed(&machine, write, || claims[claim].unprepare(&backend).or(Ok(())));
                }
                Happening::Plug(irq) => if plugged.insert(irq) { machine.kernel.plug(irq, "new") },
                Happening::Refuse(irq) => machine.kernel.refuse(irq, Errno::ENOSPC),
                Happening::Allow(irq) => machine.kernel.allow(irq),
            }
        }
        (24..28).for_each(|irq| machine.kernel.allow(irq));
        claims.iter().for_each(|claim| claim.unprepare(&machine.backend()).unwrap());
        let new: String = plugged.iter().map(|irq| format!(", {irq} 0-7")).collect();
        prop_assert_eq!(machine.kernel.describe(), format!("{ORIGINAL}{new}"));
        prop_assert!(!machine.has_ledger());
    }
}
