//! A backend that keeps every rule passes; one that breaks a rule fails with that rule's name.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use hostler_api::{BackendName, ClaimUid, Grant, QualifiedName, Quantity};
use hostler_cdi::CdiMount;

use super::*;
use crate::{
    BackendError, BindingConditions, Capacity, ContainerEdits, CounterSet, CounterUse, DevicePlan, EditScope,
    ForeignEdits, Health, PlanWork, PrepareOutcome, PrepareWork, RequestPolicy, Sharing, UnprepareWork, VerifyWork,
};

/// What a [`Board`] does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    NoDevices,
    UnstableOrder,
    SameName,
    UnstableSets,
    SameSet,
    NoCounter,
    NoSuchCounter,
    BadBinding,
    LongAttribute,
    BadEdits,
    PreparesBadEdits,
    EnumerateWrites,
    PlanWrites,
    PlanVaries,
    RefusesEverything,
    RefusesWithStep,
    RefusesWithFullStop,
    OverlappingCpus,
    PrepareAddsUp,
    EditsVary,
    GivesForeignEdits,
    BelievesRecords,
    CheckingWrites,
    VerifyNeverFails,
    VerifyFails,
    UnprepareLeaves,
    UnprepareOnce,
    UnprepareNeedsDevice,
    UnprepareNeedsSameProcess,
    UnprepareTakesAll,
}

/// Four lamps, of which a claim may have some, and a button.
struct Board {
    flaw: Flaw,
    hardware: Arc<Mutex<BTreeSet<String>>>,
    mine: Mutex<BTreeSet<ClaimUid>>,
    calls: AtomicU32,
}

impl Board {
    fn new(flaw: Flaw, hardware: &Arc<Mutex<BTreeSet<String>>>) -> Self {
        Self { flaw, hardware: Arc::clone(hardware), mine: Mutex::default(), calls: AtomicU32::new(0) }
    }

    fn write(&self, line: impl Into<String>) {
        self.hardware.lock().unwrap().insert(line.into());
    }

    fn call(&self) -> u32 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}

fn slots(amount: &str) -> BTreeMap<DeviceName, Quantity> {
    [(DeviceName::new("slots").unwrap(), amount.parse().unwrap())].into()
}

impl Board {
    /// The cable has two wires.
    fn sets(&self) -> Vec<CounterSet> {
        let set = |amount| CounterSet { name: DeviceName::new("cable").unwrap(), counters: slots(amount) };
        match self.flaw {
            Flaw::UnstableSets if self.call() % 2 == 1 => vec![set("3")],
            Flaw::SameSet => vec![set("2"), set("2")],
            Flaw::NoCounter => {
                vec![set("2"), CounterSet { name: DeviceName::new("x").unwrap(), counters: BTreeMap::new() }]
            }
            _ => vec![set("2")],
        }
    }

    /// The cable as a whole, and its wires: only one or the other can be held.
    fn parts(&self) -> Vec<Device> {
        let set = if self.flaw == Flaw::NoSuchCounter { "cord" } else { "cable" };
        let part = |(name, amount)| Device {
            consumes: vec![CounterUse { set: DeviceName::new(set).unwrap(), counters: slots(amount) }],
            binding: (self.flaw == Flaw::BadBinding).then(BindingConditions::default),
            ..Device::new(DeviceName::new(name).unwrap())
        };
        [("whole", "2"), ("wire-0", "1"), ("wire-1", "1")].map(part).to_vec()
    }

    /// Whether somebody holds what `wanted` would take as well.
    fn entangled(work: &PlanWork<'_>) -> bool {
        let parts = |device: &DeviceName| match device.as_str() {
            "whole" => vec![0, 1],
            "wire-0" => vec![0],
            "wire-1" => vec![1],
            _ => Vec::new(),
        };
        let wanted = parts(&work.grant.device);
        work.held.iter().any(|held| parts(&held.grant.device).iter().any(|part| wanted.contains(part)))
    }
}

fn line(claim: &ClaimUid, grant: &Grant) -> String {
    format!("{claim}/{}", grant.device)
}

fn lamps() -> Device {
    let [value, one] = [4, 1].map(Quantity::whole);
    let mut lamps = Device::new(DeviceName::new("lamps").unwrap());
    lamps.sharing = Sharing::Shared;
    let policy = Some(RequestPolicy { default: one, min: one, step: one });
    lamps.capacity.insert(QualifiedName::new("lamps").unwrap(), Capacity { value, policy });
    lamps
}

impl Backend for Board {
    fn name(&self) -> BackendName {
        BackendName::new("board").unwrap()
    }

