//! Removals of connections and chunks: sent once, and read again before anything is said.

use hyper::{Method, header::HeaderValue};

use super::{
    RedfishError,
    document::Document,
    service::{ReadDocument, RedfishService, WriteCall},
    task,
    transport::HttpAnswer,
    written::{unread, written_text},
};
use crate::{FabricOperation, FabricOutcome, ObjectPath};

/// An object that changes between read and removal is read again so often.
const MOST_TRIES: u32 = 3;

/// A removal that was sent: its answer, and what stands at the place afterwards.
#[derive(Debug)]
pub(super) struct Removal {
    written: Result<HttpAnswer, RedfishError>,
    again: Result<Option<ReadDocument>, RedfishError>,
}

/// Removes an object under the tag that it was read with. One that has changed since is removed if it still is the same.
pub(super) async fn remove(
    service: &RedfishService,
    path: &ObjectPath,
    mut etag: Option<HeaderValue>,
    is_same: impl Fn(&Document) -> bool,
) -> Removal {
    let mut tries = 0;
    loop {
        tries += 1;
        let call = WriteCall { method: Method::DELETE, path, body: None, etag: etag.clone() };
        let (written, again) = (service.write(call).await, service.read(path).await);
        match (written, again) {
            (Ok(answer), Ok(Some(changed)))
                if answer.status == 412 && tries < MOST_TRIES && is_same(&changed.document) =>
            {
                etag = changed.etag;
            }
            (written, again) => return Removal { written, again },
        }
    }
}

impl Removal {
    /// True if nothing stands at the place any more.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.again, Ok(None))
    }

    /// The work that the service has accepted and not ended.
    pub(super) fn accepted(&self) -> Option<FabricOperation> {
        let answer = self.written.as_ref().ok().filter(|answer| task::is_accepted(answer) && !self.is_gone())?;
        Some(FabricOperation { monitor: task::monitor_of(answer), state: None, percent: None })
    }

    /// The outcome of the removal, as far as it is known.
    pub(super) fn outcome(&self, service: &RedfishService, path: &ObjectPath) -> FabricOutcome<()> {
        if let Some(operation) = self.accepted() {
            return FabricOutcome::UnderWay(operation);
        }
        let text = written_text(service, path, &self.written);
        match &self.again {
            Ok(None) => FabricOutcome::Done(()),
            Err(error) => FabricOutcome::unknown(unread(&text, path, error)),
            Ok(Some(_)) => {
                let shown = format!("{text}, and it still shows {path}");
                let is_told = matches!(&self.written, Ok(answer) if !answer.is_success() && answer.status < 500);
                let never_sent = matches!(&self.written, Err(error) if error.was_not_sent());
                if is_told || never_sent {
                    FabricOutcome::not_done(shown)
                } else {
                    FabricOutcome::unknown(format!(
                        "{shown}; if an agent manages it, the agent may have removed it: add it to agents"
                    ))
                }
            }
        }
    }
}
