//! Taints that others than the drivers put on devices. They are applied before any allocation.

use hostler_api::resource::{DeviceTaintRule, ResourceSlice};

/// Adds the taints of all rules to the devices that they are about, in the order of the rules.
pub fn apply_taint_rules<'r>(slices: &mut [ResourceSlice], rules: impl IntoIterator<Item = &'r DeviceTaintRule>) {
    for rule in rules {
        for slice in &mut *slices {
            let (driver, pool) = (&slice.spec.driver, &slice.spec.pool.name);
            for device in &mut slice.spec.devices {
                if rule.is_about(driver, pool, &device.name) {
                    device.taints.push(rule.spec.taint.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_taints_the_devices_that_it_is_about() {
        let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "devices": [{"name": "a"}, {"name": "b"}],
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}});
        let mut slices: Vec<ResourceSlice> = vec![serde_json::from_value(slice).unwrap()];
        let rule = |selector| {
            json!({"metadata": {"name": "r"}, "spec": {"deviceSelector": selector,
            "taint": {"key": "k", "effect": "NoSchedule"}}})
        };
        let rules = [rule(json!({"driver": "d", "device": "b"})), rule(json!({"driver": "other"}))];
        let rules: Vec<DeviceTaintRule> = rules.into_iter().map(|it| serde_json::from_value(it).unwrap()).collect();
        apply_taint_rules(&mut slices, &rules);
        let taints: Vec<usize> = slices[0].spec.devices.iter().map(|device| device.taints.len()).collect();
        assert_eq!(taints, [0, 1]);
    }
}
