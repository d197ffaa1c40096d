//! Protocols of the daemon: the gRPC APIs of the kubelet (messages, servers and clients), between it and a driver,
//! and the one that tells which pod holds which devices; and NRI, between the daemon and a container runtime
//! (messages and framing).
//!
//! The sources are `proto/*.proto`. The code in `src/gen` is generated from them, one file each, and checked in, so
//! that a build needs neither `protoc` nor a build script; `tests/bootstrap.rs` fails when the two differ.

pub mod nri;

/// Registration with the kubelet, package `pluginregistration`.
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod registration {
    include!("gen/registration.rs");
}

/// Preparing claims, package `k8s.io.kubelet.pkg.apis.dra.v1` (Kubernetes 1.34 and later).
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod dra_v1 {
    include!("gen/dra_v1.rs");
}

/// Preparing claims, package `k8s.io.kubelet.pkg.apis.dra.v1beta1` (Kubernetes 1.32 and later).
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod dra_v1beta1 {
    include!("gen/dra_v1beta1.rs");
}

/// Preparing claims, package `v1alpha3`, as Kubernetes 1.31 means it; its own name for it is v1alpha4.
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod dra_v1alpha4 {
    include!("gen/dra_v1alpha4.rs");
}

/// Preparing claims, package `v1alpha3`, as both kinds of kubelets mean it: the form that a driver serves.
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod dra_v1alpha3_served {
    include!("gen/dra_v1alpha3_served.rs");
}

/// Preparing claims, package `v1alpha3`, as Kubernetes 1.28 to 1.30 mean it.
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod dra_v1alpha3 {
    include!("gen/dra_v1alpha3.rs");
}

/// Preparing claims, package `v1alpha2` (Kubernetes 1.27 to 1.30).
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod dra_v1alpha2 {
    include!("gen/dra_v1alpha2.rs");
}

/// Preparing claims, package `v1alpha1` (Kubernetes 1.26).
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod dra_v1alpha1 {
    include!("gen/dra_v1alpha1.rs");
}

/// Health of devices, package `v1` (Kubernetes 1.37 and later).
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod health_v1 {
    include!("gen/health_v1.rs");
}

/// Health of devices, package `v1alpha1` (Kubernetes 1.34 to 1.39).
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod health_v1alpha1 {
    include!("gen/health_v1alpha1.rs");
}

/// Devices and other resources of pods, package `v1`.
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod pod_resources_v1 {
    include!("gen/pod_resources_v1.rs");
}

/// Devices and other resources of pods, package `v1alpha1`.
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
pub mod pod_resources_v1alpha1 {
    include!("gen/pod_resources_v1alpha1.rs");
}
