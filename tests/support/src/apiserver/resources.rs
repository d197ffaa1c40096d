//! Served resources: kinds, their groups and versions by release, and the paths to them.

use super::{classic, custom::CustomVersion, rules::ServerSettings};

/// A minor release of Kubernetes.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum ApiServerRelease {
    /// 1.26
    V1_26,
    /// 1.28
    V1_28,
    /// 1.30
    V1_30,
    /// 1.31
    V1_31,
    /// 1.32
    V1_32,
    /// 1.33
    V1_33,
    /// 1.34
    V1_34,
    /// 1.35
    V1_35,
    /// 1.36
    #[default]
    V1_36,
    /// 1.37
    V1_37,
}

impl ApiServerRelease {
    /// Releases in which a controller of the driver allocates, from the oldest to the newest.
    pub const CLASSIC: [Self; 4] = [Self::V1_26, Self::V1_28, Self::V1_30, Self::V1_31];
    /// All others, from the oldest to the newest.
    pub const ALL: [Self; 6] = [Self::V1_32, Self::V1_33, Self::V1_34, Self::V1_35, Self::V1_36, Self::V1_37];

    pub(crate) fn minor(self) -> u32 {
        match self {
            Self::V1_26 => 26,
            Self::V1_28 => 28,
            Self::V1_30 => 30,
            Self::V1_31 => 31,
            Self::V1_32 => 32,
            Self::V1_33 => 33,
            Self::V1_34 => 34,
            Self::V1_35 => 35,
            Self::V1_36 => 36,
            Self::V1_37 => 37,
        }
    }

    /// The versions of `resource.k8s.io`, the preferred one first.
    pub(crate) fn dra_versions(self) -> &'static [&'static str] {
        match self {
            Self::V1_26 => &["v1alpha1"],
            Self::V1_28 | Self::V1_30 => &["v1alpha2"],
            Self::V1_31 => &["v1alpha3"],
            Self::V1_32 => &["v1beta1"],
            Self::V1_33 => &["v1beta2", "v1beta1"],
            _ => &["v1", "v1beta2", "v1beta1"],
        }
    }
}

/// The name of the group of dynamic resource allocation.
pub(crate) const DRA: &str = "resource.k8s.io";

/// The group of a CRD, which is served where it is installed.
pub(crate) const TOPOLOGY: &str = "topology.node.k8s.io";
const TOPOLOGY_VERSION: &str = "v1alpha2";

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const EXTENSIONS: &str = "apiextensions.k8s.io";
const POLICY: &str = "policy";
const SCHEDULING: &str = "scheduling.k8s.io";

/// A kind of object that is stored, or of question that is answered.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum ObjectKind {
    Namespace,
    Node,
    Pod,
    PodTemplate,
    ResourceQuota,
    Event,
    ConfigMap,
    Secret,
    ServiceAccount,
    Lease,
    PodDisruptionBudget,
    PriorityClass,
    MutatingWebhookConfiguration,
    ResourceSlice,
    ResourceClaim,
    ResourceClaimTemplate,
    DeviceClass,
    NodeResourceTopology,
    TokenReview,
    SubjectAccessReview,
    /// The client's own rights.
    SelfSubjectAccessReview,
    CustomResourceDefinition,
    /// Claims of 1.26 to 1.31.
    ClassicClaim,
    ClassicClaimTemplate,
    ClassicDeviceClass,
    ResourceClass,
    SchedulingContext,
    /// Parameters of classic DRA, by plural.
    ClassicParameters(&'static str),
    /// `plural.group` of a definition.
    Custom(&'static str),
}

/// A kind, as the API names it.
#[derive(Debug)]
pub(crate) struct ServedResource {
    pub kind: ObjectKind,
    pub kind_name: &'static str,
    pub plural: &'static str,
    pub short: &'static [&'static str],
    pub namespaced: bool,
    pub has_status: bool,
    /// The group in which it is stored.
    pub group: &'static str,
    /// The version of a custom kind; `None` for built-in kinds.
    pub custom: Option<&'static CustomVersion>,
}

