//! Files that `make install` installs, compared with the documentation: in a folder of its own.
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Runs a target of the Makefile with the binary under test in place of the released one; `None` without make.
fn make(target: &str, destination: &Path) -> Option<Output> {
    let daemon = Path::new(env!("CARGO_BIN_EXE_hostler")).to_owned();
    let made = Command::new("make")
        .current_dir(root())
        .arg(target)
        .arg(format!("RELEASE={}", daemon.display()))
        .arg(format!("CONTROLLER={}", controller().unwrap_or(daemon).display()))
        .arg(format!("DESTDIR={}", destination.display()))
        .output();
    match made {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(output)
        }
        Err(_) => {
            println!("skipped: there is no make here");
            None
        }
    }
}

/// Returns the controller's binary beside the daemon's. It belongs to another package, and is missing if that was not
/// built: the daemon's stands in for it then.
fn controller() -> Option<PathBuf> {
    Some(Path::new(env!("CARGO_BIN_EXE_hostler")).with_file_name("hostler-controller")).filter(|path| path.exists())
}

/// Returns every file below a folder, as relative paths.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn an_installed_host_has_all_that_the_documentation_names_and_loses_it_again() {
    let place = tempfile::tempdir().unwrap();
    let Some(_) = make("install", place.path()) else { return };
    let installed = files(place.path());
    for file in [
        "usr/bin/hostler",
        "usr/bin/hostler-controller",
        "usr/lib/systemd/system/hostler.service",
        "usr/lib/systemd/system/hostler-controller.service",
        "usr/lib/sysusers.d/hostler.conf",
        "usr/lib/tmpfiles.d/hostler.conf",
        "usr/share/hostler/systemd/hostler-hardware.conf",
        "usr/share/hostler/systemd/hostler-kubernetes.conf",
        "usr/share/man/man1/hostler.1",
        "usr/share/man/man1/hostler-claim-create.1",
        "usr/share/man/man5/hostler.toml.5",
        "usr/share/bash-completion/completions/hostler",
        "usr/share/zsh/site-functions/_hostler",
        "usr/share/fish/vendor_completions.d/hostler.fish",
        "etc/hostler/controller.toml",
        "etc/hostler/hostler.toml",
    ] {
        assert!(installed.contains(Path::new(file)), "{file} is missing: {installed:?}");
    }
    for file in [
        "usr/share/man/man1/hostler-controller-plan.1",
        "usr/share/man/man5/controller.toml.5",
        "usr/share/bash-completion/completions/hostler-controller",
        "usr/share/zsh/site-functions/_hostler-controller",
        "usr/share/fish/vendor_completions.d/hostler-controller.fish",
    ] {
        assert!(controller().is_none() || installed.contains(Path::new(file)), "{file} is missing: {installed:?}");
    }
    // Every drop-in of the tree; the documentation tells to link them from there.
    let dropins =
        fs::read_dir(root().join("systemd")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for dropin in dropins.filter(|name| name.ends_with(".conf")) {
        assert!(installed.contains(&Path::new("usr/share/hostler/systemd").join(&dropin)), "{dropin}");
        assert!(read("docs/operations.md").contains(&format!("/usr/share/hostler/systemd/{dropin}")), "{dropin}");
    }
    assert!(!place.path().join("var").exists(), "nothing is made for a kubelet that is not there");
    make("uninstall", place.path()).unwrap();
    let left: Vec<PathBuf> = files(place.path()).into_iter().collect();
    assert_eq!(left, ["etc/hostler/controller.toml", "etc/hostler/hostler.toml"].map(PathBuf::from));
}

