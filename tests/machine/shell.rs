//! Not a test: a person at the machine, for `make machine-shell`.

use std::io::{self, BufRead, Write};

use crate::guest::Guest;

#[test]
#[ignore = "is for people: make machine-shell"]
fn whoever_types_is_answered() {
    let mut guest = Guest::with_daemon();
    let mut out = io::stdout();
    writeln!(out, "every line is a shell of its own; the end of the input ends the machine").unwrap();
    for line in io::stdin().lock().lines() {
        let said = guest.run(&line.unwrap());
        write!(out, "{}{}[{}] ", said.output, said.errors, said.code).unwrap();
        out.flush().unwrap();
    }
}
