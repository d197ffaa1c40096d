//! The keyboard of the terminal, and whether the terminal is still there.
//!
//! One read for each time that something has come. A terminal that has gone away is always ready, and every read of
//! it ends at once: a loop that reads until a key comes would turn for ever. So the end, and any error, ends it
//! here.

use std::{
    io::{self, IsTerminal},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::read,
};

/// Bytes of one read: a key that is held down sends some.
const READ: usize = 256;

/// A key that the page knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum KeyPress {
    /// A letter, a sign, a blank.
    Char(char),
    /// A letter with the control key.
    Control(char),
    Escape,
    Enter,
    Backspace,
    Tab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

/// Input of the keyboard.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum KeyboardNews {
    /// Nothing, for as long as it was waited for.
    Quiet,
    /// A signal came.
    Interrupted,
    /// These keys were pressed.
    Pressed(Vec<KeyPress>),
}

/// The keyboard of the terminal on standard input, or where that is none, of the one on standard output.
#[derive(Debug)]
pub(super) struct Keyboard {
    input: io::Stdin,
    output: io::Stdout,
}

impl Keyboard {
    pub(super) fn new() -> Self {
        Self { input: io::stdin(), output: io::stdout() }
    }

    /// Waits for keys.
    ///
    /// # Errors
    /// When the terminal has gone away.
    pub(super) fn wait(&self, at_most: Duration) -> io::Result<KeyboardNews> {
        let source = if self.input.is_terminal() { self.input.as_fd() } else { self.output.as_fd() };
        news(source, at_most)
    }
}

fn news(source: BorrowedFd<'_>, at_most: Duration) -> io::Result<KeyboardNews> {
    let mut polled = [PollFd::new(source, PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, timeout) {
        Ok(0) => return Ok(KeyboardNews::Quiet),
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(KeyboardNews::Interrupted),
        Err(errno) => return Err(errno.into()),
    }
    let mut bytes = [0; READ];
    match read(source, &mut bytes) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(length) => Ok(KeyboardNews::Pressed(presses(&bytes[..length]))),
        Err(Errno::EINTR | Errno::EAGAIN) => Ok(KeyboardNews::Interrupted),
        Err(errno) => Err(errno.into()),
    }
}

/// The keys that send these bytes. What no key here sends is left out.
fn presses(mut bytes: &[u8]) -> Vec<KeyPress> {
    let mut presses = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        let (press, length) = match (first, rest.first()) {
            (0x1b, Some(b'[')) => control_sequence(&rest[1..]),
            (0x1b, Some(b'O')) => (rest.get(1).and_then(|last| final_key(*last)), 3),
            // A letter with the meta key.
            (0x1b, Some(_)) => (None, 2),
            (0x1b, None) => (Some(KeyPress::Escape), 1),
            (b'\t', _) => (Some(KeyPress::Tab), 1),
            (b'\r' | b'\n', _) => (Some(KeyPress::Enter), 1),
            // Which of the two it sends is a matter of the terminal.
            (0x08 | 0x7f, _) => (Some(KeyPress::Backspace), 1),
            (1..=26, _) => (Some(KeyPress::Control(char::from(first - 1 + b'a'))), 1),
            (b' '..=b'~', _) => (Some(KeyPress::Char(char::from(first))), 1),
            _ => (None, 1),
        };
        presses.extend(press);
        bytes = bytes.get(length..).unwrap_or_default();
    }
    presses
}

/// The key of a sequence, and how long it is with the two bytes before it: parameters, and the byte that ends it.
fn control_sequence(bytes: &[u8]) -> (Option<KeyPress>, usize) {
    let length = bytes.iter().position(|byte| matches!(byte, 0x40..=0x7e)).unwrap_or(bytes.len());
    let (parameters, last) = (&bytes[..length], bytes.get(length));
    let press = match last {
        Some(b'~') => match parameters.split(|byte| *byte == b';').next() {
            Some(b"1" | b"7") => Some(KeyPress::Home),
            Some(b"4" | b"8") => Some(KeyPress::End),
            Some(b"5") => Some(KeyPress::PageUp),
            Some(b"6") => Some(KeyPress::PageDown),
            _ => None,
        },
        last => last.and_then(|last| final_key(*last)),
    };
    (press, length + 3)
}

fn final_key(byte: u8) -> Option<KeyPress> {
    Some(match byte {
        b'A' => KeyPress::Up,
        b'B' => KeyPress::Down,
        b'F' => KeyPress::End,
        b'H' => KeyPress::Home,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixStream};

    use super::*;

    const SOON: Duration = Duration::from_millis(10);

    #[test]
    fn a_source_that_ends_or_fails_is_an_error_and_not_quiet() {
        let (keyboard, mut other) = UnixStream::pair().unwrap();
        assert_eq!(news(keyboard.as_fd(), SOON).unwrap(), KeyboardNews::Quiet);
        other.write_all(b"q\x1b").unwrap();
        let pressed = vec![KeyPress::Char('q'), KeyPress::Escape];
        assert_eq!(news(keyboard.as_fd(), SOON).unwrap(), KeyboardNews::Pressed(pressed));
        drop(other);
        assert_eq!(news(keyboard.as_fd(), SOON).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let folder = std::fs::File::open("/").unwrap();
        news(folder.as_fd(), SOON).unwrap_err();
    }

    #[test]
    fn keys_are_told_by_what_terminals_send() {
        use KeyPress::{Backspace, Char, Control, Down, End, Enter, Home, PageDown, PageUp, Tab, Up};
        for (sent, pressed) in [
            (&b"cj \t\x03"[..], &[Char('c'), Char('j'), Char(' '), Tab, Control('c')][..]),
            (b"/\x7f\x08\r\n\x15", &[Char('/'), Backspace, Backspace, Enter, Enter, Control('u')]),
            (b"\x1b[A\x1b[B\x1b[H\x1b[F", &[Up, Down, Home, End]),
            (b"\x1bOA\x1bOB\x1bOH\x1bOF", &[Up, Down, Home, End]),
            (b"\x1b[1~\x1b[4~\x1b[5~\x1b[6~\x1b[7~\x1b[8~", &[Home, End, PageUp, PageDown, Home, End]),
            // With the shift and the control key.
            (b"\x1b[1;2A\x1b[5;5~q", &[Up, PageUp, Char('q')]),
            // Insert, F5, a letter with the meta key, a letter of two bytes, a sequence that is cut off.
            (b"\x1b[2~\x1b[15~\x1bq\xc3\xa4u\x1b[1;", &[Char('u')]),
        ] {
            assert_eq!(presses(sent), pressed, "{sent:?}");
        }
    }

    #[test]
    fn whatever_comes_is_read_to_its_end() {
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                presses(&[0x1b, first, second]);
                presses(&[first, second]);
            }
        }
    }
}
