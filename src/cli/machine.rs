//! The machine that a command looks at: this one, or a captured one.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use hostler_backend::BackendWarning;
use hostler_linux::{SysRoot, archive::UnpackedCapture};

use super::{CliFailure, ConfigFileArgs, capture_manifest::CaptureManifest};
use crate::config::DaemonConfig;

/// The options of every subcommand that looks at a machine.
#[derive(clap::Args, Debug)]
pub(super) struct MachineArgs {
    /// Captured machine: a .tar.zst file, or a folder that holds sys/ and proc/; without it this machine
    #[arg(long, value_name = "DIR|FILE.tar.zst")]
    pub(super) root: Option<PathBuf>,
    #[command(flatten)]
    pub(super) config: ConfigFileArgs,
}

impl MachineArgs {
    /// Opens the machine that is meant.
    pub(super) fn open(&self) -> Result<OpenedMachine, CliFailure> {
        match &self.root {
            Some(path) => OpenedMachine::captured(path, &self.config),
            None => Ok(OpenedMachine::here(self.config.load()?)),
        }
    }
}

/// A machine to look at, and the configuration to do it with.
#[derive(Debug)]
pub(super) struct OpenedMachine {
    /// The configuration: what is enabled and reserved.
    pub(super) config: DaemonConfig,
    /// The machine.
    pub(super) root: SysRoot,
    /// The manifest of the capture; absent for this machine, and for trees that were made otherwise.
    pub(super) manifest: Option<CaptureManifest>,
    /// Files that are left out of the capture.
    pub(super) warnings: Vec<BackendWarning>,
    /// The unpacked capture goes when this value does.
    _capture: Option<UnpackedCapture>,
}

impl OpenedMachine {
    /// This machine.
    pub(super) fn here(config: DaemonConfig) -> Self {
        let root = SysRoot::new(&config.paths.root);
        Self { config, root, manifest: None, warnings: Vec::new(), _capture: None }
    }

    /// The machine in a file or folder. What this host reserves means nothing there: only a configuration that is named
    /// counts.
    pub(super) fn captured(path: &Path, config: &ConfigFileArgs) -> Result<Self, CliFailure> {
        let config = match config.config {
            Some(_) => config.load()?,
            None => DaemonConfig { node_name: String::new(), ..DaemonConfig::default() },
        };
        let capture = if is_folder(path)? { None } else { Some(open(path)?) };
        let root = capture.as_ref().map_or_else(|| folder(path), |capture| Ok(capture.root()))?;
        let left_out = capture.iter().flat_map(UnpackedCapture::warnings);
        let warning = |warning: &hostler_linux::TreeWarning| BackendWarning {
            path: warning.path.clone(),
            reason: warning.reason.clone(),
        };
        Ok(Self {
            config,
            manifest: CaptureManifest::read(&root)?,
            root,
            warnings: left_out.map(warning).collect(),
            _capture: capture,
        })
    }
}

/// The first bytes of what is compressed with zstd.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// False for a file that can be a capture; anything else is refused with what can be named.
fn is_folder(path: &Path) -> Result<bool, CliFailure> {
    let wanted = "name a .tar.zst file that `hostler capture` made, or a folder that holds sys/ and proc/";
    let step = |source| CliFailure::step(format!("read {}", path.display()), source);
    let metadata = fs::metadata(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => CliFailure::Said(format!("{} is not there: {wanted}", path.display())),
        _ => step(source),
    })?;
    if metadata.is_dir() {
        return Ok(true);
    }
    let mut begun = [0; 4];
    // A device or a pipe, which would give no end or wait for one, is not opened.
    let is_capture = metadata.is_file() && {
        let (mut file, _) = hostler_files::open_file(path).map_err(|error| step(error.source))?;
        file.read_exact(&mut begun).is_ok() && begun == MAGIC
    };
    is_capture.then_some(false).ok_or_else(|| CliFailure::Said(format!("{} is no capture: {wanted}", path.display())))
}

fn open(path: &Path) -> Result<UnpackedCapture, CliFailure> {
    UnpackedCapture::open(path).map_err(|source| CliFailure::step(format!("unpack {}", path.display()), source))
}

fn folder(path: &Path) -> Result<SysRoot, CliFailure> {
    fs::read_dir(path).map_err(|source| CliFailure::step(format!("read {}", path.display()), source))?;
    Ok(SysRoot::new(path))
}
