//! Status of the report of the node's hardware.

use super::types::AdminHardware;
use crate::kubernetes::hardware::HardwareReporting;

pub(super) fn status(reporting: &HardwareReporting) -> AdminHardware {
    let error = match reporting {
        HardwareReporting::Waiting | HardwareReporting::Reported => None,
        HardwareReporting::Failing(error) => Some(error.clone()),
    };
    AdminHardware { reported: *reporting == HardwareReporting::Reported, error }
}
