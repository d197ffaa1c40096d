//! Everything that was read about the places of a Reservation, at one moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::{
    ObjectKey,
    core::PodSpec,
    reservation::{RESERVATION_UID_ANNOTATION, ReservationStatus},
};
use hostler_cluster::ObjectVersion;
use serde::Deserialize;
use serde_json::Value;

use super::handing_over::HandingOver;
use crate::{
    hold::{
        OwnerPod,
        adapter::{PodOwner, controller_of},
    },
    reservation_object::ReservationObject,
};

/// Annotation of place holders: the nodes that they leave out, as text with commas.
pub(super) const LEFT_OUT: &str = "hostler.dev/left-out";

/// Everything that decides the next step.
#[derive(Clone, Debug)]
pub(super) struct PlacesContext {
    /// The Reservation, if there is one.
    pub(super) reservation: Option<ReservationObject>,
    /// Pods in the namespace of places that were made for a Reservation of this name, by their name.
    pub(super) holders: BTreeMap<String, PlacePod>,
    /// Owners that the status names, and the candidate; a missing one is gone.
    pub(super) owners: BTreeMap<ObjectKey, PlacePod>,
    /// The pod that is to be given a place, by replica.
    pub(super) candidates: BTreeMap<u32, ObjectKey>,
    /// Places of all Reservations that are being handed over.
    pub(super) handing_over: HandingOver,
    /// Image of place holders.
    pub(super) image: String,
    /// Time since 1970.
    pub(super) now: Duration,
}

/// A pod: a place holder or an owner.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct PlacePod {
    pub(super) metadata: PlacePodMeta,
    #[serde(default)]
    pub(crate) spec: PodSpec,
    #[serde(default)]
    pub(crate) status: PlacePodStatus,
}

/// Metadata of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PlacePodMeta {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) creation_timestamp: Option<String>,
    pub(super) deletion_timestamp: Option<String>,
    pub(super) finalizers: Vec<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    owner_references: Vec<Value>,
}

/// The status of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PlacePodStatus {
    pub(super) phase: String,
    pub(crate) nominated_node_name: String,
    pub(super) conditions: Vec<PlacePodCondition>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PlacePodCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) last_transition_time: String,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PlacesStep {
    /// Nothing until something changes.
    Rest,
    /// Nothing before this time has passed, if nothing changes.
    Wait(Duration),
    /// The status of the Reservation. The next step may follow from the object as this write left it: all that it writes
    /// names the version that it was decided on.
    Status(Box<PlacesStatus>),
    /// The writes for each place, one after the other until one of them fails.
    Write(Vec<Vec<PlacesWrite>>),
}

/// The status that is to be written, over this version of the Reservation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlacesStatus {
    pub(super) name: String,
    pub(super) version: ObjectVersion,
    pub(super) status: ReservationStatus,
}

/// A write. Each names the version that it was decided on.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PlacesWrite {
    /// Creates the place holder of a replica, which leaves out these nodes. An existing one of its name is a conflict.
    Create { replica: u32, name: String, left_out: BTreeSet<String>, pod: Box<Value> },
    /// Deletes a place holder.
    Delete(String, ObjectVersion),
    /// Deletes the place holder of a replica for owners that are nominated for the node.
    HandOver { replica: u32, node: String, holder: String, version: ObjectVersion, next: String },
    /// Names the node that a pod is nominated for.
    Nominate(ObjectKey, ObjectVersion, String),
}

impl PlacesWrite {
    /// Returns the kind of the write, in one word.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Create { .. } => "place_holder",
            Self::Delete(..) => "place_holder_deletion",
            Self::HandOver { .. } => "hand_over",
            Self::Nominate(..) => "nomination",
        }
    }
}

impl PlacePod {
    #[cfg(test)]
    pub(crate) fn set_created(&mut self, time: String) {
        self.metadata.creation_timestamp = Some(time);
    }

    #[cfg(test)]
    pub(crate) fn annotate(&mut self, name: &str, value: &str) {
        self.metadata.annotations.insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.metadata.namespace, &self.metadata.name)
    }

    pub(crate) fn uid(&self) -> &str {
        &self.metadata.uid
    }

    /// Returns the creation time, RFC 3339.
    pub(crate) fn created(&self) -> Option<&str> {
        self.metadata.creation_timestamp.as_deref()
    }

    pub(crate) fn version(&self) -> ObjectVersion {
        let PlacePodMeta { uid, resource_version, .. } = self.metadata.clone();
        ObjectVersion { uid, resource_version }
    }

    /// Returns the pod's node, if it has one.
    pub(crate) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|node| !node.is_empty())
    }

    /// True if the pod takes nothing of its node any more, or will not for long.
    pub(crate) fn is_ending(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || self.is_over()
    }

    /// True if the pod has ended.
    pub(super) fn is_over(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    /// Returns the nodes that a place holder leaves out.
    pub(super) fn left_out(&self) -> BTreeSet<String> {
        let said = self.metadata.annotations.get(LEFT_OUT);
        said.iter().flat_map(|said| said.split(',')).filter(|node| !node.is_empty()).map(str::to_owned).collect()
    }

    /// True if a place holder without a node may get this one.
    pub(super) fn may_come_to(&self, node: &str) -> bool {
        let only = self.spec.affinity.as_ref().and_then(|it| it.node_affinity.as_ref()?.required.as_ref()?.name());
        only.is_none_or(|only| only == node) && !self.left_out().contains(node)
    }

    /// Returns the scheduler's reason for not placing the pod, and the time since when.
    pub(crate) fn refusal(&self) -> Option<(&str, &str)> {
        let is_refusal =
            |it: &&PlacePodCondition| it.kind == "PodScheduled" && it.status == "False" && it.reason == "Unschedulable";
        self.status.conditions.iter().find(is_refusal).map(|it| (&*it.message, &*it.last_transition_time))
    }

    /// True if a place holder was made for this very Reservation.
    pub(super) fn is_of(&self, reservation: &ReservationObject) -> bool {
        self.metadata.annotations.get(RESERVATION_UID_ANNOTATION) == Some(&reservation.uid)
    }

    /// Returns the fields that are compared with owners.
    pub(super) fn owner(&self) -> OwnerPod {
        let owners = self.metadata.owner_references.iter();
        let owners = owners.filter_map(|owner| PodOwner::deserialize(owner).ok()).collect();
        OwnerPod {
            uid: self.metadata.uid.clone(),
            labels: self.metadata.labels.clone(),
            annotations: self.metadata.annotations.clone(),
            controller: controller_of(owners),
            ..OwnerPod::default()
        }
    }
}
