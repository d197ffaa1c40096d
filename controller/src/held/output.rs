//! The reader of standard output, for commands that go on until they are ended.

use std::{io, time::Duration};

use hostler_process::is_output_gone;
use tokio::time::sleep;

/// The interval between two checks of standard output.
const OUTPUT_LOOK: Duration = Duration::from_secs(2);

/// Does what a command does, until that ends or standard output has lost its reader: where nothing changes, nothing is written, and no
/// write says so.
pub(crate) async fn while_read<T, E: From<io::Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    tokio::select! {
        // Dropped in the middle where standard output has no reader: nothing of it is seen.
        done = work => done,
        // Cancel safe: it only waits.
        () = output_gone() => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
    }
}

async fn output_gone() {
    while !is_output_gone() {
        sleep(OUTPUT_LOOK).await;
    }
}
