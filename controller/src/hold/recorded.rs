//! Events about a Reservation: only news, and nothing twice. A controller that led before has recorded what the status
//! says.

use std::collections::BTreeSet;

use hostler_api::reservation::{
    ReservationConditionReason as Reason, ReservationConditionType as Type, ReservationPhase as Phase,
    ReservationStatus,
};

use super::{
    objects::{DeviceKey, device_key},
    writes::HoldEventNote,
};
use crate::reservation_object::ReservationObject;

/// Events that were recorded about a Reservation.
#[derive(Debug)]
pub(super) struct RecordedEvents {
    /// Phase, and reason of the condition Ready.
    stand: Option<(Phase, String)>,
    /// Devices that two claims have.
    conflicts: BTreeSet<DeviceKey>,
    /// Reasons why there are no devices, since there were some.
    lacks: BTreeSet<String>,
}

impl RecordedEvents {
    /// The Events that an earlier leader has recorded.
    pub(super) fn before(object: &ReservationObject) -> Self {
        let lack = object.status.lack_of_devices().map(|it| it.reason.clone());
        Self { stand: stand(&object.status), conflicts: conflicts(&object.status), lacks: lack.into_iter().collect() }
    }

    /// Returns the Events that follow from the status of a Reservation.
    pub(super) fn news(&mut self, object: &ReservationObject) -> Vec<HoldEventNote> {
        let mut news: Vec<HoldEventNote> = self.lack_of_devices(object).into_iter().collect();
        news.extend(self.conflict(object));
        news.extend(self.stand(object));
        news
    }

    /// Records each reason once until there are devices: a Reservation can wait for ever.
    fn lack_of_devices(&mut self, object: &ReservationObject) -> Option<HoldEventNote> {
        let ready = object.status.condition(Type::Ready)?;
        let lack = object.status.lack_of_devices().filter(|_| ready.reason == Reason::Unschedulable.as_str())?;
        let is_news = self.lacks.insert(lack.reason.clone());
        is_news.then(|| HoldEventNote::of(object, true, Reason::Unschedulable.as_str(), lack.message.clone()))
    }

    fn conflict(&mut self, object: &ReservationObject) -> Option<HoldEventNote> {
        let conflicts = conflicts(&object.status);
        let is_news = !conflicts.is_subset(&self.conflicts);
        self.conflicts = conflicts;
        let settled = object.status.condition(Type::Settled).filter(|_| is_news)?;
        Some(HoldEventNote::of(object, true, Reason::Conflict.as_str(), settled.message.clone()))
    }

    fn stand(&mut self, object: &ReservationObject) -> Option<HoldEventNote> {
        let (news, status) = (stand(&object.status)?, &object.status);
        if self.stand.as_ref() == Some(&news) {
            return None;
        }
        if status.phase == Phase::Available {
            self.lacks.clear();
        }
        let ready = status.condition(Type::Ready)?;
        self.stand = Some(news);
        let (reason, is_warning) = recorded_reason(&ready.reason)?;
        Some(HoldEventNote::of(object, is_warning, reason.as_str(), ready.message.clone()))
    }
}

fn stand(status: &ReservationStatus) -> Option<(Phase, String)> {
    status.condition(Type::Ready).map(|ready| (status.phase, ready.reason.clone()))
}

fn conflicts(status: &ReservationStatus) -> BTreeSet<DeviceKey> {
    status.devices.iter().filter(|device| device.conflict).map(device_key).collect()
}

/// The reason of a condition that is recorded with the phase, and true if it is a warning.
fn recorded_reason(text: &str) -> Option<(Reason, bool)> {
    let all = [
        (Reason::Invalid, true),
        (Reason::Waiting, false),
        (Reason::Available, false),
        (Reason::Succeeded, false),
        (Reason::Expired, true),
        (Reason::NodeLost, true),
        (Reason::Lost, true),
    ];
    all.into_iter().find(|(reason, _)| reason.as_str() == text)
}
