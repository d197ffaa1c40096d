//! One node in detail: its devices and holders, as the controller's API shows them, and the report of its daemon.

use hostler_api::hardware::{Condition, NodeHardware};
use serde::Serialize;

use crate::serve::MachineAnswer;

/// A node.
#[derive(Debug, Serialize)]
pub(super) struct NodeDetail {
    #[serde(flatten)]
    pub(super) machine: MachineAnswer,
    /// The report of hostler's daemon, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) daemon: Option<DaemonReport>,
}

/// A report of a daemon, devices apart.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaemonReport {
    /// Version of hostler.
    pub(super) hostler_version: String,
    /// Version of the kernel.
    pub(super) kernel_version: String,
    /// The driver whose devices the daemon has.
    pub(super) driver: String,
    /// Time of the last report, by the node's clock.
    pub(super) last_report_time: Option<String>,
    /// Conditions that are not as they should be.
    pub(super) conditions: Vec<Condition>,
}

impl NodeDetail {
    /// Makes the description of a node.
    pub(super) fn new(machine: MachineAnswer, report: Option<&NodeHardware>) -> Self {
        Self { machine, daemon: report.map(DaemonReport::of) }
    }
}

impl DaemonReport {
    fn of(NodeHardware { status, .. }: &NodeHardware) -> Self {
        Self {
            hostler_version: status.hostler_version.clone(),
            kernel_version: status.kernel_version.clone(),
            driver: status.driver.clone(),
            last_report_time: status.last_report_time.clone(),
            conditions: status.conditions.iter().filter(|condition| !condition.is_true()).cloned().collect(),
        }
    }
}
