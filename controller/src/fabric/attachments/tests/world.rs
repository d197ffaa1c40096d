//! Attachments in a cluster. The fabric is the one in memory; scheduler, daemons, publisher and pods are here. What is
//! true of the hardware is read from the fabric, and never from objects.

mod by_hand;

use std::{collections::BTreeMap, collections::BTreeSet, time::Duration};

use hostler_api::{
    ObjectKey, Quantity,
    core::ObjectMeta,
    fabric::{
        AttachmentPhase, DeviceIdentity, ErasureMethod, FabricAttachment, FabricAttachmentSpec, FabricAttachmentStatus,
        FabricNodeReport, NodeDeviceState, SystemUuid, fabric_pool,
    },
};
use hostler_cluster::since_1970;
use hostler_fabric::{AttachKey, FabricInventory, fake::FakeFabric};
use serde_json::Value;

use self::by_hand::HandWork;
use super::super::{
    after_call::{CallEnd, after_call},
    claim::{ClaimOfDevice, ToldDevice},
    context::{
        AnsweredWrite, AttachmentContext, AttachmentLimits, AttachmentNode, AttachmentWrite, FABRIC_FINALIZER,
        HostFact, ManagerAnswer, ManagerCall, SeenAttachment, ShownConnection,
    },
    reconciler::ask,
    round::{AttachmentRound, RoundStep},
    status::time,
};
use crate::{
    fabric::keepers::DeviceKeeper,
    testkit::{ApiError, Dice, Fate, Fated, Fates, ModelCluster, ModelServer, Part, model_kind, over, serves},
};

pub(super) const SECOND: Duration = Duration::from_secs(1);
/// Time for which calls may be late.
pub(super) const LATE: Duration = Duration::from_secs(600);
/// The scheduler's own time for binding conditions.
const BINDING: Duration = Duration::from_secs(600);

/// An attachment on the server.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelAttachment {
    pub(super) name: String,
    pub(super) uid: String,
    version: String,
    finalizers: Vec<String>,
    is_deleting: bool,
    pub(super) spec: FabricAttachmentSpec,
    pub(super) status: FabricAttachmentStatus,
}

/// A claim with its one pod.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelClaim {
    name: String,
    pub(super) uid: String,
    version: String,
    pub(super) given: Option<ModelAllocation>,
    told: Vec<ToldDevice>,
    /// Memory that the claim asks for.
    memory: Option<Quantity>,
    /// True if the pod was bound to its node.
    pub(super) is_bound: bool,
}

/// The allocation of a claim.
#[derive(Clone, Debug)]
pub(super) struct ModelAllocation {
    pub(super) device: u32,
    pub(super) node: u32,
    at: Duration,
}

/// Objects of the server.
#[derive(Default)]
pub(super) struct FabricCluster {
    pub(super) attachments: BTreeMap<String, ModelAttachment>,
    pub(super) claims: BTreeMap<String, ModelClaim>,
}

impl ModelCluster for FabricCluster {
    type Event = ();
}

model_kind!(ModelAttachment: String = |it| it.name.clone(), {
    uid: uid, version: version, finalizers: finalizers, is_deleting: is_deleting
});
model_kind!(ModelClaim: String = |it| it.name.clone(), { uid: uid, version: version });
serves!(FabricCluster, attachments: ModelAttachment);
serves!(FabricCluster, claims: ModelClaim);

/// A machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// True if the machine runs; one that is off has no Node.
    pub(super) is_on: bool,
    /// Devices that the kernel has let go of, and that did not come again since.
    let_go: BTreeSet<u32>,
    /// Containers that run, by device, with the UID of their claim.
    pub(super) containers: BTreeMap<u32, String>,
}

/// A call that was sent, and has come to nothing yet.
struct LateCall {
    device: u32,
    call: ManagerCall,
    until: Duration,
}

/// A round of which the next step comes late.
struct LateRound {
    device: u32,
    round: AttachmentRound,
}

/// An answer that its controller has not taken yet.
struct LateAnswer {
    cx: AttachmentContext,
    call: ManagerCall,
    answer: ManagerAnswer,
}

