//! Removes the leftovers of claims that are not on record any more.

use std::time::Duration;

use tracing::warn;

use crate::claims::{ClaimsHandle, metadata};

/// A claim whose files are older than this has long been in the table.
const SETTLED: Duration = Duration::from_secs(60);

/// Removes notes of containers and files of metadata. Blocking.
pub(super) fn sweep(claims: &ClaimsHandle) {
    sweep_containers(claims);
    // Files come first, and the table after them: what was written just now may be of a claim that is not in it yet.
    let table = || claims.table().borrow().clone();
    metadata::sweep_and_tell(claims.naming(), SETTLED, |uid| table().claims.contains_key(uid));
}

/// Removes the notes of containers that have ended, and all notes of claims that are not on record. Folders come first:
/// a claim whose folder is seen now was on record before.
fn sweep_containers(claims: &ClaimsHandle) {
    let containers = claims.containers();
    let noted = match containers.claims() {
        Ok(noted) => noted,
        Err(error) => {
            warn!(path = %containers.path().display(), error = %error, "notes of containers cannot be read");
            return;
        }
    };
    let table = claims.table().borrow().clone();
    for uid in noted {
        let swept = match containers.sweep(&uid) {
            Ok(_) if !table.claims.contains_key(&uid) && !containers.any_runs(&uid) => containers.forget(&uid),
            swept => swept.map(drop),
        };
        if let Err(error) = swept {
            warn!(claim.uid = %uid, error = %error, "notes of ended containers cannot be removed");
        }
    }
}
