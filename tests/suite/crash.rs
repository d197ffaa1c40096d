//! The real binary is killed, stopped, rebooted and starved at every point of a claim's life. In each case, a claim is
//! wholly there or wholly gone, the kubelet's answers stay true, and other claims are untouched.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::PathBuf,
    sync::mpsc,
    thread,
    time::Duration,
};

use hostler::claims::store::{ClaimRecord, RecordState, decode, encode};
use hostler_cdi::{CdiHook, CdiMount, ContainerEdits, DeviceNode, HookName};
use hostler_fake::KILL_EXIT_CODE;
use hostler_proto::dra_v1::{Claim, Device};
use hostler_testing::{
    host::{Host, SCRIPT, script_with, wait_for},
    kubelet::KubeletPlugin,
    node::{ClaimTraces, TestNode, kill_at, named, uid},
};
use nix::sys::signal::Signal;

/// The record of a claim that has one.
fn record(node: &TestNode, name: &str) -> ClaimRecord {
    decode(&fs::read(node.path(&node.record_path(name))).unwrap()).unwrap()
}

/// Rewrites a prepared claim's record as one whose preparation is not done, as the daemon would write it.
fn record_as_preparing(node: &TestNode, name: &str) {
    let record = ClaimRecord { state: RecordState::Preparing, ..record(node, name) };
    fs::write(node.path(&node.record_path(name)), encode(&record).unwrap()).unwrap();
    // After a reboot the journal would still have the claim as prepared.
    fs::remove_file(node.path("state/claims.journal")).unwrap();
}

/// A claim in the middle of every fault, and one that must stay untouched.
struct Bench {
    node: TestNode,
    /// The devices in the kubelet's answer for the claim, and the claim's files when it is ready.
    list: Vec<Device>,
    whole: ClaimTraces,
    other_list: Vec<Device>,
    other: ClaimTraces,
}

impl Bench {
    /// Prepares both claims.
    fn new() -> Self {
        let mut node = TestNode::started();
        node.allocate("victim", &["card-1", "pool:3", "card-2"]);
        node.allocate("other", &["card-0", "pool:2"]);
        let (list, other_list) = (node.prepare("victim"), node.prepare("other"));
        let (whole, other) = (node.traces("victim"), node.traces("other"));
        assert!(whole.is_whole(3) && other.is_whole(2), "{whole:?}\n{other:?}");
        Self { node, list, whole, other_list, other }
    }

    /// Waits for a daemon that a fault has ended, and lets the hardware work again.
    fn killed(&mut self) {
        assert_eq!(self.node.wait().code(), Some(KILL_EXIT_CODE));
        self.node.script(SCRIPT);
    }

    /// Checks that the victim is not there at all, and that the kubelet can prepare it as before.
    fn assert_gone(&mut self, case: &str) {
        assert_eq!(self.node.traces("victim"), ClaimTraces::default(), "{case}");
        self.assert_other(case);
    }

    /// Checks that the victim is as it was.
    fn assert_whole(&mut self, case: &str) {
        assert_eq!(self.node.traces("victim").contents(), self.whole.contents(), "{case}");
        assert_eq!(self.node.state("victim").as_deref(), Some("prepared"), "{case}");
        assert_eq!(self.node.prepare("victim"), self.list, "{case}");
        assert_eq!(self.node.traces("victim").contents(), self.whole.contents(), "{case}: prepared again");
        self.assert_other(case);
    }

    /// Checks that the other claim is untouched: not even the same bytes were written again.
    fn assert_other(&mut self, case: &str) {
        assert_eq!(self.node.traces("other"), self.other, "{case}");
        assert_eq!(self.node.prepare("other"), self.other_list, "{case}");
        let leftovers = self.node.all_traces().into_iter().filter(|path| path.contains("/."));
        assert_eq!(leftovers.collect::<Vec<_>>(), [""; 0], "{case}");
    }

    fn unprepare(&mut self, case: &str) {
        self.node.unprepare("victim");
        self.assert_gone(case);
    }
}

