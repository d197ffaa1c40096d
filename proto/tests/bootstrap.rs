//! Regenerates `src/gen` from `proto/` and fails when it differs from what is checked in.
//!
//! `UPDATE_GOLDEN=1 cargo test -p hostler-proto` writes the new code instead.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

const SOURCES: [&str; 14] = [
    "dra_v1.proto",
    "dra_v1alpha1.proto",
    "dra_v1alpha2.proto",
    "dra_v1alpha3.proto",
    "dra_v1alpha3_served.proto",
    "dra_v1alpha4.proto",
    "dra_v1beta1.proto",
    "health_v1.proto",
    "health_v1alpha1.proto",
    "nri.proto",
    "pod_resources_v1.proto",
    "pod_resources_v1alpha1.proto",
    "registration.proto",
    "ttrpc.proto",
];

fn crate_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files_in(folder: &Path) -> BTreeMap<String, String> {
    let read = |entry: fs::DirEntry| {
        (entry.file_name().into_string().expect("an ASCII name"), fs::read_to_string(entry.path()).expect("readable"))
    };
    fs::read_dir(folder).expect("the folder").map(|entry| read(entry.expect("an entry"))).collect()
}

/// One file of code for each source, called like it: several packages have the same name, and would share a file.
fn generate(target: &Path) {
    for source in SOURCES {
        let alone = tempfile::tempdir().expect("a folder");
        let descriptors = protox::compile([source], [crate_dir().join("proto")]).expect("the .proto file compiles");
        tonic_prost_build::configure()
            .emit_rerun_if_changed(false)
            .btree_map(".")
            .out_dir(alone.path())
            .compile_fds(descriptors)
            .expect("code is generated");
        let generated: Vec<String> = files_in(alone.path()).into_values().collect();
        let [code] = generated.as_slice() else { panic!("{source} makes {} files", generated.len()) };
        fs::write(target.join(source).with_extension("rs"), code).expect("writable");
    }
}

#[test]
fn checked_in_code_is_what_the_proto_files_say() {
    let fresh = tempfile::tempdir().expect("a folder");
    generate(fresh.path());
    let checked_in = crate_dir().join("src/gen");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::remove_dir_all(&checked_in).expect("the old code goes");
        fs::create_dir(&checked_in).expect("the folder");
        generate(&checked_in);
    }
    let (expected, found) = (files_in(fresh.path()), files_in(&checked_in));
    assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>(), "files in src/gen");
    for (name, text) in &expected {
        assert!(
            found[name] == *text,
            "src/gen/{name} differs from proto/*.proto: run `UPDATE_GOLDEN=1 cargo test -p hostler-proto`"
        );
    }
}

#[test]
fn every_proto_file_is_compiled() {
    let found: Vec<String> = files_in(&crate_dir().join("proto")).into_keys().collect();
    assert_eq!(found, SOURCES);
}
