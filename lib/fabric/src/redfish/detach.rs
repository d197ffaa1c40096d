//! Detaching: remove once, and read again before anything is said.

use hyper::Method;

use super::{
    RedfishClient, RedfishError, absent,
    attach::{unread, written_text},
    record::{FabricRecord, ReadConnection},
    service::WriteCall,
    task::{self, KnownOperation},
    transport::HttpAnswer,
};
use crate::{AttachKey, FabricConnection, FabricError, FabricOperation, FabricOutcome};

/// A connection that changes between read and removal is read again so often.
const MOST_TRIES: u32 = 3;

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
        mut read: ReadConnection,
    ) -> Result<FabricOutcome<()>, FabricError> {
        let path = read.connection.path.clone();
        let mut tries = 0;
        loop {
            tries += 1;
            let call = WriteCall { method: Method::DELETE, path: &path, body: None, etag: read.etag.clone() };
            let written = record.service.write(call).await;
            if let Ok(answer) = &written
                && task::is_accepted(answer)
            {
                return self.removal_accepted(record, key, &path, answer).await;
            }
            let again = record.read_connection(&path).await;
            match (written, again) {
                (Ok(answer), Ok(Some(changed)))
                    if answer.status == 412 && tries < MOST_TRIES && is_same(&read.connection, &changed.connection) =>
                {
                    read = changed;
                }
                (written, again) => return Ok(self.removed(record, key, &written, again)),
            }
        }
    }

    fn removed(
        &self,
        record: &FabricRecord,
        key: Option<&AttachKey>,
        written: &Result<HttpAnswer, RedfishError>,
        again: Result<Option<ReadConnection>, RedfishError>,
    ) -> FabricOutcome<()> {
        let text = written_text(record, written);
        match again {
            Ok(None) => {
                key.into_iter().for_each(|key| self.operations.remove(key));
                FabricOutcome::Done(())
            }
            Err(error) => FabricOutcome::unknown(unread(&text, &error)),
            Ok(Some(read)) => {
                let shown = format!("{text}, and it still shows {}", read.connection.path);
                let is_told = matches!(written, Ok(answer) if !answer.is_success() && answer.status < 500);
                let never_sent = matches!(written, Err(error) if error.was_not_sent());
                if is_told || never_sent {
                    FabricOutcome::not_done(shown)
                } else {
                    FabricOutcome::unknown(format!(
                        "{shown}; if an agent manages the fabric, it may have removed the connection: add it to agents"
                    ))
                }
            }
        }
    }

    async fn removal_accepted(
        &self,
        record: &FabricRecord,
        key: Option<&AttachKey>,
        path: &crate::ObjectPath,
        answer: &HttpAnswer,
    ) -> Result<FabricOutcome<()>, FabricError> {
        if let Ok(None) = record.read_connection(path).await {
            return Ok(FabricOutcome::Done(()));
        }
        let monitor = task::monitor_of(answer);
        let operation = FabricOperation { monitor, state: None, percent: None };
        if let Some(key) = key {
            let known = KnownOperation { operation: operation.clone(), device: None, host: String::new() };
            self.operations.insert(key, known);
        }
        Ok(FabricOutcome::UnderWay(operation))
    }
}

/// True if what stands at the place of a connection still is that connection, and not one that was made there since.
pub(super) fn is_same(before: &FabricConnection, now: &FabricConnection) -> bool {
    let ends = |it: &FabricConnection| (it.key.clone(), it.initiators.clone(), it.targets.clone(), it.chunks.clone());
    ends(before) == ends(now)
}
