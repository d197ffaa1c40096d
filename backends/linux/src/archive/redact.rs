//! Takes out of a snapshot what identifies one machine among all of its kind: serial numbers and network addresses.
//!
//! A serial number becomes a pseudonym of the same form, the same wherever it stands: a device keeps its identity
//! within a capture, and between captures whose pseudonyms are made in the same way.

use std::{collections::BTreeMap, ops::Range, path::Path, str};

use super::snapshot::{SnapshotEntry, TreeSnapshot};
use crate::pci::extended_capabilities;

/// The extended capability with the serial number of a PCI device.
const DEVICE_SERIAL_NUMBER: u16 = 3;

/// Two hexadecimal digits, five to seven times followed by a separator and two more.
const ADDRESS_GROUPS: Range<usize> = 6..9;

/// Texts that stand where a serial number should be.
const NO_SERIAL: [&str; 5] = ["", "n/a", "none", "not specified", "unknown"];

/// Values that were taken out.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RedactedValues {
    /// Serial numbers, each as often as it stands somewhere.
    pub serials: usize,
    /// Network addresses.
    pub addresses: usize,
    /// Replacements: every serial number in every form that it may have elsewhere, with its pseudonym in the same
    /// form.
    pub replaced: BTreeMap<String, String>,
}

/// Makes a number that stands for a serial number; the same for the same bytes.
pub type Pseudonym<'a> = dyn Fn(&[u8]) -> u64 + 'a;

impl TreeSnapshot {
    /// Takes network addresses out, foreign mounts, and serial numbers unless `pseudonym` is absent.
    pub fn redact(&mut self, pseudonym: Option<&Pseudonym<'_>>) -> RedactedValues {
        let mut redacted = RedactedValues::default();
        for (path, entry) in &mut self.entries {
            let SnapshotEntry::File(content) = entry else { continue };
            if let Some(pseudonym) = pseudonym {
                redacted.serials +=
                    serials(path, content, &mut PseudonymTable { pseudonym, given: &mut redacted.replaced });
            }
            if is_mount_table(path) {
                *content = own_mounts(content);
            }
            // Eight bytes of a serial number look like an address.
            if !names_serial(name_of(path)) {
                redacted.addresses += addresses(content);
            }
        }
        redacted
    }
}

/// Gives pseudonyms, and remembers what each stands for.
struct PseudonymTable<'a> {
    pseudonym: &'a Pseudonym<'a>,
    given: &'a mut BTreeMap<String, String>,
}

impl PseudonymTable<'_> {
    /// Pseudonym of a number. 0 and all ones mean that there is none.
    fn number(&mut self, number: u64) -> Option<u64> {
        if number == 0 || number == u64::MAX {
            return None;
        }
        let new = (self.pseudonym)(&number.to_be_bytes());
        self.given.insert(format!("{number:x}"), format!("{new:x}"));
        self.given.insert(format!("{number:#x}"), format!("{new:#x}"));
        self.given.insert(dashes(number), dashes(new));
        Some(new)
    }

    fn text(&mut self, text: &str) -> String {
        let new = format!("{:016X}", (self.pseudonym)(text.as_bytes()));
        self.given.insert(text.to_owned(), new.clone());
        new
    }
}

fn serials(path: &Path, content: &mut Vec<u8>, names: &mut PseudonymTable<'_>) -> usize {
    let name = name_of(path);
    if name == "config" {
        return in_config(content, names);
    }
    let Ok(text) = str::from_utf8(content) else { return 0 };
    let replaced = match name {
        "cpuinfo" | "uevent" => in_lines(text, names),
        _ if names_serial(name) => whole(text, names),
        _ => None,
    };
    let Some(replaced) = replaced else { return 0 };
    *content = replaced.into_bytes();
    1
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// `serial`, `serial_num`, `board_serial`, `product_uuid`.
fn names_serial(name: &str) -> bool {
    name == "product_uuid" || name.split(['_', '-', '.']).any(|word| word == "serial")
}

/// A file that is nothing but a serial number.
fn whole(text: &str, names: &mut PseudonymTable<'_>) -> Option<String> {
    let value = text.trim();
    Some(text.replacen(value, &replaced(value, names)?, 1))
}

/// `Serial : 0123…` of arm's cpuinfo, `…SERIAL…=` of a uevent.
fn in_lines(text: &str, names: &mut PseudonymTable<'_>) -> Option<String> {
    let mut line = |line: &str| {
        let (key, value) = line.split_once([':', '='])?;
        let key = key.trim().to_ascii_lowercase();
        let is_serial = key == "serial" || key.contains("_serial") || key.ends_with("_uniq");
        let value = value.trim();
        is_serial.then(|| replaced(value, names))?.map(|new| line.replacen(value, &new, 1))
    };
    let lines: Vec<Option<String>> = text.split_inclusive('\n').map(&mut line).collect();
    lines.iter().any(Option::is_some).then(|| {
        text.split_inclusive('\n').zip(lines).map(|(old, new)| new.unwrap_or_else(|| old.to_owned())).collect()
    })
}

/// The pseudonym in the form of the value. `None` for what is no serial number: nothing, zeros, `N/A`.
fn replaced(value: &str, names: &mut PseudonymTable<'_>) -> Option<String> {
    if let Some(number) = value.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
        return names.number(number).map(|number| format!("{number:#x}"));
    }
    if let Some(number) = dashed(value) {
        return names.number(number).map(dashes);
    }
    let says_nothing = value.bytes().all(|byte| byte == b'0') || NO_SERIAL.contains(&&*value.to_ascii_lowercase());
    (!says_nothing).then(|| names.text(value))
}

