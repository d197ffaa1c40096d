//! Looks at made-up machines: records, notes, processes and a played cpuset controller.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    time::{Duration, Instant},
};

use hostler_api::{ClaimRef, ClaimUid};
use hostler_backend::Pinning;
use hostler_linux::{
    IdSet,
    testkit::{CpusetKernel, Errno, MachineTree},
};

use super::*;
use crate::claims::{
    ClaimOperation, ClaimView,
    recover::QuarantinedClaim,
    store::{ClaimRecord, RecordState, decode},
};

const BOOT: &str = "7d3f1a52-9f1e-4c55-8a51-3c1c4f6f0a11";

pub(super) struct AuditMachine {
    pub(super) tree: MachineTree,
    pub(super) kernel: Arc<CpusetKernel>,
    pub(super) table: ClaimTable,
    pub(super) metrics: Metrics,
}

pub(super) fn set(list: &str) -> IdSet {
    list.parse().unwrap()
}

fn uid(name: &str) -> ClaimUid {
    ClaimUid::new(name).unwrap()
}

impl AuditMachine {
    pub(super) fn new() -> Self {
        let tree = MachineTree::new();
        let kernel = Arc::new(CpusetKernel::new(&tree, "0-7", "0-1"));
        tree.file("proc/sys/kernel/random/boot_id", BOOT);
        for (name, target) in [("pid", "pid:[1]"), ("cgroup", "cgroup:[1]")] {
            tree.raw_link(format!("proc/self/ns/{name}"), target);
        }
        Self { tree, kernel, table: ClaimTable::default(), metrics: Metrics::default() }
    }

    /// A claim whose requests are bound to these CPUs.
    pub(super) fn claim(&mut self, name: &str, requests: &[(&str, &str)]) {
        let golden = include_bytes!("../../tests/golden/records-0.1.0/claims/cards-5f0c.json");
        let mut record: ClaimRecord = decode(golden).unwrap();
        record.claim = ClaimRef { namespace: "default".to_owned(), name: name.to_owned(), uid: uid(name) };
        record.state = RecordState::Prepared;
        BOOT.clone_into(&mut record.boot_id);
        let device = record.devices[0].clone();
        let held = |(request, cpus): &(&str, &str)| {
            let mut device = device.clone();
            (*request).clone_into(&mut device.grant.request);
            device.plan.pinning = Pinning { cpus: set(cpus).iter().collect(), ..Pinning::default() };
            device
        };
        record.devices = requests.iter().map(held).collect();
        let view = ClaimView::Recorded { record: Arc::new(record), problem: None, busy: None };
        self.table.claims.insert(uid(name), view);
    }

    fn work_on(&mut self, name: &str) {
        let Some(ClaimView::Recorded { record, problem, .. }) = self.table.claims.get(&uid(name)).cloned() else {
            return;
        };
        let since = SystemTime::now();
        let busy = Some(crate::claims::BusyClaim { operation: ClaimOperation::Prepare, since });
        self.table.claims.insert(uid(name), ClaimView::Recorded { record, problem, busy });
    }

    fn set_state(&mut self, name: &str, state: RecordState) {
        let Some(ClaimView::Recorded { mut record, problem, busy }) = self.table.claims.get(&uid(name)).cloned() else {
            return;
        };
        Arc::make_mut(&mut record).state = state;
        self.table.claims.insert(uid(name), ClaimView::Recorded { record, problem, busy });
    }

    fn quarantine(&mut self, name: &str) {
        let quarantined = QuarantinedClaim {
            uid: uid(name),
            path: "/records/b.json".into(),
            reason: "its checksum is wrong".to_owned(),
            claim: None,
            devices: Vec::new(),
        };
        self.table.claims.insert(uid(name), ClaimView::Quarantined(Arc::new(quarantined)));
    }

