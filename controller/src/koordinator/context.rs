//! Everything that was read about a Reservation of Koordinator, at one moment.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{hardware::Condition, reservation::ReservationStatus};
use hostler_cluster::ObjectVersion;
use serde::Deserialize;
use serde_json::Value;

/// Label of Reservations that were made for one of Koordinator: its UID.
pub(super) const KOORDINATOR_UID: &str = "hostler.dev/koordinator-uid";
/// Annotation of the same Reservations: the fingerprint of what was converted.
pub(super) const CONVERTED: &str = "hostler.dev/koordinator-converted";

/// Everything that decides the next write.
#[derive(Clone, Debug, Default)]
pub(super) struct KoordinatorContext {
    /// Koordinator's object, if there is one.
    pub(super) theirs: Option<KoordinatorObject>,
    /// The Reservation of the same name, if there is one.
    pub(super) own: Option<OwnReservation>,
    /// Time since 1970.
    pub(super) now: Duration,
}

/// A Reservation of Koordinator.
#[derive(Clone, Debug)]
pub(super) struct KoordinatorObject {
    pub(super) meta: ServedMeta,
    pub(super) status: ServedStatus,
    /// The whole object.
    pub(super) object: Value,
}

/// A Reservation of hostler's.
#[derive(Clone, Debug)]
pub(super) struct OwnReservation {
    pub(super) meta: ServedMeta,
    pub(super) status: ReservationStatus,
    /// The whole object.
    pub(super) object: Value,
}

/// Metadata that decide.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServedMeta {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) deletion_timestamp: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// Status of a Reservation of Koordinator, as far as it is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServedStatus {
    pub(super) phase: String,
    pub(super) conditions: Vec<Condition>,
}

/// The next write. Each names the version that it was decided on.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum KoordinatorWrite {
    /// Creates the Reservation of hostler's.
    Create(Box<Value>),
    /// Gives it another spec.
    Replace(Box<Value>),
    /// Deletes it.
    Delete(ObjectVersion),
    /// Writes the status of Koordinator's object.
    Status(String, Box<Value>),
    /// Deletes Koordinator's object, which is over and was kept long enough.
    DeleteTheirs(ObjectVersion),
}

impl KoordinatorWrite {
    /// Returns the kind of the write, in one word.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Create(_) => "creation",
            Self::Replace(_) => "change",
            Self::Delete(_) => "deletion",
            Self::Status(..) => "status",
            Self::DeleteTheirs(_) => "deletion_of_koordinators",
        }
    }
}

impl KoordinatorObject {
    /// Reads an object. Status fields that cannot be understood count as missing: they are written anew.
    pub(super) fn of(object: Value) -> Self {
        Self {
            meta: ServedMeta::of(&object),
            status: ServedStatus::deserialize(&object["status"]).unwrap_or_default(),
            object,
        }
    }

    /// True if the status says that nothing is kept any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }
}

impl OwnReservation {
    /// Reads an object.
    ///
    /// # Errors
    /// When its status is another one than a Reservation's.
    pub(super) fn of(object: Value) -> Result<Self, serde_json::Error> {
        let status = match &object["status"] {
            Value::Null => ReservationStatus::default(),
            status => ReservationStatus::deserialize(status)?,
        };
        Ok(Self { meta: ServedMeta::of(&object), status, object })
    }
}

impl ServedMeta {
    fn of(object: &Value) -> Self {
        Self::deserialize(&object["metadata"]).unwrap_or_default()
    }

    pub(super) fn version(&self) -> ObjectVersion {
        ObjectVersion { uid: self.uid.clone(), resource_version: self.resource_version.clone() }
    }
}
