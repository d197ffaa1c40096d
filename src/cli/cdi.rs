//! `hostler cdi`: check and list CDI files.

use std::{
    cell::RefCell,
    io::Write,
    path::{Path, PathBuf},
};

use hostler_api::Chain;
use hostler_cdi::{DeviceCatalog, ProblemSeverity, SpecDir, SpecFile};
use serde::Serialize;

use super::{
    CliFailure, CliOutcome, ConfigFileArgs,
    output::Listed,
    table::TextTable,
    watch::{ListArgs, show_list, wait_for_files},
};

#[derive(clap::Args, Debug)]
pub(super) struct CdiArgs {
    #[command(subcommand)]
    command: CdiCommand,
}

#[derive(clap::Subcommand, Debug)]
enum CdiCommand {
    /// Check a CDI file, or all of a folder, more strictly than runtimes do
    Validate(CdiValidateArgs),
    /// List the devices that containers on this host can request, as runtimes see them
    List(CdiListArgs),
}

#[derive(clap::Args, Debug)]
struct CdiValidateArgs {
    /// A file, or a folder of files
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
}

#[derive(clap::Args, Debug)]
struct CdiListArgs {
    /// Folder to read instead of /etc/cdi, /var/run/cdi and the paths.cdi of the configuration; repeatable, the
    /// last counts most
    #[arg(long = "dir", value_name = "DIR")]
    dirs: Vec<PathBuf>,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    config: ConfigFileArgs,
}

pub(super) fn run(args: &CdiArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    match &args.command {
        CdiCommand::Validate(args) => validate(&args.path, out),
        CdiCommand::List(args) => list(args, out),
    }
}

fn validate(path: &Path, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let files = if path.is_dir() {
        let files = SpecDir::new(path).scan();
        files.map_err(|source| CliFailure::step(format!("read {}", path.display()), source))?
    } else {
        vec![file(path)]
    };
    if files.is_empty() {
        return Err(CliFailure::Said(format!("{} has no .json or .yaml file", path.display())));
    }
    let mut outcome = CliOutcome::Done;
    for file in &files {
        let complaints = complaints(file);
        if complaints.is_empty() {
            writeln!(out, "{}: valid", file.path.display())?;
        } else {
            outcome = CliOutcome::NotInOrder;
        }
        for complaint in complaints {
            writeln!(out, "{complaint}")?;
        }
    }
    Ok(outcome)
}

fn file(path: &Path) -> SpecFile {
    let spec = hostler_cdi::read_spec(path);
    let problems = spec.as_ref().map_or_else(|_| Vec::new(), |spec| spec.validate().err().unwrap_or_default());
    SpecFile { path: path.to_owned(), spec, problems }
}

/// Returns the mistakes of a file, each with its path.
fn complaints(file: &SpecFile) -> Vec<String> {
    if let Err(error) = &file.spec {
        return vec![Chain(error).to_string()];
    }
    let line = |problem: &hostler_cdi::SpecProblem| {
        let label = match problem.severity {
            ProblemSeverity::Refused => "refused",
            ProblemSeverity::Risky => "risky",
        };
        format!("{}: {label}: {problem}", file.path.display())
    };
    file.problems.iter().map(line).collect()
}

/// A line of the list.
#[derive(Serialize)]
struct CdiListRow {
    device: String,
    /// The file that counts; `None` for a device that cannot be requested.
    file: Option<PathBuf>,
    /// Why it is not as simple as that; empty if it is.
    note: String,
}

impl Listed for CdiListRow {
    const KIND: &'static str = "CdiDevice";

    fn listed_name(&self) -> String {
        self.device.clone()
    }
}

fn list(args: &CdiListArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let dirs = dirs(args)?;
    // The usual folders need not be there; what is named must be.
    if let Some(absent) = args.dirs.iter().find(|dir| !dir.is_dir()) {
        return Err(CliFailure::Said(format!("{} is no folder: name one that is there with --dir", absent.display())));
    }
    let below = RefCell::new(String::new());
    let fetch = || {
        let catalog = DeviceCatalog::read(&dirs);
        below.replace(unusable(&catalog));
        Ok(rows(&catalog))
    };
    show_list(args.list, wait_for_files, out, fetch, |lines, _| table(lines) + &below.borrow())?;
    Ok(CliOutcome::Done)
}

