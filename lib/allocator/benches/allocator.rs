//! How fast the allocator and the planner are: `cargo bench -p hostler-allocator --bench allocator`.
//!
//! Prints one line per figure, with what it should be. Words on the command line choose sections; memory is that of the
//! whole process at its peak, so it means something only where one section is chosen.

#![allow(
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a program for developers: it prints what it finds and ends when something fails"
)]

mod allocator {
    //! One file per section, and what they share.

    pub(crate) mod cases;
    pub(crate) mod cel;
    pub(crate) mod clusters;
    pub(crate) mod measure;
    pub(crate) mod plan;
}

use allocator::{cases, cel, plan};

type Section = (&'static str, fn());

const SECTIONS: [Section; 6] = [
    ("cel", cel::measure),
    ("cases", cases::measure),
    ("fit", plan::fit),
    ("plan", plan::plan),
    ("mixed", plan::mixed),
    ("terms", plan::terms),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    for (name, measure) in SECTIONS {
        if words.is_empty() || words.iter().any(|word| word == name) {
            println!("## {name}");
            measure();
        }
    }
}
