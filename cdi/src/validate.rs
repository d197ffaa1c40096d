//! Strict validation of a spec: every problem at once, each with its place and its fix.

mod edits;
mod rules;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashSet},
    fmt::{self, Arguments},
};

use self::rules::TextRule;
use crate::{
    names::{check_device_name, check_vendor_or_class},
    spec::{CdiDevice, CdiSpec},
    version::{CdiVersion, FEATURES, minimum_version},
};

/// Consequence of a problem.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ProblemSeverity {
    /// At least one current runtime library refuses the whole file: none of its devices can be requested there.
    Refused,
    /// Runtimes take the file, but it breaks the CDI specification, or what it asks for fails or is lost when a
    /// container starts.
    Risky,
}

/// One problem of a spec.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SpecProblem {
    /// Consequence of the problem.
    pub severity: ProblemSeverity,
    /// Place in the spec, for example `devices[2].containerEdits.mounts[0].hostPath`.
    pub field: String,
    /// Description of the problem.
    pub message: String,
    /// Way to mend the problem.
    pub fix: String,
}

impl fmt::Display for SpecProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.field, self.message, self.fix)
    }
}

impl CdiSpec {
    /// Checks the spec against the CDI specification and against what runtimes enforce.
    ///
    /// # Errors
    /// All problems, in the order of the file's fields.
    pub fn validate(&self) -> Result<(), Vec<SpecProblem>> {
        let mut lint = SpecLint::default();
        lint.version(self);
        lint.kind(&self.kind);
        lint.annotations(format_args!("annotations"), &self.annotations);
        lint.edits(format_args!("containerEdits"), &self.container_edits);
        lint.devices(&self.devices);
        if lint.problems.is_empty() { Ok(()) } else { Err(lint.problems) }
    }
}

/// The longest class, and the longest name part of an annotation key; both rules are Kubernetes' "qualified name".
const NAME_MAX_CHARS: usize = 63;

/// A walk over a spec. A place is written out only when there is a problem to report.
#[derive(Default)]
struct SpecLint {
    problems: Vec<SpecProblem>,
}

impl SpecLint {
    fn refused(&mut self, at: Arguments<'_>, message: impl Into<String>, fix: impl Into<String>) {
        self.report(ProblemSeverity::Refused, at, message.into(), fix.into());
    }

    fn risky(&mut self, at: Arguments<'_>, message: impl Into<String>, fix: impl Into<String>) {
        self.report(ProblemSeverity::Risky, at, message.into(), fix.into());
    }

    fn report(&mut self, severity: ProblemSeverity, at: Arguments<'_>, message: String, fix: String) {
        self.problems.push(SpecProblem { severity, field: at.to_string(), message, fix });
    }

