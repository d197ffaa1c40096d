//! Version and commit of a program's build, in words and as a figure.

use std::sync::LazyLock;

use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

/// Commit of the build, if the builder has named it.
const REVISION: Option<&str> = option_env!("HOSTLER_REVISION");

/// Returns the version, with the commit if it is known: `0.2.0 (4f63031a0c11)`.
#[must_use]
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| match REVISION {
        Some(revision) if !revision.is_empty() => format!("{} ({revision})", env!("CARGO_PKG_VERSION")),
        _ => env!("CARGO_PKG_VERSION").to_owned(),
    });
    &VERSION
}

/// Registers the figure that names version and commit.
pub fn register_build(registry: &mut Registry) {
    let build = Family::<[(&'static str, &'static str); 2], Gauge>::default();
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("revision", REVISION.unwrap_or("unknown"))];
    build.get_or_create(&labels).set(1);
    registry.register("build_info", "Version and commit of this build; always 1", build);
}
