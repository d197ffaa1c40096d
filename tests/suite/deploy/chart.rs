//! The Helm chart in `deploy/chart`: made of the folders that kustomize builds. `UPDATE_GOLDEN=1 cargo test --test suite
//! chart::` writes its templates and files.

mod compare;
mod helm;
mod switches;
mod template;
mod values;

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{deploy, documents};
use switches::{FIELDS, Form, PATCHES, PROGRAMS, SELECTED_BY_LABELS, condition};
use template::{Template, escaped};

/// Files of the chart that people write.
const WRITTEN: [&str; 6] = [
    "Chart.yaml",
    "values.yaml",
    "values.schema.json",
    "templates/_helpers.tpl",
    "templates/checks.yaml",
    "templates/NOTES.txt",
];

/// What the notes propose as the first claim.
const EXAMPLE: &str = "examples/cpu.yaml";

fn chart() -> PathBuf {
    deploy().join("chart")
}

/// Returns the files below a folder, with paths relative to it.
fn files(folder: &Path) -> Vec<String> {
    let mut open = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(next) = open.pop() {
        for path in fs::read_dir(&next).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().map(|entry| entry.as_str().unwrap())
}

/// A folder of `deploy/`, and the labels that its objects get.
struct Folder {
    path: String,
    labels: BTreeMap<String, Value>,
    kustomization: Value,
}

impl Folder {
    fn read(path: &str) -> Self {
        let kustomization = documents(&deploy().join(path).join("kustomization.yaml")).remove(0);
        let pairs = kustomization["labels"].as_array().into_iter().flatten().map(|label| &label["pairs"]);
        let labels = pairs.flat_map(|pairs| pairs.as_object().unwrap().clone()).collect();
        Self { path: path.to_owned(), labels, kustomization }
    }

    /// Returns the files of the chart that are made of this folder.
    fn files(&self) -> BTreeMap<String, String> {
        let mut made = BTreeMap::new();
        for name in texts(&self.kustomization["resources"]).filter(|name| name.ends_with(".yaml")) {
            let source = format!("{}/{name}", self.path);
            made.insert(format!("templates/{source}"), self.template_of(&source));
        }
        for generator in self.kustomization["configMapGenerator"].as_array().into_iter().flatten() {
            let [name] = *texts(&generator["files"]).collect::<Vec<_>>() else {
                panic!("{generator} has several files")
            };
            let source = format!("{}/{name}", self.path);
            let template = document(&source, "", self.config_map(generator, name));
            made.insert(format!("templates/{}/configmap.yaml", self.path), format!("{}{template}", header(&source)));
            made.insert(format!("files/{name}"), fs::read_to_string(deploy().join(source)).unwrap());
        }
        made
    }

    fn template_of(&self, source: &str) -> String {
        let path = deploy().join(source);
        let text = fs::read_to_string(&path).unwrap();
        let objects = documents(&path);
        let parts: Vec<&str> = text.split("\n---\n").collect();
        assert_eq!(parts.len(), objects.len(), "{source}");
        let documents = parts.iter().zip(objects).map(|(part, object)| {
            let comment: String = part.split_inclusive('\n').take_while(|line| line.starts_with('#')).collect();
            // How definitions are made is said above every template.
            let comment = if comment.contains("UPDATE_GOLDEN") { String::new() } else { comment };
            document(source, &comment, self.labelled(Template::new(object)))
        });
        header(source) + &documents.collect::<String>()
    }

    fn labelled(&self, mut template: Template) -> Template {
        let mut places = vec!["/metadata"];
        if PROGRAMS.iter().any(|(kind, ..)| *kind == template.kind()) {
            places.push("/spec/template/metadata");
        }
        for place in places {
            let labels = format!("{place}/labels");
            template.map(&labels).extend(self.labels.clone());
            template.expression(&format!("{labels}/app.kubernetes.io~1version"), ".Chart.AppVersion | quote");
        }
        template
    }

    fn config_map(&self, generator: &Value, file: &str) -> Template {
        let mut object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {},
            "metadata": { "name": generator["name"], "namespace": generator["namespace"] },
        });
        object["metadata"]["labels"] = generator["options"]["labels"].clone();
        let mut template = self.labelled(Template::new(object));
        let program = PROGRAMS.iter().find(|(.., configuration)| *configuration == file);
        let text = program
            .map_or_else(|| format!("$.Files.Get \"files/{file}\""), |(_, values, file)| configuration(values, file));
        template.text("/data", file, &text);
        template
    }
}