pub(super) struct FabricWorld {
    pub(super) fabric: FakeFabric,
    runtime: tokio::runtime::Runtime,
    pub(super) server: ModelServer<FabricCluster>,
    pub(super) machines: Vec<Machine>,
    pub(super) devices: u32,
    /// Devices that the published slice shows with the taint.
    pub(super) tainted: BTreeSet<u32>,
    /// Devices that Reservations close: only their owners are given them.
    pub(super) closed: BTreeSet<u32>,
    /// Devices that Reservations keep, as the controller reads it.
    pub(super) kept: BTreeMap<u32, DeviceKeeper>,
    /// Connections as the manager was read last: device, host, key.
    shown: Vec<(u32, u32, AttachKey)>,
    /// Memory that was made for devices, with its size, as the manager was read last.
    shown_made: BTreeMap<u32, (AttachKey, u64)>,
    /// The same at the last check.
    last_made: BTreeMap<u32, (AttachKey, u64)>,
    hands: HandWork,
    /// Connections at the last check: device, host, and if the attachment of the device made it.
    last: BTreeMap<(u32, u32), bool>,
    /// UID of the last claim whose data a device holds.
    data: BTreeMap<u32, String>,
    /// Attempts that nodes reported ready, by UID and number.
    ready: BTreeSet<(String, u32)>,
    /// UIDs of attachments of each device.
    uids: BTreeMap<String, u32>,
    late_calls: Vec<LateCall>,
    late_answers: Vec<LateAnswer>,
    late_rounds: Vec<LateRound>,
    pub(super) fates: Fates,
    pub(super) now: Duration,
    made: usize,
    /// Memory that the next pods ask for.
    pub(super) amount: Option<Quantity>,
    pub(super) seen: WorldSeen,
}

/// What came about.
#[derive(Clone, Debug, Default)]
pub(super) struct WorldSeen {
    pub(super) bound: usize,
    pub(super) failed: usize,
    pub(super) detached: usize,
    pub(super) isolated: usize,
    pub(super) erased_on_arrival: usize,
    pub(super) deaths: usize,
    pub(super) late_calls: usize,
    pub(super) late_rounds: usize,
    pub(super) taken_back: usize,
    pub(super) given_back: usize,
    pub(super) quarantined: usize,
    pub(super) by_hand: usize,
    pub(super) lost: usize,
    pub(super) taken_over: usize,
    pub(super) taken_over_in_use: usize,
}

pub(super) fn device_name(device: u32) -> String {
    FakeFabric::device(device).device_name()
}

pub(super) fn node_name(node: u32) -> String {
    format!("n{node}")
}

fn node_number(name: &str) -> Option<u32> {
    name.strip_prefix('n')?.parse().ok()
}

fn device_number(identity: DeviceIdentity) -> u32 {
    u32::try_from(identity.serial - FakeFabric::device(0).serial).unwrap()
}

impl ModelAttachment {
    fn seen(&self) -> SeenAttachment {
        let metadata = ObjectMeta {
            name: self.name.clone(),
            uid: Some(self.uid.clone()),
            finalizers: self.finalizers.clone(),
            deletion_timestamp: self.is_deleting.then(|| "2026-01-01T00:00:00Z".to_owned()),
            ..ObjectMeta::default()
        };
        let attachment = FabricAttachment { metadata, spec: self.spec.clone(), status: self.status.clone() };
        SeenAttachment { attachment, version: over(&self.uid, &self.version), object: Value::Null }
    }
}

impl ModelClaim {
    pub(super) fn seen(&self) -> Option<ClaimOfDevice> {
        let given = self.given.as_ref()?;
        Some(ClaimOfDevice {
            key: ObjectKey::new("default", &self.name),
            uid: self.uid.clone(),
            version: self.version.clone(),
            pool: fabric_pool("m", "d"),
            node: Some(node_name(given.node)),
            allocated: Some(given.at),
            device: device_name(given.device),
            memory: self.memory,
            first: None,
            told: self.told.clone(),
        })
    }
}

impl FabricWorld {
    pub(super) fn new(nodes: u32, devices: u32) -> Self {
        Self::of(FakeFabric::rack(nodes, devices), nodes, devices)
    }

