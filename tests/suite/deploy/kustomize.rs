//! Results of kustomize for the folders in `deploy/`: by its rules, written here once more as far as these folders need
//! them, and by a real kustomize where there is one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use hostler_testing::binary::tool;
use serde_json::Value;

use super::{deploy, documents, lost, round_trip, yaml_files};

/// The objects that a folder resolves to.
#[derive(Debug, Default)]
struct Resolved {
    /// Objects by kind, namespace and name; a generated object has the name without its hash.
    objects: BTreeMap<ObjectId, Value>,
    /// Every file that was read.
    files: BTreeSet<PathBuf>,
    /// Names of generated objects, without their hashes.
    generated: BTreeSet<String>,
}

pub(super) type ObjectId = (String, String, String);

pub(super) fn id(object: &Value) -> ObjectId {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// The fields of a kustomization that are understood here. Another field would be ignored silently.
const FIELDS: [&str; 8] =
    ["apiVersion", "kind", "resources", "components", "patches", "labels", "images", "configMapGenerator"];

impl Resolved {
    /// Resolves the folder `root`, as a user names it on the command line.
    fn of(root: &Path) -> Result<Self, String> {
        let mut resolved = Self::default();
        resolved.add(
            &root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?,
            "Kustomization",
            &[],
        )?;
        resolved.renamed_by_mistake()?;
        Ok(resolved)
    }

    /// Kustomize renames generated objects, and every entry of `resourceNames` with the old name as well, even if a
    /// role means another object of that name.
    fn renamed_by_mistake(&self) -> Result<(), String> {
        for object in self.objects.values() {
            let rules = object["rules"].as_array().into_iter().flatten();
            let named = rules.flat_map(|rule| texts(&rule["resourceNames"]));
            if let Some(name) = named.into_iter().find(|name| self.generated.contains(name)) {
                let role = object["metadata"]["name"].as_str().unwrap_or_default();
                return Err(format!(
                    "role {role} names {name}, which kustomize takes for the ConfigMap that it generates"
                ));
            }
        }
        Ok(())
    }

    fn add(&mut self, root: &Path, kind: &str, above: &[PathBuf]) -> Result<(), String> {
        // A folder that holds one from which it was named could be named for ever.
        if let Some(inner) = above.iter().find(|inner| inner.starts_with(root)) {
            return Err(format!("cycle: {} contains {}", root.display(), inner.display()));
        }
        let path = root.join("kustomization.yaml");
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let own: Value = serde_saphyr::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        self.files.insert(path.clone());
        if own["kind"] != kind {
            return Err(format!("{} is no {kind}", path.display()));
        }
        let unknown = own.as_object().unwrap().keys().find(|key| !FIELDS.contains(&key.as_str()));
        if let Some(field) = unknown {
            return Err(format!("{}: {field} is not understood", path.display()));
        }
        let above = [above, &[root.to_owned()]].concat();
        for entry in texts(&own["resources"]) {
            match root.join(&entry).canonicalize() {
                Ok(folder) if folder.is_dir() => self.add(&folder, "Kustomization", &above)?,
                _ => documents(&self.file(root, &entry)?).into_iter().try_for_each(|object| self.put(object))?,
            }
        }
        for entry in texts(&own["components"]) {
            let folder = root.join(&entry).canonicalize().map_err(|error| format!("{entry}: {error}"))?;
            self.add(&folder, "Component", &above)?;
        }
        self.generate(root, &own["configMapGenerator"])?;
        for patch in own["patches"].as_array().into_iter().flatten() {
            if let Some(inline) = patch["patch"].as_str() {
                self.take_out(&patch["target"]["kind"], inline)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                continue;
            }
            let patch = documents(&self.file(root, patch["path"].as_str().unwrap_or_default())?).remove(0);
            if !self.objects.contains_key(&id(&patch)) {
                return Err(format!("{}: there is no {:?} to patch", path.display(), id(&patch)));
            }
        }
        Ok(())
    }

    /// Removes all objects of a kind: the only patch of this form that is understood here.
    fn take_out(&mut self, kind: &Value, patch: &str) -> Result<(), String> {
        let patch: Value = serde_saphyr::from_str(patch).map_err(|error| error.to_string())?;
        if patch["$patch"] != "delete" || patch["kind"] != *kind {
            return Err(format!("{patch} is not understood"));
        }
        let before = self.objects.len();
        self.objects.retain(|(of, ..), _| kind != of);
        if self.objects.len() < before { Ok(()) } else { Err(format!("there is no {kind} to take out")) }
    }

    /// Returns a file in the folder: kustomize reads no others.
    fn file(&mut self, root: &Path, name: &str) -> Result<PathBuf, String> {
        let path = root.join(name);
        let found = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
        if !found.starts_with(root) || !found.is_file() {
            return Err(format!("{} is no file in {}", found.display(), root.display()));
        }
        if !self.files.insert(found.clone()) {
            return Err(format!("{} is named twice", found.display()));
        }
        Ok(found)
    }

    fn put(&mut self, object: Value) -> Result<(), String> {
        let id = id(&object);
        match self.objects.insert(id.clone(), object) {
            Some(_) => Err(format!("{id:?} is there twice")),
            None => Ok(()),
        }
    }

    fn generate(&mut self, root: &Path, generators: &Value) -> Result<(), String> {
        for generator in generators.as_array().into_iter().flatten() {
            let mut data = serde_json::Map::new();
            for name in texts(&generator["files"]) {
                let text = fs::read_to_string(self.file(root, &name)?).map_err(|error| error.to_string())?;
                data.insert(name, text.into());
            }
            let object = serde_json::json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                "metadata": { "name": generator["name"], "namespace": generator["namespace"] },
            });
            if generator["behavior"] == "replace" {
                self.objects.remove(&id(&object)).ok_or_else(|| format!("{:?} replaces nothing", id(&object)))?;
            }
            self.generated.insert(object["metadata"]["name"].as_str().unwrap_or_default().to_owned());
            self.put(object)?;
        }
        Ok(())
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|entry| entry.as_str().unwrap().to_owned()).collect()
}

