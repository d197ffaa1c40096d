//! What a Reservation needs next.

use std::time::{Duration, UNIX_EPOCH};

use hostler_api::{
    Chain,
    reservation::{
        RESERVATION_FINALIZER, ReservationConditionReason as Reason, ReservationConditionType,
        ReservationPhase as Phase, ReservationStatus, ReservedDevice, ReservedDeviceState, TemplateError,
    },
};
use hostler_cluster::{from_rfc3339, since_1970};

use super::{
    agenda::Topic,
    core::HoldCore,
    event::{HoldTarget, HoldWrite, ReservationObject, WrittenReservation},
    status::{NewStatus, OpenWords, owners_of},
};

/// Who waits for devices is looked at this often at least.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Clocks are looked at anew after this, where one of them is behind.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// What is done next.
enum HoldStep {
    Rest,
    AddFinalizer,
    RemoveFinalizer,
    Status(Box<ReservationStatus>),
    Delete,
}

impl HoldCore {
    pub(super) fn settle_reservation(&mut self, name: &str) {
        let step = self.next_step(name);
        self.look_at_pods(name);
        self.look_at_parts(name);
        let Some(object) = self.holds.get(name).map(|hold| &hold.object) else { return };
        let ReservationObject { name, uid, version, finalizers, .. } = object.clone();
        let target = HoldTarget::Reservation(name.clone());
        let written = WrittenReservation { name, uid, version };
        let others = finalizers.into_iter().filter(|finalizer| finalizer != RESERVATION_FINALIZER);
        let write = match step {
            HoldStep::Rest => return,
            HoldStep::AddFinalizer => {
                HoldWrite::Finalizers(written, others.chain([RESERVATION_FINALIZER.to_owned()]).collect())
            }
            HoldStep::RemoveFinalizer => HoldWrite::Finalizers(written, others.collect()),
            HoldStep::Status(status) => HoldWrite::Status(written, status),
            HoldStep::Delete => HoldWrite::Delete(written),
        };
        if self.can_write(&target) {
            self.write(write);
        }
    }

    /// Whether anything is still closed for it, or stands for a part that it keeps.
    fn is_kept_for(&self, value: &str, uid: &str) -> bool {
        self.is_fenced(value) || self.has_placeholders(uid)
    }

    fn next_step(&mut self, name: &str) -> HoldStep {
        let Some(hold) = self.holds.get(name) else { return HoldStep::Rest };
        let object = &hold.object;
        let is_kept = object.finalizers.iter().any(|finalizer| finalizer == RESERVATION_FINALIZER);
        let is_in_conflict = object.status.devices.iter().any(|device| device.conflict);
        if (object.is_deleting || object.status.phase.is_over())
            && let Some(status) = self.news_of_conflicts(name)
        {
            return HoldStep::Status(status);
        }
        if object.is_deleting {
            let is_ready = is_kept && !is_in_conflict && !self.is_kept_for(&hold.value, &object.uid);
            return if is_ready { HoldStep::RemoveFinalizer } else { HoldStep::Rest };
        }
        if object.status.phase.is_over() {
            return self.step_of_ended(name, is_kept);
        }
        if !is_kept {
            return HoldStep::AddFinalizer;
        }
        let status = self.next_status(name);
        let known = self.holds.get(name).map(|hold| &hold.object.status);
        match status {
            Some(status) if known != Some(&status) => HoldStep::Status(Box::new(status)),
            _ => HoldStep::Rest,
        }
    }

    /// One that is over is opened to others, then let go, and deleted after a while.
    fn step_of_ended(&mut self, name: &str, is_kept: bool) -> HoldStep {
        let Some(hold) = self.holds.get(name) else { return HoldStep::Rest };
        let status = &hold.object.status;
        let is_in_conflict = status.devices.iter().any(|device| device.conflict);
        if is_in_conflict || self.is_kept_for(&hold.value, &hold.object.uid) {
            let devices = status.devices.clone();
            devices.iter().for_each(|device| self.fence_changed(device));
            return HoldStep::Rest;
        }
        if !status.devices.is_empty() {
            let reason = match status.phase {
                Phase::Succeeded => Reason::Succeeded,
                _ => Reason::Settled,
            };
            return HoldStep::Status(Box::new(NewStatus::of(self, name).cleared(reason)));
        }
        if is_kept {
            return HoldStep::RemoveFinalizer;
        }
        let ended =
            status.condition(ReservationConditionType::Ready).and_then(|it| since_1970(&it.last_transition_time));
        let until = ended.unwrap_or_default() + self.settings.keep;
        if self.is_past(until, name) { HoldStep::Delete } else { HoldStep::Rest }
    }