    /// The world around a fabric with so many hosts and devices.
    pub(super) fn of(fabric: FakeFabric, nodes: u32, devices: u32) -> Self {
        let machine = Machine { is_on: true, ..Machine::default() };
        Self {
            fabric,
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
            server: ModelServer::default(),
            machines: vec![machine; usize::try_from(nodes).unwrap()],
            devices,
            tainted: BTreeSet::new(),
            closed: BTreeSet::new(),
            kept: BTreeMap::new(),
            shown: Vec::new(),
            shown_made: BTreeMap::new(),
            last_made: BTreeMap::new(),
            hands: HandWork::default(),
            last: BTreeMap::new(),
            data: BTreeMap::new(),
            ready: BTreeSet::new(),
            uids: BTreeMap::new(),
            late_calls: Vec::new(),
            late_answers: Vec::new(),
            late_rounds: Vec::new(),
            fates: Fates::default(),
            now: Duration::from_secs(1_800_000_000),
            made: 0,
            amount: None,
            seen: WorldSeen::default(),
        }
    }

    pub(super) fn attachment(&self, device: u32) -> Option<&ModelAttachment> {
        self.server.attachments.get(&device_name(device))
    }

    pub(super) fn phase(&self, device: u32) -> Option<AttachmentPhase> {
        self.attachment(device).map(|it| it.status.phase)
    }

    /// Connections with their keys: device, host, key.
    pub(super) fn connections(&self) -> Vec<(u32, u32, AttachKey)> {
        let host_number = |uuid: SystemUuid| (0..64).find(|at| FakeFabric::host(*at).as_ref() == Some(&uuid));
        let all = self.fabric.connections().into_iter();
        all.map(|it| {
            let host = it.host.and_then(host_number).unwrap();
            (device_number(it.devices[0]), host, it.key.unwrap())
        })
        .collect()
    }

    /// The manager is read.
    pub(super) fn poll(&mut self) {
        self.shown = self.connections();
        self.shown_made = self.made_memory();
    }

    /// Keys under which memory was made and its size, by device.
    pub(super) fn made_memory(&self) -> BTreeMap<u32, (AttachKey, u64)> {
        let fabric = self.fabric.clone();
        let mut made = BTreeMap::new();
        fabric.change(|parts| {
            let inventory = FabricInventory::conclude(parts.clone());
            for device in &inventory.devices {
                let known = device.memory.made_for.clone().zip(device.memory.size_bytes);
                made.extend(known.map(|known| (device_number(device.identity.unwrap()), known)));
            }
        });
        made
    }

    fn cx(&self, device: u32) -> AttachmentContext {
        let seen = self.attachment(device).map(ModelAttachment::seen);
        let mut claims: Vec<ClaimOfDevice> = self.server.claims.values().filter_map(ModelClaim::seen).collect();
        claims.retain(|claim| claim.device == device_name(device));
        claims.sort_by_key(|claim| claim.allocated);
        let facts = |(at, machine): (usize, &Machine)| {
            let at = u32::try_from(at).unwrap();
            let host = FakeFabric::host(at).map_or(HostFact::Unknown(String::new()), HostFact::Known);
            (node_name(at), AttachmentNode { exists: machine.is_on, is_out_of_service: false, host })
        };
        let own = seen.as_ref().map(|seen| format!("{}-", seen.version.uid)).unwrap_or_default();
        let shown = self.shown.iter().filter(|(_, _, key)| seen.is_some() && key.as_str().starts_with(&own));
        let shown = shown.map(|(_, at, key)| ShownConnection { key: key.clone(), node: Some(node_name(*at)) });
        AttachmentContext {
            device: FakeFabric::device(device),
            claims,
            kept: self.kept.get(&device).cloned(),
            nodes: self.machines.iter().enumerate().map(facts).collect(),
            twins: Vec::new(),
            shown: shown.collect(),
            board: Some(self.board(device)),
            made_memory: self.shown_made.get(&device).map(|(key, _)| key.clone()),
            is_tainted: self.tainted.contains(&device),
            limits: AttachmentLimits { attach: 480 * SECOND, late_call: LATE },
            now: self.now,
            seen,
        }
    }

