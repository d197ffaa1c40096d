//! Letters and colours of holders. A letter is never left out: colours alone say nothing to many.

use std::collections::BTreeMap;

use crate::usage::holders::{CpuState, MachineUsage};

/// The meaning of a letter.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::cli) enum HolderGrouping {
    /// A claim.
    #[default]
    Claim,
    /// All claims of a namespace.
    Namespace,
}

/// The letter of those that have none of their own.
const OTHERS: char = '*';

/// Colours of holders: light enough for black letters. Neighbours in this order differ for colour-blind eyes as well.
pub(in crate::cli) const COLOURS: [&str; 12] = [
    "#8dd3f7", "#ffcf7a", "#a8e0a0", "#f4b3d7", "#c9b8f2", "#ffe873", "#8ce0d2", "#ffab8f", "#b7c7e8", "#d3e37a",
    "#e3bfa3", "#f2a0b5",
];

/// Letters and colours of the holders of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::cli) struct Legend {
    /// Each group, by name.
    groups: Vec<LegendEntry>,
    /// The group of each holder, by its place.
    of_holder: Vec<usize>,
}

/// A group of holders.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::cli) struct LegendEntry {
    /// Name of the group.
    pub(in crate::cli) name: String,
    /// The letter of the group.
    pub(in crate::cli) letter: char,
    /// The colour, as an index into [`COLOURS`].
    pub(in crate::cli) colour: usize,
}

/// How something is shown: a letter or sign, and what its colour tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::cli) struct Mark {
    /// Letter or sign.
    pub(in crate::cli) sign: char,
    /// The meaning of the sign.
    pub(in crate::cli) tone: Tone,
}

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::cli) enum Tone {
    /// Nothing.
    #[default]
    Plain,
    /// Free for every claim.
    Free,
    /// A holder has it: index into [`COLOURS`].
    Holder(usize),
    /// Kept idle for a holder.
    Kept(usize),
    /// Out of service.
    Drained,
    /// Broken, or in a state that is not known.
    Unhealthy,
    /// Free, and not to be had: what others have stands in its way.
    Blocked,
    /// Left to the system.
    Reserved,
    /// Not running, or not there.
    Offline,
}

/// The sign of a blocked device. A legend explains it where there is one.
pub(super) const BLOCKED: (char, Tone, &str) = ('|', Tone::Blocked, "blocked");

/// The signs of what no holder has, with their words.
pub(super) const SIGNS: [(char, Tone, &str); 6] = [
    ('.', Tone::Free, "free"),
    (':', Tone::Plain, "kept idle for a holder"),
    ('=', Tone::Reserved, "system"),
    ('~', Tone::Drained, "drained"),
    ('!', Tone::Unhealthy, "unhealthy"),
    ('-', Tone::Offline, "offline"),
];

impl Legend {
    /// One letter for each claim or namespace that has something, by name.
    pub(in crate::cli) fn of(usage: &MachineUsage, grouping: HolderGrouping) -> Self {
        let name = |place: usize| {
            let holder = &usage.holders[place];
            match grouping {
                HolderGrouping::Claim => (holder.namespace.clone(), holder.full_name()),
                HolderGrouping::Namespace if holder.namespace.is_empty() => (String::new(), holder.full_name()),
                HolderGrouping::Namespace => (holder.namespace.clone(), holder.namespace.clone()),
            }
        };
        let mut places: BTreeMap<(String, String), usize> =
            (0..usage.holders.len()).map(|place| (name(place), 0)).collect();
        places.values_mut().enumerate().for_each(|(index, place)| *place = index);
        let groups = places.iter().map(|((_, name), index)| LegendEntry {
            name: name.clone(),
            letter: letter(*index),
            colour: index % COLOURS.len(),
        });
        let of_holder = (0..usage.holders.len()).map(|place| places.get(&name(place)).copied().unwrap_or_default());
        Self { groups: groups.collect(), of_holder: of_holder.collect() }
    }

    /// All groups, by name.
    pub(in crate::cli) fn groups(&self) -> &[LegendEntry] {
        &self.groups
    }

    /// The place of a holder's group.
    pub(in crate::cli) fn group_of(&self, holder: usize) -> Option<usize> {
        self.of_holder.get(holder).copied()
    }

    /// The group of a holder.
    pub(in crate::cli) fn entry(&self, holder: usize) -> Option<&LegendEntry> {
        self.groups.get(self.group_of(holder)?)
    }

    /// Returns the mark of a CPU.
    pub(in crate::cli) fn cpu(&self, state: CpuState) -> Mark {
        let (sign, tone) = match state {
            CpuState::Held(holder) => match self.entry(holder) {
                Some(entry) => (entry.letter, Tone::Holder(entry.colour)),
                None => (OTHERS, Tone::Plain),
            },
            CpuState::Kept(holder) => (':', self.entry(holder).map_or(Tone::Plain, |entry| Tone::Kept(entry.colour))),
            CpuState::Free => ('.', Tone::Free),
            CpuState::Drained => ('~', Tone::Drained),
            CpuState::Unhealthy => ('!', Tone::Unhealthy),
            CpuState::Reserved => ('=', Tone::Reserved),
            CpuState::Offline => ('-', Tone::Offline),
        };
        Mark { sign, tone }
    }
}

/// Returns a–z, then A–Z; nothing tells more apart.
fn letter(index: usize) -> char {
    ('a'..='z').chain('A'..='Z').nth(index).unwrap_or(OTHERS)
}
