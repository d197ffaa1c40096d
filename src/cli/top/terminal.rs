//! The terminal while it is ours: raw, on its other page, without a cursor. It is given back on every way out: when
//! this is dropped, and before a panic says what it has to say, since a panic drops nothing here.

use std::{
    io::{self, Stdout, stdout},
    mem::ManuallyDrop,
    os::fd::AsFd,
    panic,
    sync::Once,
};

use crossterm::{
    cursor::{Hide, Show},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui_core::{buffer::Buffer, terminal::Terminal};
use ratatui_crossterm::CrosstermBackend;

/// A terminal that shows frames. The library's own end would show the cursor, which is done here, and where the
/// terminal has gone away it would tell standard error, which has gone with it: that panics. So it never comes.
pub(super) struct LiveTerminal(ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>);

impl LiveTerminal {
    /// Takes the terminal of standard output.
    pub(super) fn open() -> io::Result<Self> {
        give_back_before_panics();
        let opened = enable_raw_mode()
            .and_then(|()| execute!(stdout(), EnterAlternateScreen, Hide))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        // Half of it may have been done.
        opened.map(|terminal| Self(ManuallyDrop::new(terminal))).inspect_err(|_| give_back())
    }

    /// True if a frame can be written now. A terminal that was stopped (Ctrl-S), or whose other side reads
    /// nothing, would keep the writer, and with it the signals that are to end it.
    pub(super) fn takes_text(&self) -> bool {
        takes_text()
    }

    /// Shows a frame. Only what is different from the one before is written.
    pub(super) fn draw(&mut self, frame: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.0.draw(|shown| frame(shown.buffer_mut())).map(drop)
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Every step is tried, whatever becomes of the others: a terminal that is gone needs none of them.
fn give_back() {
    if takes_text() {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    }
    let _ = disable_raw_mode();
}

fn takes_text() -> bool {
    let out = stdout();
    let mut polled = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
    // A terminal that cannot be asked says with the next write what is wrong.
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

fn give_back_before_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            give_back();
            before(panicked);
        }));
    });
}