pub(crate) const RESOURCES: &[ServedResource] = &[
    resource(ObjectKind::Namespace, "Namespace", "namespaces", &["ns"], false, true, ""),
    resource(ObjectKind::Node, "Node", "nodes", &["no"], false, true, ""),
    resource(ObjectKind::Pod, "Pod", "pods", &["po"], true, true, ""),
    resource(ObjectKind::PodTemplate, "PodTemplate", "podtemplates", &[], true, false, ""),
    resource(ObjectKind::ResourceQuota, "ResourceQuota", "resourcequotas", &["quota"], true, true, ""),
    resource(ObjectKind::Event, "Event", "events", &["ev"], true, false, ""),
    resource(ObjectKind::ConfigMap, "ConfigMap", "configmaps", &["cm"], true, false, ""),
    resource(ObjectKind::ServiceAccount, "ServiceAccount", "serviceaccounts", &["sa"], true, false, ""),
    resource(ObjectKind::Secret, "Secret", "secrets", &[], true, false, ""),
    resource(
        ObjectKind::MutatingWebhookConfiguration,
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        &[],
        false,
        false,
        ADMISSION,
    ),
    resource(ObjectKind::Lease, "Lease", "leases", &[], true, false, COORDINATION),
    resource(
        ObjectKind::PodDisruptionBudget,
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        &["pdb"],
        true,
        true,
        POLICY,
    ),
    resource(ObjectKind::PriorityClass, "PriorityClass", "priorityclasses", &["pc"], false, false, SCHEDULING),
    resource(ObjectKind::ResourceSlice, "ResourceSlice", "resourceslices", &[], false, false, DRA),
    resource(ObjectKind::ResourceClaim, "ResourceClaim", "resourceclaims", &[], true, true, DRA),
    resource(
        ObjectKind::ResourceClaimTemplate,
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        &[],
        true,
        false,
        DRA,
    ),
    resource(ObjectKind::DeviceClass, "DeviceClass", "deviceclasses", &[], false, false, DRA),
    resource(
        ObjectKind::NodeResourceTopology,
        "NodeResourceTopology",
        "noderesourcetopologies",
        &["node-res-topo"],
        false,
        false,
        TOPOLOGY,
    ),
    resource(ObjectKind::TokenReview, "TokenReview", "tokenreviews", &[], false, false, AUTHENTICATION),
    resource(
        ObjectKind::SubjectAccessReview,
        "SubjectAccessReview",
        "subjectaccessreviews",
        &[],
        false,
        false,
        AUTHORIZATION,
    ),
    resource(
        ObjectKind::SelfSubjectAccessReview,
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        &[],
        false,
        false,
        AUTHORIZATION,
    ),
    resource(
        ObjectKind::CustomResourceDefinition,
        "CustomResourceDefinition",
        "customresourcedefinitions",
        &["crd", "crds"],
        false,
        true,
        EXTENSIONS,
    ),
];

pub(crate) const fn resource(
    kind: ObjectKind,
    kind_name: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    has_status: bool,
    group: &'static str,
) -> ServedResource {
    ServedResource { kind, kind_name, plural, short, namespaced, has_status, group, custom: None }
}

impl ServedResource {
    /// A kind that is built in.
    pub(crate) fn of(kind: ObjectKind) -> &'static Self {
        RESOURCES.iter().find(|resource| resource.kind == kind).expect("every kind is in the table")
    }

    /// `apiVersion` of a stored object.
    pub(crate) fn stored_version(&self) -> String {
        match self.custom {
            Some(custom) => api_version(self.group, custom.storage),
            None => api_version(self.group, if self.group == TOPOLOGY { TOPOLOGY_VERSION } else { "v1" }),
        }
    }

    fn is_in(&self, group: &str) -> bool {
        self.group == group || (group == "events.k8s.io" && self.kind == ObjectKind::Event)
    }
}

/// `group/version`, or the version alone for the core group.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// All that a server serves: what is built in, and what was defined.
#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    release: ApiServerRelease,
    has_topology: bool,
    /// Custom resources, one for each version of each definition.
    custom: Vec<&'static ServedResource>,
}

impl Catalog {
    pub(crate) fn new(settings: &ServerSettings) -> Self {
        Self { release: settings.release, has_topology: settings.topology, custom: Vec::new() }
    }

    /// Replaces the custom resources.
    pub(crate) fn define(&mut self, custom: Vec<&'static ServedResource>) {
        self.custom = custom;
    }

    /// All groups with their versions, the preferred one first.
    pub(crate) fn groups(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let core = ["", "events.k8s.io", ADMISSION, AUTHENTICATION, AUTHORIZATION];
        let plain = core.into_iter().chain([COORDINATION, EXTENSIONS, POLICY, SCHEDULING]);
        let dra = (DRA, self.release.dra_versions().to_vec());
        let topology = self.has_topology.then(|| (TOPOLOGY, vec![TOPOLOGY_VERSION]));
        let mut groups: Vec<_> = plain.map(|group| (group, vec!["v1"])).chain([dra]).chain(topology).collect();
        for resource in self.custom.iter() {
            let Some(version) = resource.custom.map(|custom| custom.version) else { continue };
            match groups.iter_mut().find(|(group, _)| *group == resource.group) {
                Some((_, versions)) if versions.contains(&version) => {}
                // A definition can add a version to a group that is built in.
                Some((_, versions)) => versions.push(version),
                None => groups.push((resource.group, vec![version])),
            }
        }
        groups
    }

