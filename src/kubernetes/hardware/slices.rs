//! The offer of a node where there are no ResourceSlices: the same slices, in its NodeHardware. Pure.

use hostler_api::hardware::{MAX_OFFERED_BYTES, MAX_OFFERED_SLICES};
use hostler_reconcile::slices::Dropped;
use serde_json::Value;
use tracing::warn;

use crate::{
    inventory::Inventory,
    kubernetes::{
        holds::HoldsInForce,
        slices::{SliceSettings, desired_slices},
    },
};

/// Slices of a node. Their reader knows all fields, even where the API server does not.
pub(super) fn offered_slices(
    settings: &SliceSettings,
    node: &str,
    inventory: &Inventory,
    holds: &HoldsInForce,
) -> Vec<Value> {
    let pools = desired_slices(inventory, holds, settings, &Dropped::new());
    let objects = pools.iter().flat_map(|pool| pool.objects(node, &settings.driver));
    let slices = objects.filter_map(|slice| serde_json::to_value(&slice.spec).ok()).collect();
    within(slices, MAX_OFFERED_BYTES)
}

/// The first slices, as many as fit.
fn within(slices: Vec<Value>, most_bytes: usize) -> Vec<Value> {
    let all = slices.len();
    let mut bytes = 0;
    let fits = |slice: &Value| {
        bytes += slice.to_string().len();
        bytes <= most_bytes
    };
    let fitting: Vec<Value> = slices.into_iter().take(MAX_OFFERED_SLICES).take_while(fits).collect();
    if fitting.len() < all {
        let left_out = all - fitting.len();
        warn!(left_out, "the devices of this node are too many for its NodeHardware: the last slices are left out");
    }
    fitting
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn slices_end_before_the_object_is_too_large_to_be_stored() {
        let slices = || vec![json!("aa"), json!("bb"), json!("cc")];
        assert_eq!(within(slices(), 12), slices());
        assert_eq!(within(slices(), 11), [json!("aa"), json!("bb")]);
        assert!(within(slices(), 3).is_empty());
    }
}
