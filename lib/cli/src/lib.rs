//! The common part of both command lines: from arguments to exit codes, the shapes of answers, their chosen parts and
//! their order while a user watches, the screen of standard output, text in columns, completion scripts for shells, help, and manual
//! pages.
//!
//! Nothing here knows which commands there are.

pub mod completions;
pub mod config;
pub mod deferred;
pub mod doctor;
pub mod exit;
pub mod help;
pub mod man;
pub mod output;
mod paint;
pub mod parts;
pub mod plain;
pub mod program;
pub mod reader;
pub mod screen;
pub mod table;
pub mod watch;
mod yaml;
