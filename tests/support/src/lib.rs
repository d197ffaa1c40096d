//! Support of tests, benches and examples of hostler, each part as near to the real one as a test needs: the API
//! server, the kubelet, the host with the daemon's process on it, containers and their runtimes, and uevents.
//!
//! ```text
//!   host: a temporary root ──► the real binary ◄── kubelet: registration, prepare, unprepare, health
//!                                   │    ▲
//!   uevents: from the kernel ───────┼────┤
//!   scraper: figures over TLS ──────┼────┘
//!                                   ├──► apiserver, through cluster: namespace, node, a wire to cut ◄── control_plane
//!                                   └──► nri: a container runtime with its containers; cri: a client of a real one
//! ```
//!
//! Beside them stands redfish, the manager of a fabric of switches, with every way to fail that real ones have.
//!
//! Nothing here knows the programs' own code: what is tested cannot lend its mistakes to its tests.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "this is test code: it runs the binary, says what it skips, and fails by panicking"
)]
#![allow(clippy::needless_pass_by_value, reason = "a test hands over what json!() has made")]
#![allow(missing_debug_implementations, reason = "servers, processes and containers are held, never printed")]

#[cfg(feature = "cluster")]
pub mod apiserver;
pub mod binary;
#[cfg(feature = "cluster")]
pub mod browser;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod container;
#[cfg(feature = "cluster")]
pub mod control_plane;
pub mod controller;
pub mod cri;
pub mod exposition;
pub mod host;
pub mod http2;
pub mod kubelet;
pub mod node;
#[cfg(feature = "runtimes")]
pub mod nri;
pub mod pod_resources;
#[cfg(feature = "cluster")]
pub mod provisioning;
#[cfg(feature = "cluster")]
pub mod real_node;
#[cfg(feature = "redfish")]
pub mod redfish;
#[cfg(all(feature = "cluster", feature = "runtimes"))]
pub mod scenario;
pub mod scraper;
pub mod skip;
pub mod systemd;
pub mod uevents;
pub mod visitor;
