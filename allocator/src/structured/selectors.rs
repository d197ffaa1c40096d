//! Selectors, compiled once for each text.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use hostler_api::resource::SliceDevice;

/// A selector that was compiled, or why it could not be.
pub(super) type CompiledSelector = Result<Program, String>;

/// Compiled selectors, by their text.
#[derive(Debug, Default)]
pub(super) struct Selectors {
    compiled: Mutex<HashMap<Box<str>, Arc<CompiledSelector>>>,
}

impl Selectors {
    /// The selector with this text.
    pub(super) fn compiled(&self, text: &str) -> Arc<CompiledSelector> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = compiled.get(text) {
            return Arc::clone(known);
        }
        let program = Arc::new(Program::compile(text));
        compiled.insert(text.into(), Arc::clone(&program));
        program
    }
}

/// A selector.
#[derive(Debug)]
pub(super) enum Program {
    Constant(bool),
    Driver(String),
}

impl Program {
    fn compile(text: &str) -> CompiledSelector {
        match text {
            "true" => Ok(Self::Constant(true)),
            "false" => Ok(Self::Constant(false)),
            _ => match text.strip_prefix("device.driver == \"").and_then(|rest| rest.strip_suffix('"')) {
                Some(driver) => Ok(Self::Driver(driver.to_owned())),
                None => Err(format!("{text:?} is not understood")),
            },
        }
    }

    pub(super) fn matches(&self, driver: &str, _device: &SliceDevice) -> Result<bool, String> {
        Ok(match self {
            Self::Constant(matches) => *matches,
            Self::Driver(wanted) => wanted == driver,
        })
    }
}
