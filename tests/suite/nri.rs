//! The real binary as a plugin of a container runtime: a runtime that speaks the real protocol, and misbehaves where it is
//! told to, has its containers bound by it.
//!
//! | What happens | Told in |
//! |---|---|
//! | containers with and without claims, init containers, sidecars, resizes | [`claims`] |
//! | the pool of those without | [`pool`] |
//! | who restarts, dies or is away when; containers that nobody told of; an odd one | [`restarts`] |
//! | runtimes that misbehave, are old, or lock up | [`runtimes`] |
//! | the hook and the plugin in one container, with `runc` and the kernel's word | [`agreement`] |

mod agreement;
mod claims;
mod pool;
mod restarts;
mod rig;
mod runtimes;
