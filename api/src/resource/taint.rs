//! Taints: why devices should not be used, who says so, and who does not mind.

use serde::{Deserialize, Serialize};

use crate::{core::ObjectMeta, resource::DeviceSelector};

/// Why a device should not be used.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceTaint {
    /// What is wrong.
    pub key: Box<str>,
    /// The same in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Box<str>>,
    /// `NoSchedule` or `NoExecute`; `None` and what is not known have no effect.
    pub effect: Box<str>,
    /// When it was added, RFC 3339; the server fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Box<str>>,
}

impl DeviceTaint {
    /// Whether an effect of it keeps devices from being allocated.
    pub fn prevents_allocation(&self) -> bool {
        matches!(&*self.effect, "NoSchedule" | "NoExecute")
    }
}

impl PartialEq for DeviceTaint {
    /// When it was added is the server's business.
    fn eq(&self, other: &Self) -> bool {
        (&self.key, &self.value, &self.effect) == (&other.key, &other.value, &other.effect)
    }
}

/// Taints that a request does not mind.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceToleration {
    /// Which; all where empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// `Equal`, also where empty, or `Exists`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator: String,
    /// The value, for `Equal`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Of which effect; of any where empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// How long, after the taint came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl DeviceToleration {
    /// Whether it is about this taint.
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

/// A DeviceTaintRule: a taint that somebody other than the driver puts on devices.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DeviceTaintRule {
    /// Name.
    pub metadata: ObjectMeta,
    /// What it says.
    pub spec: DeviceTaintRuleSpec,
}

/// What a rule says.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceTaintRuleSpec {
    /// Of which devices; of all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_selector: Option<DeviceTaintSelector>,
    /// The taint.
    pub taint: DeviceTaint,
}

/// The devices that a rule is about. What is absent does not matter.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaintSelector {
    /// Those of a driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Those of a pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// That with this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Those of a class; v1alpha3 only, and not understood here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_class_name: Option<String>,
    /// Those that match; v1alpha3 only, and not understood here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
}

impl DeviceTaintRule {
    /// Whether it says of its devices only what is understood here: driver, pool and name.
    pub fn is_understood(&self) -> bool {
        let selector = self.spec.device_selector.as_ref();
        selector.is_none_or(|it| it.device_class_name.is_none() && it.selectors.is_empty())
    }

    /// Whether it is about this device.
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
