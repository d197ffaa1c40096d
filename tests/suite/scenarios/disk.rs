//! A disk that can be full.

use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
};

/// A small file system in a folder. It must go before the folder above does.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts the file system; prints a note and returns `None` where that is not allowed.
    pub fn mount(folder: PathBuf) -> Option<Self> {
        fs::create_dir_all(&folder).unwrap();
        let flags = nix::mount::MsFlags::empty();
        let mounted = nix::mount::mount(Some("hostler-test"), &folder, Some("tmpfs"), flags, Some("size=64k,mode=700"));
        if let Err(error) = mounted {
            println!("skipped: needs the right to mount a tmpfs ({error})");
            return None;
        }
        Some(Self(folder))
    }

    /// Takes all space but some bytes.
    pub fn fill(&self, left: usize) {
        let mut ballast = File::create(self.0.join("ballast")).unwrap();
        while ballast.write_all(&[0; 512]).is_ok() {}
        let full = ballast.metadata().unwrap().len();
        ballast.set_len(full.saturating_sub(left as u64)).unwrap();
    }

    /// Frees the space again.
    pub fn clear(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}