/// Returns the folders that a user can install.
pub(super) fn installations() -> Vec<PathBuf> {
    let all = yaml_files(&deploy()).into_iter().filter(|path| path.ends_with("kustomization.yaml"));
    let whole = all.filter(|path| documents(path)[0]["kind"] == "Kustomization");
    whole.map(|path| path.parent().unwrap().to_owned()).collect()
}

#[test]
fn every_folder_that_can_be_installed_comes_to_objects() {
    let installations = installations();
    for folder in &installations {
        let resolved = Resolved::of(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let central = match folder {
            folder if folder.ends_with("crds") || folder.parent().is_some_and(|it| it.ends_with("crds")) => {
                "CustomResourceDefinition"
            }
            folder
                if ["classic", "classic-1.26", "fabric", "provisioning"].iter().any(|name| folder.ends_with(name)) =>
            {
                "Deployment"
            }
            folder if folder.ends_with("fabric/node") => "ValidatingAdmissionPolicy",
            folder if folder.components().any(|part| part.as_os_str() == "controller") => "Deployment",
            folder if folder.components().any(|part| part.as_os_str() == "holds") => "Deployment",
            _ => "DeviceClass",
        };
        assert!(resolved.objects.keys().any(|(kind, ..)| kind == central), "{}", folder.display());
    }
    for named in [
        "",
        "hardware",
        "cluster",
        "crds",
        "controller",
        "controller/base",
        "base",
        "fabric",
        "holds",
        "holds/annotations",
        "holds/evictions",
        "holds/claims",
        "holds/direct",
        "holds/gates",
        "holds/koordinator",
        "holds/places",
        "holds/rules",
        "examples/controller",
        "examples/overlay",
    ] {
        assert!(installations.contains(&deploy().join(named).components().collect()), "{named} is not there");
    }
}

#[test]
fn no_file_is_left_out() {
    let used: BTreeSet<PathBuf> =
        installations().iter().flat_map(|folder| Resolved::of(folder).unwrap().files).collect();
    let all: BTreeSet<PathBuf> = yaml_files(&deploy()).iter().map(|path| path.canonicalize().unwrap()).collect();
    let examples = ["examples", "classic/examples", "krew"].map(|folder| deploy().join(folder).canonicalize().unwrap());
    let is_example = |path: &Path| path.parent().is_some_and(|folder| examples.iter().any(|one| one == folder));
    let left_out: Vec<&PathBuf> = all.difference(&used).filter(|path| !is_example(path)).collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}

#[test]
fn what_kustomize_refuses_is_refused_here() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let refused = |name: &str| Resolved::of(&folder.path().join(name)).unwrap_err();
    let object = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";
    write("object.yaml", object);
    write("kustomization.yaml", "kind: Kustomization\nresources: [object.yaml]\n");
    write("below/kustomization.yaml", "kind: Kustomization\nresources: [..]\n");
    assert!(refused("below").starts_with("cycle: "), "{}", refused("below"));
    write("outside/kustomization.yaml", "kind: Kustomization\nresources: [../object.yaml]\n");
    assert!(refused("outside").contains("is no file in"), "{}", refused("outside"));
    write("twice/kustomization.yaml", "kind: Kustomization\nresources: [a.yaml, b.yaml]\n");
    write("twice/a.yaml", object);
    write("twice/b.yaml", object);
    assert!(refused("twice").ends_with("is there twice"), "{}", refused("twice"));
    let generator = "configMapGenerator: [{name: lease, namespace: a, files: [a.toml]}]";
    write("renamed/kustomization.yaml", &format!("kind: Kustomization\nresources: [role.yaml]\n{generator}\n"));
    write("renamed/a.toml", "");
    write("renamed/role.yaml", "kind: Role\nmetadata: {name: r, namespace: a}\nrules: [{resourceNames: [lease]}]\n");
    assert!(refused("renamed").starts_with("role r names lease, which kustomize takes"), "{}", refused("renamed"));
    write("patch/kustomization.yaml", "kind: Kustomization\npatches: [{path: a.yaml}]\n");
    write("patch/a.yaml", object);
    assert!(refused("patch").contains("to patch"), "{}", refused("patch"));
}

