//! Tables of the chart: the switch of each folder of `deploy/`, and the fields that are values.
//!
//! Conditions are in the language of Go's templates. Those of the longest path and of the kind both hold.

/// Condition of the objects below a path of `deploy/`.
pub(super) const PATHS: &[(&str, &str)] = &[
    ("base", ".Values.daemon.enabled"),
    ("classic", ".Values.controller.classic"),
    ("cluster", "(or .Values.daemon.enabled .Values.daemon.onHosts)"),
    ("components/pods", ".Values.daemon.pods"),
    ("components/prometheus", "(and .Values.daemon.enabled .Values.prometheus.podMonitors)"),
    ("components/prometheus-controller", "(and .Values.controller.enabled .Values.prometheus.podMonitors)"),
    ("components/topology", ".Values.daemon.topology"),
    ("controller/base", ".Values.controller.enabled"),
    ("crds", ".Values.crds"),
    ("crds/classic", "(and .Values.crds .Values.controller.classic)"),
    ("crds/fabric", "(and .Values.crds .Values.controller.fabric)"),
    ("fabric", ".Values.controller.fabric"),
    ("fabric/node", "(and .Values.controller.fabric (or .Values.daemon.enabled .Values.daemon.onHosts))"),
    ("holds/annotations", ".Values.controller.holds.annotations"),
    ("holds/base", "(has true (values .Values.controller.holds))"),
    ("holds/claims", ".Values.controller.holds.claims"),
    ("holds/direct", ".Values.controller.holds.direct"),
    ("holds/evictions", ".Values.controller.holds.evictions"),
    ("holds/gates", ".Values.controller.holds.gates"),
    ("holds/koordinator", ".Values.controller.holds.koordinator"),
    ("holds/places", "(or .Values.controller.holds.places .Values.controller.holds.koordinator)"),
    ("holds/repair", ".Values.controller.holds.repair"),
    ("holds/rules", ".Values.controller.holds.rules"),
    (
        "holds/webhook",
        "(or .Values.controller.holds.webhook .Values.controller.holds.repair .Values.controller.holds.gates)",
    ),
    ("monitoring/alerts.yaml", "(and .Values.daemon.enabled .Values.prometheus.alerts)"),
    ("monitoring/controller", "(and .Values.controller.enabled .Values.prometheus.alerts)"),
    ("monitoring/dashboard.json", "(and .Values.daemon.enabled .Values.prometheus.dashboard)"),
    ("provisioning", ".Values.controller.provisioning"),
];

/// Further condition of objects of a kind.
pub(super) const KINDS: &[(&str, &str)] = &[
    ("DeviceClass", "(and .Values.deviceClasses (not .Values.controller.classic))"),
    ("Namespace", ".Values.namespaces"),
    ("PriorityClass", "(eq .Values.controller.priorityClassName \"hostler-controller\")"),
    ("ValidatingAdmissionPolicy", ".Values.admissionPolicies"),
    ("ValidatingAdmissionPolicyBinding", ".Values.admissionPolicies"),
];

/// Patches of components, each with the object that it changes and its condition.
pub(super) const PATCHES: &[(&str, &str, &str)] = &[
    ("components/hardware/daemonset.yaml", "base/daemonset.yaml", ".Values.daemon.hardware"),
    ("components/nri/daemonset.yaml", "base/daemonset.yaml", ".Values.daemon.nri"),
];

/// Program of a workload, by its kind: the section of its values, and its configuration.
pub(super) const PROGRAMS: &[(&str, &str, &str)] =
    &[("DaemonSet", "daemon", "hostler.toml"), ("Deployment", "controller", "controller.toml")];

/// How a value becomes a field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Scalar,
    /// A list or a map; the field is left out where it is empty.
    Tree,
}

/// Fields of workloads that are values: kind, path of the field, path of the value.
pub(super) const FIELDS: &[(&str, &str, &str, Form)] = &[
    ("DaemonSet", "/spec/template/spec/containers/0/imagePullPolicy", "daemon.image.pullPolicy", Form::Scalar),
    ("DaemonSet", "/spec/template/spec/containers/0/resources", "daemon.resources", Form::Tree),
    ("DaemonSet", "/spec/template/spec/imagePullSecrets", "imagePullSecrets", Form::Tree),
    ("DaemonSet", "/spec/template/spec/nodeSelector", "daemon.nodeSelector", Form::Tree),
    ("DaemonSet", "/spec/template/spec/priorityClassName", "daemon.priorityClassName", Form::Scalar),
    ("DaemonSet", "/spec/template/spec/tolerations", "daemon.tolerations", Form::Tree),
    ("Deployment", "/spec/replicas", "controller.replicas", Form::Scalar),
    ("Deployment", "/spec/template/spec/containers/0/imagePullPolicy", "controller.image.pullPolicy", Form::Scalar),
    ("Deployment", "/spec/template/spec/containers/0/resources", "controller.resources", Form::Tree),
    ("Deployment", "/spec/template/spec/imagePullSecrets", "imagePullSecrets", Form::Tree),
    ("Deployment", "/spec/template/spec/nodeSelector", "controller.nodeSelector", Form::Tree),
    ("Deployment", "/spec/template/spec/priorityClassName", "controller.priorityClassName", Form::Scalar),
    ("Deployment", "/spec/template/spec/tolerations", "controller.tolerations", Form::Tree),
];

/// Kinds whose objects have labels of the administrator's choice, by which the Prometheus operator selects them.
pub(super) const SELECTED_BY_LABELS: [&str; 2] = ["PodMonitor", "PrometheusRule"];

/// The condition under which the chart has an object that was made of a file.
pub(super) fn condition(source: &str, kind: &str) -> String {
    let below = |path: &str| source.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let of_path = PATHS.iter().filter(|(path, _)| below(path)).max_by_key(|(path, _)| path.len());
    let (_, of_path) = of_path.unwrap_or_else(|| panic!("{source} has no switch: PATHS in {} lacks it", file!()));
    match KINDS.iter().find(|(of, _)| *of == kind) {
        Some((_, of_kind)) => format!("and {of_path} {of_kind}"),
        None => (*of_path).to_owned(),
    }
}