    /// Whether it is later than that, by all clocks; else it is looked at again.
    fn is_past(&mut self, until: Duration, name: &str) -> bool {
        let left = self.clock.certain().map(|now| until.saturating_sub(now));
        let is_past = left.is_some_and(|left| left.is_zero());
        if !is_past {
            self.agenda.after(left.unwrap_or_default().max(SHORTEST_WAIT), Topic::Reservation(name.to_owned()));
        }
        is_past
    }

    /// When it expires, since 1970.
    pub(super) fn deadline(object: &ReservationObject) -> Result<Option<Duration>, TemplateError> {
        match object.spec.expires.as_deref().and_then(from_rfc3339) {
            // A time before 1970 is over as any other.
            Some(expires) => Ok(Some(expires.duration_since(UNIX_EPOCH).unwrap_or_default())),
            None => Ok(object.spec.lasts()?.map(|ttl| object.created + ttl)),
        }
    }

    /// What shall be said of one that is not over; `None` where nothing is known yet.
    fn next_status(&mut self, name: &str) -> Option<ReservationStatus> {
        let object = self.holds.get(name)?.object.clone();
        let deadline = Self::deadline(&object);
        if let Ok(Some(deadline)) = deadline
            && self.is_past(deadline, name)
        {
            return Some(NewStatus::of(self, name).ended(Reason::Expired, "its time is over"));
        }
        if let Some(node) = self.lost_node(name, &object) {
            return Some(NewStatus::of(self, name).ended(Reason::NodeLost, &format!("node {node} is gone")));
        }
        let error = deadline.err().or_else(|| object.spec.pod_template().err());
        if let Some(error) = error.filter(|_| object.status.devices.is_empty()) {
            return Some(NewStatus::of(self, name).invalid(&Chain(&error).to_string()));
        }
        let devices = self.devices_or_proposal(name);
        let owners = owners_of(self, name, &devices);
        if object.spec.is_once() && owners.len() >= object.spec.replicas() as usize {
            return Some(NewStatus::of(self, name).succeeded(devices, owners));
        }
        self.status_of_open(name, devices, owners)
    }

    fn status_of_open(
        &mut self,
        name: &str,
        devices: Vec<ReservedDevice>,
        owners: Vec<hostler_api::reservation::ObjectReference>,
    ) -> Option<ReservationStatus> {
        let hold = self.holds.get(name)?;
        let is_lacking = !hold.lacking(&devices, &owners).is_empty();
        let is_new = hold.object.status.conditions.is_empty();
        let problem = hold.problem.clone().or_else(|| hold.said_problem()).filter(|_| is_lacking);
        let is_planned = hold.problem.is_some();
        if is_lacking && !is_planned {
            self.plan_soon();
        }
        if is_lacking {
            self.agenda.after(LOOK_AGAIN, Topic::Plan);
        }
        if devices.is_empty() && problem.is_none() && is_new {
            return None;
        }
        let is_closed = self.is_closed(name, &devices);
        let conflicts = self.conflicts(&devices);
        let said = OpenWords { problem: problem.as_deref(), conflicts: conflicts.as_deref(), is_closed };
        Some(NewStatus::of(self, name).open(self.holds.get(name)?, devices, owners, &said))
    }

    /// Its devices as they are, with those that were chosen in the place of those that it lacks.
    fn devices_or_proposal(&mut self, name: &str) -> Vec<ReservedDevice> {
        let devices = self.look_at_devices(name);
        let Some(hold) = self.holds.get(name) else { return devices };
        let Some(proposal) = &hold.proposal else { return devices };
        let is_replaced = |device: &ReservedDevice| {
            !matches!(device.state, ReservedDeviceState::HandedOver | ReservedDeviceState::Releasing)
                && proposal.iter().any(|it| it.replica == device.replica)
        };
        let (replaced, kept): (Vec<_>, Vec<_>) = devices.into_iter().partition(is_replaced);
        let left = replaced.into_iter().filter_map(|device| self.released(device));
        kept.into_iter().chain(proposal.iter().cloned()).chain(left).collect()
    }

    /// A node of its devices that has been gone for too long.
    fn lost_node(&mut self, name: &str, object: &ReservationObject) -> Option<String> {
        let now = self.agenda.now;
        for device in object.status.devices.iter().filter(|device| !device.node_name.is_empty()) {
            let Some(age) = self.seen.missing_for(&device.node_name, now) else { continue };
            if age >= self.settings.grace {
                return Some(device.node_name.clone());
            }
            self.agenda.after(self.settings.grace - age, Topic::Reservation(name.to_owned()));
        }
        None
    }
}
