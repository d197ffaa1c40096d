//! The real binary as a plugin of a container runtime: a runtime that speaks the real protocol, and misbehaves where it
//! is told to, has its containers bound by it.
//!
//! | Case | Told in |
//! |---|---|
//! | containers with and without claims, init containers, sidecars, resizes | [`claims`] |
//! | the pool of containers without claims | [`pool`] |
//! | restarts and deaths of each side; containers that no runtime told of; an odd one | [`restarts`] |
//! | runtimes that misbehave, are old, or lock up | [`runtimes`] |
//! | the hook and the plugin in one container, with `runc` and the kernel's answer | [`agreement`] |

mod agreement;
mod claims;
mod pool;
mod restarts;
mod rig;
mod runtimes;
