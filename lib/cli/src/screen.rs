//! The screen of standard output. Set once, by `main`, before anything is written; tests never set it, so that the
//! texts that they compare do not depend on where they run.

use std::{
    env,
    io::{self, IsTerminal, Write},
    sync::OnceLock,
};

use terminal_size::{Width, terminal_size_of};

static SCREEN: OnceLock<Screen> = OnceLock::new();

/// Properties of the screen of standard output.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Screen {
    /// True for a terminal.
    is_terminal: bool,
    /// Columns of the terminal; `None` for pipes and files, which get whole lines.
    pub width: Option<usize>,
    /// True if words may have colours.
    pub colours: bool,
}

impl Screen {
    /// The screen as it is now.
    pub fn of_stdout() -> Self {
        let out = io::stdout();
        if !out.is_terminal() {
            return Self::default();
        }
        let width = terminal_size_of(&out).map(|(Width(width), _)| usize::from(width)).filter(|width| *width > 0);
        Self { is_terminal: true, width, colours: wants_colours(|name| env::var(name).ok()) }
    }
}

/// True if a terminal gets colours; see no-color.org.
fn wants_colours(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("NO_COLOR").is_none_or(|value| value.is_empty()) && variable("TERM").is_none_or(|term| term != "dumb")
}

/// Sets the screen of the process, unless it is set; returns the one in force.
pub fn set(screen: Screen) -> Screen {
    *SCREEN.get_or_init(|| screen)
}

/// True if standard output is a terminal.
pub fn is_terminal() -> bool {
    SCREEN.get().is_some_and(|screen| screen.is_terminal)
}

/// True if words may have colours.
pub fn has_colours() -> bool {
    SCREEN.get().is_some_and(|screen| screen.colours)
}

/// Makes the terminal empty, so that the next text takes the place of the present one. Bypasses all writers of text,
/// which let nothing through that a terminal acts upon.
pub fn clear() -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(b"\x1b[H\x1b[2J")?;
    out.flush()
}

/// Greatest width of a line; `None` where it does not matter.
pub fn width() -> Option<usize> {
    SCREEN.get().and_then(|screen| screen.width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_whose_user_did_not_say_no() {
        let wanted = |set: &[(&str, &str)]| {
            wants_colours(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(wanted(&[]) && wanted(&[("NO_COLOR", ""), ("TERM", "xterm")]));
        assert!(!wanted(&[("NO_COLOR", "1")]) && !wanted(&[("TERM", "dumb")]));
    }
}
