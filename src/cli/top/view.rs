//! The content of a page: hardware, loads and the chosen table.

use std::collections::BTreeMap;

use clap::ValueEnum;

use super::{filter::PageFilter, order::RowOrder};
use crate::{cli::picture::legend::HolderGrouping, usage::holders::MachineUsage};

/// The table below the machine; it decides what letters stand for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(super) enum TopTable {
    /// One line and letter for each claim
    #[default]
    Claim,
    /// One line and letter for each namespace
    Namespace,
    /// One line for each NUMA node, letters for claims
    Node,
}

impl TopTable {
    /// The one after it.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Claim => Self::Namespace,
            Self::Namespace => Self::Node,
            Self::Node => Self::Claim,
        }
    }

    pub(super) fn grouping(self) -> HolderGrouping {
        match self {
            Self::Claim | Self::Node => HolderGrouping::Claim,
            Self::Namespace => HolderGrouping::Namespace,
        }
    }
}

/// The content of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageView<'a> {
    pub(super) usage: &'a MachineUsage,
    /// Percent of each CPU; empty where nobody knows.
    pub(super) loads: &'a BTreeMap<u32, u8>,
    /// The machine's load in the last frames, a sign each.
    pub(super) load_line: &'a str,
    /// The latest changes, a line each.
    pub(super) changes: &'a [String],
    pub(super) table: TopTable,
    /// The order of the table, which marks its column; without one it is that of the names.
    pub(super) order: Option<RowOrder>,
    /// Text of the filter, if there is one.
    pub(super) filter: Option<&'a PageFilter>,
    /// True while that is being typed.
    pub(super) is_typing: bool,
    /// Why all of this is old, if it is.
    pub(super) away: Option<&'a str>,
    /// True while keys and signs are explained instead.
    pub(super) help: bool,
}

impl<'a> PageView<'a> {
    /// The machine as it is now, whole.
    pub(super) fn of(usage: &'a MachineUsage, loads: &'a BTreeMap<u32, u8>, table: TopTable) -> Self {
        Self {
            usage,
            loads,
            load_line: "",
            changes: &[],
            table,
            order: None,
            filter: None,
            is_typing: false,
            away: None,
            help: false,
        }
    }
}
