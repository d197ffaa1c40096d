//! The images of the bundles, made of the binaries that were built: an archive that container runtimes import, as
//! `docker save` writes it. All libraries of the binary are in it.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tar::{Builder, Header};

/// An image to be made.
pub struct Image<'a> {
    /// Name and tag, as the runtime knows it: `docker.io/library/hostler:0.2.0`.
    pub name: String,
    /// The program.
    pub binary: PathBuf,
    /// Path of the program in the image, as in released ones.
    pub place: &'a str,
    /// The user that runs it; root if it is empty.
    pub user: &'a str,
    /// Tells apart images of one program.
    pub revision: &'a str,
}

impl Image<'_> {
    /// Writes the archive.
    pub fn write(&self, path: &Path) {
        let layer = self.layer();
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }, "os": "linux",
            "config": {
                "Entrypoint": [Path::new(self.place).file_name().unwrap().to_str()], "User": self.user,
                "Env": ["PATH=/usr/bin:/bin"], "Labels": {"revision": self.revision},
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer))]},
        });
        let config = config.to_string().into_bytes();
        let config_name = format!("{}.json", sha256(&config));
        let manifest = json!([{"Config": config_name, "RepoTags": [self.name], "Layers": ["layer.tar"]}]);
        let mut archive = Builder::new(fs::File::create(path).unwrap());
        add(&mut archive, &config_name, 0o644, &config);
        add(&mut archive, "layer.tar", 0o644, &layer);
        add(&mut archive, "manifest.json", 0o644, Value::to_string(&manifest).as_bytes());
        archive.into_inner().unwrap().flush().unwrap();
    }

    fn layer(&self) -> Vec<u8> {
        let mut layer = Builder::new(Vec::new());
        add(&mut layer, self.place.trim_start_matches('/'), 0o755, &fs::read(&self.binary).unwrap());
        for library in libraries(&self.binary) {
            let place = library.strip_prefix("/").unwrap().to_str().unwrap();
            add(&mut layer, place, 0o755, &fs::read(&library).unwrap());
        }
        add(&mut layer, "etc/revision", 0o644, self.revision.as_bytes());
        layer.into_inner().unwrap()
    }
}

fn add(archive: &mut Builder<impl Write>, name: &str, mode: u32, content: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    archive.append_data(&mut header, name, content).unwrap();
}

fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the files that this host's loader would load for a binary, itself included, from lines such as `libc.so.6 =>
/// /lib/libc.so.6 (0x…)`.
fn libraries(binary: &Path) -> Vec<PathBuf> {
    let output = Command::new(binary).env("LD_TRACE_LOADED_OBJECTS", "1").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let files = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    let files: Vec<PathBuf> = files.map(PathBuf::from).collect();
    assert!(files.iter().all(|file| file.is_file()), "{text}");
    files
}

#[test]
fn an_image_has_the_program_what_it_is_linked_to_and_the_digests_of_both() {
    let temp = tempfile::tempdir().unwrap();
    let binary = std::env::current_exe().unwrap();
    let image =
        Image { name: "x/y:1".to_owned(), binary: binary.clone(), place: "/usr/bin/y", user: "", revision: "one" };
    let path = temp.path().join("image.tar");
    image.write(&path);
    let mut archive = tar::Archive::new(fs::File::open(&path).unwrap());
    let mut files = std::collections::BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        files.insert(name, content);
    }
    let manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
    let config: Value = serde_json::from_slice(&files[manifest[0]["Config"].as_str().unwrap()]).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&files["layer.tar"])));
    let mut layer = tar::Archive::new(&files["layer.tar"][..]);
    let names: Vec<PathBuf> =
        layer.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
    assert!(names.contains(&"usr/bin/y".into()), "{names:?}");
    assert!(names.iter().any(|name| name.to_str().unwrap().contains("libc.so")), "{names:?}");
}