fn configuration(values: &str, file: &str) -> String {
    format!("include \"hostler.configuration\" (list $ .Values.{values} \"files/{file}\")")
}

fn header(source: &str) -> String {
    format!(
        "{{{{- /* Made of deploy/{source}: change that. UPDATE_GOLDEN=1 cargo test --test suite chart:: writes this. */}}}}\n"
    )
}

/// Returns one document of a template.
fn document(source: &str, comment: &str, mut template: Template) -> String {
    let kind = template.kind();
    for (patch, _, condition) in PATCHES.iter().filter(|(_, target, _)| *target == source) {
        template.patch(&documents(&deploy().join(patch)).remove(0), condition);
    }
    for (_, path, value, form) in FIELDS.iter().filter(|(of, ..)| *of == kind) {
        match form {
            Form::Scalar => template.expression(path, &format!(".Values.{value}")),
            Form::Tree => template.tree(path, value),
        }
    }
    if let Some((_, values, file)) = PROGRAMS.iter().find(|(of, ..)| *of == kind) {
        let image = format!("include \"hostler.image\" (list $ .Values.{values}.image) | quote");
        template.expression("/spec/template/spec/containers/0/image", &image);
        // A changed configuration rolls through the pods like a changed image.
        let sum = format!("{} | sha256sum", configuration(values, file));
        template.expression("/spec/template/metadata/annotations/checksum~1config", &sum);
    }
    if kind == "CustomResourceDefinition" {
        template.map("/metadata/annotations").insert("helm.sh/resource-policy".to_owned(), "keep".into());
    }
    if SELECTED_BY_LABELS.contains(&kind.as_str()) {
        template.fields("/metadata/labels", "prometheus.labels");
    }
    let condition = condition(source, &kind);
    format!("{{{{- if {condition} }}}}\n---\n{}{}{{{{- end }}}}\n", escaped(comment), template.write())
}

/// Returns the folders of which the chart is made: examples are overlays.
fn folders() -> Vec<Folder> {
    let names = files(&deploy());
    let names = names.iter().filter_map(|file| file.strip_suffix("/kustomization.yaml"));
    names.filter(|name| !name.starts_with("examples/")).map(Folder::read).collect()
}

/// Returns every file of the chart that is made of `deploy/`.
fn made() -> BTreeMap<String, String> {
    let mut made: BTreeMap<String, String> = folders().iter().flat_map(Folder::files).collect();
    made.insert(format!("files/{EXAMPLE}"), fs::read_to_string(deploy().join(EXAMPLE)).unwrap());
    made
}

#[test]
fn templates_and_files_are_what_the_folders_of_kustomize_make_them() {
    let made = made();
    assert!(made.len() > 30, "only {} files", made.len());
    if env::var_os("UPDATE_GOLDEN").is_some() {
        for file in files(&chart()).iter().filter(|file| !WRITTEN.contains(&file.as_str()) && !made.contains_key(*file))
        {
            fs::remove_file(chart().join(file)).unwrap();
        }
        for (file, text) in &made {
            fs::create_dir_all(chart().join(file).parent().unwrap()).unwrap();
            fs::write(chart().join(file), text).unwrap();
        }
    }
    let mut expected: Vec<&str> = made.keys().map(String::as_str).chain(WRITTEN).collect();
    expected.sort_unstable();
    assert_eq!(files(&chart()), expected, "UPDATE_GOLDEN=1 removes what is not made of deploy/ any more");
    for (file, text) in &made {
        let is = fs::read_to_string(chart().join(file)).unwrap_or_default();
        assert!(is == *text, "{file} is not what deploy/ says; UPDATE_GOLDEN=1 writes it");
    }
}

/// A patch that the table does not have would be missing in the chart without a word.
#[test]
fn every_patch_is_in_the_table() {
    let mut patches = Vec::new();
    for folder in folders() {
        for patch in folder.kustomization["patches"].as_array().into_iter().flatten() {
            match patch["path"].as_str() {
                Some(file) => patches.push(format!("{}/{file}", folder.path)),
                // These take out kinds, which have switches.
                None => assert!(folder.path.starts_with("classic"), "{}: {patch}", folder.path),
            }
        }
    }
    let table: Vec<&str> = PATCHES.iter().map(|(patch, ..)| *patch).collect();
    assert_eq!(patches, table);
}
