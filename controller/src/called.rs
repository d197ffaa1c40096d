//! The name by which the program was called: its own, or one of those by which kubectl knows a plugin.

use std::{env, path::Path};

/// The name of the program.
pub(crate) const PROGRAM: &str = "hostler-controller";

/// The plugin as its users know it.
pub(crate) const PLUGIN: &str = "kubectl hostler";

/// The part that the program plays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CalledAs {
    /// The controller, with all its commands.
    Controller,
    /// The plugin: kubectl starts `kubectl-hostler` for `kubectl hostler`.
    Plugin,
    /// The plugin's completions: kubectl starts `kubectl_complete-hostler` for them.
    Completer,
}

impl CalledAs {
    /// Returns the part of this process.
    pub(crate) fn now() -> Self {
        let name = env::args_os().next().unwrap_or_default();
        match &*Path::new(&name).file_name().unwrap_or_default().to_string_lossy() {
            "kubectl-hostler" => Self::Plugin,
            "kubectl_complete-hostler" => Self::Completer,
            _ => Self::Controller,
        }
    }
}

/// True if the program was called as the plugin.
pub(crate) fn is_plugin() -> bool {
    CalledAs::now() == CalledAs::Plugin
}

/// Returns the name by which users call this program.
pub(crate) fn program() -> &'static str {
    if is_plugin() { PLUGIN } else { PROGRAM }
}
