//! Selectors, compiled once for each text.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    quirks::{Quirk, Quirks},
    version::{Feature, Features},
};
use hostler_cel::{CelOptions, CompileError, Selector};

/// A compiled selector, or the reason why it does not compile.
pub(super) type CompiledSelector = Result<Selector, CompileError>;

/// Compiled selectors, by their text.
#[derive(Debug)]
pub(super) struct Selectors {
    options: CelOptions,
    compiled: Mutex<HashMap<Box<str>, Arc<CompiledSelector>>>,
}

impl Selectors {
    pub(super) fn new(features: Features, quirks: Quirks) -> Self {
        let includes = !quirks.has(Quirk::OneValueEach);
        let is_gated = quirks.has(Quirk::SeveralValuesGated);
        let list_attributes = includes && (!is_gated || features.has(Feature::ListTypeAttributes));
        let old_words = quirks.has(Quirk::FormatsInOldWords);
        let options = CelOptions { list_attributes, includes, old_words };
        Self { options, compiled: Mutex::default() }
    }

    /// Returns the selector with this text, and compiles it if it is new.
    pub(super) fn compiled(&self, text: &str) -> Arc<CompiledSelector> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = compiled.get(text) {
            return Arc::clone(known);
        }
        let selector = Arc::new(Selector::compile(text, &self.options));
        compiled.insert(text.into(), Arc::clone(&selector));
        selector
    }
}
