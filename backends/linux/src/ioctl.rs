//! Device nodes that are spoken to by `ioctl`, each behind a trait that tests can play: the kernel's side of it is the
//! only place with `unsafe`.

pub mod cxl;
pub mod dfl;