    /// The controller reconciles a device. True if it did anything.
    pub(super) fn control(&mut self, device: u32, dice: Option<&mut Dice>) -> bool {
        let round = AttachmentRound::new(self.cx(device));
        self.go_on(device, round, dice)
    }

    fn go_on(&mut self, device: u32, mut round: AttachmentRound, mut dice: Option<&mut Dice>) -> bool {
        let mut has_done = false;
        loop {
            let call = match round.next() {
                RoundStep::Rest | RoundStep::Until(_) => return has_done,
                RoundStep::Later => return true,
                RoundStep::ReadAnew => {
                    round = AttachmentRound::new(self.cx(device));
                    continue;
                }
                RoundStep::Write(write) => {
                    has_done = true;
                    if !self.write_in(device, &mut round, &write) {
                        return true;
                    }
                    // Others do more before the next step, as many as they like: the controller is slow.
                    if dice.as_deref_mut().is_some_and(|dice| dice.one_in(4)) {
                        self.late_rounds.push(LateRound { device, round });
                        return true;
                    }
                    continue;
                }
                RoundStep::Call(call) => call,
            };
            match dice.as_deref_mut().map_or(9, |dice| dice.roll(10)) {
                // The controller dies, and the call is carried out later. No two calls of dead controllers for one device
                // overtake each other: an attach and a detach that do can be told apart by the manager only. So one call
                // for each device is late at a time, which is the other limit beside `end_isolations`.
                0 if self.late_calls.iter().all(|late| late.device != device) => {
                    self.seen.late_calls += 1;
                    let until = self.now + SECOND * u32::try_from(dice.map_or(0, |dice| dice.roll(590))).unwrap();
                    self.late_calls.push(LateCall { device, call, until });
                    return true;
                }
                // The answer comes when another controller leads.
                1 => {
                    let answer = self.ask(&call);
                    self.late_answers.push(LateAnswer { cx: round.cx, call, answer });
                    return true;
                }
                _ => {}
            }
            let answer = self.ask(&call);
            let seen = round.cx.seen.clone().unwrap();
            match after_call(&round.cx, &seen, &call, answer) {
                CallEnd::Write(write) => {
                    has_done = true;
                    round.called();
                    self.seen.taken_back += usize::from(matches!(call, ManagerCall::Verify(_)));
                    if !self.write_in(device, &mut round, &write) {
                        return true;
                    }
                }
                CallEnd::NotThere => round.cx.forget_shown(&call),
                CallEnd::Wait | CallEnd::Failed(_) => return has_done,
            }
        }
    }

    /// Makes a write of a round. True if the round goes on.
    fn write_in(&mut self, device: u32, round: &mut AttachmentRound, write: &AttachmentWrite) -> bool {
        if !self.write(device, &round.cx, write) {
            return false;
        }
        let written = match write {
            AttachmentWrite::Claim(claim) => {
                let claim = self.server.claims.get(&claim.key.name).and_then(ModelClaim::seen);
                AnsweredWrite::Claim(claim.filter(|it| it.device == device_name(device)).map(Box::new))
            }
            AttachmentWrite::Delete | AttachmentWrite::Finalizer { is_wanted: false } => AnsweredWrite::Gone,
            _ => AnsweredWrite::Attachment(Box::new(self.attachment(device).unwrap().seen())),
        };
        round.take(written)
    }

    fn ask(&mut self, call: &ManagerCall) -> ManagerAnswer {
        let fabric = self.fabric.clone();
        let answer = self.runtime.block_on(ask(&fabric, call));
        self.seen.isolated += usize::from(matches!(call, ManagerCall::Isolate { .. }));
        self.check();
        answer
    }

    /// A call that was late is carried out, an answer that was late is taken, or a round goes on.
    pub(super) fn deliver(&mut self, dice: &mut Dice) {
        if let Some(LateRound { device, round }) = dice.take(&mut self.late_rounds) {
            self.seen.late_rounds += 1;
            self.go_on(device, round, Some(dice));
        }
        let at = dice.roll(self.late_calls.len().max(1));
        if at < self.late_calls.len() {
            let late = self.late_calls.swap_remove(at);
            self.ask(&late.call);
        }
        if let Some(LateAnswer { cx, call, answer }) = dice.take(&mut self.late_answers) {
            let seen = cx.seen.clone().unwrap();
            if let CallEnd::Write(write) = after_call(&cx, &seen, &call, answer) {
                let _ = self.write(device_number(cx.device), &cx, &write);
            }
        }
    }

