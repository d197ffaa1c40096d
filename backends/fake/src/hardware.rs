//! The make-believe hardware: a folder with one file per claim, device and share.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use hostler_api::{ClaimUid, Grant};
use hostler_backend::{BackendError, DevicePlan};
use hostler_files::read_file;

/// A plan is a part of a claim's record, and no larger.
const MOST_BYTES: u64 = 16 << 20;

/// The folder.
#[derive(Debug)]
pub(crate) struct FakeHardware {
    dir: PathBuf,
}

impl FakeHardware {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Writes the plan, unless it is there already, and reads it back, as with real hardware.
    pub(crate) fn write(&self, claim: &ClaimUid, grant: &Grant, plan: &DevicePlan) -> Result<(), BackendError> {
        let path = self.path(claim, grant);
        let content = content(plan)?;
        if read(&path)?.as_ref() == Some(&content) {
            return Ok(());
        }
        fs::create_dir_all(&self.dir).map_err(|error| step("create", &self.dir, error))?;
        fs::write(&path, &content).map_err(|error| step("write", &path, error))?;
        self.check(claim, grant, plan)
    }

    /// Checks that the plan is there.
    pub(crate) fn check(&self, claim: &ClaimUid, grant: &Grant, plan: &DevicePlan) -> Result<(), BackendError> {
        let path = self.path(claim, grant);
        let reason = match read(&path)? {
            Some(found) if found == content(plan)? => return Ok(()),
            Some(_) => format!("{} holds something else than the claim's plan", path.display()),
            None => format!("{} is not there", path.display()),
        };
        Err(BackendError::NotUsable { reason })
    }

    /// Removes the plan; a plan that is not there is removed already.
    pub(crate) fn remove(&self, claim: &ClaimUid, grant: &Grant) -> Result<(), BackendError> {
        let path = self.path(claim, grant);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(step("remove", &path, error)),
            _ => Ok(()),
        }
    }

    /// `<claim>.<device>[.<share>]`. Neither claims nor devices have dots in their names.
    fn path(&self, claim: &ClaimUid, grant: &Grant) -> PathBuf {
        let share = grant.share_id.as_ref().map(|share| format!(".{}", escaped(&share.0))).unwrap_or_default();
        self.dir.join(format!("{claim}.{}{share}", grant.device))
    }
}

/// A share's id comes from outside and may hold anything; a file name may not.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
        other => format!("_{other:02x}"),
    };
    text.bytes().map(escape).collect()
}

fn content(plan: &DevicePlan) -> Result<Vec<u8>, BackendError> {
    let mut content = serde_json::to_vec_pretty(plan).map_err(|error| BackendError::step("encode the plan", error))?;
    content.push(b'\n');
    Ok(content)
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, BackendError> {
    match read_file(path, MOST_BYTES) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(step("read", path, error.source)),
    }
}

fn step(verb: &str, path: &Path, error: io::Error) -> BackendError {
    BackendError::step(format!("{verb} {}", path.display()), error)
}