    fn subsystems(&self) -> &[&'static str] {
        &[]
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        let mut button = Device::new(DeviceName::new("button").unwrap());
        let mut broken = Device::new(DeviceName::new("broken").unwrap());
        broken.health = Health::Unhealthy { reason: "smoke".to_owned() };
        match self.flaw {
            Flaw::LongAttribute => {
                button.attributes.insert(QualifiedName::new("a").unwrap(), (*"x".repeat(65)).into());
            }
            Flaw::BadEdits => button.edits.env.push("no equals sign".to_owned()),
            Flaw::EnumerateWrites => self.write(format!("enumerated {}", self.call())),
            Flaw::SameName => broken.name = button.name.clone(),
            _ => {}
        }
        let mut devices = vec![lamps(), button, broken];
        if self.flaw == Flaw::UnstableOrder && self.call() % 2 == 1 {
            devices.reverse();
        }
        devices.extend(self.parts());
        devices.retain(|_| self.flaw != Flaw::NoDevices);
        Ok(Enumeration { devices, counter_sets: self.sets(), warnings: Vec::new() })
    }

    fn plan(&self, work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
        let mut plan = DevicePlan::default();
        match self.flaw {
            Flaw::PlanWrites => self.write(format!("planned for {}", work.claim)),
            Flaw::PlanVaries => plan.data = self.call().into(),
            Flaw::RefusesEverything => return Err(BackendError::refused("no lamp is left")),
            Flaw::RefusesWithStep => return Err(BackendError::step("open the box", "it is locked")),
            Flaw::RefusesWithFullStop => return Err(BackendError::refused("No lamp is left.")),
            _ => {}
        }
        assert!(!Self::entangled(work), "no scheduler gives {} beside {:?}", work.grant.device, work.held.len());
        let wanted = work.grant.consumed.values().next().and_then(|amount| amount.as_whole()).unwrap_or(0);
        let taken: BTreeSet<u32> = work.held.iter().flat_map(|held| held.plan.pinning.cpus.iter().copied()).collect();
        let free = (0..4).filter(|lamp| self.flaw == Flaw::OverlappingCpus || !taken.contains(lamp));
        plan.pinning.cpus = free.take(usize::try_from(wanted).unwrap()).collect();
        if plan.pinning.cpus.len() as u64 == wanted {
            return Ok(plan);
        }
        let holder = work.held.first().map_or("nobody", |held| held.claim_name);
        Err(BackendError::refused(format!("{wanted} lamps were asked for, but {holder} holds some")))
    }

    fn prepare(&self, work: &PrepareWork<'_>) -> Result<PrepareOutcome, BackendError> {
        self.write(line(work.claim, work.grant));
        self.mine.lock().unwrap().insert(work.claim.clone());
        let mut edits = work.device.edits.clone();
        match self.flaw {
            Flaw::PrepareAddsUp => self.write(format!("{} {}", line(work.claim, work.grant), self.call())),
            Flaw::PreparesBadEdits => edits.env.push("no equals sign".to_owned()),
            Flaw::EditsVary => edits.env.push(format!("CALL={}", self.call())),
            Flaw::GivesForeignEdits => edits.mounts.push(lamp_mount()),
            _ => {}
        }
        Ok(PrepareOutcome::giving(edits))
    }

    fn unprepare(&self, work: &UnprepareWork<'_>) -> Result<(), BackendError> {
        let line = line(work.claim, work.grant);
        let mine = self.mine.lock().unwrap().remove(work.claim);
        let mut hardware = self.hardware.lock().unwrap();
        let refused = match self.flaw {
            Flaw::UnprepareOnce => !hardware.contains(&line),
            Flaw::UnprepareNeedsDevice => work.grant.device.as_str().starts_with("gone"),
            Flaw::UnprepareNeedsSameProcess => !mine && hardware.contains(&line),
            _ => false,
        };
        if refused {
            return Err(BackendError::refused("nothing is known of it"));
        }
        match self.flaw {
            Flaw::UnprepareLeaves => {}
            Flaw::UnprepareTakesAll => hardware.clear(),
            _ => hardware.retain(|entry| !entry.starts_with(&line)),
        }
        Ok(())
    }

    fn check_edits(&self, work: &VerifyWork<'_>, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
        match self.flaw {
            Flaw::BelievesRecords => return Ok(()),
            Flaw::CheckingWrites => self.write(format!("{} was looked at", work.claim)),
            _ => {}
        }
        EditScope::default().with_env().check(edits)
    }