/// The configuration has no name of its own, so that every change of it is another object and rolls through the nodes.
#[test]
fn the_daemon_reads_a_configuration_that_is_generated() {
    for folder in installations() {
        let resolved = Resolved::of(&folder).unwrap();
        let Some((_, daemon)) = resolved.objects.iter().find(|((kind, ..), _)| kind == "DaemonSet") else { continue };
        let volumes = daemon.pointer("/spec/template/spec/volumes").unwrap().as_array().unwrap();
        let named = volumes.iter().find_map(|volume| volume.pointer("/configMap/name")?.as_str()).unwrap();
        let id = ("ConfigMap".to_owned(), "hostler-system".to_owned(), named.to_owned());
        assert!(resolved.objects.contains_key(&id), "{}", folder.display());
    }
    let written = super::objects("ConfigMap");
    assert!(written.is_empty(), "{written:?} would keep its name when it changes");
}

/// Returns `kustomize build`, or the same of kubectl, which has had components since 1.21.
fn real_kustomize() -> Option<Vec<String>> {
    let said = |command: &[&str]| {
        let output =
            Command::new(command[0]).args(&command[1..]).output().ok().filter(|output| output.status.success());
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    if said(&["kustomize", "version"]).is_some_and(|version| version.contains("v5.")) {
        return Some(vec!["kustomize".to_owned(), "build".to_owned()]);
    }
    let kubectl = tool("kubectl")?.to_str()?.to_owned();
    let version = said(&[&kubectl, "version", "--client"])?;
    let line = version.lines().find_map(|line| line.strip_prefix("Kustomize Version: v"))?;
    line.starts_with('5').then(|| vec![kubectl, "kustomize".to_owned()])
}

/// Returns the output of a real kustomize for folders; `None` if there is none.
pub(super) fn built(folders: &[PathBuf]) -> Option<Vec<Vec<Value>>> {
    let Some(command) = real_kustomize() else {
        println!("skipped: needs kustomize 5, or a kubectl with it, on the PATH");
        return None;
    };
    let build = |folder: &PathBuf| {
        let output = Command::new(&command[0]).args(&command[1..]).arg(folder).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {error}", folder.display());
        assert!(!error.to_lowercase().contains("warning"), "{}: {error}", folder.display());
        serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
    };
    Some(folders.iter().map(build).collect())
}

/// Returns the name without the hash that kustomize appends to generated names.
pub(super) fn plain((kind, namespace, name): ObjectId) -> ObjectId {
    let plain = if kind == "ConfigMap" { name.rsplit_once('-').unwrap().0.to_owned() } else { name };
    (kind, namespace, plain)
}

#[test]
fn a_real_kustomize_makes_of_every_folder_what_is_made_of_it_here() {
    let folders = installations();
    for (folder, objects) in folders.iter().zip(built(&folders).into_iter().flatten()) {
        let here = Resolved::of(folder).unwrap();
        let there: BTreeSet<ObjectId> = objects.iter().map(|object| plain(id(object))).collect();
        assert_eq!(there, here.objects.keys().cloned().collect(), "{}", folder.display());
        for object in &objects {
            if let Some(kept) = round_trip(object) {
                assert_eq!(lost("", object, &kept.unwrap()), Vec::<String>::new(), "{}", folder.display());
            }
            for label in ["name", "instance", "part-of", "version"] {
                let label = format!("app.kubernetes.io/{label}");
                assert!(object["metadata"]["labels"][&label].is_string(), "{:?} has no {label}", id(object));
            }
            assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/version"], env!("CARGO_PKG_VERSION"));
        }
    }
}

fn daemon(objects: &[Value]) -> &Value {
    objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap()
}

#[test]
fn a_real_kustomize_makes_the_container_privileged_for_hardware_and_for_nothing_else() {
    let Some(built) = built(&[deploy(), deploy().join("hardware")]) else { return };
    let context =
        |objects: &[Value]| daemon(objects)["spec"]["template"]["spec"]["containers"][0]["securityContext"].clone();
    let (plain, hardware) = (context(&built[0]), context(&built[1]));
    assert_eq!(plain["privileged"], Value::Null);
    assert_eq!(plain["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!((&hardware["privileged"], &hardware["allowPrivilegeEscalation"]), (&true.into(), &true.into()));
    let same =
        |objects: &[Value]| objects.iter().filter(|object| object["kind"] != "DaemonSet").cloned().collect::<Vec<_>>();
    assert_eq!(same(&built[0]), same(&built[1]));
}

#[test]
fn a_real_kustomize_rolls_a_changed_configuration_through_the_nodes() {
    let copy = tempfile::tempdir().unwrap();
    for path in yaml_files(&deploy()).into_iter().chain([deploy().join("base/hostler.toml")]) {
        let target = copy.path().join(path.strip_prefix(deploy()).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&path, target).unwrap();
    }
    let pod = |objects: Vec<Vec<Value>>| daemon(&objects[0])["spec"]["template"].clone();
    let here = [copy.path().to_owned()];
    let Some(before) = built(&here).map(pod) else { return };
    assert_eq!(built(&here).map(pod).unwrap(), before);
    let file = copy.path().join("base/hostler.toml");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("\"json\"", "\"text\"")).unwrap();
    assert_ne!(built(&here).map(pod).unwrap(), before);
}

/// Returns the objects of an API server after bundles were applied, the later over the earlier.
fn applied(bundles: &[(&PathBuf, &Vec<Value>)]) -> BTreeMap<ObjectId, Value> {
    let mut server = BTreeMap::new();
    for (_, objects) in bundles {
        server.extend(objects.iter().map(|object| (id(object), object.clone())));
    }
    server
}

/// No bundle takes back an object of another one: an object in several bundles is the same in all.
#[test]
fn bundles_of_the_controller_end_in_one_state_in_whatever_order_they_are_applied() {
    let is_of_controller = |folder: &PathBuf| {
        let below = folder.strip_prefix(deploy()).unwrap().to_str().unwrap().to_owned();
        // `classic` brings the same controller to clusters before 1.32, and stays when they are upgraded.
        ["controller", "fabric", "provisioning", "holds", "crds", "classic", "examples/controller"]
            .iter()
            .any(|it| below == *it || below.starts_with(&format!("{it}/")))
    };
    let folders: Vec<PathBuf> = installations().into_iter().filter(is_of_controller).collect();
    assert!(folders.len() >= 10, "{folders:?}");
    let Some(built) = built(&folders) else { return };
    let bundles: Vec<(&PathBuf, &Vec<Value>)> = folders.iter().zip(&built).collect();
    let all = applied(&bundles);
    for (folder, objects) in &bundles {
        for object in *objects {
            assert_eq!(&all[&id(object)], object, "{} has another {:?} than the others", folder.display(), id(object));
        }
    }
    // Every pair that differs would differ in one of two orders: that no pair does is that no order matters.
    let mut turned = bundles.clone();
    turned.reverse();
    assert_eq!(applied(&turned), all);
}

/// The daemon's folders as well: the objects of `deploy/cluster` are in `deploy` too, and the two kinds of daemon
/// differ in the daemon alone.
#[test]
fn what_the_daemons_bundles_have_in_common_is_the_same() {
    let folders = ["", "cluster", "crds", "hardware"].map(|name| deploy().join(name).components().collect::<PathBuf>());
    let Some(built) = built(&folders) else { return };
    let all = applied(&folders.iter().zip(&built).collect::<Vec<_>>());
    for (folder, objects) in folders.iter().zip(&built) {
        for object in objects.iter().filter(|object| object["kind"] != "DaemonSet") {
            assert_eq!(&all[&id(object)], object, "{}", folder.display());
        }
    }
}

/// A kind that a server of 1.31 or before does not serve is in none of its bundles.
#[test]
fn bundles_for_old_clusters_bring_the_daemon_and_nothing_that_their_servers_do_not_know() {
    let folders = ["classic", "classic-1.26"].map(|name| deploy().join(name));
    for (folder, policies) in folders.iter().zip([4, 0]) {
        let objects = Resolved::of(folder).unwrap().objects;
        let count = |kind: &str| objects.keys().filter(|(of, ..)| of == kind).count();
        assert_eq!((count("DaemonSet"), count("Deployment"), count("DeviceClass")), (1, 1, 0), "{}", folder.display());
        assert_eq!(count("ValidatingAdmissionPolicy"), policies, "{}", folder.display());
        assert_eq!(count("ValidatingAdmissionPolicyBinding"), policies, "{}", folder.display());
        // Two: of the daemon and of the controller.
        assert_eq!(count("ConfigMap"), 2, "{}", folder.display());
    }
}
