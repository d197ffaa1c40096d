//! What is served where: kinds, their groups and versions by release, and the paths to them.

use std::collections::BTreeMap;

/// A minor release of Kubernetes.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
#[allow(clippy::upper_case_acronyms)]
pub enum Release {
    V1_32,
    V1_33,
    V1_34,
    V1_35,
    #[default]
    V1_36,
    V1_37,
}

impl Release {
    pub const ALL: [Self; 6] = [Self::V1_32, Self::V1_33, Self::V1_34, Self::V1_35, Self::V1_36, Self::V1_37];

    pub fn minor(self) -> u32 {
        32 + self as u32
    }

    /// The versions of `resource.k8s.io`, the preferred one first.
    pub fn dra_versions(self) -> &'static [&'static str] {
        match self {
            Self::V1_32 => &["v1beta1"],
            Self::V1_33 => &["v1beta2", "v1beta1"],
            _ => &["v1", "v1beta2", "v1beta1"],
        }
    }
}

/// The name of the group of dynamic resource allocation.
pub const DRA: &str = "resource.k8s.io";

/// A kind of object that is stored.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    Namespace,
    Node,
    Pod,
    Event,
    ResourceSlice,
    ResourceClaim,
    ResourceClaimTemplate,
    DeviceClass,
}

/// A kind, as the API names it.
#[derive(Debug)]
pub struct Resource {
    pub kind: Kind,
    pub kind_name: &'static str,
    pub plural: &'static str,
    pub short: &'static [&'static str],
    pub namespaced: bool,
    pub has_status: bool,
    /// The group in which it is stored.
    pub group: &'static str,
}

pub const RESOURCES: &[Resource] = &[
    resource(Kind::Namespace, "Namespace", "namespaces", &["ns"], false, true, ""),
    resource(Kind::Node, "Node", "nodes", &["no"], false, true, ""),
    resource(Kind::Pod, "Pod", "pods", &["po"], true, true, ""),
    resource(Kind::Event, "Event", "events", &["ev"], true, false, ""),
    resource(Kind::ResourceSlice, "ResourceSlice", "resourceslices", &[], false, false, DRA),
    resource(Kind::ResourceClaim, "ResourceClaim", "resourceclaims", &[], true, true, DRA),
    resource(Kind::ResourceClaimTemplate, "ResourceClaimTemplate", "resourceclaimtemplates", &[], true, false, DRA),
    resource(Kind::DeviceClass, "DeviceClass", "deviceclasses", &[], false, false, DRA),
];

const fn resource(
    kind: Kind,
    kind_name: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    has_status: bool,
    group: &'static str,
) -> Resource {
    Resource { kind, kind_name, plural, short, namespaced, has_status, group }
}

impl Resource {
    pub fn of(kind: Kind) -> &'static Self {
        RESOURCES.iter().find(|resource| resource.kind == kind).expect("every kind is in the table")
    }

    /// By its plural.
    pub fn named(plural: &str) -> &'static Self {
        RESOURCES
            .iter()
            .find(|resource| resource.plural == plural)
            .unwrap_or_else(|| panic!("no resource is called {plural}"))
    }

    /// By the name of its kind.
    pub fn of_kind(kind: &str) -> &'static Self {
        RESOURCES
            .iter()
            .find(|resource| resource.kind_name == kind)
            .unwrap_or_else(|| panic!("no kind is called {kind}"))
    }

    /// `apiVersion` of a stored object.
    pub fn stored_version(&self) -> String {
        api_version(self.group, "v1")
    }
}

/// `group/version`, or the version alone for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// All groups with their versions, the preferred one first.
pub fn groups(release: Release) -> Vec<(&'static str, Vec<&'static str>)> {
    vec![("", vec!["v1"]), ("events.k8s.io", vec!["v1"]), (DRA, release.dra_versions().to_vec())]
}

/// What a version of a group serves.
pub fn served(group: &str) -> impl Iterator<Item = &'static Resource> + use<'_> {
    let also = move |resource: &Resource| group == "events.k8s.io" && resource.kind == Kind::Event;
    RESOURCES.iter().filter(move |resource| resource.group == group || also(resource))
}

/// A group in a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Api {
    pub group: &'static str,
    pub version: &'static str,
}

impl Api {
    pub fn api_version(self) -> String {
        api_version(self.group, self.version)
    }
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub enum Route {
    Version,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(&'static str),
    /// `/api/v1`, `/apis/<group>/<version>`
    Resources(Api),
    /// `/healthz` and its like.
    Health,
    Objects(Target),
}

/// Objects, or one of them.
#[derive(Clone, Debug)]
pub struct Target {
    pub api: Api,
    pub resource: &'static Resource,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl Target {
    /// The namespace as the store has it: empty for none.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    pub fn is_status(&self) -> bool {
        self.subresource.as_deref() == Some("status")
    }
}

/// `None` for a path at which nothing is.
pub fn route(release: Release, path: &str) -> Option<Route> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let groups: BTreeMap<_, _> = groups(release).into_iter().collect();
    let api = |group: &str, version: &str| {
        let (group, versions) = groups.iter().find(|(one, _)| **one == group)?;
        let version = versions.iter().find(|one| **one == version)?;
        Some(Api { group, version })
    };
    match parts.as_slice() {
        ["version"] => Some(Route::Version),
        ["healthz" | "readyz" | "livez"] => Some(Route::Health),
        ["api"] => Some(Route::CoreVersions),
        ["apis"] => Some(Route::Groups),
        ["apis", group] if !group.is_empty() => groups.keys().copied().find(|one| one == group).map(Route::Group),
        ["api", version] => Some(Route::Resources(api("", version)?)),
        ["apis", group, version] => Some(Route::Resources(api(group, version)?)),
        ["api", version, rest @ ..] => objects(api("", version)?, rest),
        ["apis", group, version, rest @ ..] => objects(api(group, version)?, rest),
        _ => None,
    }
}

fn objects(api: Api, rest: &[&str]) -> Option<Route> {
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
        Route::Objects(Target {
            api,
            resource,
            namespace: owned(namespace),
            name: owned(name),
            subresource: owned(subresource),
        })
    })
}
