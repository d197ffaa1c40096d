//! The next write of ClusterHardware. Pure.

use hostler_api::hardware::{ClusterHardwareStatus, Condition};

/// The object as it stands on the API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StoredHardware {
    /// The object's resourceVersion.
    pub(crate) version: String,
    /// The object's status.
    pub(crate) status: ClusterHardwareStatus,
}

/// The next step towards the status that the object is to have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HardwareStep {
    /// The object has the status already.
    Rest,
    /// The object is created, empty.
    Create,
    /// The status is written over a version.
    Write {
        /// The version that the write replaces.
        version: String,
        /// The status.
        status: Box<ClusterHardwareStatus>,
    },
}

/// Compares the object, if there is one, with the status that it is to have.
pub(crate) fn decide(mut wanted: ClusterHardwareStatus, stored: Option<&StoredHardware>) -> HardwareStep {
    let Some(stored) = stored else { return HardwareStep::Create };
    keep_times(&mut wanted.conditions, &stored.status.conditions);
    wanted.last_change_time.clone_from(&stored.status.last_change_time);
    if wanted == stored.status {
        return HardwareStep::Rest;
    }
    HardwareStep::Write { version: stored.version.clone(), status: Box::new(wanted) }
}

/// Keeps the time of each condition whose status did not change.
fn keep_times(wanted: &mut [Condition], stored: &[Condition]) {
    for condition in wanted {
        let before = stored.iter().find(|before| before.kind == condition.kind && before.status == condition.status);
        if let Some(before) = before {
            condition.last_transition_time.clone_from(&before.last_transition_time);
        }
    }
}