    fn verify(&self, work: &VerifyWork<'_>) -> Result<(), BackendError> {
        let there = self.hardware.lock().unwrap().contains(&line(work.claim, work.grant));
        if self.flaw == Flaw::VerifyNeverFails || (there && self.flaw != Flaw::VerifyFails) {
            return Ok(());
        }
        Err(BackendError::NotUsable { reason: "the lamp is dark".to_owned() })
    }
}

fn lamp_mount() -> CdiMount {
    CdiMount { host_path: "/lamp".to_owned(), container_path: "/lamp".to_owned(), ..CdiMount::default() }
}

/// What the testkit says about a board with `flaw`.
fn verdict(flaw: Flaw) -> Result<(), String> {
    let hardware = Arc::new(Mutex::new(BTreeSet::new()));
    let observe = || hardware.lock().unwrap().iter().cloned().collect::<Vec<_>>().join("\n");
    let restart = || Box::new(Board::new(flaw, &hardware)) as Box<dyn Backend>;
    let samples =
        Samples { effect: Effect::Visible, observe: Some(&observe), restart: Some(&restart), ..Samples::default() };
    catch_unwind(AssertUnwindSafe(|| conformance(&Board::new(flaw, &hardware), &samples)))
        .map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[test]
fn a_backend_that_keeps_every_rule_passes() {
    assert_eq!(verdict(Flaw::None), Ok(()));
}

#[test]
fn every_broken_rule_is_named() {
    for (flaw, rule) in [
        (Flaw::NoDevices, "there is something to test"),
        (Flaw::UnstableOrder, "enumerate gives the same devices in the same order"),
        (Flaw::SameName, "names are unique"),
        (Flaw::UnstableSets, "enumerate gives the same counter sets in the same order"),
        (Flaw::SameSet, "names of counter sets are unique"),
        (Flaw::NoCounter, "the API server accepts the counter set"),
        (Flaw::NoSuchCounter, "counters that a device takes are there"),
        (Flaw::BadBinding, "the API server and runtimes accept the device"),
        (Flaw::LongAttribute, "the API server and runtimes accept the device"),
        (Flaw::BadEdits, "the API server and runtimes accept the device"),
        (Flaw::PreparesBadEdits, "edits are valid CDI"),
        (Flaw::EnumerateWrites, "enumerate has no side effects"),
        (Flaw::PlanWrites, "plan has no side effects"),
        (Flaw::PlanVaries, "plan gives the same answer to the same work"),
        (Flaw::RefusesEverything, "a healthy, free device meets the default request"),
        (Flaw::RefusesWithStep, "plan refuses with `Refused` or `Config`"),
        (Flaw::RefusesWithFullStop, "errors have a text without a full stop"),
        (Flaw::OverlappingCpus, "claims share no CPU"),
        (Flaw::PrepareAddsUp, "a repeated prepare changes nothing"),
        (Flaw::EditsVary, "a repeated prepare gives the same edits to the byte"),
        (Flaw::GivesForeignEdits, "check_edits knows what prepare has given"),
        (Flaw::BelievesRecords, "check_edits refuses what prepare never gives"),
        (Flaw::CheckingWrites, "check_edits has no side effects"),
        (Flaw::VerifyNeverFails, "verify fails before prepare"),
        (Flaw::VerifyFails, "verify succeeds after prepare"),
        (Flaw::UnprepareLeaves, "unprepare leaves the hardware as it was"),
        (Flaw::UnprepareOnce, "unprepare of what was never prepared succeeds"),
        (Flaw::UnprepareNeedsDevice, "unprepare succeeds when the device is gone"),
        (Flaw::UnprepareNeedsSameProcess, "unprepare succeeds"),
        (Flaw::UnprepareTakesAll, "unprepare of one claim leaves the others usable"),
    ] {
        let message = verdict(flaw).expect_err(&format!("{flaw:?} was not noticed"));
        assert!(message.starts_with("backend board"), "{message}");
        assert!(message.contains(&format!("breaks the rule \"{rule}\": ")), "{flaw:?}: {message}");
    }
}

#[test]
fn a_message_names_the_device_and_the_cause() {
    let message = verdict(Flaw::RefusesWithStep).unwrap_err();
    assert!(message.starts_with("backend board, device lamps breaks"), "{message}");
    assert!(message.ends_with("failed to open the box: it is locked"), "{message}");
}

#[test]
fn without_an_observer_only_the_answers_are_checked() {
    let hardware = Arc::new(Mutex::new(BTreeSet::new()));
    conformance(&Board::new(Flaw::None, &hardware), &Samples::default());
    assert!(hardware.lock().unwrap().is_empty());
}
