//! Requests that this controller answers, and their classes.

use hostler_api::provisioning::ProvisioningRequestSpec;

/// Own name of the class, which no other program answers.
const CHECK_CAPACITY: &str = "check-capacity.hostler.dev";
const ATOMIC_SCALE_UP: &str = "atomic-scale-up.hostler.dev";
/// Cluster Autoscaler's class for checks. Several programs can answer it in one cluster: each answers requests with its
/// name.
pub(crate) const OFFICIAL_CHECK_CAPACITY: &str = "check-capacity.autoscaling.x-k8s.io";
/// Cluster Autoscaler's other class. It is answered only where the configuration says so: no parameter keeps Cluster
/// Autoscaler from answering it, too.
pub(crate) const OFFICIAL_ATOMIC_SCALE_UP: &str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";
/// The parameter with the name of the program that shall answer.
pub(crate) const PROCESSOR_INSTANCE: &str = "processorInstance";

/// Names of classes that this controller answers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ProvisionClasses {
    /// This controller's name in `processorInstance`; if it is empty, requests of the official class are not answered.
    pub(crate) instance: String,
    /// Additional names of the class that checks.
    pub(crate) check_capacity: Vec<String>,
    /// Additional names of the class that promises all or nothing.
    pub(crate) atomic_scale_up: Vec<String>,
    /// True if Cluster Autoscaler's class that promises all or nothing is answered.
    pub(crate) best_effort_atomic: bool,
}

/// The kind of answer that a request asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ProvisionClass {
    /// A check: is there room for all pods?
    CheckCapacity,
    /// Room for all pods, for which devices may be attached, or nothing.
    AtomicScaleUp,
}

impl ProvisionClasses {
    /// Returns the class of a request; `None` if this controller does not answer it.
    pub(crate) fn of(&self, spec: &ProvisioningRequestSpec) -> Option<ProvisionClass> {
        let named = spec.parameters.get(PROCESSOR_INSTANCE);
        let is_ours = |instance: &String| !self.instance.is_empty() && *instance == self.instance;
        if named.is_some_and(|instance| !is_ours(instance)) {
            return None;
        }
        let is_alias = |names: &[String]| names.contains(&spec.provisioning_class_name);
        match &*spec.provisioning_class_name {
            CHECK_CAPACITY => Some(ProvisionClass::CheckCapacity),
            ATOMIC_SCALE_UP => Some(ProvisionClass::AtomicScaleUp),
            OFFICIAL_CHECK_CAPACITY => named.map(|_| ProvisionClass::CheckCapacity),
            OFFICIAL_ATOMIC_SCALE_UP => self.best_effort_atomic.then_some(ProvisionClass::AtomicScaleUp),
            _ if is_alias(&self.check_capacity) => Some(ProvisionClass::CheckCapacity),
            _ if is_alias(&self.atomic_scale_up) => Some(ProvisionClass::AtomicScaleUp),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(classes: &ProvisionClasses, class: &str, instance: Option<&str>) -> Option<ProvisionClass> {
        let parameters = instance.map(|it| (PROCESSOR_INSTANCE.to_owned(), it.to_owned())).into_iter().collect();
        let spec = ProvisioningRequestSpec {
            provisioning_class_name: class.to_owned(),
            parameters,
            ..ProvisioningRequestSpec::default()
        };
        classes.of(&spec)
    }

    /// 38, and the table of classes, instances and parameters.
    #[test]
    fn the_official_class_is_answered_only_where_this_instance_is_named() {
        let nameless = ProvisionClasses::default();
        let named = ProvisionClasses {
            instance: "hostler".to_owned(),
            check_capacity: vec!["check-capacity.kubernetes.io".to_owned()],
            atomic_scale_up: vec!["atomic-scale-up.kubernetes.io".to_owned()],
            best_effort_atomic: false,
        };
        let (check, atomic) = (Some(ProvisionClass::CheckCapacity), Some(ProvisionClass::AtomicScaleUp));
        for (class, instance, by_nameless, by_named) in [
            (CHECK_CAPACITY, None, check, check),
            (CHECK_CAPACITY, Some("hostler"), None, check),
            (CHECK_CAPACITY, Some("other"), None, None),
            (ATOMIC_SCALE_UP, None, atomic, atomic),
            (OFFICIAL_CHECK_CAPACITY, None, None, None),
            (OFFICIAL_CHECK_CAPACITY, Some(""), None, None),
            (OFFICIAL_CHECK_CAPACITY, Some("other"), None, None),
            (OFFICIAL_CHECK_CAPACITY, Some("hostler"), None, check),
            (OFFICIAL_ATOMIC_SCALE_UP, None, None, None),
            (OFFICIAL_ATOMIC_SCALE_UP, Some("hostler"), None, None),
            ("check-capacity.kubernetes.io", None, None, check),
            ("atomic-scale-up.kubernetes.io", None, None, atomic),
            ("hostlercheck-capacity.autoscaling.x-k8s.io", None, None, None),
            ("queued-provisioning.gke.io", Some("hostler"), None, None),
        ] {
            assert_eq!(asked(&nameless, class, instance), by_nameless, "{class} {instance:?}, no instance");
            assert_eq!(asked(&named, class, instance), by_named, "{class} {instance:?}, instance hostler");
        }
        let switched_on = ProvisionClasses { best_effort_atomic: true, ..named };
        let best_effort = |instance| asked(&switched_on, OFFICIAL_ATOMIC_SCALE_UP, instance);
        assert_eq!([None, Some("hostler"), Some("other")].map(best_effort), [atomic, atomic, None]);
    }
}
