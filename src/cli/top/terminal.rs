//! The terminal while it is ours: raw, on its other page, without a cursor. It is given back on every way out: when this is
//! dropped, and before a panic says what it has to say, since a panic drops nothing here.

use std::{
    io::{self, Stdout, stdout},
    panic,
    sync::Once,
};

use crossterm::{
    cursor::{Hide, Show},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui_core::{buffer::Buffer, terminal::Terminal};
use ratatui_crossterm::CrosstermBackend;

/// A terminal that shows frames.
pub(super) struct LiveTerminal(Terminal<CrosstermBackend<Stdout>>);

impl LiveTerminal {
    /// Takes the terminal of standard output.
    pub(super) fn open() -> io::Result<Self> {
        give_back_before_panics();
        let opened = enable_raw_mode()
            .and_then(|()| execute!(stdout(), EnterAlternateScreen, Hide))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        // Half of it may have been done.
        opened.map(Self).inspect_err(|_| give_back())
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
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
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