    /// Returns the resources that a version of a group serves.
    pub(crate) fn served(&self, api: GroupVersion) -> Vec<&'static ServedResource> {
        let built_in = self.built_in().filter(|resource| resource.is_in(api.group));
        let of_version = |resource: &&&'static ServedResource| {
            resource.group == api.group && resource.custom.is_some_and(|custom| custom.version == api.version)
        };
        built_in.chain(self.custom.iter().filter(of_version).copied()).collect()
    }

    fn all(&self) -> impl Iterator<Item = &'static ServedResource> {
        self.built_in().chain(self.custom.iter().copied())
    }

    /// Returns the built-in resources. Each release has its own kinds of the group of claims.
    fn built_in(&self) -> impl Iterator<Item = &'static ServedResource> {
        let classic = classic::resources(self.release);
        let others = RESOURCES.iter().filter(move |resource| classic.is_none() || resource.group != DRA);
        others.chain(classic.unwrap_or_default())
    }

    /// Returns the resource with this plural; that of a definition can be followed by its group.
    pub(crate) fn named(&self, plural: &str) -> &'static ServedResource {
        let is_named = |resource: &&ServedResource| {
            resource.plural == plural || matches!(resource.kind, ObjectKind::Custom(name) if name == plural)
        };
        self.all().find(is_named).unwrap_or_else(|| panic!("no resource is called {plural}"))
    }

    /// Returns the kind that an object names. Claims and slices are stored in a version that old releases do not serve.
    pub(crate) fn of_object(&self, api_version: &str, kind: &str) -> Option<(GroupVersion, &'static ServedResource)> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let stored = || {
            let version = ["v1", "v1beta2", "v1beta1"].into_iter().find(|one| *one == version)?;
            (group == DRA).then_some(GroupVersion { group: DRA, version })
        };
        let api = self.version(group, version).or_else(stored)?;
        let resource = self.served(api).into_iter().find(|resource| resource.kind_name == kind)?;
        Some((api, resource))
    }

    fn version(&self, group: &str, version: &str) -> Option<GroupVersion> {
        let (group, versions) = self.groups().into_iter().find(|(one, _)| *one == group)?;
        let version = versions.into_iter().find(|one| *one == version)?;
        Some(GroupVersion { group, version })
    }
}

/// A group in a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct GroupVersion {
    pub group: &'static str,
    pub version: &'static str,
}

impl GroupVersion {
    pub(crate) fn api_version(self) -> String {
        api_version(self.group, self.version)
    }
}

/// The target of a path.
#[derive(Clone, Debug)]
pub(crate) enum ApiRoute {
    Version,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(&'static str),
    /// `/api/v1`, `/apis/<group>/<version>`
    Resources(GroupVersion),
    /// `/healthz` and its like.
    Health,
    Objects(RequestTarget),
}

/// Objects, or one of them.
#[derive(Clone, Debug)]
pub(crate) struct RequestTarget {
    pub api: GroupVersion,
    pub resource: &'static ServedResource,
    pub(crate) namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl RequestTarget {
    /// The namespace as the store has it: empty for none.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_status(&self) -> bool {
        self.subresource.as_deref() == Some("status")
    }
}

/// `None` for a path at which nothing is.
pub(crate) fn route(catalog: &Catalog, path: &str) -> Option<ApiRoute> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let api = |group: &str, version: &str| catalog.version(group, version);
    match parts.as_slice() {
        ["version"] => Some(ApiRoute::Version),
        ["healthz" | "readyz" | "livez"] => Some(ApiRoute::Health),
        ["api"] => Some(ApiRoute::CoreVersions),
        ["apis"] => Some(ApiRoute::Groups),
        ["apis", group] if !group.is_empty() => {
            catalog.groups().into_iter().map(|(one, _)| one).find(|one| one == group).map(ApiRoute::Group)
        }
        ["api", version] => Some(ApiRoute::Resources(api("", version)?)),
        ["apis", group, version] => Some(ApiRoute::Resources(api(group, version)?)),
        ["api", version, rest @ ..] => objects(catalog, api("", version)?, rest),
        ["apis", group, version, rest @ ..] => objects(catalog, api(group, version)?, rest),
        _ => None,
    }
}

fn objects(catalog: &Catalog, api: GroupVersion, rest: &[&str]) -> Option<ApiRoute> {
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() && *rest != ["status"] => (Some(*namespace), rest),
        _ => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(*name), None),
        [plural, name, sub] => (plural, Some(*name), Some(*sub)),
        _ => return None,
    };
    let resource = catalog.served(api).into_iter().find(|resource| resource.plural == *plural)?;
    let fits = if resource.namespaced { namespace.is_some() || name.is_none() } else { namespace.is_none() };
    let is_served = |sub: &str| match sub {
        "status" => resource.has_status,
        "binding" | "eviction" => resource.kind == ObjectKind::Pod,
        _ => false,
    };
    let known = subresource.is_none_or(is_served);
    (fits && known).then(|| {
        let owned = |part: Option<&str>| part.map(str::to_owned);
        ApiRoute::Objects(RequestTarget {
            api,
            resource,
            namespace: owned(namespace),
            name: owned(name),
            subresource: owned(subresource),
        })
    })
}
