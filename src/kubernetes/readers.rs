//! Who may read the figures. The controller's readers are judged in the same way.

pub use hostler_cluster::{FigureReaders, ReaderVerdict, bearer_token};
