//! What the daemon speaks with others: the gRPC APIs between the kubelet and a driver (messages, servers for the daemon, clients for
//! its tests), and NRI, between it and a container runtime (messages and framing).
//!
//! The sources are `proto/*.proto`. The code in `src/gen` is generated from them and checked in, so that a build needs
//! neither `protoc` nor a build script; `tests/bootstrap.rs` fails when the two differ.

pub mod nri;

/// Registration with the kubelet, package `pluginregistration`.
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod registration {
    include!("gen/pluginregistration.rs");
}

/// Preparing claims, package `k8s.io.kubelet.pkg.apis.dra.v1` (Kubernetes 1.34 and later).
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod dra_v1 {
    include!("gen/k8s.io.kubelet.pkg.apis.dra.v1.rs");
}

/// Preparing claims, package `k8s.io.kubelet.pkg.apis.dra.v1beta1` (Kubernetes 1.32 and later).
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod dra_v1beta1 {
    include!("gen/k8s.io.kubelet.pkg.apis.dra.v1beta1.rs");
}

/// Health of devices, package `v1` (Kubernetes 1.37 and later).
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod health_v1 {
    include!("gen/v1.rs");
}

/// Health of devices, package `v1alpha1` (Kubernetes 1.34 to 1.39).
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod health_v1alpha1 {
    include!("gen/v1alpha1.rs");
}
