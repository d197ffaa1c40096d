//! The common part of both command lines: the screen of standard output, text in columns, completion scripts for shells, help, and
//! manual pages.
//!
//! Nothing here knows which commands there are.

pub mod completions;
pub mod help;
pub mod man;
pub mod screen;
pub mod table;
