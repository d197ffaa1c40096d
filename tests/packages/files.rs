//! The files that `make packages` has built, and what they say of themselves.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Packages of this machine's architecture.
#[derive(Debug)]
pub struct Packages {
    folder: PathBuf,
    version: String,
}

impl Packages {
    pub fn find() -> Self {
        let folder =
            PathBuf::from(env::var_os("HOSTLER_PACKAGES").expect("HOSTLER_PACKAGES names the folder of the packages"));
        Packages { folder, version: env!("CARGO_PKG_VERSION").to_owned() }
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    /// The version that an upgrade goes to: the same files under a higher number.
    pub fn next_version(&self) -> String {
        format!("{}+next", self.version)
    }

    pub fn deb(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}_{}_{}.deb", self.version, architecture()))
    }

    /// Puts the packages into a folder, under names without version.
    pub fn copy_to(&self, folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        for name in ["hostler", "hostler-controller", "hostler-dbgsym"] {
            fs::copy(self.deb(name), folder.join(format!("{name}.deb"))).unwrap();
        }
        let work = tempfile::tempdir().unwrap();
        let root = work.path().join("root");
        command("dpkg-deb", &["-R", self.deb("hostler").to_str().unwrap(), root.to_str().unwrap()]);
        let control = fs::read_to_string(root.join("DEBIAN/control")).unwrap();
        let next = control
            .replace(&format!("\nVersion: {}\n", self.version), &format!("\nVersion: {}\n", self.next_version()));
        assert_ne!(next, control);
        fs::write(root.join("DEBIAN/control"), next).unwrap();
        command(
            "dpkg-deb",
            &["-Zgzip", "-b", root.to_str().unwrap(), folder.join("hostler-next.deb").to_str().unwrap()],
        );
    }
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// Runs a program of this machine and returns what it prints.
pub fn command(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(done.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
#[ignore = "needs packages: make test-packages"]
fn every_file_has_its_checksum_and_rpm_and_deb_have_the_same_files() {
    let packages = Packages::find();
    command("sh", &["-c", &format!("cd '{}' && sha256sum --strict --quiet -c SHA256SUMS", packages.folder.display())]);
    let machine = if architecture() == "arm64" { "aarch64" } else { "x86_64" };
    for (deb, rpm) in
        [("hostler", "hostler"), ("hostler-controller", "hostler-controller"), ("hostler-dbgsym", "hostler-debuginfo")]
    {
        let rpm = packages.folder.join(format!("{rpm}-{}-1.{machine}.rpm", packages.version));
        let in_rpm = command("rpm", &["-qpl", rpm.to_str().unwrap()]);
        let in_deb = command(
            "sh",
            &[
                "-c",
                &format!(
                    "dpkg-deb --fsys-tarfile '{}' | tar -t | grep -v '/$' | sed 's|^\\.||'",
                    packages.deb(deb).display()
                ),
            ],
        );
        // Debian wants a copyright file in a place of its own.
        let mut in_deb: Vec<&str> = in_deb.lines().filter(|file| !file.ends_with("/copyright")).collect();
        let mut in_rpm: Vec<&str> = in_rpm.lines().collect();
        in_deb.sort_unstable();
        in_rpm.sort_unstable();
        assert_eq!(in_rpm, in_deb);
    }
}

#[test]
#[ignore = "needs packages: make test-packages"]
fn the_list_of_parts_names_every_crate_that_the_programs_are_linked_from() {
    let packages = Packages::find();
    for program in ["hostler", "hostler-controller"] {
        let file = packages.folder.join(format!("{program}_{}.cdx.json", packages.version));
        let list: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(list["bomFormat"], "CycloneDX");
        let listed: Vec<String> = list["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["name"].as_str().unwrap().to_owned())
            .collect();
        let tree = command(
            "cargo",
            &["tree", "--offline", "--locked", "-p", program, "-e", "normal", "--prefix", "none", "--format", "{p}"],
        );
        for line in tree.lines() {
            let name = line.split(' ').next().unwrap();
            assert!(
                name == program || listed.iter().any(|part| part == name),
                "{name} is missing in {}",
                file.display()
            );
        }
    }
}
