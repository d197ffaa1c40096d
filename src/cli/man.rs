//! `hostler man`: manual pages, one per subcommand.

use std::{fs, io::Write, path::PathBuf};

use clap::CommandFactory;

use super::{Cli, CliFailure, CliOutcome};

/// Write the manual pages, one per subcommand, into a folder
#[derive(clap::Args, Debug)]
pub(super) struct ManArgs {
    /// The folder; made if it is not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(super) fn run(args: &ManArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let dir = &args.dir;
    fs::create_dir_all(dir).map_err(|source| CliFailure::step(format!("make the folder {}", dir.display()), source))?;
    clap_mangen::generate_to(Cli::command(), dir)
        .map_err(|source| CliFailure::step(format!("write manual pages to {}", dir.display()), source))?;
    writeln!(out, "wrote the manual pages to {}", dir.display())?;
    Ok(CliOutcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        run(&ManArgs { dir: dir.path().join("man1") }, &mut Vec::new()).unwrap();
        for page in ["hostler", "hostler-run", "hostler-inventory", "hostler-claim-create", "hostler-doctor"] {
            let text = fs::read_to_string(dir.path().join("man1").join(format!("{page}.1"))).unwrap();
            assert!(text.contains(".SH DESCRIPTION") || text.contains(".SH NAME"), "{page}");
        }
    }
}