fn every_moment<'a>(steps: &'a [&'a str]) -> impl Iterator<Item = (String, String)> + 'a {
    // The first device, and the last one: at the latter, half of the work is done.
    let devices = || ["card-1", "card-2"].into_iter();
    let moments = move |step| ["before", "after"].into_iter().flat_map(move |at| devices().map(move |d| (step, at, d)));
    steps
        .iter()
        .flat_map(move |step| moments(*step))
        .map(|(step, at, device)| (format!("killed {at} {step} of {device}"), kill_at(step, at, device)))
}

#[test]
fn a_kill_at_any_step_of_a_prepare_leaves_nothing_and_the_repeated_call_succeeds() {
    let mut bench = Bench::new();
    bench.unprepare("at first");
    for (case, script) in every_moment(&["plan", "prepare", "verify"]) {
        bench.node.script(&script);
        bench.node.call_prepare(&["victim"]).expect_err(&case);
        bench.killed();
        bench.node.begin();
        bench.assert_gone(&case);
        assert_eq!(bench.node.prepare("victim"), bench.list, "{case}");
        bench.assert_whole(&case);
        bench.unprepare(&case);
    }
    assert!(bench.node.stop().success());
}

#[test]
fn a_kill_at_any_step_of_an_unprepare_leaves_the_claim_whole_and_the_repeated_call_succeeds() {
    let mut bench = Bench::new();
    for (case, script) in every_moment(&["unprepare"]) {
        bench.node.script(&script);
        bench.node.call_unprepare(&["victim"]).expect_err(&case);
        bench.killed();
        bench.node.begin();
        bench.assert_whole(&case);
        bench.unprepare(&case);
        assert_eq!(bench.node.prepare("victim"), bench.list, "{case}");
    }
    assert!(bench.node.stop().success());
}

#[test]
fn a_kill_while_a_ready_claim_is_prepared_again_costs_nothing() {
    let mut bench = Bench::new();
    for (case, script) in every_moment(&["verify"]) {
        bench.node.script(&script);
        bench.node.call_prepare(&["victim"]).expect_err(&case);
        bench.killed();
        assert_eq!(bench.node.traces("victim"), bench.whole, "{case}");
        bench.node.begin();
        bench.assert_whole(&case);
    }
}

#[test]
fn a_kill_during_recovery_is_recovered_from_too() {
    let mut bench = Bench::new();
    // (work of the start, step that it dies at)
    for (work, steps) in [("keep", "verify"), ("restore", "prepare"), ("restore", "verify"), ("roll back", "unprepare")]
    {
        for (moment, script) in every_moment(&[steps]) {
            let case = format!("{work}, {moment}");
            bench.node.kill();
            match work {
                "restore" => fs::remove_file(bench.node.path(&bench.node.cdi_path("victim"))).unwrap(),
                "roll back" => record_as_preparing(&bench.node, "victim"),
                _ => {}
            }
            bench.node.script(&script);
            Host::spawn(&mut bench.node);
            bench.killed();
            bench.node.begin();
            if work == "roll back" {
                bench.assert_gone(&case);
                assert_eq!(bench.node.prepare("victim"), bench.list, "{case}");
            }
            bench.assert_whole(&case);
        }
    }
}

#[test]
fn a_kill_in_the_middle_of_a_batch_leaves_each_claim_whole_or_gone() {
    let mut node = TestNode::started();
    // From four claims on, records are written in another way.
    let names = ["a", "b", "c", "d"];
    for (index, name) in names.iter().enumerate() {
        node.allocate(name, &[&format!("card-{index}"), "pool:1"]);
    }
    let lists = node.call_prepare(&names).unwrap();
    assert!(lists.values().all(Result::is_ok), "{lists:?}");
    for at in ["before", "after"] {
        node.script(&kill_at("unprepare", at, "card-2"));
        node.call_unprepare(&names).expect_err("the daemon was killed");
        assert_eq!(node.wait().code(), Some(KILL_EXIT_CODE));
        node.script(SCRIPT);
        node.begin();
        assert!(names.iter().all(|name| node.traces(name).is_whole(2)), "the kubelet was told nothing yet");
        assert!(node.call_unprepare(&names).unwrap().values().all(Result::is_ok));
        assert_eq!(node.all_traces(), [""; 0]);

        node.script(&kill_at("prepare", at, "card-2"));
        node.call_prepare(&names).expect_err("the daemon was killed");
        assert_eq!(node.wait().code(), Some(KILL_EXIT_CODE));
        node.script(SCRIPT);
        node.begin();
        assert_eq!(node.all_traces(), [""; 0]);
        assert_eq!(node.call_prepare(&names).unwrap(), lists);
    }
}

/// Changes the disk of a daemon that was killed to a state that no scripted step lies in.
type Interrupt = fn(&Bench);

fn remove(bench: &Bench, path: &str) {
    fs::remove_file(bench.node.path(path)).unwrap();
}

fn remove_hardware(bench: &Bench) {
    bench.whole.hardware.keys().for_each(|file| remove(bench, &format!("hardware/{file}")));
}

fn halve_hardware(bench: &Bench) {
    remove(bench, &format!("hardware/{}", bench.whole.hardware.keys().next().unwrap()));
}

fn remove_cdi(bench: &Bench) {
    remove(bench, &bench.node.cdi_path("victim"));
}

fn preparing(bench: &Bench) {
    record_as_preparing(&bench.node, "victim");
}

/// Writes the rest of a write that a crash cut off: the beginning of the file under its temporary name.
fn half_written(bench: &Bench, path: &str, temporary: &str) {
    let bytes = fs::read(bench.node.path(path)).unwrap();
    fs::write(bench.node.path(temporary), &bytes[..bytes.len() / 2]).unwrap();
}

/// Writes the rest of a CDI file's write, by a process that is gone.
fn half_written_cdi(bench: &Bench) {
    let cdi = bench.node.cdi_path("victim");
    half_written(bench, &cdi, &cdi.replace("cdi/", "cdi/.").replace(".json", ".json.4194304-0.hostler-tmp"));
}

/// CDI files are not synced: a crash of the whole machine may cut off the final one.
fn cut_cdi(bench: &Bench) {
    let path = bench.node.path(&bench.node.cdi_path("victim"));
    File::options().write(true).open(path).unwrap().set_len(40).unwrap();
}

/// Interrupts after which the claim must be gone.
const GONE: [(&str, Interrupt); 6] = [
    ("the first record was half written", |bench| {
        let record = bench.node.record_path("victim");
        half_written(bench, &record, &format!("state/claims/.{}.tmp", uid("victim")));
        remove(bench, &record);
        remove_cdi(bench);
        remove_hardware(bench);
    }),
    ("recorded, hardware untouched", |bench| {
        preparing(bench);
        remove_cdi(bench);
        remove_hardware(bench);
    }),
    ("recorded, hardware half changed", |bench| {
        preparing(bench);
        remove_cdi(bench);
        halve_hardware(bench);
    }),
    ("hardware ready, CDI file half written", |bench| {
        preparing(bench);
        half_written_cdi(bench);
        remove_cdi(bench);
    }),
    ("CDI file cut off, the prepared record not written", |bench| {
        preparing(bench);
        cut_cdi(bench);
    }),
    ("CDI file written, the prepared record half written", |bench| {
        preparing(bench);
        half_written(bench, &bench.node.record_path("victim"), &format!("state/claims/.{}.tmp", uid("victim")));
    }),
];

/// Interrupts after which the claim must be as it was.
const WHOLE: [(&str, Interrupt); 6] = [
    ("prepared, the kubelet was not told", |_| {}),
    ("prepared, CDI file cut off", cut_cdi),
    ("CDI file removed, hardware untouched", remove_cdi),
    ("CDI file removed, hardware half undone", |bench| {
        remove_cdi(bench);
        halve_hardware(bench);
    }),
    ("CDI file removed, hardware undone, record still there", |bench| {
        remove_cdi(bench);
        remove_hardware(bench);
    }),
    ("CDI file removed, hardware holds something else", |bench| {
        remove_cdi(bench);
        let file = bench.whole.hardware.keys().next().unwrap();
        fs::write(bench.node.path(&format!("hardware/{file}")), "another plan").unwrap();
    }),
];

#[test]
fn a_crash_between_any_two_durable_steps_is_recovered_from() {
    let mut bench = Bench::new();
    for (case, interrupt) in GONE {
        bench.node.kill();
        interrupt(&bench);
        bench.node.begin();
        bench.assert_gone(case);
        assert_eq!(bench.node.prepare("victim"), bench.list, "{case}");
        bench.assert_whole(case);
    }
    for (case, interrupt) in WHOLE {
        bench.node.kill();
        interrupt(&bench);
        bench.node.begin();
        bench.assert_whole(case);
        bench.unprepare(case);
        assert_eq!(bench.node.prepare("victim"), bench.list, "{case}");
    }
    assert!(bench.node.stop().success());
}

/// Edits that a forger adds to a record.
type Forgery<'a> = &'a dyn Fn(&mut ContainerEdits);

/// Writes a record anew with these edits of its first device, checksum and all.
fn forge(node: &TestNode, name: &str, forge: impl FnOnce(&mut ContainerEdits)) {
    let mut record = record(node, name);
    forge(&mut record.devices[0].edits);
    fs::write(node.path(&node.record_path(name)), encode(&record).unwrap()).unwrap();
}

#[test]
fn a_forged_record_brings_nothing_into_a_cdi_file_that_its_backend_never_gives() {
    let mut bench = Bench::new();
    let hook = || CdiHook {
        hook_name: HookName::CreateRuntime,
        path: "/forged".to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        timeout: None,
    };
    let node = |path: &str| DeviceNode { path: path.to_owned(), ..DeviceNode::default() };
    let mount = || CdiMount { host_path: "/forged".to_owned(), container_path: "/x".to_owned(), ..CdiMount::default() };
    let forgeries: [(&str, Forgery<'_>); 3] = [
        ("the hook /forged", &|edits| edits.hooks.push(hook())),
        ("the device node /dev/mem", &|edits| edits.device_nodes.push(node("/dev/mem"))),
        ("a mount of /forged", &|edits| edits.mounts.push(mount())),
    ];
    let path = bench.node.path(&bench.node.record_path("victim"));
    let genuine = fs::read(&path).unwrap();
    for (what, forgery) in forgeries {
        bench.node.kill();
        fs::write(&path, &genuine).unwrap();
        forge(&bench.node, "victim", forgery);
        bench.node.begin();
        assert_eq!(bench.node.traces("victim").cdi, bench.whole.cdi, "{what}");
        assert_eq!(bench.node.state("victim").as_deref(), Some("quarantined"), "{what}");
        let error = bench.node.prepare_error("victim");
        assert!(error.contains(&format!("it gives containers {what}, which its backend never does")), "{error}");
        bench.assert_other(what);
    }
    bench.node.kill();
    fs::write(&path, genuine).unwrap();
    bench.node.begin();
    bench.assert_whole("the record as it was");
}

/// The kubelet's belief about a claim.
#[derive(Clone, Debug, PartialEq)]
enum Promise {
    Whole(Vec<Device>),
    Gone,
    /// A call had no answer.
    Open,
}

/// Prepares and takes back two batches until the daemon is gone; returns the answers that were given by then.
async fn pods_come_and_go(mut plugin: KubeletPlugin, began_tx: mpsc::Sender<()>) -> BTreeMap<String, Promise> {
    let batches: [Vec<Claim>; 2] =
        [&["a", "b"][..], &["c", "d", "e", "f"][..]].map(|names| names.iter().map(|name| named(name)).collect());
    let all = || batches.iter().flatten().map(|claim| claim.uid.clone());
    let mut promises: BTreeMap<String, Promise> = all().map(|uid| (uid, Promise::Gone)).collect();
    // The test waits for the first message only.
    let _ = began_tx.send(());
    loop {
        for batch in &batches {
            promises.extend(batch.iter().map(|claim| (claim.uid.clone(), Promise::Open)));
            let Ok(answers) = plugin.prepare(batch).await else { return promises };
            promises.extend(answers.into_iter().map(|(uid, answer)| (uid, Promise::Whole(answer.unwrap()))));
        }
        for batch in &batches {
            promises.extend(batch.iter().map(|claim| (claim.uid.clone(), Promise::Open)));
            let Ok(answers) = plugin.unprepare(batch).await else { return promises };
            promises.extend(answers.into_iter().map(|(uid, answer)| (uid, answer.map(|()| Promise::Gone).unwrap())));
        }
    }
}

#[test]
fn a_kill_at_any_moment_of_a_busy_node_breaks_no_promise() {
    const ROUNDS: u32 = 18;
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut node = TestNode::started();
    for (index, name) in names.iter().enumerate() {
        node.allocate(name, &[&format!("card-{index}"), "pool:1"]);
    }
    let lists = node.call_prepare(&names).unwrap();
    let whole: BTreeMap<&str, ClaimTraces> = names.iter().map(|name| (*name, node.traces(name))).collect();
    assert!(node.call_unprepare(&names).unwrap().values().all(Result::is_ok));
    let mut met = BTreeMap::from([("whole", 0), ("gone", 0), ("open", 0)]);
    for round in 0..ROUNDS {
        let (began_tx, began_rx) = mpsc::channel();
        let pods = node.spawn(pods_come_and_go(node.connected(), began_tx));
        began_rx.recv().unwrap();
        // The moment is the point of this test: each round hits a later one, over several of the kubelet's cycles.
        thread::sleep(Duration::from_micros(1700) * round);
        node.kill();
        let promises = node.block_on(pods).unwrap();
        // And once more during recovery.
        Host::spawn(&mut node);
        thread::sleep(Duration::from_millis(3) * round);
        node.kill();
        node.begin();
        for name in names {
            let traces = node.traces(name);
            let case = format!("round {round}, claim {name}: {:?}, {traces:?}", promises[&uid(name)]);
            let kept = match &promises[&uid(name)] {
                Promise::Whole(list) => {
                    assert_eq!(Ok(list), lists[&uid(name)].as_ref(), "{case}");
                    *met.get_mut("whole").unwrap() += 1;
                    !traces.is_gone()
                }
                Promise::Gone => {
                    *met.get_mut("gone").unwrap() += 1;
                    traces.is_gone()
                }
                Promise::Open => {
                    *met.get_mut("open").unwrap() += 1;
                    true
                }
            };
            assert!(kept, "{case}");
            assert!(traces.is_gone() || traces.contents() == whole[name].contents(), "{case}");
        }
        assert_eq!(node.call_prepare(&names).unwrap(), lists, "round {round}");
        assert!(node.call_unprepare(&names).unwrap().values().all(Result::is_ok), "round {round}");
        assert_eq!(node.all_traces(), [""; 0], "round {round}");
    }
    // The number of each kind depends on the machine.
    println!("the kills met claims that were promised {met:?}");
}

const OTHER_BOOT: &str = "00000000-0000-4000-8000-000000000002";

/// The machine goes down while the daemon runs.
fn reboot(node: &mut TestNode) {
    node.kill();
    node.reboot(OTHER_BOOT);
}

#[test]
fn after_a_reboot_claims_are_ready_again_by_themselves_with_the_same_devices() {
    let mut bench = Bench::new();
    bench.node.allocate("half", &["card-3"]);
    bench.node.prepare("half");
    record_as_preparing(&bench.node, "half");
    reboot(&mut bench.node);
    bench.node.begin();
    for (name, before) in [("victim", &bench.whole), ("other", &bench.other)] {
        wait_for("the claim", || (bench.node.state(name).as_deref() == Some("prepared")).then_some(()));
        let after = bench.node.traces(name);
        let (after, before) = (after.contents(), before.contents());
        assert_eq!((after.cdi, after.hardware), (before.cdi, before.hardware), "{name}");
        assert_eq!(record(&bench.node, name).boot_id, OTHER_BOOT);
    }
    assert!(bench.node.traces("half").is_gone(), "what was half done is forgotten");
    assert_eq!(bench.node.prepare("victim"), bench.list);
    assert_eq!(bench.node.prepare("other"), bench.other_list);
    bench.node.unprepare("victim");
    bench.node.unprepare("other");
    assert_eq!(bench.node.all_traces(), [""; 0]);
}

/// Every claim is ready again, with the devices that it had before all reboots.
fn assert_restored(bench: &mut Bench, case: &str) {
    for (name, before) in [("victim", &bench.whole), ("other", &bench.other)] {
        let ready = || (bench.node.state(name).as_deref() == Some("prepared")).then_some(());
        wait_for(&format!("{case}: {name}"), ready);
        let (after, before) = (bench.node.traces(name).contents(), before.contents());
        assert_eq!((after.cdi, after.hardware), (before.cdi, before.hardware), "{case}: {name}");
    }
    assert_eq!(bench.node.prepare("victim"), bench.list, "{case}");
    assert_eq!(bench.node.prepare("other"), bench.other_list, "{case}");
}

#[test]
fn a_kill_at_any_step_of_a_restore_loses_no_claim_not_even_twice_and_with_another_reboot_between() {
    let moments: Vec<_> = every_moment(&["prepare", "verify"]).collect();
    for reboots_between in [false, true] {
        for (index, (moment, script)) in moments.iter().enumerate() {
            // The second kill is at another moment, so that the second start finds a rest of another step.
            let (second_moment, second_script) = &moments[(index + 3) % moments.len()];
            let case = format!("{moment}, then {second_moment}, another reboot between: {reboots_between}");
            let mut bench = Bench::new();
            bench.node.allocate("thief", &["card-1"]);
            reboot(&mut bench.node);
            for script in [script, second_script] {
                bench.node.script(script);
                Host::spawn(&mut bench.node);
                bench.killed();
                for name in ["victim", "other"] {
                    let state = record(&bench.node, name).state;
                    assert_ne!(state, RecordState::Preparing, "{case}: {name}: its choice would be forgotten");
                }
                if reboots_between {
                    bench.node.reboot(&OTHER_BOOT.replace('2', "3"));
                }
            }
            bench.node.begin();
            assert!(bench.node.prepare_error("thief").contains("default/victim"), "{case}");
            assert_restored(&mut bench, &case);
            bench.node.unprepare("victim");
            assert!(bench.node.traces("victim").is_gone(), "{case}");
            bench.node.prepare("thief");
            assert!(bench.node.stop().success());
        }
    }
}

#[test]
fn a_damaged_line_of_the_journal_costs_no_claim_and_the_log_names_file_entry_and_fix() {
    let mut bench = Bench::new();
    reboot(&mut bench.node);
    let path = bench.node.path("state/claims.journal");
    let mut journal = fs::read(&path).unwrap();
    let last = journal.windows(9).rposition(|text| text == b"\"written\"").unwrap();
    journal[last + 1] ^= 1;
    fs::write(&path, &journal).unwrap();
    bench.node.begin();
    assert_restored(&mut bench, "the last entry is damaged");
    let log = bench.node.log();
    let told = log.lines().find(|line| line.contains("journal of the claim records is damaged")).expect(&log);
    for expected in ["claims.journal", "claims.journal.damaged", "and all after it", "hostler claim list"] {
        assert!(told.contains(expected), "{expected} is not in: {told}");
    }
    assert_eq!(fs::read(bench.node.path("state/claims.journal.damaged")).unwrap(), journal);
}

#[test]
fn two_records_of_one_device_are_both_quarantined_until_one_is_forgotten() {
    let mut bench = Bench::new();
    bench.node.kill();
    let mut other = record(&bench.node, "other");
    other.devices[0] = record(&bench.node, "victim").devices[0].clone();
    fs::write(bench.node.path(&bench.node.record_path("other")), encode(&other).unwrap()).unwrap();
    bench.node.begin();
    for (name, holder) in [("victim", "default/other"), ("other", "default/victim")] {
        assert_eq!(bench.node.state(name).as_deref(), Some("quarantined"), "{name}");
        let error = bench.node.prepare_error(name);
        assert!(error.contains("it has device card-1 of pool node/fake, and so has the record of claim"), "{error}");
        assert!(error.contains(holder), "{error}");
    }
    bench.node.run_ok(&["claim", "forget", &uid("other")]);
    assert!(bench.node.stop().success());
    bench.node.begin();
    assert_eq!(bench.node.prepare("victim"), bench.list);
}

#[test]
fn a_cdi_file_that_outlives_a_reboot_is_not_there_until_its_claim_is_ready() {
    let mut bench = Bench::new();
    bench.node.kill();
    fs::remove_dir_all(bench.node.path("hardware")).unwrap();
    bench.node.boot(OTHER_BOOT);
    bench.node.script(&script_with("[[fault]]\nstep = \"prepare\"\ndevice = \"card-2\"\nerror = \"no link yet\""));
    bench.node.begin();
    wait_for("the other claim", || (bench.node.state("other").as_deref() == Some("prepared")).then_some(()));
    let error = bench.node.prepare_error("victim");
    assert!(error.contains("card-2") && error.contains("no link yet"), "{error}");
    assert_eq!(bench.node.traces("victim").cdi, None, "a container must not start with it");
    bench.node.script(SCRIPT);
    assert_eq!(bench.node.prepare("victim"), bench.list);
    assert_eq!(bench.node.traces("victim").contents().cdi, bench.whole.contents().cdi);
}

#[test]
fn a_device_that_comes_late_after_a_reboot_stays_its_claims() {
    let mut bench = Bench::new();
    bench.node.allocate("thief", &["card-2"]);
    reboot(&mut bench.node);
    bench.node.script(&SCRIPT.replace("count = 8", "count = 2"));
    bench.node.begin();
    let problem = |node: &TestNode| {
        wait_for("the failure", || {
            let claim = node.get(&format!("/v1/claims/{}", uid("victim")));
            claim["problem"].as_str().filter(|problem| problem.contains("card-2")).map(str::to_owned)
        })
    };
    assert!(problem(&bench.node).contains("not in pool node/fake of this host"));
    bench.node.kill();
    bench.node.begin();
    assert!(problem(&bench.node).contains("not in pool node/fake of this host"), "the second start knows it still");
    bench.node.script(SCRIPT);
    assert_eq!(bench.node.request("POST", "/v1/rescan", "").0, 204);
    assert!(bench.node.prepare_error("thief").contains("default/victim"), "the device is the claim's, ready or not");
    let ready = || (bench.node.state("victim").as_deref() == Some("prepared")).then_some(());
    wait_for("the claim, which nobody asks for", ready);
    assert_eq!(bench.node.prepare("victim"), bench.list);
    assert_eq!(bench.node.traces("victim").contents().cdi, bench.whole.contents().cdi);
    bench.node.unprepare("victim");
    assert!(bench.node.traces("victim").is_gone());
    bench.node.prepare("thief");
}

#[test]
fn a_device_that_hangs_after_a_reboot_holds_up_no_other_claim() {
    let mut bench = Bench::new();
    reboot(&mut bench.node);
    bench.node.script(&script_with("[[fault]]\nstep = \"prepare\"\ndevice = \"card-1\"\ndelay_ms = 3600000"));
    bench.node.begin();
    let ready = || (bench.node.state("other").as_deref() == Some("prepared")).then_some(());
    wait_for("the other claim", ready);
    assert_eq!(bench.node.prepare("other"), bench.other_list, "nor a call for it");
    assert_eq!(record(&bench.node, "victim").state, RecordState::Restoring);
    let claim = bench.node.get(&format!("/v1/claims/{}", uid("victim")));
    assert_eq!(claim["busy"]["operation"], "prepare", "{claim}");
    bench.node.kill();
    bench.node.script(SCRIPT);
    bench.node.begin();
    assert_restored(&mut bench, "the device answers again");
}

/// Damages the record of each claim in the way that its name tells.
fn damage(node: &TestNode) {
    let record = |name: &str| node.path(&node.record_path(name));
    let text = fs::read_to_string(record("corrupt")).unwrap();
    fs::write(record("corrupt"), text.replace("card-1", "card-9")).unwrap();
    let short = fs::read(record("short")).unwrap();
    fs::write(record("short"), &short[..short.len() / 2]).unwrap();
    let text = fs::read_to_string(record("newer")).unwrap();
    fs::write(record("newer"), text.replacen("\"version\": 1", "\"version\": 3", 1)).unwrap();
    fs::copy(record("good"), record("moved")).unwrap();
    fs::remove_file(record("lost")).unwrap();
    fs::remove_file(record("folder")).unwrap();
    fs::create_dir(record("folder")).unwrap();
}

#[test]
fn what_cannot_be_understood_is_quarantined_and_costs_no_other_claim() {
    let mut node = TestNode::started();
    // Each claim has a card, which tells later whether the claim still holds it.
    let names = ["good", "corrupt", "short", "newer", "moved", "lost", "folder"];
    for (index, name) in names.iter().enumerate() {
        node.allocate(name, &[&format!("card-{index}")]);
        node.allocate(&format!("after-{name}"), &[&format!("card-{index}")]);
    }
    assert!(node.call_prepare(&names).unwrap().values().all(Result::is_ok));
    let good_list = node.prepare("good");
    assert!(node.stop().success());

    damage(&node);
    let before: Vec<ClaimTraces> = names.iter().map(|name| node.traces(name)).collect();

    node.begin();
    let reasons = [
        ("corrupt", "checksum"),
        ("short", "not the JSON of a claim record"),
        ("newer", "format version 3"),
        ("moved", "holds the record of claim good-5f0c"),
        ("lost", "CDI file but no record"),
        ("folder", "cannot be read"),
    ];
    let status = node.get("/v1/status");
    assert_eq!(status["claims"], serde_json::json!({"prepared": 1, "preparing": 0, "quarantined": 6}));
    assert!(node.metrics("/metrics").1.contains("hostler_claims{state=\"quarantined\"} 6"));
    let list = node.run_ok(&["claim", "list"]);
    for (name, reason) in reasons {
        let file = if name == "lost" { node.cdi_path(name) } else { node.record_path(name) };
        let line = list.lines().find(|line| line.contains(&uid(name)) && line.contains("quarantined")).expect(&list);
        for error in [node.prepare_error(name), node.unprepare_error(name), line.to_owned()] {
            assert!(error.contains(reason), "{name}: {error}");
            assert!(error.contains(&node.path(&file).display().to_string()), "{name}: {error}");
            assert!(error.contains(&format!("hostler claim forget {}", uid(name))), "{name}: {error}");
        }
        assert!(node.run_refused(&["claim", "delete", &uid(name)]).contains("quarantined"), "{name}");
        let error = node.prepare_error(&format!("after-{name}"));
        assert!(error.contains(&format!("already prepared for claim {}", uid(name))), "{name}: {error}");
    }
    let after: Vec<ClaimTraces> = names.iter().map(|name| node.traces(name)).collect();
    assert_eq!(after, before, "nothing is touched until somebody decides");
    assert_eq!(node.prepare("good"), good_list);
    assert!(node.run_refused(&["claim", "forget", &uid("good")]).contains("take it back"));

    for ((name, _), before) in reasons.iter().zip(&before[1..]) {
        node.run_ok(&["claim", "forget", &uid(name)]);
        let left = node.traces(name);
        assert_eq!((left.record, left.cdi, left.hardware), (None, None, before.hardware.clone()), "{name}");
        let kept = fs::read(node.path(&format!("state/forgotten/{}.json", uid(name)))).ok();
        assert_eq!(kept.as_ref(), before.record.as_ref().map(|record| &record.bytes), "{name}");
        node.prepare(&format!("after-{name}"));
    }
    assert!(node.stop().success());
    node.begin();
    assert_eq!(node.get("/v1/status")["claims"]["quarantined"], 0);
    node.unprepare("good");
    assert!(node.traces("good").is_gone());
}

#[test]
fn a_state_folder_that_others_can_change_is_refused_at_the_start() {
    let mut node = TestNode::started();
    assert!(node.stop().success());
    fs::set_permissions(node.path("state"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    Host::spawn(&mut node);
    assert!(!node.wait().success());
    let log = node.log();
    assert!(log.contains("can be changed by others (mode 777); chmod go-w it"), "{log}");
    fs::set_permissions(node.path("state"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    node.begin();
}

/// A small file system at `folder` of a host. It must go before the host's own folder does.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: PathBuf) -> Option<Self> {
        fs::create_dir_all(&folder).unwrap();
        let flags = nix::mount::MsFlags::empty();
        let mounted = nix::mount::mount(Some("hostler-test"), &folder, Some("tmpfs"), flags, Some("size=64k,mode=700"));
        if let Err(error) = mounted {
            println!("skipped: needs the right to mount a tmpfs ({error})");
            return None;
        }
        Some(Self(folder))
    }

    /// Takes all space but some bytes.
    fn fill(&self, left: usize) {
        let mut ballast = File::create(self.0.join("ballast")).unwrap();
        while ballast.write_all(&[0; 512]).is_ok() {}
        let full = ballast.metadata().unwrap().len();
        ballast.set_len(full.saturating_sub(left as u64)).unwrap();
    }

    fn clear(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }

    /// Makes the disk refuse or allow writes, as a kernel does with a disk that fails.
    fn allow_writes(&self, allowed: bool) {
        let mut flags = nix::mount::MsFlags::MS_REMOUNT;
        flags.set(nix::mount::MsFlags::MS_RDONLY, !allowed);
        nix::mount::mount(None::<&str>, &self.0, None::<&str>, flags, None::<&str>).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

/// Fills the disk under `folder`, where a claim needs room for some files at once, and checks prepare and unprepare
/// then.
fn starve(folder: &str, files: usize, message: &str) {
    let mut node = TestNode::new(Host::bare(SCRIPT));
    // Dropped before the host, which cannot remove its folder with something mounted in it.
    let Some(disk) = SmallDisk::mount(node.path(folder)) else { return };
    node.begin();
    let names = ["a", "b", "c", "d", "e"];
    for (index, name) in names.iter().chain(&["kept"]).enumerate() {
        node.allocate(name, &[&format!("card-{index}")]);
    }
    let list = node.prepare("kept");
    let kept = node.traces("kept");
    // No claim, a file of one, one, and four.
    for left in [0, 1, files, 4 * files] {
        disk.fill(left * 4096);
        for batch in [&names[..1], &names[..2], &names[..]] {
            let pages = batch.len() * files;
            let answers = node.call_prepare(batch).unwrap();
            let errors: Vec<&String> = answers.values().filter_map(|answer| answer.as_ref().err()).collect();
            assert_eq!(errors.is_empty(), pages <= left, "{left} pages for {batch:?}: {answers:?}");
            for error in errors {
                assert!(error.contains(message) && error.contains("No space left on device"), "{error}");
                assert!(error.contains(&node.path(folder).display().to_string()), "{error}");
            }
            for (uid, answer) in &answers {
                let name = uid.strip_suffix("-5f0c").unwrap();
                let traces = node.traces(name);
                assert_eq!((traces.is_whole(1), traces.is_gone()), (answer.is_ok(), answer.is_err()), "{traces:?}");
            }
            assert!(node.all_traces().iter().all(|path| !path.contains("/.")), "{:?}", node.all_traces());
            assert!(node.call_unprepare(batch).unwrap().values().all(Result::is_ok), "taking back needs no space");
        }
        assert_eq!(node.traces("kept"), kept);
        assert_eq!(node.prepare("kept"), list);
        // A start with a full disk has nothing to write.
        node.kill();
        node.begin();
        assert_eq!((node.traces("kept"), node.prepare("kept")), (kept.clone(), list.clone()));
        disk.clear();
    }
    assert!(node.call_prepare(&names).unwrap().values().all(Result::is_ok), "there is space again");
    disk.fill(0);
    node.unprepare("kept");
    assert!(node.traces("kept").is_gone());
    assert!(node.stop().success());
}

#[test]
fn a_full_disk_under_the_records_loses_nothing_and_says_so() {
    // The record that is there, and the one that will replace it.
    starve("state/claims", 2, "failed to keep the record of claim");
}

#[test]
fn a_full_disk_under_the_cdi_files_loses_nothing_and_says_so() {
    starve("cdi", 1, "failed to keep the CDI file of claim");
}

/// A change of a disk.
type DiskChange = fn(&SmallDisk);

/// Spoils the disk under `folder`, and checks that the daemon is not ready as long as claims cannot be prepared.
fn unready(folder: &str, message: &str, [spoil, mend]: [DiskChange; 2], error: &str) {
    let mut node = TestNode::new(Host::bare(SCRIPT));
    // Dropped before the host, which cannot remove its folder with something mounted in it.
    let Some(disk) = SmallDisk::mount(node.path(folder)) else { return };
    node.begin();
    node.allocate("a", &["card-0"]);
    let readiness = |node: &TestNode| node.metrics("/readyz");
    let ready = (200, "ready\n".to_owned());
    wait_for("the daemon to be ready", || (readiness(&node) == ready).then_some(()));
    spoil(&disk);
    let answers = node.call_prepare(&["a"]).unwrap();
    assert!(answers.values().all(Result::is_err), "{answers:?}");
    let (code, told) = wait_for("the reason", || Some(readiness(&node)).filter(|told| *told != ready));
    assert_eq!(code, 503);
    for part in ["claims cannot be prepared: ", message, error, &node.path(folder).display().to_string()] {
        assert!(told.contains(part), "{told}");
    }
    // The daemon still checks when no claim is asked for any more.
    let told = wait_for("a look", || Some(readiness(&node).1).filter(|told| told.contains("/.probe.")));
    assert!(told.contains(error), "{told}");
    // A start finds what a prepare would find.
    node.kill();
    node.begin();
    assert!(readiness(&node).1.contains(error), "{}", readiness(&node).1);
    mend(&disk);
    wait_for("the daemon to be ready again", || (readiness(&node) == ready).then_some(()));
    assert!(node.all_traces().iter().all(|path| !path.contains("/.")), "{:?}", node.all_traces());
    node.prepare("a");
    node.unprepare("a");
    assert!(node.stop().success());
}

#[test]
fn a_daemon_whose_records_have_no_room_is_not_ready_until_they_have() {
    let disk: [DiskChange; 2] = [|disk| disk.fill(0), SmallDisk::clear];
    unready(
        "state/claims",
        "failed to keep the record of claim",
        disk,
        "No space left on device (os error 28); make room",
    );
}

#[test]
fn a_daemon_whose_cdi_folder_is_read_only_is_not_ready_until_it_can_be_written() {
    let disk: [DiskChange; 2] = [|disk| disk.allow_writes(false), |disk| disk.allow_writes(true)];
    unready(
        "cdi",
        "failed to keep the CDI file of claim",
        disk,
        "Read-only file system (os error 30); its file system is",
    );
}

#[test]
fn a_second_daemon_stands_by_and_takes_over_when_the_first_is_killed_or_stopped() {
    let mut bench = Bench::new();
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let standbys = bench.node.log().matches("standing by").count();
        let second = bench.node.spawn_beside();
        wait_for("the second daemon to stand by", || {
            (bench.node.log().matches("standing by").count() > standbys).then_some(())
        });
        bench.assert_whole("the first one still serves");
        bench.node.signal(signal);
        bench.node.wait();
        bench.node.adopt(second);
        bench.node.wait_until_served();
        bench.node.register();
        assert_eq!(bench.node.traces("victim"), bench.whole, "nothing was written anew");
        bench.assert_whole("the second one knows all");
    }
    bench.unprepare("the second one takes back what the first one prepared");
    assert!(bench.node.stop().success());
}

#[test]
fn a_call_that_runs_while_the_daemon_is_stopped_is_answered_before_another_takes_over() {
    let mut bench = Bench::new();
    bench.unprepare("at first");
    bench.node.script(&script_with("[latency_ms]\nprepare = 300"));
    let mut plugin = bench.node.connected();
    let call = bench.node.spawn(async move { plugin.prepare(&[named("victim")]).await });
    wait_for("the work to begin", || bench.node.path(&bench.node.record_path("victim")).exists().then_some(()));
    let second = bench.node.spawn_beside();
    assert!(bench.node.stop().success());
    bench.node.adopt(second);
    let answers = bench.node.block_on(call).unwrap().unwrap();
    assert_eq!(answers[&uid("victim")].as_ref(), Ok(&bench.list));
    bench.node.wait_until_served();
    bench.node.register();
    bench.assert_whole("the second one has the claim");
}

#[test]
fn a_standby_can_be_stopped_while_the_first_one_lives() {
    let mut bench = Bench::new();
    let second = bench.node.spawn_beside();
    wait_for("the second daemon to stand by", || bench.node.log().contains("standing by").then_some(()));
    second.signal(Signal::SIGTERM);
    assert!(second.wait().success());
    bench.assert_whole("nobody took over");
    bench.node.stop();
}
