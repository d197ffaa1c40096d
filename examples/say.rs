//! How demonstrations talk.

/// Begins a step.
pub(crate) fn step(title: &str) {
    println!("== {title}");
}
