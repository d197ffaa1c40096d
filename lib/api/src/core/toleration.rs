//! Taints of nodes, and which of them a pod bears.

use serde::{Deserialize, Serialize};

/// Taint of a node: keeps pods away that do not tolerate it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Trouble of the node, or the tenant that the node is for.
    pub key: String,
    /// Value, which makes the key more specific.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Toleration of a pod.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Empty: every key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// `Equal`, which is meant where it is empty, `Exists`, or a comparison of later versions.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator: String,
    /// The value that is tolerated.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Empty: every effect.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// Time for which `NoExecute` is tolerated; counts only once the pod runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Taint {
    /// True if a pod that does not tolerate the taint certainly stays away.
    pub fn keeps_away(&self) -> bool {
        matches!(&*self.effect, "NoSchedule" | "NoExecute")
    }
}

impl std::fmt::Display for Taint {
    /// `key=value:effect`, as kubectl has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{equals}{}:{}", self.key, self.value, self.effect)
    }
}

impl Toleration {
    /// True if this tolerates `taint`.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && self.tolerates_value(&taint.value)
    }

    fn tolerates_value(&self, value: &str) -> bool {
        match &*self.operator {
            "" | "Equal" => self.value == value,
            "Exists" => true,
            "Lt" => self.compared(value).is_some_and(|(bound, value)| value < bound),
            "Gt" => self.compared(value).is_some_and(|(bound, value)| value > bound),
            _ => false,
        }
    }

    fn compared(&self, value: &str) -> Option<(i64, i64)> {
        Some((self.value.parse().ok()?, value.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(text: &str) -> Taint {
        let (key, effect) = text.split_once(':').unwrap();
        let (key, value) = key.split_once('=').unwrap_or((key, ""));
        Taint { key: key.into(), value: value.into(), effect: effect.into() }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        Toleration {
            key: key.into(),
            operator: operator.into(),
            value: value.into(),
            effect: effect.into(),
            toleration_seconds: None,
        }
    }

    #[test]
    fn a_toleration_bears_what_its_key_value_and_effect_say() {
        let gpu = taint("gpu=yes:NoSchedule");
        for (key, operator, value, effect, is_borne) in [
            ("gpu", "Equal", "yes", "NoSchedule", true),
            ("gpu", "", "yes", "", true),
            ("gpu", "", "no", "", false),
            ("gpu", "Exists", "", "", true),
            ("gpu", "Exists", "", "NoExecute", false),
            ("", "Exists", "", "", true),
            ("other", "Exists", "", "", false),
            ("gpu", "Near", "yes", "", false),
        ] {
            assert_eq!(toleration(key, operator, value, effect).tolerates(&gpu), is_borne, "{key} {operator} {value}");
        }
    }

    #[test]
    fn comparisons_are_of_whole_numbers() {
        let sla = taint("sla=950:NoSchedule");
        assert!(toleration("sla", "Gt", "900", "").tolerates(&sla));
        assert!(!toleration("sla", "Gt", "950", "").tolerates(&sla));
        assert!(toleration("sla", "Lt", "951", "").tolerates(&sla));
        assert!(!toleration("sla", "Lt", "many", "").tolerates(&sla));
    }

    #[test]
    fn a_preference_keeps_nobody_away() {
        assert!(!taint("a:PreferNoSchedule").keeps_away());
        assert!(taint("a:NoExecute").keeps_away());
        assert_eq!(taint("a=b:NoExecute").to_string(), "a=b:NoExecute");
        assert_eq!(taint("a:NoExecute").to_string(), "a:NoExecute");
    }
}
