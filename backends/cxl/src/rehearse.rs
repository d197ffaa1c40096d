//! Rehearsal of an operator's order: its checks, and none of its writes.

use hostler_api::Chain;
use hostler_backend::{BackendError, DeviceOperation, OperateWork, OperationObstacle, OperationOutcome, OperationStep};
use hostler_linux::SysRoot;

use crate::{
    accelerator,
    detach::{self, DetachError, DetachOptions},
    device::{CardId, CxlDevice},
    memory,
    objects::CxlObjects,
    operate::{failure, nodes, options_for_accelerator, refuse_held},
    region::{self, RegionError},
};

/// Steps that an order would take.
///
/// # Errors
/// When the order would be refused for what can be read. Memory in use is found when it is taken back, and not
/// before.
pub(crate) fn rehearse(root: &SysRoot, work: &OperateWork<'_>) -> Result<OperationOutcome, BackendError> {
    let card = match CxlDevice::of(work.device) {
        Some(CxlDevice::Memory { card }) => card,
        Some(CxlDevice::Accelerator { address, .. }) => {
            let steps = accelerator::rehearse(root, work.device, address, options_for_accelerator(work)?);
            return steps
                .map(|steps| OperationOutcome { steps })
                .map_err(|error| work.failed(Chain(&error).to_string(), Vec::new()).into());
        }
        _ => return Err(work.refused(OperationObstacle::NotWhole).into()),
    };
    let objects = CxlObjects::read(root).map_err(BackendError::unread)?;
    refuse_held(root, &objects, &card, work)?;
    let nodes = nodes(root, &objects, &card).map_err(BackendError::unread)?;
    let steps = match work.operation {
        DeviceOperation::Attach => attach(root, &objects, &card).map_err(DetachError::from),
        DeviceOperation::Detach { sanitize, overwrite, remove } => {
            detach::rehearse(root, &card, DetachOptions { sanitize, overwrite, remove })
        }
    };
    steps.map(|steps| OperationOutcome { steps }).map_err(|error| {
        let failure = failure(root, &error, &nodes, Vec::new());
        work.refused(OperationObstacle::Failed(failure)).into()
    })
}

fn attach(root: &SysRoot, objects: &CxlObjects, card: &CardId) -> Result<Vec<OperationStep>, RegionError> {
    let (memdev, _endpoint) = region::find(objects, card)?;
    if region::capacity(memdev) == 0 {
        return Err(RegionError::NoCapacity { memdev: memdev.name.clone() });
    }
    for region in objects.regions_of(memdev).into_iter().filter(|region| region.committed) {
        if !region::is_whole(objects, memdev, region) {
            return Err(RegionError::Occupied { memdev: memdev.name.clone(), region: region.name.clone() });
        }
        if objects.daxes_of(region).any(|dax| memory::is_online(root, dax).is_ok()) {
            return Ok(Vec::new());
        }
    }
    Ok(vec![OperationStep::MemoryOnline { card: card.to_string(), memory: None, node: None }])
}