/// `00-11-22-33-44-55-66-77`, as PCI writes it.
fn dashed(value: &str) -> Option<u64> {
    let bytes: Vec<u8> = value.split('-').map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<_>>()?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

fn dashes(number: u64) -> String {
    number.to_be_bytes().map(|byte| format!("{byte:02x}")).join("-")
}

/// The serial number in a configuration space: the lower half first, each little-endian.
fn in_config(config: &mut [u8], names: &mut PseudonymTable<'_>) -> usize {
    let mut found = 0;
    for capability in extended_capabilities(config) {
        let at = usize::from(capability.offset) + 4;
        let Some(bytes) = config.get_mut(at..at + 8).filter(|_| capability.id == DEVICE_SERIAL_NUMBER) else {
            continue;
        };
        let Ok(serial) = <[u8; 8]>::try_from(&*bytes).map(u64::from_le_bytes) else { continue };
        if let Some(new) = names.number(serial) {
            bytes.copy_from_slice(&new.to_le_bytes());
            found += 1;
        }
    }
    found
}

fn is_mount_table(path: &Path) -> bool {
    ["proc/mounts", "proc/self/mounts", "proc/self/mountinfo"].iter().any(|table| path == Path::new(table))
}

/// The lines of a mount table that are about the kernel's own files: others name servers, users and volumes.
fn own_mounts(content: &[u8]) -> Vec<u8> {
    let is_own = |line: &&[u8]| {
        let line = String::from_utf8_lossy(line);
        let fields: Vec<&str> = line.split_whitespace().collect();
        let kind = fields.iter().position(|field| *field == "-").map_or(fields.get(2), |lone| fields.get(lone + 1));
        let point = if fields.contains(&"-") { fields.get(4) } else { fields.get(1) };
        let of_kernel = |point: &&&str| ["/proc", "/sys"].iter().any(|top| Path::new(point).starts_with(top));
        matches!(kind, Some(&("cgroup" | "cgroup2" | "cpuset"))) || point.filter(of_kernel).is_some()
    };
    content.split_inclusive(|byte| *byte == b'\n').filter(is_own).flatten().copied().collect()
}

/// Sets network addresses to zero; gives their number.
fn addresses(content: &mut [u8]) -> usize {
    let (mut at, mut found) = (0, 0);
    while at < content.len() {
        let groups = groups(&content[at..]);
        let starts = at == 0 || !content[at - 1].is_ascii_alphanumeric();
        let end = at + (groups * 3).saturating_sub(1);
        let ends = content.get(end).is_none_or(|byte| !byte.is_ascii_alphanumeric());
        if groups > 0 && starts && ends && ADDRESS_GROUPS.contains(&groups) {
            content[at..end].iter_mut().filter(|byte| byte.is_ascii_hexdigit()).for_each(|digit| *digit = b'0');
            found += 1;
        }
        at = if groups > 1 { end } else { at + 1 };
    }
    found
}

/// How many pairs of hexadecimal digits `text` begins with, with one separator between them all.
fn groups(text: &[u8]) -> usize {
    let separator = text.get(2).copied().filter(|byte| matches!(byte, b':' | b'-'));
    let is_pair = |pair: &[u8]| pair.iter().take(2).len() == 2 && pair[..2].iter().all(u8::is_ascii_hexdigit);
    let mut count = 0;
    for chunk in text.chunks(3) {
        if chunk.len() < 2 || !is_pair(chunk) {
            // A pair that ended in a separator had no other behind it.
            return count;
        }
        count += 1;
        if chunk.get(2).copied() != separator || separator.is_none() {
            return count;
        }
    }
    count
}

#[cfg(test)]
mod tests;
