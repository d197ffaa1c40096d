//! What is wrong with a configuration: the mistakes of a backend's own section, and of the one that a claim brings.

use std::fmt;

use crate::{BackendError, Grant};

/// A mistake in a backend's configuration. A backend reports all of them at once, so that one run of the check is
/// enough.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigProblem {
    /// Path of the field inside the backend's section, for example `reserved` or `reserved.default`.
    pub field: String,
    /// What is wrong with the value and how to mend it, for people.
    pub reason: String,
}

impl ConfigProblem {
    /// A mistake in `field`.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl std::error::Error for ConfigProblem {}

/// Refuses a grant that brings opaque configuration, for backends that define none: a wish that nobody reads would
/// look granted.
///
/// # Errors
/// [`BackendError::Config`] with the name of a field that was given.
pub fn refuse_opaque_config(grant: &Grant) -> Result<(), BackendError> {
    let Some(config) = grant.config.first() else { return Ok(()) };
    // `apiVersion` and `kind` only say what the rest is; the first other field is what the user wanted.
    let field = config.as_object().and_then(|fields| {
        fields.keys().find(|key| !matches!(key.as_str(), "apiVersion" | "kind")).or_else(|| fields.keys().next())
    });
    Err(BackendError::Config {
        field: field.cloned().unwrap_or_else(|| "parameters".to_owned()),
        reason: format!(
            "devices of pool {} take no configuration; remove it from the claim and from its device class",
            grant.pool
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::{Access, DeviceName};

    fn grant(config: Vec<serde_json::Value>) -> Grant {
        Grant {
            request: "cpus".to_owned(),
            pool: "node/cpu".to_owned(),
            device: DeviceName::new("numa0").unwrap(),
            share_id: None,
            access: Access::Use,
            consumed: BTreeMap::new(),
            config,
        }
    }

    #[test]
    fn a_grant_without_configuration_passes() {
        assert!(refuse_opaque_config(&grant(Vec::new())).is_ok());
    }

    #[test]
    fn a_refused_configuration_is_named_by_the_field_that_carries_the_wish() {
        for (config, field) in [
            (json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "CpuConfig", "policy": "spread"}), "policy"),
            (json!({"kind": "CpuConfig"}), "kind"),
            (json!({}), "parameters"),
            (json!(3), "parameters"),
        ] {
            let error = refuse_opaque_config(&grant(vec![config])).unwrap_err();
            assert!(matches!(&error, BackendError::Config { field: named, .. } if named == field), "{error}");
        }
    }

    #[test]
    fn a_problem_reads_as_field_and_reason() {
        let problem = ConfigProblem::new("reserved", "write a list such as 0-3,8");
        assert_eq!(problem.to_string(), "reserved: write a list such as 0-3,8");
    }
}
