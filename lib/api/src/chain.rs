//! Presentation of an error with the whole chain of its causes: in logs, to the kubelet, and wherever an error
//! becomes text.

use std::{error::Error, fmt};

/// Shows an error and all its causes, joined by `: `.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to write record {path}")]
    struct WriteError {
        path: &'static str,
        #[source]
        source: io::Error,
    }

    #[test]
    fn a_chain_shows_every_cause_once() {
        let error = WriteError { path: "/x", source: io::Error::other("disk full") };
        assert_eq!(Chain(&error).to_string(), "failed to write record /x: disk full");
    }
}