    /// Lets time pass. No call is later than is allowed for.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        let now = self.now;
        let due: Vec<LateCall> = self.late_calls.extract_if(.., |late| late.until <= now).collect();
        due.into_iter().for_each(|late| drop(self.ask(&late.call)));
    }

    /// Makes a write. True if the controller is told that it was made.
    fn write(&mut self, device: u32, cx: &AttachmentContext, write: &AttachmentWrite) -> bool {
        let fate = self.fates.next();
        self.seen.deaths += usize::from(matches!(fate, Some(Fate::DieBefore | Fate::DieAfter)));
        if let AttachmentWrite::Status(status) = write {
            self.seen.failed += usize::from(status.phase == AttachmentPhase::Failed);
            self.seen.detached += usize::from(status.phase == AttachmentPhase::Detached);
            self.seen.quarantined += usize::from(status.reason == "Quarantined");
            self.seen.taken_over += usize::from(status.reason == "Adopted");
            let is_used = status.phase == AttachmentPhase::Ready && status.connection.is_some();
            self.seen.taken_over_in_use += usize::from(is_used);
            self.hands.see(status);
        }
        if std::env::var_os("HOSTLER_TEST_TRACE").is_some() {
            eprintln!("{:?} device {device} {fate:?} WRITE {write:?}", self.now);
        }
        let touch = |world: &mut Self| world.server.touch::<ModelAttachment>(&device_name(device));
        let fated = Fate::carry_out(fate, self, touch, |world| world.apply(device, cx, write));
        self.check();
        matches!(fated, Fated::Answered(Ok(())))
    }

    /// As the server takes it.
    fn apply(&mut self, device: u32, cx: &AttachmentContext, write: &AttachmentWrite) -> Result<(), ApiError> {
        let name = device_name(device);
        if let AttachmentWrite::Claim(claim) = write {
            let over = over(&claim.uid, &claim.version);
            let change = |it: &mut ModelClaim| it.told.clone_from(&claim.devices);
            return self.server.update(&claim.key.name, Some(&over), Part::Status, change).map(drop);
        }
        if let AttachmentWrite::Create(spec) = write {
            let (spec, finalizers) = (FabricAttachmentSpec::clone(spec), vec![FABRIC_FINALIZER.to_owned()]);
            let made = ModelAttachment { name, finalizers, spec, ..ModelAttachment::default() };
            let made = self.server.create(made)?;
            self.uids.insert(made.uid, device);
            return Ok(());
        }
        let version = cx.seen.as_ref().map(|seen| seen.version.clone());
        let version = version.as_ref();
        match write {
            AttachmentWrite::Spec(spec) => {
                let change = |it: &mut ModelAttachment| it.spec = FabricAttachmentSpec::clone(spec);
                self.server.update(&name, version, Part::Spec, change).map(drop)
            }
            AttachmentWrite::Status(status) => {
                let change = |it: &mut ModelAttachment| it.status = FabricAttachmentStatus::clone(status);
                self.server.update(&name, version, Part::Status, change).map(drop)
            }
            AttachmentWrite::Finalizer { is_wanted } => {
                let change = |it: &mut ModelAttachment| {
                    it.finalizers = is_wanted.then(|| FABRIC_FINALIZER.to_owned()).into_iter().collect();
                };
                self.server.update(&name, version, Part::Metadata, change).map(drop)
            }
            AttachmentWrite::Delete => self.server.delete::<ModelAttachment>(&name, version).map(drop),
            AttachmentWrite::Create(_) | AttachmentWrite::Claim(_) => Ok(()),
        }
    }

    /// An operator deletes the attachment of a device.
    pub(super) fn delete_attachment(&mut self, device: u32) {
        let _ = self.server.delete::<ModelAttachment>(&device_name(device), None);
    }

    /// The published slice becomes what the attachment says.
    pub(super) fn publish(&mut self, device: u32) {
        let is_held_back = self.attachment(device).is_some_and(|it| {
            let retry_at = it.status.retry_at.as_deref().and_then(since_1970).unwrap_or_default();
            let is_kept = it.spec.kept_for.is_some() && it.spec.claim.is_none() && self.closed.contains(&device);
            match it.status.phase {
                AttachmentPhase::Ready if !it.spec.release && is_kept => false,
                phase => phase != AttachmentPhase::Detached || retry_at > self.now,
            }
        });
        let is_closed = self.is_in_use(device) || is_held_back;
        if is_closed {
            self.tainted.insert(device)
        } else {
            self.tainted.remove(&device)
        };
    }

    /// The daemon of the device's node looks at the device and reports. A daemon that refuses does not let go now.
    pub(super) fn report(&mut self, device: u32, refuses: bool, erases: bool) {
        let Some(attachment) = self.attachment(device).cloned() else { return };
        let Some(node) = node_number(&attachment.spec.node_name) else { return };
        let is_there = self.connections().iter().any(|(it, host, _)| (*it, *host) == (device, node));
        let machine = &mut self.machines[node as usize];
        if !machine.is_on {
            return;
        }
        let spec = &attachment.spec;
        let known = attachment.status.node.clone().filter(|report| report.attempt == spec.attempt);
        let mut report = known.unwrap_or(FabricNodeReport { attempt: spec.attempt, ..FabricNodeReport::default() });
        if spec.release {
            report.state = NodeDeviceState::Releasing;
            if !machine.containers.contains_key(&device) && !refuses {
                report.state = NodeDeviceState::Released;
                if is_there {
                    machine.let_go.insert(device);
                    report.erased = erases.then_some(ErasureMethod::Sanitize);
                    if erases {
                        self.data.remove(&device);
                    }
                }
            }
        } else if !is_there {
            report.state = NodeDeviceState::Absent;
        } else if !machine.containers.contains_key(&device) {
            if spec.erase && report.erased.is_none() {
                self.data.remove(&device);
                self.seen.erased_on_arrival += 1;
                report.erased = Some(ErasureMethod::Overwrite);
            }
            report.state = NodeDeviceState::Ready;
            self.ready.insert((attachment.uid.clone(), spec.attempt));
        }
        let change = |it: &mut ModelAttachment| it.status.node = Some(report);
        self.server.update(&attachment.name, None, Part::Status, change).unwrap();
    }

    /// Makes a claim with its pod.
    pub(super) fn pod(&mut self) {
        self.made += 1;
        let name = format!("c{}", self.made);
        let memory = self.amount;
        self.server.create(ModelClaim { name, memory, ..ModelClaim::default() }).unwrap();
    }

    /// The scheduler looks at a claim: it gives it a device, binds its pod, or takes the device away.
    pub(super) fn schedule(&mut self, name: &str, dice: &mut Dice) {
        let Some(claim) = self.server.claims.get(name).cloned() else { return };
        let Some(given) = claim.given.clone() else {
            let is_free = |device: &u32| {
                let mut others = self.server.claims.values();
                let offered = self.shown_made.get(device).map(|(_, size)| Quantity::whole(*size));
                !self.tainted.contains(device)
                    && !self.closed.contains(device)
                    && offered.is_none_or(|offered| claim.memory.is_none_or(|asked| asked <= offered))
                    && !others.any(|it| it.given.as_ref().is_some_and(|it| it.device == *device))
            };
            let free: Vec<u32> = (0..self.devices).filter(is_free).collect();
            let node = dice.roll(self.machines.len());
            if free.is_empty() || !self.machines[node].is_on {
                return;
            }
            let (device, node) = (dice.pick(&free), u32::try_from(node).unwrap());
            let at = self.now;
            return self.change(name, |it| it.given = Some(ModelAllocation { device, node, at }));
        };
        let Some(seen) = claim.seen().filter(|_| !claim.is_bound) else { return };
        if seen.is_failed() || (!seen.is_told_attached() && self.now >= given.at + BINDING) {
            return self.change(name, |it| (it.given, it.told) = (None, Vec::new()));
        }
        if seen.is_told_attached() {
            self.seen.bound += 1;
            self.change(name, |it| it.is_bound = true);
        }
    }

    /// The scheduler gives a device that a Reservation keeps to an owner, which is a new pod.
    pub(super) fn owner(&mut self, device: u32, node: u32) {
        let mut claims = self.server.claims.values();
        let is_given = claims.any(|it| it.given.as_ref().is_some_and(|given| given.device == device));
        if is_given || self.tainted.contains(&device) || !self.machines[node as usize].is_on {
            return;
        }
        self.pod();
        let (name, at) = (format!("c{}", self.made), self.now);
        self.change(&name, |it| it.given = Some(ModelAllocation { device, node, at }));
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut ModelClaim)) {
        self.server.update(&name.to_owned(), None, Part::Status, change).unwrap();
    }

    /// The kubelet of a bound pod starts its container, if the daemon prepares the device.
    pub(super) fn start(&mut self, name: &str) {
        let Some(claim) = self.server.claims.get(name).cloned().filter(|claim| claim.is_bound) else { return };
        let given = claim.given.unwrap();
        let machine = &self.machines[given.node as usize];
        let is_there = self.connections().iter().any(|(it, host, _)| (*it, *host) == (given.device, given.node));
        let is_its = self
            .attachment(given.device)
            .is_some_and(|it| !it.spec.release && it.spec.claim.as_ref().is_some_and(|named| named.uid == claim.uid));
        if !machine.is_on || !is_there || !is_its || machine.containers.contains_key(&given.device) {
            return;
        }
        let dirty = self.data.insert(given.device, claim.uid.clone());
        assert!(dirty.is_none(), "claim {name} gets device {} with data of {dirty:?}", given.device);
        self.machines[given.node as usize].containers.insert(given.device, claim.uid);
        // The daemon reports how the device was erased since it was used last.
        let change = |it: &mut ModelAttachment| {
            if let Some(report) = &mut it.status.node {
                report.erased = None;
            }
        };
        self.server.update(&device_name(given.device), None, Part::Status, change).unwrap();
    }

    /// A pod is deleted. Its container may run on for a while, where it was deleted by force.
    pub(super) fn delete_pod(&mut self, name: &str, by_force: bool) {
        let Some(claim) = self.server.remove::<ModelClaim>(&name.to_owned()) else { return };
        if !by_force {
            self.machines.iter_mut().for_each(|it| it.containers.retain(|_, uid| *uid != claim.uid));
        }
    }

    /// Containers of pods that are gone end.
    pub(super) fn end_orphans(&mut self) {
        let living: BTreeSet<String> = self.server.claims.values().map(|it| it.uid.clone()).collect();
        self.machines.iter_mut().for_each(|it| it.containers.retain(|_, uid| living.contains(uid)));
    }

    /// A machine ends, its Node and its pods with it; or it starts again.
    pub(super) fn switch(&mut self, node: u32) {
        let is_on = !self.machines[node as usize].is_on;
        if is_on {
            self.end_isolations(node);
        }
        self.machines[node as usize] = Machine { is_on, ..Machine::default() };
        if is_on {
            self.withdraw(node);
        } else {
            let of_node = |it: &&ModelClaim| it.given.as_ref().is_some_and(|given| given.node == node);
            let gone: Vec<String> = self.server.claims.values().filter(of_node).map(|it| it.name.clone()).collect();
            gone.iter().for_each(|name| self.delete_pod(name, false));
        }
    }

    /// A machine that was said to be gone starts again after the isolations from it that are still on their way: they name
    /// the connection that the machine has, and nothing can call them back. This is a limit of what is promised: after a
    /// controller died in the middle of an isolation, ten minutes.
    fn end_isolations(&mut self, node: u32) {
        let devices: BTreeSet<u32> =
            self.connections().into_iter().filter(|(_, host, _)| *host == node).map(|(device, ..)| device).collect();
        let is_from =
            |late: &mut LateCall| devices.contains(&late.device) && matches!(late.call, ManagerCall::Isolate { .. });
        let due: Vec<LateCall> = self.late_calls.extract_if(.., is_from).collect();
        due.into_iter().for_each(|late| drop(self.ask(&late.call)));
    }

    /// A daemon that begins with a kernel takes back what it said of devices that the kernel has: nothing was let go of.
    fn withdraw(&mut self, node: u32) {
        for (device, host, _) in self.connections() {
            let name = device_name(device);
            let is_of = |it: &&ModelAttachment| host == node && it.spec.node_name == node_name(node);
            if self.server.attachments.get(&name).filter(is_of).is_none() {
                continue;
            }
            let change = |it: &mut ModelAttachment| {
                if let Some(report) = it.status.node.as_mut().filter(|it| it.state == NodeDeviceState::Released) {
                    (report.state, report.erased) = (NodeDeviceState::Releasing, None);
                }
            };
            self.server.update(&name, None, Part::Status, change).unwrap();
        }
    }

    pub(super) fn claims(&self) -> Vec<String> {
        self.server.claims.keys().cloned().collect()
    }

    /// True if nothing that was sent is still on its way.
    pub(super) fn finish_work(&mut self, dice: &mut Dice) {
        self.fabric.heal();
        while !self.late_calls.is_empty() || !self.late_answers.is_empty() || !self.late_rounds.is_empty() {
            self.deliver(dice);
        }
        self.finish_by_hand();
        let keys: Vec<String> = self.uids.keys().cloned().collect();
        for uid in keys {
            for attempt in 0..40 {
                self.fabric.finish(&AttachKey::new(format!("{uid}-{attempt}")).unwrap());
            }
        }
        self.check();
    }

    /// Checks what must be true at every moment.
    pub(super) fn check(&mut self) {
        let connections = self.connections();
        let mut now = BTreeMap::new();
        let mut hosts: BTreeMap<u32, u32> = BTreeMap::new();
        for (device, host, key) in &connections {
            let other = hosts.insert(*device, *host);
            assert!(other.is_none_or(|other| other == *host), "device {device} is attached to {other:?} and {host}");
            let uid = key.as_str().rsplit_once('-').unwrap().0;
            let is_own = self.uids.get(uid) == Some(device) || self.hands.has_made(key);
            now.insert((*device, *host), is_own);
        }
        let made = self.made_memory();
        for (device, key) in self.last_made.iter().filter(|(device, known)| made.get(device) != Some(known)) {
            assert!(!self.data.contains_key(device), "memory {key:?} of device {device} was given back with data");
        }
        self.seen.given_back += self.last_made.keys().filter(|device| !made.contains_key(device)).count();
        self.last_made = made;
        self.hands.check(&connections);
        for ((device, host), is_own) in &self.last {
            let machine = &self.machines[*host as usize];
            let is_taken = !now.contains_key(&(*device, *host)) && machine.is_on && *is_own;
            assert!(
                !is_taken || machine.let_go.contains(device),
                "device {device} was taken from node {host}, which runs and has not let go of it"
            );
        }
        for (device, host) in now.keys().filter(|key| !self.last.contains_key(key)) {
            self.machines[*host as usize].let_go.remove(device);
        }
        self.last = now;
        for claim in self.server.claims.values() {
            let Some(seen) = claim.seen().filter(ClaimOfDevice::is_told_attached) else { continue };
            if self.hands.orphans.contains(&claim.uid) {
                continue;
            }
            let given = claim.given.as_ref().unwrap();
            let attachment = self.attachment(given.device).unwrap_or_else(|| panic!("{seen:?} has no attachment"));
            let key = format!("{}-{}", attachment.uid, attachment.spec.attempt);
            let named = attachment.spec.claim.as_ref().map(|named| &named.uid);
            assert_eq!(named, Some(&claim.uid), "attached is true of a claim whose device is another one's");
            let is_attached =
                connections.iter().any(|it| (it.0, it.1, it.2.as_str()) == (given.device, given.node, &*key));
            assert!(attachment.status.used, "attached is true of {seen:?}, and the device counts as unused");
            assert!(is_attached, "attached is true of {seen:?}, and the device is not there: {attachment:#?}");
            assert!(
                self.ready.contains(&(attachment.uid.clone(), attachment.spec.attempt)),
                "no node reported it ready"
            );
        }
    }

    /// Says what the world is like, for failures.
    pub(super) fn told(&self) -> String {
        format!(
            "at {}: {:#?}\n{:#?}\n{:?}",
            time(self.now),
            self.server.attachments,
            self.server.claims,
            self.connections()
        )
    }
}
