//! Taints of devices: the reasons against their use, the parties that set them, and the requests that tolerate them.

use serde::{Deserialize, Serialize};

use crate::{core::ObjectMeta, resource::DeviceSelector};

/// Reason not to use a device.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceTaint {
    /// Key of the taint: the kind of trouble.
    pub key: Box<str>,
    /// Value of the taint, which makes the key more specific.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Box<str>>,
    /// `NoSchedule` or `NoExecute`; `None` and what is not known have no effect.
    pub effect: Box<str>,
    /// Time at which the taint was added, RFC 3339; the server fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Box<str>>,
}

impl DeviceTaint {
    /// True if the taint's effect keeps devices from being allocated.
    pub fn prevents_allocation(&self) -> bool {
        matches!(&*self.effect, "NoSchedule" | "NoExecute")
    }
}

impl PartialEq for DeviceTaint {
    /// Compares all but the time of addition, which the server sets.
    fn eq(&self, other: &Self) -> bool {
        (&self.key, &self.value, &self.effect) == (&other.key, &other.value, &other.effect)
    }
}

/// Taints that a request tolerates.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceToleration {
    /// Key of the taints; all keys where empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// `Equal`, also where empty, or `Exists`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator: String,
    /// The value, for `Equal`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Effect of the taints; any where empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// Time for which the taint is tolerated, from its arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl DeviceToleration {
    /// True if the toleration applies to this taint.
    pub fn tolerates(&self, taint: &DeviceTaint) -> bool {
        let is_about = (self.effect.is_empty() || *self.effect == *taint.effect)
            && (self.key.is_empty() || *self.key == *taint.key);
        is_about
            && match &*self.operator {
                "" | "Equal" => *self.value == **taint.value.as_ref().unwrap_or(&Box::default()),
                "Exists" => true,
                _ => false,
            }
    }
}

/// A DeviceTaintRule: a taint that a party other than the driver puts on devices.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DeviceTaintRule {
    /// Name.
    pub metadata: ObjectMeta,
    /// Devices and taint of the rule.
    pub spec: DeviceTaintRuleSpec,
}

/// Devices and taint of a rule.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceTaintRuleSpec {
    /// Devices that get the taint; all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_selector: Option<DeviceTaintSelector>,
    /// The taint.
    pub taint: DeviceTaint,
}

/// Devices that a rule selects. Absent fields match anything.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaintSelector {
    /// Driver of the devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Pool of the devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Name of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Class of the devices; v1alpha3 only, and not understood here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_class_name: Option<String>,
    /// Conditions on the devices; v1alpha3 only, and not understood here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
}

impl DeviceTaintRule {
    /// True if the rule selects devices only by driver, pool and name, which are understood here.
    pub fn is_understood(&self) -> bool {
        let selector = self.spec.device_selector.as_ref();
        selector.is_none_or(|it| it.device_class_name.is_none() && it.selectors.is_empty())
    }

    /// True if the rule selects this device.
    pub fn is_about(&self, driver: &str, pool: &str, device: &str) -> bool {
        let allows = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
        self.spec.device_selector.as_ref().is_none_or(|selector| {
            allows(&selector.driver, driver) && allows(&selector.pool, pool) && allows(&selector.device, device)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: Option<&str>, effect: &str) -> DeviceTaint {
        DeviceTaint { key: key.into(), value: value.map(Into::into), effect: effect.into(), time_added: None }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> DeviceToleration {
        let [key, operator, value, effect] = [key, operator, value, effect].map(str::to_owned);
        DeviceToleration { key, operator, value, effect, toleration_seconds: None }
    }

    #[test]
    fn the_time_of_a_taint_makes_no_difference() {
        let at =
            |time: Option<&str>| DeviceTaint { time_added: time.map(Into::into), ..taint("k", None, "NoSchedule") };
        assert_eq!(at(None), at(Some("2026-01-01T00:00:00Z")));
    }

    #[test]
    fn a_toleration_is_about_the_taints_with_its_key_effect_and_value() {
        let taint = taint("k", Some("v"), "NoSchedule");
        for (key, operator, value, effect, expected) in [
            ("k", "Equal", "v", "NoSchedule", true),
            ("k", "", "v", "", true),
            ("k", "Equal", "w", "", false),
            ("k", "Exists", "", "NoSchedule", true),
            ("k", "Exists", "", "NoExecute", false),
            ("", "Exists", "", "", true),
            ("", "Equal", "v", "", true),
            ("j", "Exists", "", "", false),
            ("k", "Like", "v", "", false),
        ] {
            let toleration = toleration(key, operator, value, effect);
            assert_eq!(toleration.tolerates(&taint), expected, "{toleration:?}");
        }
    }

    #[test]
    fn a_taint_without_a_value_has_the_empty_one() {
        assert!(toleration("k", "Equal", "", "").tolerates(&taint("k", None, "NoSchedule")));
        assert!(!toleration("k", "Equal", "v", "").tolerates(&taint("k", None, "NoSchedule")));
    }

    #[test]
    fn only_known_effects_keep_a_device_from_being_allocated() {
        for (effect, expected) in [("NoSchedule", true), ("NoExecute", true), ("None", false), ("Later", false)] {
            assert_eq!(taint("k", None, effect).prevents_allocation(), expected, "{effect}");
        }
    }

    #[test]
    fn a_rule_is_about_the_devices_that_its_selector_names() {
        let rule = |selector: serde_json::Value| -> DeviceTaintRule {
            let spec = serde_json::json!({"deviceSelector": selector, "taint": {"key": "k", "effect": "NoExecute"}});
            serde_json::from_value(serde_json::json!({"metadata": {"name": "r"}, "spec": spec})).unwrap()
        };
        for (selector, expected) in [
            (serde_json::json!(null), true),
            (serde_json::json!({}), true),
            (serde_json::json!({"driver": "d", "pool": "p", "device": "a"}), true),
            (serde_json::json!({"driver": "e"}), false),
            (serde_json::json!({"driver": "d", "pool": "q"}), false),
            (serde_json::json!({"device": "b"}), false),
        ] {
            assert_eq!(rule(selector.clone()).is_about("d", "p", "a"), expected, "{selector}");
        }
        assert!(rule(serde_json::json!({"device": "b"})).is_understood());
        assert!(!rule(serde_json::json!({"deviceClassName": "c"})).is_understood());
    }
}
