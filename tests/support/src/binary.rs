//! Path of the binary under test.

use std::{
    env,
    path::{Path, PathBuf},
};

/// Names the binary, past all that is found otherwise.
const NAMED: &str = "HOSTLER_BIN";
/// Variable with the path of the controller's binary.
const CONTROLLER_NAMED: &str = "HOSTLER_CONTROLLER_BIN";
/// Variables that test runners set for the tests of the package with the binary.
const SET_BY_RUNNERS: [&str; 2] = ["CARGO_BIN_EXE_hostler", "NEXTEST_BIN_EXE_hostler"];

/// The binary under test: the one that `HOSTLER_BIN` names, else the one that the test's runner names, else the one
/// that cargo has built beside the program that asks.
pub fn binary() -> PathBuf {
    let named = [NAMED].iter().chain(&SET_BY_RUNNERS).find_map(env::var_os).map(PathBuf::from);
    let binary = named.unwrap_or_else(|| beside(&env::current_exe().unwrap()));
    assert!(
        binary.is_file(),
        "{} is not there: build it with `cargo build --bin hostler`, or name another with {NAMED}",
        binary.display()
    );
    binary
}

/// The controller, for tests of the daemon: the one that `HOSTLER_CONTROLLER_BIN` names, or that cargo has built beside
/// it.
pub fn controller_binary() -> PathBuf {
    let beside = || beside(&env::current_exe().unwrap()).with_file_name("hostler-controller");
    let binary = env::var_os(CONTROLLER_NAMED).map_or_else(beside, PathBuf::from);
    assert!(
        binary.is_file(),
        "{} is not there: build it with `cargo build -p hostler-controller`, or name another with {CONTROLLER_NAMED}",
        binary.display()
    );
    binary
}

/// A program on the `PATH`, or where `tools/deps.sh` puts it.
pub fn tool(name: &str) -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(cache.map(|cache| cache.join("hostler/tools/usr/bin")));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Cargo puts tests and benches into `target/<profile>/deps`, examples into `target/<profile>/examples`, and all
/// binaries into `target/<profile>`.
fn beside(program: &Path) -> PathBuf {
    let folder = program.parent().expect("cargo's programs are in a folder");
    let is_below = ["deps", "examples"].iter().any(|name| folder.ends_with(name));
    let profile = folder.parent().filter(|_| is_below).unwrap_or(folder);
    profile.join("hostler")
}

#[test]
fn the_binary_is_beside_demonstrations_and_the_folders_of_tests_and_examples() {
    for program in ["/t/debug/deps/crash-0a1b", "/t/debug/examples/figures", "/t/debug/demo"] {
        assert_eq!(beside(Path::new(program)), Path::new("/t/debug/hostler"), "{program}");
    }
    assert_eq!(beside(Path::new("/t/release/deps/figures-0a1b")), Path::new("/t/release/hostler"));
}
