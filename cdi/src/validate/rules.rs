//! The rules for the texts of a spec: a broken rule is reported with the problem and the fix.

use super::ProblemSeverity;

/// A rule for one text.
pub(super) struct TextRule {
    pub(super) severity: ProblemSeverity,
    pub(super) is_broken: fn(&str) -> bool,
    /// Description of the problem; `{}` stands for the text.
    pub(super) message: &'static str,
    pub(super) fix: &'static str,
}

const fn refused(is_broken: fn(&str) -> bool, message: &'static str, fix: &'static str) -> TextRule {
    TextRule { severity: ProblemSeverity::Refused, is_broken, message, fix }
}

const fn risky(is_broken: fn(&str) -> bool, message: &'static str, fix: &'static str) -> TextRule {
    TextRule { severity: ProblemSeverity::Risky, is_broken, message, fix }
}

/// A string with a NUL cannot be handed to the kernel: the container fails to start.
const NO_NUL: TextRule = risky(|text| text.contains('\0'), "{} has a NUL character", "take it out");

const ABSOLUTE: TextRule =
    risky(|path| !path.is_empty() && !path.starts_with('/'), "{} is not absolute", "write an absolute path");

pub(super) const TEXT: &[TextRule] = &[NO_NUL];

pub(super) const PATH: &[TextRule] =
    &[refused(str::is_empty, "the path is missing", "write an absolute path"), ABSOLUTE, NO_NUL];

pub(super) const ENVIRONMENT_VARIABLE: &[TextRule] =
    &[refused(|text| text.find('=').unwrap_or(0) == 0, "{} is not of the form NAME=value", "write NAME=value"), NO_NUL];

/// An empty path on the host counts as absent in Go, and as the path "" in Rust, where the container fails to start.
pub(super) const NODE_HOST_PATH: &[TextRule] = &[
    risky(str::is_empty, "the path is empty", "leave the field out where the host's path is the container's"),
    ABSOLUTE,
    NO_NUL,
];

pub(super) const NODE_TYPE: &[TextRule] = &[refused(
    |text| !["", "b", "c", "u", "p"].contains(&text),
    "{} is no type of a device node",
    "write b (block), c or u (character) or p (FIFO), or leave it out",
)];

pub(super) const NODE_PERMISSIONS: &[TextRule] = &[
    refused(
        |text| text == "none",
        "{} is known only to libraries newer than CDI 1.1.0",
        "write a combination of r, w and m, or leave the device node out",
    ),
    refused(
        |text| text != "none" && !text.chars().all(|c| "rwm".contains(c)),
        "{} is no combination of r, w and m",
        "write for example \"rw\", or leave it out for all three",
    ),
];

/// `IFNAMSIZ` of the kernel is 16, with the terminating NUL.
pub(super) const INTERFACE_NAME: &[TextRule] = &[
    refused(str::is_empty, "the name of the interface is missing", "write it"),
    risky(
        |name| name.len() > 15 || name == "." || name == ".." || name.contains(is_no_interface_character),
        "{} is no name that the kernel gives an interface",
        "use at most 15 bytes without white space, '/' and ':'",
    ),
];

fn is_no_interface_character(c: char) -> bool {
    c.is_whitespace() || c == '/' || c == ':' || c == '\0'
}

/// The class is a folder name under `/sys/fs/resctrl`. The root class is taken by runtimes with a Go library of 1.1.0
/// or newer; all others refuse the file.
pub(super) const RDT_CLASS: &[TextRule] = &[
    refused(|id| id == "/", "{} (the root class) is refused by most runtimes", "write a plain folder name"),
    refused(
        |id| id != "/" && (id.len() >= 4096 || id == "." || id == ".." || id.contains(['/', '\n'])),
        "{} is no folder name",
        "write a plain folder name",
    ),
    NO_NUL,
];

pub(super) const RDT_SCHEMATA_LINE: &[TextRule] = &[risky(
    |line| line.is_empty() || line.contains(['\n', '\0']),
    "{} is not one schemata line",
    "write one line each, for example L3:0=ff",
)];
