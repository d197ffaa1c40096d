//! Authentication and authorization of requests: bearer tokens and RBAC rules.

use serde::Deserialize;
use serde_json::Value;

use super::{
    refusal::StatusError,
    resources::{ObjectKind, RequestTarget},
};

/// A user with a token.
#[derive(Clone, Debug)]
pub struct ApiUser {
    /// Name of the user, as in RBAC bindings.
    pub name: String,
    /// `authentication.kubernetes.io/node-name` of a service account's token.
    pub node: Option<String>,
    /// `None`: may everything.
    pub rules: Option<Vec<PolicyRule>>,
}

/// A rule as in the `rules` of a ClusterRole.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// Empty for the core group.
    pub api_groups: Vec<String>,
    /// Plurals, `resourceclaims/status` for a subresource.
    pub resources: Vec<String>,
    /// Empty: all of them.
    pub resource_names: Vec<String>,
    /// `*` for all.
    pub verbs: Vec<String>,
    /// Paths that are no object's.
    #[serde(rename = "nonResourceURLs")]
    pub non_resource_urls: Vec<String>,
    /// Namespace of a Role: it counts in this namespace only.
    #[serde(skip)]
    pub namespace: Option<String>,
}

impl PolicyRule {
    /// The rules of all ClusterRoles and Roles in a YAML file.
    pub fn from_yaml(text: &str) -> Vec<Self> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).expect("a YAML file");
        let roles =
            documents.into_iter().filter(|document| matches!(document["kind"].as_str(), Some("ClusterRole" | "Role")));
        let rules_of = |mut role: Value| {
            let namespace = (role["kind"] == "Role").then(|| role["metadata"]["namespace"].as_str().map(str::to_owned));
            let rules: Vec<Self> = serde_json::from_value(role["rules"].take()).expect("rules of a role");
            let namespace = namespace.flatten();
            rules.into_iter().map(move |rule| Self { namespace: namespace.clone(), ..rule })
        };
        roles.flat_map(rules_of).collect()
    }

    fn allows(&self, verb: &str, group: &str, resource: &str, name: &str) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
        let any_sub = resource.split_once('/').is_some_and(|(_, sub)| has(&self.resources, &format!("*/{sub}")));
        has(&self.verbs, verb)
            && has(&self.api_groups, group)
            && (has(&self.resources, resource) || any_sub)
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|one| one == name))
    }
}

impl ApiUser {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), node: None, rules: None }
    }

    /// Returns the bearer token. Readable, because it is no secret.
    pub fn token(&self) -> String {
        format!("token-of-{}", self.name)
    }

    /// Returns true if the user may do this in all namespaces.
    pub(crate) fn may(&self, verb: &str, group: &str, resource: &str, name: &str) -> bool {
        self.may_in(None, verb, group, resource, name)
    }

    /// Returns true if the user may do this in a namespace, or in all.
    pub(crate) fn may_in(&self, namespace: Option<&str>, verb: &str, group: &str, resource: &str, name: &str) -> bool {
        let is_here = |rule: &&PolicyRule| rule.namespace.is_none() || rule.namespace.as_deref() == namespace;
        let allows = |rule: &PolicyRule| rule.allows(verb, group, resource, name);
        self.rules.as_ref().is_none_or(|rules| rules.iter().filter(is_here).any(allows))
    }

    pub(crate) fn may_path(&self, verb: &str, path: &str) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
        let allows = |rule: &PolicyRule| has(&rule.verbs, verb) && has(&rule.non_resource_urls, path);
        self.rules.as_ref().is_none_or(|rules| rules.iter().any(allows))
    }

    pub(crate) fn authorize(&self, verb: &str, target: &RequestTarget) -> Result<(), StatusError> {
        let RequestTarget { api, resource, .. } = target;
        let name = target.name.as_deref().unwrap_or_default();
        let path = match &target.subresource {
            Some(sub) => format!("{}/{sub}", resource.plural),
            None => resource.plural.to_owned(),
        };
        // Every user has the role system:basic-user.
        let is_basic = resource.kind == ObjectKind::SelfSubjectAccessReview;
        if is_basic || self.may_in(target.namespace.as_deref(), verb, api.group, &path, name) {
            return Ok(());
        }
        let scope = match &target.namespace {
            Some(namespace) => format!("in the namespace {namespace:?}"),
            None => "at the cluster scope".to_owned(),
        };
        let why = format!("User {:?} cannot {verb} resource {path:?} in API group {:?} {scope}", self.name, api.group);
        Err(StatusError::forbidden(resource, api.group, name, &why))
    }

    /// Checks that the user may write the status of devices of `driver` in claims that are bound to `node`: that needs
    /// a verb of its own.
    pub(crate) fn authorize_driver(&self, verb: &str, driver: &str, on_node: Option<&str>) -> Result<(), String> {
        let associated = self.node.is_some() && self.node.as_deref() == on_node;
        let allowed = |prefix: &str| {
            self.may(&format!("{prefix}:{verb}"), super::resources::DRA, "resourceclaims/driver", driver)
        };
        if (associated && allowed("associated-node")) || allowed("arbitrary-node") {
            return Ok(());
        }
        let needed = if associated { "associated-node" } else { "arbitrary-node" };
        Err(format!(
            "it requires resource=\"resourceclaims/driver\", verb=\"{needed}:{verb}\" permission on {driver:?} for user {:?}",
            self.name
        ))
    }
}
