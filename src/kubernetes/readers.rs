//! Readers of the figures, which the API server judges by their tokens. The controller's readers are judged in the same
//! way.

pub use hostler_cluster::{FigureReaders, ReaderVerdict, bearer_token};
