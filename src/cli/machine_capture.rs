//! Looks at a machine as all other commands do, and copies what they looked at.

mod objects;
mod pseudonym;

use std::{
    collections::BTreeMap,
    io,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use hostler_linux::{
    ReadFailure, SysRoot,
    archive::{AccessRecorder, RedactedValues, TreeSnapshot},
    boot,
};

use self::pseudonym::SerialPseudonyms;
use super::{
    CliFailure,
    capture_manifest::{self, CaptureManifest, SerialNumbers},
    host_facts::HostFacts,
    inventory,
    machine::OpenedMachine,
};

const HOST_NAME: &str = "proc/sys/kernel/hostname";

/// Facts that are kept although they identify the machine.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(in crate::cli) struct KeptIdentifiers {
    /// Keep serial numbers; on network cards they hold the MAC address
    #[arg(long)]
    pub(in crate::cli) serials: bool,
    /// Keep the host's name
    #[arg(long)]
    pub(in crate::cli) host_name: bool,
}

/// A capture.
#[derive(Debug)]
pub(in crate::cli) struct MachineCapture {
    /// The `.tar.zst` archive.
    pub(in crate::cli) archive: Vec<u8>,
    /// The manifest that is in the archive.
    pub(in crate::cli) manifest: CaptureManifest,
    /// Serial numbers that were taken out, each with what stands for it.
    pub(in crate::cli) replaced: BTreeMap<String, String>,
}

/// Captures a machine. A capture of a capture is of the machine that was captured first.
pub(in crate::cli) fn take(machine: &OpenedMachine, kept: KeptIdentifiers) -> Result<MachineCapture, CliFailure> {
    let recorder = Arc::new(AccessRecorder::default());
    let unread = |failure: ReadFailure| CliFailure::step("read the machine", failure);
    let backends = look(machine, &machine.root.clone().tapped(recorder.clone()), kept).map_err(unread)?;
    let mut snapshot = TreeSnapshot::take(&machine.root, &recorder, kept.host_name).map_err(unread)?;
    let (serials, RedactedValues { addresses, replaced, .. }) = redact(&mut snapshot, machine, kept)?;
    let manifest = CaptureManifest {
        kernel: boot::kernel_release(&machine.root).map_err(unread)?,
        backends,
        serials,
        host_name: kept.host_name && machine.root.exists(HOST_NAME).map_err(unread)?,
        addresses_removed: addresses,
        left_out: snapshot.left_out().map(|path| format!("/{}", path.display())).collect(),
        unreadable: snapshot.unreadable(),
        ..CaptureManifest::new(taken_at(machine))
    };
    snapshot.add(objects::FILE, objects::of(&snapshot, &machine.config)?);
    snapshot.add(capture_manifest::FILE, manifest.to_json()?);
    let archive = snapshot.to_archive().map_err(|source: io::Error| CliFailure::step("pack the capture", source))?;
    Ok(MachineCapture { archive, manifest, replaced })
}

/// Reads all that any command reads of a machine; gives the backends that did. That a file cannot be read is a fact
/// of the machine, which the capture will tell; that we are short of something is none.
fn look(machine: &OpenedMachine, root: &SysRoot, kept: KeptIdentifiers) -> Result<Vec<String>, ReadFailure> {
    let seen = inventory::scan::scan_machine(&machine.config, root, None);
    HostFacts::of_machine(root);
    if kept.host_name {
        root.text(HOST_NAME)?;
    }
    match seen.failure {
        Some(failure) if failure.is_shortage() => Err(failure),
        _ => Ok(seen.pools.iter().map(|pool| pool.backend.to_owned()).collect()),
    }
}

/// Pseudonyms stay as they are: another one in their place would be as good, but not be the same.
fn redact(
    snapshot: &mut TreeSnapshot,
    machine: &OpenedMachine,
    kept: KeptIdentifiers,
) -> Result<(SerialNumbers, RedactedValues), CliFailure> {
    if let Some(replaced @ SerialNumbers::Replaced { .. }) = machine.manifest.as_ref().map(|manifest| &manifest.serials)
    {
        return Ok((replaced.clone(), snapshot.redact(None)));
    }
    if kept.serials {
        return Ok((SerialNumbers::Kept, snapshot.redact(None)));
    }
    let pseudonyms = SerialPseudonyms::of_host(&machine.root)?;
    let redacted = snapshot.redact(Some(&|serial| pseudonyms.of(serial)));
    Ok((SerialNumbers::Replaced { count: redacted.serials, key: pseudonyms.key() }, redacted))
}

fn taken_at(machine: &OpenedMachine) -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    machine.manifest.as_ref().map_or_else(now, |manifest| manifest.taken_at)
}
