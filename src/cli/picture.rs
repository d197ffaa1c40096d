//! Pictures of a machine: what stands for whom, and the drawing as SVG. Pure: from the view of the daemon to text.

pub(super) mod boxes;
mod drawing;
pub(super) mod legend;
mod pack;
pub(super) mod svg;
pub(super) mod words;

use crate::usage::holders::MachineUsage;

/// The machine as a drawing, with its devices, holders and distances.
pub(super) fn svg(usage: &MachineUsage) -> String {
    svg::document(&drawing::machine(usage))
}

#[cfg(test)]
mod tests;
