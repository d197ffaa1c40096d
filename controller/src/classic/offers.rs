//! Slices of sources that were examined lately. All slices at once would be most of the memory of this process, and
//! most nodes are not examined for a long time.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::{core::ObjectMeta, resource::ResourceSlice};

use super::model::{DeviceSource, OfferedSlice};

/// Limit of JSON text that is kept, for young and for old slices each: that of some hundred nodes. Parsed slices take
/// about four times as much.
const MOST_BYTES: usize = 2 << 20;

/// Parsed slices of sources.
#[derive(Debug, Default)]
pub(super) struct ReadOffers {
    young: BTreeMap<String, Arc<[ResourceSlice]>>,
    young_bytes: usize,
    /// Slices that were young before; they are dropped unless they are used.
    old: BTreeMap<String, Arc<[ResourceSlice]>>,
}

impl ReadOffers {
    /// Returns the slices of a source.
    pub(super) fn of(&mut self, source: &DeviceSource) -> Arc<[ResourceSlice]> {
        if let Some(known) = self.young.get(&source.name) {
            return known.clone();
        }
        let slices = self.old.remove(&source.name).unwrap_or_else(|| read(source));
        let bytes: usize = source.offered.iter().map(|slice| slice.text.len()).sum();
        if self.young_bytes + bytes > MOST_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += bytes;
        self.young.insert(source.name.clone(), slices.clone());
        slices
    }

    /// Drops the slices of a source whose offer has changed.
    pub(super) fn forget(&mut self, source: &str) {
        self.young.remove(source);
        self.old.remove(source);
    }
}

fn read(source: &DeviceSource) -> Arc<[ResourceSlice]> {
    let slice = |(at, slice): (usize, &OfferedSlice)| {
        let metadata = ObjectMeta { name: format!("{}-{at}", source.name), ..ObjectMeta::default() };
        Some(ResourceSlice { metadata, spec: serde_json::from_str(&slice.text).ok()? })
    };
    source.offered.iter().enumerate().filter_map(slice).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(name: &str, padding: usize) -> DeviceSource {
        let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
        let slice = json!({"driver": "d", "pool": pool});
        let offered = OfferedSlice { pool: name.to_owned(), text: format!("{slice}{}", " ".repeat(padding)).into() };
        DeviceSource {
            name: name.to_owned(),
            version: String::new(),
            node: None,
            is_ready: true,
            offered: vec![offered],
            grants: BTreeMap::new(),
        }
    }

    #[test]
    fn what_nobody_asks_about_is_not_kept_and_what_is_asked_about_is_the_same() {
        let mut offers = ReadOffers::default();
        let (often, once) = (source("often", MOST_BYTES / 3), source("once", MOST_BYTES / 3));
        let first = offers.of(&often);
        offers.of(&once);
        for at in 0..9 {
            offers.of(&source(&at.to_string(), MOST_BYTES / 3));
            assert!(Arc::ptr_eq(&first, &offers.of(&often)));
            assert!(offers.young.len() + offers.old.len() <= 6);
        }
        assert!(!offers.young.contains_key("once") && !offers.old.contains_key("once"));
        offers.forget("often");
        assert!(!Arc::ptr_eq(&first, &offers.of(&often)));
        assert_eq!(offers.of(&often)[0].spec.pool.name, "often");
    }
}