    /// Checks a text against rules, unless it is absent.
    fn text<'a>(&mut self, at: Arguments<'_>, text: impl Into<Option<&'a String>>, rules: &[TextRule]) {
        let Some(text) = text.into() else { return };
        for rule in rules.iter().filter(|rule| (rule.is_broken)(text)) {
            self.report(rule.severity, at, rule.message.replace("{}", &quoted(text)), rule.fix.to_owned());
        }
    }

    fn texts(&mut self, at: Arguments<'_>, texts: &[String], rules: &[TextRule]) {
        for (index, text) in texts.iter().enumerate() {
            self.text(format_args!("{at}[{index}]"), text, rules);
        }
    }

    fn version(&mut self, spec: &CdiSpec) {
        let at = format_args!("cdiVersion");
        let minimum = minimum_version(spec);
        let shown = quoted(&spec.cdi_version);
        let Ok(declared) = spec.cdi_version.parse::<CdiVersion>() else {
            let message = format!("{shown} is no released version from 0.3.0 to {}", CdiVersion::LATEST);
            let fix = format!("write {:?}, the lowest that holds this file", minimum.as_str());
            return self.refused(at, message, fix);
        };
        if declared < minimum {
            let users = FEATURES.iter().filter(|feature| feature.since > declared && (feature.used)(spec));
            let users: Vec<_> = users.map(|feature| feature.name).collect();
            let message = format!("{shown} is below {minimum}, which is needed for {}", users.join(", "));
            self.refused(at, message, format!("write {:?}", minimum.as_str()));
        }
        if spec.cdi_version.starts_with('v') {
            self.risky(at, format!("{shown} is no Semantic Version"), "leave out the leading 'v'");
        }
    }

    fn kind(&mut self, kind: &str) {
        let at = format_args!("kind");
        let Some((vendor, class)) = kind.split_once('/') else {
            let message = format!("{} has no '/' between vendor and class", quoted(kind));
            return self.refused(at, message, "write vendor/class, for example example.com/gpu");
        };
        let (shown_vendor, shown_class) = (quoted(vendor), quoted(class));
        if let Err(error) = check_vendor_or_class(vendor) {
            let fix = "use a domain name that begins with a letter, for example example.com";
            self.refused(at, format!("the vendor {shown_vendor} {error}"), fix);
        } else if !is_subdomain(vendor, 63) {
            let fix = "use a domain name of at most 253 characters, for example example.com";
            self.risky(at, format!("the vendor {shown_vendor} is no DNS subdomain"), fix);
        }
        if let Err(error) = check_vendor_or_class(class) {
            let fix = "use a word that begins with a letter, for example gpu";
            self.refused(at, format!("the class {shown_class} {error}"), fix);
        } else if class.len() > NAME_MAX_CHARS {
            let message = format!("the class {shown_class} has {} characters", class.len());
            self.risky(at, message, format!("use at most {NAME_MAX_CHARS}"));
        }
    }

    fn devices(&mut self, devices: &[CdiDevice]) {
        if devices.is_empty() {
            self.refused(format_args!("devices"), "there is no device", "add one, or remove the file");
        }
        let mut seen = HashSet::new();
        for (index, device) in devices.iter().enumerate() {
            let at = format_args!("devices[{index}]");
            self.device(at, device);
            if !seen.insert(device.name.as_str()) {
                let message = format!("{} is the name of an earlier device too", quoted(&device.name));
                self.refused(format_args!("{at}.name"), message, "give each device of a file its own name");
            }
        }
    }

    fn device(&mut self, at: Arguments<'_>, device: &CdiDevice) {
        if let Err(error) = check_device_name(&device.name) {
            let fix = "use letters, digits, '_', '-', '.' and ':', with a letter or digit at both ends";
            self.refused(format_args!("{at}.name"), format!("{} {error}", quoted(&device.name)), fix);
        }
        self.annotations(format_args!("{at}.annotations"), &device.annotations);
        let at = format_args!("{at}.containerEdits");
        if device.container_edits.is_empty() {
            self.refused(at, "the device changes nothing", "add an edit, or remove the device");
        }
        self.edits(at, &device.container_edits);
    }

    /// Annotation keys follow Kubernetes' rules. The reference library has the code for this but never reaches it (it
    /// looks for another map type than its own), so only other runtimes refuse such a file.
    fn annotations(&mut self, at: Arguments<'_>, annotations: &BTreeMap<String, String>) {
        const TOTAL_MAX_BYTES: usize = 256 * 1024;
        for key in annotations.keys().filter(|key| !is_annotation_key(&key.to_lowercase())) {
            let fix = "use name or example.com/name: at most 63 letters, digits, '-', '_' and '.' behind the slash";
            self.refused(at, format!("the key {} is no qualified name", quoted(key)), fix);
        }
        let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > TOTAL_MAX_BYTES {
            let message = format!("keys and values have {bytes} bytes together");
            self.refused(at, message, format!("keep them within {TOTAL_MAX_BYTES}"));
        }
    }
}

/// A value as a message shows it: quoted, and cut where it is long.
fn quoted(text: &str) -> String {
    // Long enough for a path or a device name, short enough for one line of a log.
    const SHOWN_CHARS: usize = 80;
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

fn is_annotation_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    // Kubernetes does not limit the labels of the prefix.
    prefix.is_none_or(|prefix| is_subdomain(prefix, usize::MAX)) && name.len() <= NAME_MAX_CHARS && is_word(name, "-_.")
}

fn is_subdomain(name: &str, label_max_chars: usize) -> bool {
    name.len() <= 253 && name.split('.').all(|label| label.len() <= label_max_chars && is_word(label, "-"))
}

/// True for a text of letters and digits, with the punctuation only inside of it.
fn is_word(text: &str, punctuation: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
        && text.chars().all(|c| is_alphanumeric(c) || punctuation.contains(c))
}
