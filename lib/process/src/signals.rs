//! The signals that end a program.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Listens from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one.
    pub async fn recv(&mut self) {
        tokio::select! {
            // Cancel safe: a signal that was not taken is still pending.
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
