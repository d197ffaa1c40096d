//! A mutating webhook that lets pods use kept devices and places: the API server calls it when a claim is made for a pod,
//! and when a pod is made.
//!
//! kube-scheduler gives a kept device to any claim that tolerates its taint. Users can write that toleration into their
//! templates; otherwise the webhook writes it into the claims that are made from them. The webhook may be down at any
//! time: a claim that was not changed is given ordinary devices, or waits.
//!
//! ```text
//!   AdmissionReview ─► review: of which pod? ─► the pod, asked for ─► decide: Reservation? ─► rewrite ─► a JSON patch
//!   view: Reservations, templates, the release ────────────────────────┘
//!   AdmissionReview of a pod ─► koordinator: which Reservation does it name in Koordinator's keys? ─► a patch with hostler's keys
//!                            └► gates, with the view: what does it wait for? ─► a patch with the gate
//!   Secret ─► keeper ─► certificate;   keeper of the leader ─► Secret, caBundle
//! ```

mod answer;
mod capacity;
mod decide;
mod gates;
mod installer;
mod keys;
mod koordinator;
mod pod;
mod repair;
mod review;
mod rewrite;
mod suited;
#[cfg(test)]
mod tests;

pub(crate) use self::answer::{WebhookParts, start};
