//! Modes of a Reservation, and the other fields that each mode permits.

use serde::{Deserialize, Serialize};

use super::{ReservationSpec, TemplateError};
use crate::{core::PodTemplateSpec, names::is_dns_label};

/// Mode in which devices are kept.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum ReservationMode {
    /// Devices are closed to all pods that do not tolerate the Reservation's value; each pod has a claim of its own.
    #[default]
    Fence,
    /// Devices are in claims that pods name, one after the other or several at once, and that keep them between pods.
    SharedClaim,
}

/// Error: claims cannot be kept for pods that name them.
#[derive(Debug, thiserror::Error)]
pub enum SharedClaimError {
    /// The template or the requests cannot be understood.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// Pods that name one claim share its devices.
    #[error(
        "spec.replicas is {replicas}, but all pods that name a claim have the same devices; write 1, or mode Fence for \
         devices of their own"
    )]
    Replicas {
        /// Number of replicas in the spec.
        replicas: u32,
    },
    /// The scheduler gives free devices to a claim, not those of other claims.
    #[error("spec.preAllocation keeps devices that pods have in other claims; leave it out, or write mode Fence")]
    PreAllocation,
    /// The mode is for pods that come one after the other.
    #[error("spec.allocateOnce ends with the first owner, and the claim with it; write false, or mode Fence")]
    Once,
    /// A claim is in a namespace.
    #[error("spec.template.metadata.namespace is missing; write the namespace of the owners' pods into it")]
    Namespace,
    /// Names become part of names, and of paths.
    #[error("{field} is {name:?}; write a name of small letters, digits and dashes, 63 at most")]
    Name {
        /// Field with the name.
        field: &'static str,
        /// Name in the field.
        name: String,
    },
    /// The scheduler has to choose the devices, and with them the node.
    #[error(
        "spec.template.spec.nodeName leaves nothing to the scheduler, which has to choose the devices; write \
         nodeSelector kubernetes.io/hostname"
    )]
    NodeName,
}

impl ReservationMode {
    /// Returns the mode as it stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fence => "Fence",
            Self::SharedClaim => "SharedClaim",
        }
    }
}

impl ReservationSpec {
    /// Returns the mode, or the default one.
    pub fn mode(&self) -> ReservationMode {
        self.mode.unwrap_or_default()
    }

    /// The pod whose claims are kept for pods that name them.
    ///
    /// # Errors
    /// When the template is no pod, or the mode does not go with another field.
    pub fn shared_template(&self) -> Result<PodTemplateSpec, SharedClaimError> {
        let template = self.pod_template()?;
        if template.spec.resource_claims.is_empty() && self.device_claims.is_empty() {
            return Err(TemplateError::NoDevices.into());
        }
        if self.replicas() != 1 {
            return Err(SharedClaimError::Replicas { replicas: self.replicas() });
        }
        if self.is_pre_allocation() {
            return Err(SharedClaimError::PreAllocation);
        }
        if self.is_once() {
            return Err(SharedClaimError::Once);
        }
        if template.metadata.namespace.is_empty() {
            return Err(SharedClaimError::Namespace);
        }
        if let Some((field, name)) = self.names(&template).find(|(_, name)| !is_dns_label(name)) {
            return Err(SharedClaimError::Name { field, name: name.clone() });
        }
        match &template.spec.node_name {
            Some(_) => Err(SharedClaimError::NodeName),
            None => Ok(template),
        }
    }

    /// Names of claims and their namespace, each with its field.
    fn names<'a>(&'a self, template: &'a PodTemplateSpec) -> impl Iterator<Item = (&'static str, &'a String)> {
        let namespace = ("spec.template.metadata.namespace", &template.metadata.namespace);
        let claims = template.spec.resource_claims.iter();
        let claims = claims.map(|it| ("spec.template.spec.resourceClaims[].name", &it.name));
        let others = self.device_claims.iter().map(|it| ("spec.deviceClaims[].name", &it.name));
        claims.chain(others).chain([namespace])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn problem(change: impl FnOnce(&mut Value)) -> String {
        let mut spec = json!({
            "mode": "SharedClaim", "allocateOnce": false, "owners": [{"object": {"name": "p"}}],
            "template": {"metadata": {"namespace": "ml"}, "spec": {
                "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "two"}],
            }},
        });
        change(&mut spec);
        let spec: ReservationSpec = serde_json::from_value(spec).unwrap();
        spec.shared_template().map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn what_does_not_go_with_a_shared_claim_is_refused_with_the_fix() {
        assert_eq!(problem(|_| {}), "");
        let is_told = |change: fn(&mut Value), words: &str| {
            let told = problem(change);
            assert!(told.contains(words), "{told:?} does not say {words:?}");
        };
        is_told(|spec| spec["replicas"] = json!(2), "spec.replicas is 2");
        is_told(|spec| spec["preAllocation"] = json!(true), "spec.preAllocation");
        is_told(|spec| drop(spec.as_object_mut().unwrap().remove("allocateOnce")), "write false");
        is_told(|spec| spec["template"]["metadata"] = json!({}), "spec.template.metadata.namespace is missing");
        is_told(|spec| spec["template"]["metadata"]["namespace"] = json!("a/b"), "metadata.namespace is \"a/b\"");
        is_told(|spec| spec["template"]["spec"]["nodeName"] = json!("n1"), "kubernetes.io/hostname");
        is_told(|spec| spec["template"]["spec"] = json!({"containers": []}), "nothing is asked for");
    }
}
