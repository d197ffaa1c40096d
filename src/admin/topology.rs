//! Status of the export of the topology.

use super::types::AdminTopology;
use crate::kubernetes::topology::TopologyExport;

pub(super) fn status(export: &TopologyExport) -> AdminTopology {
    let error = match export {
        TopologyExport::Waiting | TopologyExport::Exported => None,
        TopologyExport::Failing(error) => Some(error.clone()),
    };
    AdminTopology { exported: *export == TopologyExport::Exported, error }
}
