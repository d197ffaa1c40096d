//! What is served where: kinds, their groups and versions by release, and the paths to them.

use std::collections::BTreeMap;

use super::rules::ServerSettings;

/// A minor release of Kubernetes.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum ApiServerRelease {
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
    /// From the oldest to the newest.
    pub const ALL: [Self; 6] = [Self::V1_32, Self::V1_33, Self::V1_34, Self::V1_35, Self::V1_36, Self::V1_37];

    pub(crate) fn minor(self) -> u32 {
        32 + self as u32
    }

    /// The versions of `resource.k8s.io`, the preferred one first.
    pub(crate) fn dra_versions(self) -> &'static [&'static str] {
        match self {
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

/// A kind of object that is stored, or of question that is answered.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum ObjectKind {
    Namespace,
    Node,
    Pod,
    Event,
    ResourceSlice,
    ResourceClaim,
    ResourceClaimTemplate,
    DeviceClass,
    NodeResourceTopology,
    TokenReview,
    SubjectAccessReview,
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
}

pub(crate) const RESOURCES: &[ServedResource] = &[
    resource(ObjectKind::Namespace, "Namespace", "namespaces", &["ns"], false, true, ""),
    resource(ObjectKind::Node, "Node", "nodes", &["no"], false, true, ""),
    resource(ObjectKind::Pod, "Pod", "pods", &["po"], true, true, ""),
    resource(ObjectKind::Event, "Event", "events", &["ev"], true, false, ""),
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
];

const fn resource(
    kind: ObjectKind,
    kind_name: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    has_status: bool,
    group: &'static str,
) -> ServedResource {
    ServedResource { kind, kind_name, plural, short, namespaced, has_status, group }
}

impl ServedResource {
    pub(crate) fn of(kind: ObjectKind) -> &'static Self {
        RESOURCES.iter().find(|resource| resource.kind == kind).expect("every kind is in the table")
    }

    /// By its plural.
    pub(crate) fn named(plural: &str) -> &'static Self {
        RESOURCES
            .iter()
            .find(|resource| resource.plural == plural)
            .unwrap_or_else(|| panic!("no resource is called {plural}"))
    }

    /// By the name of its kind.
    pub(crate) fn of_kind(kind: &str) -> &'static Self {
        RESOURCES
            .iter()
            .find(|resource| resource.kind_name == kind)
            .unwrap_or_else(|| panic!("no kind is called {kind}"))
    }

    /// `apiVersion` of a stored object.
    pub(crate) fn stored_version(&self) -> String {
        api_version(self.group, if self.group == TOPOLOGY { TOPOLOGY_VERSION } else { "v1" })
    }
}

/// `group/version`, or the version alone for the core group.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// All groups with their versions, the preferred one first.
pub(crate) fn groups(settings: &ServerSettings) -> Vec<(&'static str, Vec<&'static str>)> {
    let plain = ["", "events.k8s.io", AUTHENTICATION, AUTHORIZATION].map(|group| (group, vec!["v1"]));
    let custom = settings.topology.then(|| (TOPOLOGY, vec![TOPOLOGY_VERSION]));
    plain.into_iter().chain([(DRA, settings.release.dra_versions().to_vec())]).chain(custom).collect()
}

/// What a version of a group serves.
pub(crate) fn served(group: &str) -> impl Iterator<Item = &'static ServedResource> + use<'_> {
    let also = move |resource: &ServedResource| group == "events.k8s.io" && resource.kind == ObjectKind::Event;
    RESOURCES.iter().filter(move |resource| resource.group == group || also(resource))
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

/// Where a path leads.
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
pub(crate) fn route(settings: &ServerSettings, path: &str) -> Option<ApiRoute> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let groups: BTreeMap<_, _> = groups(settings).into_iter().collect();
    let api = |group: &str, version: &str| {
        let (group, versions) = groups.iter().find(|(one, _)| **one == group)?;
        let version = versions.iter().find(|one| **one == version)?;
        Some(GroupVersion { group, version })
    };
    match parts.as_slice() {
        ["version"] => Some(ApiRoute::Version),
        ["healthz" | "readyz" | "livez"] => Some(ApiRoute::Health),
        ["api"] => Some(ApiRoute::CoreVersions),
        ["apis"] => Some(ApiRoute::Groups),
        ["apis", group] if !group.is_empty() => groups.keys().copied().find(|one| one == group).map(ApiRoute::Group),
        ["api", version] => Some(ApiRoute::Resources(api("", version)?)),
        ["apis", group, version] => Some(ApiRoute::Resources(api(group, version)?)),
        ["api", version, rest @ ..] => objects(api("", version)?, rest),
        ["apis", group, version, rest @ ..] => objects(api(group, version)?, rest),
        _ => None,
    }
}

fn objects(api: GroupVersion, rest: &[&str]) -> Option<ApiRoute> {
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
    let resource = served(api.group).find(|resource| resource.plural == *plural)?;
    let fits = if resource.namespaced { namespace.is_some() || name.is_none() } else { namespace.is_none() };
    let known = subresource.is_none_or(|sub| sub == "status" && resource.has_status);
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
