//! Detaching: the connection of a key is removed.

use super::{
    RedfishClient, absent,
    record::{FabricRecord, ReadConnection, connection_of},
    removal,
    task::KnownOperation,
};
use crate::{AttachKey, FabricConnection, FabricError, FabricOutcome};

impl RedfishClient {
    pub(super) async fn detach(&self, key: &AttachKey) -> Result<FabricOutcome<()>, FabricError> {
        let hardware = self.recent_hardware().await?;
        let records = self.services.records(&hardware.fabrics, &mut Vec::new()).await?;
        for record in &records {
            if let Some(read) = record.find(key).await? {
                return self.remove(record, Some(key), read).await;
            }
        }
        // An attachment that is under way cannot be removed before it has ended: it would come back.
        match self.running(key).await? {
            Some(operation) => Ok(FabricOutcome::UnderWay(operation)),
            None => {
                self.operations.remove(key);
                Ok(absent(&records, FabricOutcome::Done(())))
            }
        }
    }

    /// Removes a connection; without a key, one that another program has made.
    pub(super) async fn remove(
        &self,
        record: &FabricRecord,
        key: Option<&AttachKey>,
        read: ReadConnection,
    ) -> Result<FabricOutcome<()>, FabricError> {
        let ReadConnection { connection, etag } = read;
        let (service, path) = (&record.service, &connection.path);
        let removal = removal::remove(service, path, etag, |now| is_same(&connection, &connection_of(now))).await;
        match (key, removal.accepted()) {
            (Some(key), Some(operation)) => {
                let known = KnownOperation { operation, device: None, host: String::new(), makes_memory: false };
                self.operations.insert(key, known);
            }
            (Some(key), None) if removal.is_gone() => self.operations.remove(key),
            _ => {}
        }
        Ok(removal.outcome(service, path))
    }
}

/// True if what stands at the place of a connection still is that connection, and not one that was made there since.
pub(super) fn is_same(before: &FabricConnection, now: &FabricConnection) -> bool {
    let ends = |it: &FabricConnection| (it.key.clone(), it.initiators.clone(), it.targets.clone(), it.chunks.clone());
    ends(before) == ends(now)
}
