//! A backend's section: `enabled` beside the backend's own keys.

use serde::Serialize;

/// A section that can be switched on and off, beside its own configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BackendSection<T> {
    /// True if the backend is in use.
    pub enabled: bool,
    /// The backend's own keys.
    #[serde(flatten)]
    pub config: T,
}

impl<T: Default> BackendSection<T> {
    /// In use, with defaults.
    pub fn on() -> Self {
        Self { enabled: true, config: T::default() }
    }

    /// Not in use.
    pub fn off() -> Self {
        Self { enabled: false, config: T::default() }
    }

    /// The configuration, if it is in use.
    pub fn active(&self) -> Option<&T> {
        self.enabled.then_some(&self.config)
    }
}
