//! Reading of a configuration file, whatever its keys are: one wrong key hides no other, and each mistake is told
//! with its line and its fix.

mod fields;
mod mistake;
mod read;

pub use self::{
    mistake::{ConfigErrors, ConfigMistake},
    read::{ConfigReader, KeyLines},
};
