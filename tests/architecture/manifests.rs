//! Reads Cargo.toml files and Cargo.lock: the dependencies of each package.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    path::Path,
};

use toml::{Table, Value};

/// A package of the workspace.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    /// Names of normal and build dependencies. Those of tests alone are not here.
    pub(crate) dependencies: BTreeSet<String>,
}

impl Manifest {
    /// Reads a manifest; `None` for one without a package.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let table: Table = text.parse().unwrap();
        let name = table.get("package")?.get("name")?.as_str()?.to_owned();
        let platforms = table.get("target").and_then(Value::as_table).into_iter().flatten();
        let tables = std::iter::once(&table).chain(platforms.filter_map(|(_, platform)| platform.as_table()));
        let dependencies = tables.flat_map(names_in).collect();
        Some(Self { name, dependencies })
    }
}

fn names_in(table: &Table) -> Vec<String> {
    let sections =
        ["dependencies", "build-dependencies"].into_iter().filter_map(|section| table.get(section)?.as_table());
    // A renamed dependency has its real name under `package`.
    let real = |(name, value): (&String, &Value)| {
        value.get("package").and_then(Value::as_str).map_or_else(|| name.clone(), str::to_owned)
    };
    sections.flatten().map(real).collect()
}

/// The packages of the workspace in `root`, with the wildcards of `members` that end in `/*` resolved.
pub(crate) fn workspace(root: &Path) -> Vec<Manifest> {
    let text = super::read(&root.join("Cargo.toml"));
    let table: Table = text.parse().unwrap();
    let members = table["workspace"]["members"].as_array().unwrap().iter().map(|member| member.as_str().unwrap());
    let mut manifests: Vec<Manifest> = Manifest::parse(&text).into_iter().collect();
    for member in members {
        let folders = match member.strip_suffix("/*") {
            Some(parent) => fs::read_dir(root.join(parent)).unwrap().map(|entry| entry.unwrap().path()).collect(),
            None => vec![root.join(member)],
        };
        for folder in folders.iter().filter(|folder| folder.join("Cargo.toml").exists()) {
            manifests.extend(Manifest::parse(&super::read(&folder.join("Cargo.toml"))));
        }
    }
    manifests
}

/// External packages, each with those that it names. Versions of one name are taken together: a rule forbids them all.
#[derive(Debug)]
pub(crate) struct Lock(BTreeMap<String, BTreeSet<String>>);

impl Lock {
    pub(crate) fn parse(text: &str) -> Self {
        let table: Table = text.parse().unwrap();
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for package in table.get("package").and_then(Value::as_array).into_iter().flatten() {
            let dependencies = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
            // An entry is `name`, or `name version` where there are several.
            let names = dependencies.filter_map(|entry| entry.as_str()?.split(' ').next()).map(str::to_owned);
            edges.entry(package["name"].as_str().unwrap().to_owned()).or_default().extend(names);
        }
        Self(edges)
    }

    /// Returns the shortest way from `manifest` to the package called `target`. For our own packages the manifest
    /// counts: the lock file does not tell dependencies of tests apart.
    pub(crate) fn chain(&self, manifest: &Manifest, ours: &[Manifest], target: &str) -> Option<Vec<String>> {
        let mut seen = BTreeSet::new();
        let mut ways: VecDeque<Vec<String>> = manifest.dependencies.iter().map(|name| vec![name.clone()]).collect();
        while let Some(way) = ways.pop_front() {
            let last = way.last()?.clone();
            if last == target {
                return Some(way);
            }
            if !seen.insert(last.clone()) {
                continue;
            }
            let own = ours.iter().find(|manifest| manifest.name == last).map(|manifest| &manifest.dependencies);
            for next in own.or_else(|| self.0.get(&last)).into_iter().flatten() {
                ways.push_back(way.iter().chain([next]).cloned().collect());
            }
        }
        None
    }
}

#[test]
fn dependencies_of_tests_and_platforms_are_told_apart() {
    let manifest = Manifest::parse(
        "[package]\nname = 'a'\n[dependencies]\nb = '1'\nalias = { package = 'c', version = '1' }\n\
         [dev-dependencies]\nd = '1'\n[build-dependencies]\ne = '1'\n[target.'cfg(unix)'.dependencies]\nf = '1'",
    );
    let names: Vec<String> = manifest.unwrap().dependencies.into_iter().collect();
    assert_eq!(names, ["b", "c", "e", "f"]);
}

#[test]
fn what_only_a_test_of_ours_uses_is_not_reached() {
    let a = Manifest::parse("[package]\nname = 'a'\n[dependencies]\nb.workspace = true").unwrap();
    let b = Manifest::parse("[package]\nname = 'b'\n[dev-dependencies]\ntokio = '1'").unwrap();
    let lock = Lock::parse("[[package]]\nname = 'b'\nversion = '1.0.0'\ndependencies = ['tokio']");
    let ours = [a, b];
    assert_eq!(lock.chain(&ours[0], &ours, "tokio"), None);
    assert_eq!(lock.chain(&ours[0], &ours, "b"), Some(vec!["b".to_owned()]));
}
