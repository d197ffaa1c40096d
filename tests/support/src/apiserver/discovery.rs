//! Discovery requests, which clients make before they ask for objects: versions, groups, resources.

use serde_json::{Value, json};

use super::resources::{ApiServerRelease, Catalog, GroupVersion, api_version};

pub(crate) fn version(release: ApiServerRelease) -> Value {
    let minor = release.minor();
    json!({
        "major": "1", "minor": minor.to_string(), "gitVersion": format!("v1.{minor}.3"), "gitCommit": "0",
        "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z", "goVersion": "none", "compiler": "none",
        "platform": "linux/amd64",
    })
}

pub(crate) fn core_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })
}

pub(crate) fn group_list(catalog: &Catalog) -> Value {
    let named = catalog.groups().into_iter().filter(|(name, _)| !name.is_empty());
    let groups: Vec<Value> = named.map(|(name, versions)| group_entry(name, &versions)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

pub(crate) fn group(catalog: &Catalog, name: &str) -> Value {
    let (_, versions) =
        catalog.groups().into_iter().find(|(group, _)| *group == name).expect("routed to a known group");
    let mut group = group_entry(name, &versions);
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    group
}

fn group_entry(name: &str, versions: &[&str]) -> Value {
    let entry = |version: &&str| json!({ "groupVersion": api_version(name, version), "version": version });
    json!({
        "name": name,
        "versions": versions.iter().map(entry).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(entry),
    })
}

pub(crate) fn resources(catalog: &Catalog, api: GroupVersion) -> Value {
    const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let mut resources = Vec::new();
    for resource in catalog.served(api) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.kind_name.to_lowercase(), "kind": resource.kind_name,
            "namespaced": resource.namespaced, "verbs": VERBS, "shortNames": resource.short,
        });
        if let Some(custom) = resource.custom.filter(|custom| !custom.categories.is_empty()) {
            entry["categories"] = json!(custom.categories);
        }
        resources.push(entry);
        if resource.has_status {
            resources.push(json!({
                "name": format!("{}/status", resource.plural), "singularName": "", "kind": resource.kind_name,
                "namespaced": resource.namespaced, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api.api_version(), "resources": resources,
    })
}
