//! Identity of the running boot and host.

use std::io;

use crate::{ReadFailure, SysRoot};

const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
/// Only root may read it: it identifies the board.
const SYSTEM_UUID: &str = "sys/class/dmi/id/product_uuid";

/// The kernel's random name for this boot: 36 characters, new at each start of the machine.
///
/// # Errors
/// When it cannot be read, or is not of that form (`InvalidData`).
pub fn boot_id(root: &SysRoot) -> io::Result<String> {
    let text = root.required_attribute(BOOT_ID).map_err(ReadFailure::into_error)?;
    let well_formed = text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if well_formed {
        Ok(text)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("{text:?} is no boot id")))
    }
}

/// The UUID of the system board as firmware wrote it, which may be anything; absent on machines without one.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn system_uuid(root: &SysRoot) -> Result<Option<String>, ReadFailure> {
    root.attribute(SYSTEM_UUID)
}

/// The host's name as the kernel knows it.
///
/// # Errors
/// When the kernel does not tell it, or it is not UTF-8 (`InvalidData`).
pub fn hostname() -> io::Result<String> {
    let name = nix::unistd::gethostname()?;
    name.into_string().map_err(|name| io::Error::new(io::ErrorKind::InvalidData, format!("{name:?} is not UTF-8")))
}

/// The kernel's release (`6.1.0-31-amd64`); of trees without `proc/sys`, as `Linux version …` tells it.
///
/// # Errors
/// When a file that would tell it is there and cannot be read.
pub fn kernel_release(root: &SysRoot) -> Result<Option<String>, ReadFailure> {
    root.look(|tree| {
        let release = tree.text("proc/sys/kernel/osrelease").filter(|release| !release.is_empty());
        release.or_else(|| tree.text("proc/version")?.split_whitespace().nth(2).map(str::to_owned))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn root_with(id: &str) -> (tempfile::TempDir, SysRoot) {
        let folder = tempfile::tempdir().unwrap();
        let root = SysRoot::new(folder.path());
        fs::create_dir_all(root.path("proc/sys/kernel/random")).unwrap();
        fs::write(root.path(BOOT_ID), id).unwrap();
        (folder, root)
    }

    #[test]
    fn the_boot_id_is_read_without_its_line_end() {
        let (_folder, root) = root_with("3b5ad29e-6c4f-4f0c-9d33-0d3b6dd6c1a2\n");
        assert_eq!(boot_id(&root).unwrap(), "3b5ad29e-6c4f-4f0c-9d33-0d3b6dd6c1a2");
    }

    #[test]
    fn a_boot_id_of_another_form_is_refused() {
        for id in
            ["", "\n", "3b5ad29e", "3b5ad29e-6c4f-4f0c-9d33-0d3b6dd6c1a2x", "../b5ad29e-6c4f-4f0c-9d33-0d3b6dd6c1a"]
        {
            let (_folder, root) = root_with(id);
            assert_eq!(boot_id(&root).unwrap_err().kind(), io::ErrorKind::InvalidData, "{id:?}");
        }
    }

    #[test]
    fn this_host_says_who_it_is() {
        assert!(!hostname().unwrap().is_empty());
        assert_eq!(boot_id(&SysRoot::host()).unwrap().len(), 36);
        assert!(kernel_release(&SysRoot::host()).unwrap().is_some());
    }

    #[test]
    fn an_absent_release_is_no_value() {
        let (_folder, root) = root_with("");
        assert_eq!(kernel_release(&root).unwrap(), None);
    }
}
