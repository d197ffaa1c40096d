//! The reader of standard output, for commands that run until they are stopped.

use std::{io, time::Duration};

use hostler_cli::reader::is_output_gone;
use tokio::time::sleep;

/// The interval between two checks of standard output.
const OUTPUT_LOOK: Duration = Duration::from_secs(2);

/// Runs a command until it ends, or until standard output has lost its reader: a command that writes nothing would not
/// notice that.
pub(crate) async fn while_read<T, E: From<io::Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    tokio::select! {
        // Dropped in the middle if standard output has no reader: the rest of the work would be seen by none.
        done = work => done,
        // Cancel safe: `output_gone` only waits.
        () = output_gone() => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
    }
}

async fn output_gone() {
    while !is_output_gone() {
        sleep(OUTPUT_LOOK).await;
    }
}
