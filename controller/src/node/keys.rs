//! The keyboard of a user who watches: keys count as they are pressed, until the watch ends.

use std::{
    io::{self, IsTerminal, Stdin},
    thread,
};

use hostler_process::StopSignals;
use nix::{
    errno::Errno,
    sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr},
    unistd::read,
};
use tokio::sync::mpsc;

/// Line for a user who asks which keys there are.
pub(super) const KEYS: &str = "Keys: q, Escape or Ctrl-C end it, ? shows and hides this line\n";

/// Bytes of one read: a key that is held down sends some.
const READ: usize = 256;

/// Keys that wait while an answer is written: a user presses no more in that time.
const WAITING: usize = 16;

/// The wish of a user.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WatchKey {
    /// End the watch.
    End,
    /// Show which keys there are, or hide it.
    Help,
}

/// The keyboard; the terminal is as before when this is dropped.
pub(super) struct WatchKeyboard {
    terminal: Stdin,
    before: Termios,
    keys_rx: mpsc::Receiver<WatchKey>,
    signals: StopSignals,
}

impl WatchKeyboard {
    /// Opens the keyboard; `None` where standard input is no terminal.
    pub(super) fn open() -> io::Result<Option<Self>> {
        let terminal = io::stdin();
        if !terminal.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&terminal)?;
        // From here on a signal that ends the program must first bring the terminal back.
        let signals = StopSignals::new()?;
        let (keys_tx, keys_rx) = mpsc::channel(WAITING);
        // Its read ends with the process: no other part of a command reads the terminal.
        thread::spawn(move || forward(&keys_tx));
        let mut pressed = before.clone();
        pressed.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        tcsetattr(&terminal, SetArg::TCSANOW, &pressed)?;
        Ok(Some(Self { terminal, before, keys_rx, signals }))
    }

    /// Waits for a key that means something, or for a signal. A terminal that has gone away ends the watch.
    pub(super) async fn next(&mut self) -> WatchKey {
        tokio::select! {
            // Cancel safe: a key that was not taken stays in the channel.
            key = self.keys_rx.recv() => key.unwrap_or(WatchKey::End),
            // Cancel safe: a signal that was not taken is still pending.
            () = self.signals.recv() => WatchKey::End,
        }
    }
}

/// Reads keys until the terminal goes away, or the watch ends.
fn forward(keys_tx: &mpsc::Sender<WatchKey>) {
    let mut bytes = [0; READ];
    loop {
        let pressed = match read(io::stdin(), &mut bytes) {
            Ok(length) => key(&bytes[..length]),
            Err(Errno::EINTR) => None,
            Err(_) => Some(WatchKey::End),
        };
        if pressed.is_some_and(|key| keys_tx.blocking_send(key).is_err() || key == WatchKey::End) {
            return;
        }
    }
}

impl Drop for WatchKeyboard {
    fn drop(&mut self) {
        // A terminal that has gone away needs nothing.
        let _ = tcsetattr(&self.terminal, SetArg::TCSANOW, &self.before);
    }
}

/// Returns the meaning of what a terminal sends. Arrows and the like begin with an Escape and more.
fn key(bytes: &[u8]) -> Option<WatchKey> {
    const CONTROL_D: u8 = 4;
    match bytes {
        [] | [b'\x1b'] => Some(WatchKey::End),
        [b'\x1b', ..] => None,
        _ if bytes.iter().any(|byte| [b'q', CONTROL_D].contains(byte)) => Some(WatchKey::End),
        _ if bytes.contains(&b'?') => Some(WatchKey::Help),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_line_says_and_others_nothing() {
        for (bytes, expected) in [
            (&b"q"[..], Some(WatchKey::End)),
            (b"\x1b", Some(WatchKey::End)),
            (b"\x04", Some(WatchKey::End)),
            (b"", Some(WatchKey::End)),
            (b"?", Some(WatchKey::Help)),
            (b"x", None),
            (b"\x1b[A", None),
        ] {
            assert_eq!(key(bytes), expected, "{bytes:?}");
        }
    }
}
