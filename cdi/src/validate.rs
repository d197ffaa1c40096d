//! Strict validation of a spec: every problem at once, each with its place, what is wrong there and the fix.

mod edits;
mod place;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use self::place::Place;
use crate::{
    names::{check_device_name, check_vendor_or_class},
    spec::{Device, Spec},
    version::{FEATURES, Version, minimum_version},
};

/// What a problem leads to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// At least one current runtime library refuses the whole file: none of its devices can be requested there.
    Refused,
    /// Runtimes take the file, but it breaks the CDI specification, or what it asks for fails or is lost when a
    /// container starts.
    Risky,
}

/// One thing that is wrong in a spec.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// What it leads to.
    pub severity: Severity,
    /// Where it is, for example `devices[2].containerEdits.mounts[0].hostPath`.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub fix: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.field, self.message, self.fix)
    }
}

impl Spec {
    /// Checks the spec against the CDI specification and against what runtimes enforce.
    ///
    /// # Errors
    /// All problems, in the order of the file's fields.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut found = Found::default();
        check_version(self, &mut found);
        check_kind(&self.kind, &mut found);
        check_annotations(&self.annotations, &Place::root("annotations"), &mut found);
        edits::check(&self.container_edits, &Place::root("containerEdits"), &mut found);
        check_devices(&self.devices, &mut found);
        if found.0.is_empty() { Ok(()) } else { Err(found.0) }
    }
}

/// The problems found so far.
#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn refused(&mut self, place: &Place<'_>, message: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Refused, place, message.into(), fix.into());
    }

    fn risky(&mut self, place: &Place<'_>, message: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Risky, place, message.into(), fix.into());
    }

    fn add(&mut self, severity: Severity, place: &Place<'_>, message: String, fix: String) {
        self.0.push(Problem { severity, field: place.to_string(), message, fix });
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

fn check_version(spec: &Spec, found: &mut Found) {
    let place = Place::root("cdiVersion");
    let minimum = minimum_version(spec);
    let shown = quoted(&spec.cdi_version);
    let Ok(declared) = spec.cdi_version.parse::<Version>() else {
        let message = format!("{shown} is no released version from 0.3.0 to {}", Version::LATEST);
        return found.refused(
            &place,
            message,
            format!("write {:?}, the lowest that holds this file", minimum.as_str()),
        );
    };
    if declared < minimum {
        let users: Vec<_> = FEATURES.iter().filter(|f| f.since > declared && (f.used)(spec)).map(|f| f.name).collect();
        let message = format!("{shown} is below {minimum}, which is needed for {}", users.join(", "));
        found.refused(&place, message, format!("write {:?}", minimum.as_str()));
    }
    if spec.cdi_version.starts_with('v') {
        found.risky(&place, format!("{shown} is no Semantic Version"), "leave out the leading 'v'");
    }
}

fn check_kind(kind: &str, found: &mut Found) {
    let place = Place::root("kind");
    let Some((vendor, class)) = kind.split_once('/') else {
        let message = format!("{} has no '/' between vendor and class", quoted(kind));
        return found.refused(&place, message, "write vendor/class, for example example.com/gpu");
    };
    if let Err(error) = check_vendor_or_class(vendor) {
        let message = format!("the vendor {} {error}", quoted(vendor));
        found.refused(&place, message, "use a domain name that begins with a letter, for example example.com");
    } else if !is_dns_subdomain(vendor) {
        let message = format!("the vendor {} is no DNS subdomain", quoted(vendor));
        found.risky(&place, message, "use a domain name of at most 253 characters, for example example.com");
    }
    if let Err(error) = check_vendor_or_class(class) {
        let message = format!("the class {} {error}", quoted(class));
        found.refused(&place, message, "use a word that begins with a letter, for example gpu");
    } else if class.len() > NAME_MAX_CHARS {
        let message = format!("the class {} has {} characters", quoted(class), class.len());
        found.risky(&place, message, format!("use at most {NAME_MAX_CHARS}"));
    }
}

/// The longest class, and the longest name part of an annotation key; both rules are Kubernetes' "qualified name".
const NAME_MAX_CHARS: usize = 63;

fn is_dns_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn check_devices(devices: &[Device], found: &mut Found) {
    if devices.is_empty() {
        found.refused(&Place::root("devices"), "there is no device", "add one, or remove the file");
    }
    let mut seen = HashSet::new();
    for (index, device) in devices.iter().enumerate() {
        let place = Place::root("devices").at(index);
        check_device(device, &place, found);
        if !seen.insert(device.name.as_str()) {
            let message = format!("{} is the name of an earlier device too", quoted(&device.name));
            found.refused(&place.field("name"), message, "give each device of a file its own name");
        }
    }
}

fn check_device(device: &Device, place: &Place<'_>, found: &mut Found) {
    if let Err(error) = check_device_name(&device.name) {
        let fix = "use letters, digits, '_', '-', '.' and ':', with a letter or digit at both ends";
        found.refused(&place.field("name"), format!("{} {error}", quoted(&device.name)), fix);
    }
    check_annotations(&device.annotations, &place.field("annotations"), found);
    let edits_place = place.field("containerEdits");
    if device.container_edits.is_empty() {
        found.refused(&edits_place, "the device changes nothing", "add an edit, or remove the device");
    }
    edits::check(&device.container_edits, &edits_place, found);
}

/// Annotation keys follow Kubernetes' rules. The reference library has the code for this but never reaches it (it looks
/// for another map type than its own), so only other runtimes refuse such a file.
fn check_annotations(annotations: &BTreeMap<String, String>, place: &Place<'_>, found: &mut Found) {
    const TOTAL_MAX_BYTES: usize = 256 * 1024;
    for key in annotations.keys().filter(|key| !is_annotation_key(&key.to_lowercase())) {
        let fix = "use name or example.com/name: at most 63 letters, digits, '-', '_' and '.' behind the slash";
        found.refused(place, format!("the key {} is no qualified name", quoted(key)), fix);
    }
    let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > TOTAL_MAX_BYTES {
        let message = format!("keys and values have {bytes} bytes together");
        found.refused(place, message, format!("keep them within {TOTAL_MAX_BYTES}"));
    }
}

fn is_annotation_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let ends_alphanumeric =
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    prefix.is_none_or(is_kubernetes_subdomain)
        && name.len() <= NAME_MAX_CHARS
        && ends_alphanumeric
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Like [`is_dns_subdomain`], but without the limit of 63 characters on a label, which Kubernetes does not check.
fn is_kubernetes_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        label.starts_with(|c: char| c.is_ascii_alphanumeric())
            && label.ends_with(|c: char| c.is_ascii_alphanumeric())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}
