//! Conflicts of devices that a constraint does not allow, in words.

use std::fmt;

use hostler_api::few;

/// The reason why a constraint does not allow a device.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Conflict {
    /// The device does not have the attribute.
    Missing,
    /// Two requests have no common value: no device that one can have shares a value with a device that the other can
    /// have.
    Apart([RequestValues; 2]),
    /// Devices that were chosen before have these values.
    Chosen(Vec<RequestValues>),
}

/// Values that devices for a request have.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RequestValues {
    /// `request` or `request/subrequest`.
    pub request: String,
    /// The values, as people write them.
    pub values: Vec<String>,
}

impl Conflict {
    /// Returns the conflict in words, without values, which differ from node to node.
    pub(super) fn in_general(&self) -> String {
        match self {
            Self::Missing => self.to_string(),
            Self::Apart([one, other]) => {
                format!("requests {} and {} have no value in common", one.request, other.request)
            }
            Self::Chosen(chosen) => format!("beside request {}", few(chosen.iter().map(|it| &it.request))),
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("without the attribute"),
            Self::Apart([one, other]) => {
                let (values, others) = (few(&one.values), few(&other.values));
                write!(f, "request {} can only have {values}, request {} only {others}", one.request, other.request)
            }
            Self::Chosen(chosen) => {
                let each = chosen.iter().map(|it| format!("request {} has {}", it.request, few(&it.values)));
                f.write_str(&each.collect::<Vec<_>>().join(", "))
            }
        }
    }
}
