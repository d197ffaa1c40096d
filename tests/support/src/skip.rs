//! Tests that need what is not there.

use std::io::{self, Write};

/// Prints why a test is skipped.
pub fn skipped(why: &str) {
    // Not `eprintln!`, which the test harness hides.
    let _ = writeln!(io::stderr(), "skipped: {why}");
}