fn rows(catalog: &DeviceCatalog) -> Vec<CdiListRow> {
    let mut lines: Vec<CdiListRow> = Vec::new();
    for device in &catalog.devices {
        let note =
            if device.shadowed.is_empty() { String::new() } else { format!("hides {}", joined(&device.shadowed)) };
        lines.push(CdiListRow { device: device.name.clone(), file: Some(device.file.clone()), note });
    }
    for conflict in &catalog.conflicts {
        let note = format!("cannot be requested: it is in {}", joined(&conflict.files));
        lines.push(CdiListRow { device: conflict.name.clone(), file: None, note });
    }
    lines.sort_by(|one, other| one.device.cmp(&other.device));
    lines
}

fn table(lines: &[CdiListRow]) -> String {
    let mut table = TextTable::new(&["DEVICE", "FILE", "NOTE"]);
    for CdiListRow { device, file, note } in lines {
        let file = file.as_ref().map_or_else(|| "-".to_owned(), |file| file.display().to_string());
        table.row([device.clone(), file, note.clone()]);
    }
    table.to_string()
}

/// Returns the files that do not count, for below the list; nothing where all is well.
fn unusable(catalog: &DeviceCatalog) -> String {
    let complaints = catalog.files.iter().filter(|file| file.usable().is_none()).flat_map(complaints);
    let unreadable = catalog.unreadable.iter().map(|error| Chain(error).to_string());
    let lines: String = complaints.chain(unreadable).map(|line| format!("  {line}\n")).collect();
    if lines.is_empty() { lines } else { format!("\nnot usable:\n{lines}") }
}

/// The folders, the one that counts least first.
fn dirs(args: &CdiListArgs) -> Result<Vec<SpecDir>, CliFailure> {
    if !args.dirs.is_empty() {
        return Ok(args.dirs.iter().map(SpecDir::new).collect());
    }
    let mut dirs = vec![PathBuf::from("/etc/cdi"), PathBuf::from("/var/run/cdi")];
    let own = args.config.load()?.paths.cdi;
    // /var/run is a link to /run: one folder under two names would conflict with itself.
    let same = |dir: &PathBuf| dir.canonicalize().unwrap_or_else(|_| dir.clone());
    if !dirs.iter().any(|dir| same(dir) == same(&own)) {
        dirs.push(own);
    }
    Ok(dirs.into_iter().map(SpecDir::new).collect())
}

fn joined(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const GOOD: &str = r#"{"cdiVersion":"0.3.0","kind":"vendor.com/gpu",
        "devices":[{"name":"g0","containerEdits":{"env":["A=b"]}}]}"#;

    fn validated(path: &Path) -> (CliOutcome, String) {
        let mut out = Vec::new();
        let outcome = validate(path, &mut out).unwrap();
        (outcome, String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_folder_is_in_order_when_all_of_its_files_are() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("good.json"), GOOD).unwrap();
        let (outcome, text) = validated(dir.path());
        assert_eq!(outcome, CliOutcome::Done);
        assert!(text.ends_with("good.json: valid\n"), "{text}");
        fs::write(dir.path().join("bad.json"), GOOD.replace("A=b", "Ab")).unwrap();
        let (outcome, text) = validated(dir.path());
        assert_eq!(outcome, CliOutcome::NotInOrder);
        assert!(text.contains("bad.json: ") && text.contains("containerEdits.env[0]"), "{text}");
    }

    #[test]
    fn an_empty_folder_is_not_called_valid() {
        let dir = tempfile::tempdir().unwrap();
        let error = validate(dir.path(), &mut Vec::new()).unwrap_err().to_string();
        assert!(error.ends_with("has no .json or .yaml file"), "{error}");
    }

    #[test]
    fn the_list_shows_conflicts_and_files_that_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.json"), GOOD).unwrap();
        fs::write(dir.path().join("b.json"), GOOD).unwrap();
        fs::write(dir.path().join("c.json"), "{").unwrap();
        let args = CdiListArgs {
            dirs: vec![dir.path().to_owned()],
            list: ListArgs::default(),
            config: ConfigFileArgs { config: None },
        };
        let mut out = Vec::new();
        list(&args, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("vendor.com/gpu=g0  -     cannot be requested: it is in "), "{text}");
        assert!(text.contains("not usable:\n") && text.contains("failed to parse "), "{text}");
    }
}
