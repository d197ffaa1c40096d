//! NRI, the interface between a container runtime and its plugins, package `nri.pkg.api.v1alpha1`: messages and
//! framing.
//!
//! ```text
//!   unix socket ── mux: frames of connection 1 and 2 ──┬── 1: the runtime calls `PLUGIN_SERVICE`
//!                                                      └── 2: the plugin calls `RUNTIME_SERVICE`
//!                                 each connection ── ttrpc: messages, requests and responses
//! ```

pub mod mux;
pub mod ttrpc;

#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
mod messages {
    include!("gen/nri.rs");
}

pub use messages::*;

/// Service of the plugin, which the runtime calls.
pub const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";

/// Service of the runtime, which the plugin calls.
pub const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";

/// The subscription to some events, for a [`ConfigureResponse`].
pub fn event_mask(events: &[Event]) -> i32 {
    events.iter().filter(|event| **event != Event::Unknown).fold(0, |mask, event| mask | 1 << (*event as i32 - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_the_bit_below_its_number() {
        assert_eq!(event_mask(&[]), 0);
        assert_eq!(event_mask(&[Event::RunPodSandbox]), 1);
        assert_eq!(event_mask(&[Event::CreateContainer, Event::RemoveContainer]), 0b100_0000_1000);
        assert_eq!(event_mask(&[Event::Unknown]), 0, "no event has no bit");
    }
}