    /// A container whose process `pid` is in `pods/<id>`, bound as it was made, with these shares of claims.
    pub(super) fn container(&self, id: &str, pid: u32, bound: &str, shares: &[(&str, Option<&str>)]) {
        self.kernel.cgroup(&format!("pods/{id}"));
        self.kernel.set(&format!("pods/{id}"), "cpuset.cpus", bound);
        self.process(pid, 7, &format!("/pods/{id}"));
        for (claim, cpus) in shares {
            let sets = cpus.map(|cpus| serde_json::json!({"cpus": cpus, "mems": ""}));
            let note = serde_json::json!({
                "boot_id": BOOT, "pid": pid, "started": 7, "cgroup": format!("/sys/fs/cgroup/pods/{id}"),
                "pid_namespace": "pid:[1]", "cgroup_namespace": "cgroup:[1]", "is_init": true, "sets": sets,
            });
            self.tree.file(format!("notes/{claim}/{id}.7.json"), note.to_string());
        }
    }

    pub(super) fn process(&self, pid: u32, started: u64, cgroup: &str) {
        let before = "S 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0";
        self.tree.file(format!("proc/{pid}/stat"), format!("{pid} (x) {before} {started} 0 0"));
        self.tree.file(format!("proc/{pid}/cgroup"), format!("0::{cgroup}"));
    }

    /// The machine with its kernel.
    pub(super) fn tapped(&self) -> SysRoot {
        self.tree.root().tapped(self.kernel.clone())
    }

    fn auditor(&self) -> Auditor {
        let root = self.tapped();
        let containers = ContainerDir::new(self.tree.path("notes"), root.clone(), BOOT);
        Auditor::new(root, containers, self.tree.path("kubelet"), self.metrics.clone())
    }

    pub(super) fn has(&self, id: &str) -> String {
        self.tree.text(format!("sys/fs/cgroup/pods/{id}/cpuset.cpus.effective"))
    }
}

fn reasons(look: &AuditLook) -> Vec<&str> {
    look.news.iter().map(|news| news.reason).collect()
}

