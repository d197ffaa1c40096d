//! Where in a spec a check is: a chain of fields on the stack, written out only when there is a problem to report.

use std::fmt;

#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    name: &'static str,
    index: Option<usize>,
}

impl<'a> Place<'a> {
    pub(super) fn root(name: &'static str) -> Self {
        Self { parent: None, name, index: None }
    }

    pub(super) fn field(&'a self, name: &'static str) -> Self {
        Self { parent: Some(self), name, index: None }
    }

    /// An item of this list.
    pub(super) fn at(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.name)?;
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}
