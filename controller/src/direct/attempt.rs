//! A try to place a pod: its number, and what was tried before it. The Reservation says both, so the next leader goes on
//! from there.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{Doubling, few, reservation::placement_name};
use serde::{Deserialize, Serialize};

use super::context::DirectClaim;
use crate::reservation_object::ReservationObject;

/// The annotation of the template that says what was tried.
pub(super) const ATTEMPT: &str = "hostler.dev/placement-attempt";
/// Pauses between two plans for one pod; they double up to the longest.
const PAUSES: Doubling = Doubling::new(Duration::from_secs(5), Duration::from_secs(300));
/// Nodes that are left out at most; of more the last ones are.
const MOST_LEFT_OUT: usize = 16;
/// The number of a try to place a pod, and what was tried before.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Attempt {
    /// 0 for the first try, which has nothing to say of others.
    pub(super) number: u32,
    pub(super) left_out: Vec<String>,
    /// The resourceVersion in which each claim had nothing when this try was made: in another one it was given
    /// something since.
    pub(super) versions: BTreeMap<String, String>,
}

impl Attempt {
    pub(super) fn of(own: &ReservationObject) -> Self {
        let template = own.spec.pod_template().ok();
        let said = template.and_then(|template| template.metadata.annotations.get(ATTEMPT).cloned());
        said.and_then(|said| serde_json::from_str(&said).ok()).unwrap_or_default()
    }

    /// Returns the name of the try's Reservation.
    pub(super) fn name(&self, uid: &str) -> String {
        let first = placement_name(uid);
        if self.number == 0 { first } else { format!("{first}-{}", self.number) }
    }

    /// Returns the pause before the next try; the first new plan is made at once.
    pub(super) fn pause(&self) -> Duration {
        self.number.checked_sub(1).map_or(Duration::ZERO, |failures| PAUSES.after(failures))
    }

    /// Returns what people are told of the try.
    pub(super) fn message(&self) -> String {
        let number = self.number.saturating_add(1);
        if self.left_out.is_empty() {
            return format!(
                "try {number}: the scheduler freed the claims of the pod wherever they had devices, and no other node has \
                 any; all nodes are tried again"
            );
        }
        let nodes = few(&self.left_out);
        format!(
            "try {number}: the scheduler freed the claims of the pod that had devices on {nodes}; elsewhere than there"
        )
    }

    pub(super) fn next(&self, left_out: Vec<String>, claims: &[(&String, &DirectClaim)]) -> Self {
        let versions = claims.iter().map(|(name, claim)| ((*name).clone(), claim.metadata.resource_version.clone()));
        Self { number: self.number.saturating_add(1), left_out, versions: versions.collect() }
    }

    /// Returns the nodes to leave out next time: this one is the last of them.
    pub(super) fn left_out_with(&self, node: Option<&String>) -> Vec<String> {
        let others = self.left_out.iter().filter(|it| Some(*it) != node);
        let all: Vec<String> = others.chain(node).cloned().collect();
        all[all.len().saturating_sub(MOST_LEFT_OUT)..].to_vec()
    }
}