#[test]
fn a_container_that_was_changed_is_put_back_and_told_of_each_of_its_claims() {
    let mut machine = AuditMachine::new();
    machine.claim("a", &[("cpus", "2-3")]);
    machine.claim("b", &[("cpus", "5")]);
    machine.container("c1", 42, "2-3,5", &[("a", Some("2-3")), ("b", Some("5"))]);
    let mut auditor = machine.auditor();
    let look = auditor.look(&machine.table, Instant::now());
    assert_eq!((look.containers, look.news.len(), machine.kernel.take_writes().len()), (1, 0, 0));
    assert!(look.folders.contains(&PathBuf::from("/sys/fs/cgroup/pods/c1")), "{:?}", look.folders);
    machine.kernel.set("pods/c1", "cpuset.cpus", "0-7");
    let look = auditor.look(&machine.table, Instant::now());
    assert_eq!(machine.has("c1"), "2-3,5");
    assert_eq!(reasons(&look), ["CpusetRepaired", "CpusetRepaired"]);
    assert_eq!(look.news.iter().map(|news| news.claim.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let message = &look.news[0].message;
    assert!(
        message.contains("container c1: it was changed to CPUs 0-7 from CPUs 2-3,5") && message.contains("likely by"),
        "{message}"
    );
    assert_eq!(look.table, AuditTable::default());
    assert_eq!(machine.kernel.take_writes(), ["pods/c1/cpuset.cpus=2-3,5"], "nothing else is written");
}

#[test]
fn what_came_about_while_nobody_looked_is_mended_at_the_start() {
    let mut machine = AuditMachine::new();
    machine.claim("a", &[("cpus", "2-3")]);
    machine.container("c1", 42, "0-7", &[("a", Some("2-3"))]);
    machine.container("c2", 43, "2-3", &[("a", Some("2-3"))]);
    let look = machine.auditor().look(&machine.table, Instant::now());
    assert_eq!((reasons(&look), machine.has("c1").as_str()), (vec!["CpusetMended"], "2-3"));
    assert!(look.news[0].message.contains("while nobody looked"), "{}", look.news[0].message);
}

#[test]
fn after_three_repairs_a_container_is_left_alone_and_its_claim_is_degraded() {
    let mut machine = AuditMachine::new();
    machine.claim("a", &[("cpus", "2-3")]);
    machine.container("c1", 42, "2-3", &[("a", Some("2-3"))]);
    let (mut auditor, start) = (machine.auditor(), Instant::now());
    let mut look = |seconds| auditor.look(&machine.table, start + Duration::from_secs(seconds));
    look(0);
    for seconds in [10, 20, 30] {
        machine.kernel.set("pods/c1", "cpuset.cpus", "0-7");
        assert_eq!(reasons(&look(seconds)), ["CpusetRepaired"]);
    }
    machine.kernel.set("pods/c1", "cpuset.cpus", "0-7");
    machine.kernel.take_writes();
    let given_up = look(40);
    assert_eq!(reasons(&given_up), ["CpusetDegraded"]);
    let degraded = given_up.table.degraded(&uid("a")).unwrap();
    assert!(degraded.contains("it was put back 3 times and is left as it is now"), "{degraded}");
    let later = look(1000);
    assert_eq!((later.news.len(), machine.kernel.take_writes().len()), (0, 0), "it is said once");
    assert!(later.table.degraded(&uid("a")).is_some());
    machine.kernel.set("pods/c1", "cpuset.cpus", "2-3");
    assert_eq!(look(2000).table, AuditTable::default(), "somebody has made peace");
}

#[test]
fn a_container_that_cannot_be_put_back_is_degraded_with_the_reason_and_not_hammered() {
    let mut machine = AuditMachine::new();
    machine.claim("a", &[("cpus", "2-3")]);
    machine.container("c1", 42, "2-3", &[("a", Some("2-3"))]);
    let mut auditor = machine.auditor();
    auditor.look(&machine.table, Instant::now());
    machine.kernel.refuse(Some(Errno::EROFS));
    machine.kernel.set("pods/c1", "cpuset.cpus", "0-7");
    for _ in 0..6 {
        let look = auditor.look(&machine.table, Instant::now());
        let degraded = look.table.degraded(&uid("a")).unwrap();
        assert!(degraded.contains("CPUs 0-7"), "{degraded}");
    }
    assert_eq!(machine.kernel.take_writes().len(), 3);
}

#[test]
fn a_container_has_what_its_hooks_noted_and_not_all_of_its_claim() {
    let mut machine = AuditMachine::new();
    machine.claim("a", &[("one", "2-3"), ("two", "5")]);
    machine.container("c1", 42, "2-3", &[("a", Some("2-3"))]);
    machine.container("c2", 43, "5", &[("a", Some("5"))]);
    machine.container("old", 44, "5", &[("a", None)]);
    let look = machine.auditor().look(&machine.table, Instant::now());
    assert_eq!((look.news.len(), machine.kernel.take_writes().len()), (0, 0));
    let unseen = look.table.unseen(&uid("a"));
    assert_eq!(unseen, ["container old: which requests of claim default/a it has was not noted when it was made"]);
}

#[test]
fn a_forged_or_outdated_note_moves_nobody() {
    let mut machine = AuditMachine::new();
    machine.claim("a", &[("cpus", "2-3")]);
    machine.container("c1", 42, "2-3", &[("a", Some("0-7"))]);
    let look = machine.auditor().look(&machine.table, Instant::now());
    assert_eq!(machine.kernel.take_writes(), [""; 0]);
    let unseen = look.table.unseen(&uid("a"));
    assert_eq!(unseen, ["container c1: it was bound to CPUs 0-7, which claim default/a does not have"]);
}

#[test]
fn nobody_is_touched_who_may_be_somebody_else() {
    type Change = fn(&AuditMachine);
    let cases: [(&str, Change, Option<&str>); 4] = [
        ("another process has the number", |machine| machine.process(42, 8, "/pods/c1"), None),
        ("it has left", |machine| machine.process(42, 7, "/pods/other"), Some("its process has left the cgroup")),
        (
            "another namespace",
            |machine| {
                let link = machine.tree.path("proc/self/ns/pid");
                fs::remove_file(&link).unwrap();
                symlink("pid:[2]", link).unwrap();
            },
            Some("it is in another namespace of processes"),
        ),
        (
            "the cgroup is gone",
            |machine| {
                machine.tree.remove("sys/fs/cgroup/pods/c1");
            },
            Some("failed to read"),
        ),
    ];
    for (case, change, expected) in cases {
        let mut machine = AuditMachine::new();
        machine.claim("a", &[("cpus", "2-3")]);
        machine.container("c1", 42, "0-7", &[("a", Some("2-3"))]);
        change(&machine);
        let look = machine.auditor().look(&machine.table, Instant::now());
        assert_eq!(machine.kernel.take_writes(), [""; 0], "{case}");
        let unseen = look.table.unseen(&uid("a")).join(" ");
        assert_eq!(unseen.is_empty(), expected.is_none(), "{case}: {unseen}");
        assert!(unseen.contains(expected.unwrap_or_default()), "{case}: {unseen}");
    }
}

#[test]
fn a_process_that_becomes_another_between_two_looks_is_not_written_to() {
    let mut machine = AuditMachine::new();
    machine.claim("a", &[("cpus", "2-3")]);
    machine.container("c1", 42, "2-3", &[("a", Some("2-3"))]);
    let mut auditor = machine.auditor();
    auditor.look(&machine.table, Instant::now());
    // The same path, and another start.
    machine.process(42, 9, "/pods/c1");
    machine.kernel.set("pods/c1", "cpuset.cpus", "0-7");
    auditor.look(&machine.table, Instant::now());
    assert_eq!((machine.kernel.take_writes().len(), machine.has("c1").as_str()), (0, "0-7"));
}

#[test]
fn claims_that_are_worked_on_are_not_audited() {
    let mut machine = AuditMachine::new();
    machine.claim("a", &[("cpus", "2-3")]);
    machine.container("c1", 42, "0-7", &[("a", Some("2-3"))]);
    machine.work_on("a");
    let look = machine.auditor().look(&machine.table, Instant::now());
    assert_eq!((look.table, look.news.len()), (AuditTable::default(), 0));
    assert_eq!(machine.kernel.take_writes(), [""; 0]);
}

#[test]
fn a_container_does_not_lose_what_it_has_of_a_claim_that_cannot_be_judged_now() {
    type Change = fn(&mut AuditMachine);
    let cases: [(&str, Change, Option<&str>); 5] = [
        ("it is prepared again", |machine| machine.work_on("b"), None),
        ("it is not ready", |machine| machine.set_state("b", RecordState::Preparing), None),
        ("its record is not understood", |machine| machine.quarantine("b"), Some("its claim b is quarantined")),
        (
            "its note is not understood",
            |machine| {
                machine.tree.file("notes/b/c1.7.json", "no note");
            },
            Some("its note of claim b is not understood"),
        ),
        (
            "its notes cannot be read",
            |machine| {
                fs::remove_dir_all(machine.tree.path("notes/b")).unwrap();
                machine.tree.file("notes/b", "no folder");
            },
            Some("whether it has claim b cannot be read"),
        ),
    ];
    for (case, change, expected) in cases {
        let mut machine = AuditMachine::new();
        machine.claim("a", &[("cpus", "2-3")]);
        machine.claim("b", &[("cpus", "5")]);
        machine.container("c1", 42, "2-3,5", &[("a", Some("2-3")), ("b", Some("5"))]);
        let mut auditor = machine.auditor();
        auditor.look(&machine.table, Instant::now());
        change(&mut machine);
        let look = auditor.look(&machine.table, Instant::now());
        assert_eq!((machine.kernel.take_writes().len(), machine.has("c1").as_str()), (0, "2-3,5"), "{case}");
        let unseen = look.table.unseen(&uid("a")).join(" ");
        assert_eq!(unseen.is_empty(), expected.is_none(), "{case}: {unseen}");
        assert!(unseen.contains(expected.unwrap_or_default()), "{case}: {unseen}");
    }
}

#[test]
fn the_kubelet_is_named_where_its_own_state_says_that_it_was_it() {
    let mut machine = AuditMachine::new();
    machine.claim("a", &[("cpus", "2-3")]);
    machine.container("c1", 42, "2-3", &[("a", Some("2-3"))]);
    machine.tree.file("kubelet/cpu_manager_state", r#"{"policyName":"static","defaultCpuSet":"0,4-7","checksum":1}"#);
    machine.kernel.set("pods/c1", "cpuset.cpus", "0,4-7");
    let look = machine.auditor().look(&machine.table, Instant::now());
    assert!(look.news[0].message.contains("likely by the kubelet's CPU manager"), "{}", look.news[0].message);
}

#[test]
fn an_empty_table_says_nothing() {
    let table = AuditTable { remarks: BTreeMap::new() };
    assert_eq!((table.degraded(&uid("a")), table.unseen(&uid("a"))), (None, Vec::new()));
}