#[test]
fn the_installed_binary_is_stripped_and_its_symbols_are_beside_it() {
    if Command::new("objcopy").arg("--version").output().is_err() {
        println!("skipped: there is no objcopy here");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let Some(_) = make("install", place.path()) else { return };
    let binary = fs::read(place.path().join("usr/bin/hostler")).unwrap();
    let symbols = fs::read(place.path().join("usr/lib/debug/usr/bin/hostler.debug")).unwrap();
    let has = |bytes: &[u8], name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    assert!(!has(&binary, b"\0.debug_info\0") && !has(&binary, b"\0.symtab\0"));
    assert!(has(&symbols, b"\0.debug_line\0"));
    // A debugger finds the one from the other by name and checksum.
    assert!(has(&binary, b"\0.gnu_debuglink\0"));
    let link = [b"hostler.debug\0\0\0".as_slice(), &crc32fast::hash(&symbols).to_le_bytes()].concat();
    assert!(has(&binary, &link), "name, filled up to four bytes, and checksum");
    let built = fs::metadata(env!("CARGO_BIN_EXE_hostler")).unwrap().len();
    assert!((binary.len() as u64) < built / 2, "{} of {built} bytes", binary.len());
    let version = Command::new(place.path().join("usr/bin/hostler")).arg("--version").output().unwrap();
    assert!(version.status.success());
}

/// Returns the lines of the first block of commands below a heading.
fn commands(text: &str, heading: &str) -> Vec<String> {
    let below = text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}")).1;
    let block = below.split("```").nth(1).unwrap();
    let lines = block.lines().skip(1).map(|line| line.split(" #").next().unwrap().trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_steps_of_the_operations_page_begin_in_a_clone_and_make_what_the_unit_needs() {
    let steps = commands(&read("docs/operations.md"), "## Install");
    assert_eq!(steps[0], "make build", "a clone has no binary");
    let makefile = read("Makefile");
    for step in &steps {
        let step = step.trim_start_matches("sudo ");
        if let Some(target) = step.strip_prefix("make ") {
            assert!(makefile.contains(&format!("\n{target}: ")), "{target} is no target");
        }
    }
    // The unit names a group that only systemd-sysusers makes, and folders that only systemd-tmpfiles makes.
    for needed in ["systemd-sysusers", "systemd-tmpfiles --create hostler.conf", "systemctl daemon-reload"] {
        let before =
            steps.iter().position(|step| step.ends_with(needed)).unwrap_or_else(|| panic!("{needed} is missing"));
        let start = steps.iter().position(|step| step.contains("enable --now")).unwrap();
        assert!(before < start, "{needed}");
    }
}

#[test]
fn the_minimum_version_of_rust_is_what_the_locked_crates_need() {
    // Dependencies of other platforms were not fetched.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", &platform])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let version = |text: &str| -> Vec<u32> { text.split('.').map(|part| part.parse().unwrap()).collect() };
    let members: Vec<&str> =
        metadata["workspace_members"].as_array().unwrap().iter().filter_map(|id| id.as_str()).collect();
    let (own, others): (Vec<_>, Vec<_>) = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|package| {
            Some((package["id"].as_str()?, package["name"].as_str()?, version(package["rust_version"].as_str()?)))
        })
        .partition(|(id, ..)| members.contains(id));
    let (_, name, needed) = others.iter().max_by(|one, other| one.2[..2].cmp(&other.2[..2])).unwrap();
    for (_, member, said) in own {
        assert_eq!(said[..2], needed[..2], "{member} says {said:?}, and {name} needs {needed:?}");
    }
}

#[test]
fn nothing_that_is_installed_makes_a_kubelets_folder() {
    let tmpfiles = read("systemd/hostler.tmpfiles");
    let made: Vec<&str> = tmpfiles.lines().filter(|line| !line.starts_with('#') && line.contains("kubelet")).collect();
    assert!(made.is_empty(), "{made:?}");
    let unit = read("systemd/hostler.service");
    let paths = unit.lines().filter_map(|line| line.strip_prefix("ReadWritePaths=")).flat_map(str::split_whitespace);
    let kubelet: Vec<&str> = paths.filter(|path| path.contains("kubelet")).collect();
    assert_eq!(kubelet.len(), 2);
    // Without the hyphen the sandbox cannot be made where they are missing.
    assert!(kubelet.iter().all(|path| path.starts_with('-')), "{kubelet:?}");
    let making = unit.lines().find(|line| line.starts_with("ExecStartPre=") && line.contains("kubelet")).unwrap();
    let script = making.split('\'').nth(1).unwrap();
    let host = tempfile::tempdir().unwrap();
    let folder = host.path().join("kubelet");
    let run = || {
        let script = script.replace("/var/lib/kubelet", folder.to_str().unwrap());
        assert!(Command::new("/bin/sh").args(["-c", &script]).status().unwrap().success());
    };
    run();
    assert!(!folder.exists());
    fs::create_dir(&folder).unwrap();
    run();
    assert!(folder.join("plugins").is_dir() && folder.join("plugins_registry").is_dir());
}

#[test]
fn no_unit_starts_a_program_again_whose_configuration_is_wrong() {
    for unit in ["hostler.service", "hostler-controller.service"] {
        let text = read(&format!("systemd/{unit}"));
        let (_, service) = text.split_once("[Service]").unwrap();
        let keys: Vec<&str> = service.lines().collect();
        // 78 is what both programs exit with then; everything else is started again.
        assert!(keys.contains(&"Restart=always") && keys.contains(&"RestartPreventExitStatus=78"), "{unit}");
    }
}
