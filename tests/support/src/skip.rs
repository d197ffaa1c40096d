//! Tests that need what is not there.

use std::io::{self, Write};

/// Says why a test tries nothing.
pub fn skipped(why: &str) {
    // Not `eprintln!`, which the test harness hides.
    let _ = writeln!(io::stderr(), "skipped: {why}");
}
