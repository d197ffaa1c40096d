//! ResourceSlices of a pool, for every program that publishes some: the slices that should exist, those that exist, the plan of
//! the writes that make the one of the other, and the features that a server may lack. Pure.

mod features;
mod known;
mod packed;
mod plan;

use std::{collections::BTreeSet, sync::Arc};

use hostler_api::{
    core::ObjectMeta,
    limits::MAX_OBJECT_NAME,
    resource::{ResourcePool, ResourceSlice, ResourceSliceSpec, SliceContent},
};

pub use self::{
    features::{Feature, dropped, probe},
    known::{KnownSlices, SliceChange},
    plan::{PublishedSlice, SliceDeletion, SlicePlan, SliceWrite, plan},
};

/// Features that a server does not have.
pub type Dropped = BTreeSet<Feature>;

/// A pool as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredPool {
    /// Name of the pool.
    pub name: String,
    /// Slices of the pool; none where it has no devices. A node without a kind of hardware costs the cluster nothing.
    pub slices: Vec<DesiredSlice>,
    /// Devices that cannot be published to this server, and why.
    pub left_out: Vec<String>,
    /// True if the devices of the pool are not known: the slices that are on the server stay as they are.
    pub unknown: bool,
}

/// A slice as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredSlice {
    /// Name of the object. Sorts as the slices do.
    pub name: String,
    /// Content of the slice.
    pub content: Arc<SliceContent>,
}

impl DesiredPool {
    /// Returns the slices as objects of their own, for readers without an API server.
    pub fn objects(&self, node: &str, driver: &str) -> Vec<ResourceSlice> {
        let count = i64::try_from(self.slices.len()).unwrap_or(i64::MAX);
        let object = |slice: &DesiredSlice| ResourceSlice {
            metadata: ObjectMeta { name: slice.name.clone(), ..ObjectMeta::default() },
            spec: ResourceSliceSpec {
                driver: driver.to_owned(),
                pool: ResourcePool { name: self.name.clone(), generation: 1, resource_slice_count: count },
                node_name: Some(node.to_owned()),
                node_selector: None,
                all_nodes: None,
                per_device_node_selection: None,
                devices: slice.content.devices.clone(),
                shared_counters: slice.content.shared_counters.clone(),
            },
        };
        self.slices.iter().map(object).collect()
    }
}

/// The same for the same slice at every start, so that slices are found again; sorted as the slices are, since that is
/// the order in which devices are tried. The hash tells apart what is left out of the text.
pub fn slice_name(index: usize, driver: &str, pool: &str) -> String {
    let hash = crc32fast::hash(format!("{driver}\0{pool}").as_bytes());
    let mut name = format!("{index:05x}-{driver}-{}", pool.replace('/', "-"));
    name.truncate(MAX_OBJECT_NAME - "-01234567".len());
    // A part of a name ends with a letter or digit.
    name.truncate(name.trim_end_matches(|end: char| !end.is_ascii_alphanumeric()).len());
    format!("{name}-{hash:08x}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_tell_pools_apart_even_where_their_text_does_not() {
        assert!(slice_name(17, "hostler.dev", "node/cpu").starts_with("00011-hostler.dev-node-cpu-"));
        assert_ne!(slice_name(0, "d", "a/b-c"), slice_name(0, "d", "a-b/c"));
        let long = "x".repeat(250);
        assert_ne!(slice_name(0, "d", &format!("{long}/a")), slice_name(0, "d", &format!("{long}/b")));
    }

    fn is_dns_subdomain(name: &str) -> bool {
        let is_label = |label: &str| {
            let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            edge(label.chars().next())
                && edge(label.chars().last())
                && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        name.len() <= 253 && name.split('.').all(is_label)
    }

    proptest! {
        #[test]
        fn every_name_is_a_dns_subdomain_that_sorts_by_its_index(
            index in 0_usize..100_000,
            driver in "[a-z]([a-z0-9]{1,8}[.-]){0,5}[a-z0-9]",
            node in "[a-z0-9]([a-z0-9]{1,30}[.-]){0,9}[a-z0-9]",
            backend in "[a-z]{1,40}",
        ) {
            let pool = format!("{node}/{backend}");
            let name = slice_name(index, &driver, &pool);
            prop_assert!(is_dns_subdomain(&name), "{}", name);
            prop_assert!(name < slice_name(index + 1, &driver, &pool));
        }
    }
}
