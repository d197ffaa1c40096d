//! DeviceTaintRules: taints that others than the driver put on devices. They are added to the devices before any
//! question.

use std::sync::Arc;

use hostler_api::resource::{DeviceTaintRule, SliceDevice};

use crate::plan::{
    facts::{ClusterFacts, PackedSlice, Store},
    sequences::NumberMap,
};

/// Returns all slices by name, with the taints on their devices. The facts stay as they are, but for new texts.
pub(super) fn tainted(facts: &mut ClusterFacts) -> Vec<(Arc<str>, Arc<PackedSlice>)> {
    let known: Vec<_> = facts.rules.values().filter(|rule| rule.is_understood()).cloned().collect();
    let mut slices: Vec<_> = facts.slices.iter().map(|(name, slice)| (name.clone(), slice.clone())).collect();
    if !known.is_empty() {
        let mut tainter = Tainter { rules: &known, store: &mut facts.store, parsed: NumberMap::new() };
        for (_, slice) in &mut slices {
            if let Some(tainted) = tainter.tainted(slice) {
                *slice = Arc::new(tainted);
            }
        }
    }
    slices
}

/// Lists the rules that are not understood, in sentences.
pub(super) fn unseen(facts: &ClusterFacts) -> Vec<String> {
    let sentence = |rule: &Arc<DeviceTaintRule>| {
        let name = &rule.metadata.name;
        format!(
            "DeviceTaintRule {name} selects devices by class or by CEL, which is not looked at: its taint is not applied"
        )
    };
    facts.rules.values().filter(|rule| !rule.is_understood()).map(sentence).collect()
}

struct Tainter<'a> {
    rules: &'a [Arc<DeviceTaintRule>],
    store: &'a mut Store,
    parsed: NumberMap<u32, SliceDevice>,
}

impl Tainter<'_> {
    /// Returns the slice with the taints that rules add, if any does.
    fn tainted(&mut self, slice: &PackedSlice) -> Option<PackedSlice> {
        let (driver, pool) = (self.store.texts.get(slice.driver), self.store.texts.get(slice.pool));
        let near: Vec<&Arc<DeviceTaintRule>> =
            self.rules.iter().filter(|rule| may_be_about(rule, driver, pool)).collect();
        if near.is_empty() {
            return None;
        }
        let rests: Vec<SliceDevice> = (0..slice.len).map(|at| self.rest(slice, at, &near)).collect();
        Some(slice.with_rest(&rests, self.store))
    }

    fn rest(&mut self, slice: &PackedSlice, at: usize, rules: &[&Arc<DeviceTaintRule>]) -> SliceDevice {
        let store = &*self.store;
        let number = store.columns.get(slice.rest)[at];
        let mut rest = self.parsed.entry(number).or_insert_with(|| slice.rest(at, store)).clone();
        let texts = &store.texts;
        let device = texts.get(store.columns.get(slice.names)[at]);
        let about = rules.iter().filter(|rule| rule.is_about(texts.get(slice.driver), texts.get(slice.pool), device));
        rest.taints.extend(about.map(|rule| rule.spec.taint.clone()));
        rest
    }
}

fn may_be_about(rule: &DeviceTaintRule, driver: &str, pool: &str) -> bool {
    let allows = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
    rule.spec.device_selector.as_ref().is_none_or(|it| allows(&it.driver, driver) && allows(&it.pool, pool))
}
