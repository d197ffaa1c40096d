//! `hostler man`: manual pages, one per subcommand, and one for the configuration file.

mod config_page;
mod sections;

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::{Cli, CliFailure, CliOutcome};

/// Write the manual pages into a folder: man1 for the subcommands, man5 for the configuration file
#[derive(clap::Args, Debug)]
pub(super) struct ManArgs {
    /// The folder that holds man1 and man5; all are made where they are not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(super) fn run(args: &ManArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let dir = &args.dir;
    write_all(dir).map_err(|source| CliFailure::step(format!("write manual pages to {}", dir.display()), source))?;
    writeln!(out, "wrote the manual pages to {}", dir.display())?;
    Ok(CliOutcome::Done)
}

fn write_all(dir: &Path) -> io::Result<()> {
    let [commands, files] = ["man1", "man5"].map(|section| dir.join(section));
    fs::create_dir_all(&commands)?;
    fs::create_dir_all(&files)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_page(&command, &commands)?;
    fs::write(files.join("hostler.toml.5"), in_ascii(&config_page::page()))
}

/// Formatters take other characters for single bytes, unless they are told.
fn in_ascii(page: &str) -> String {
    let escaped = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) };
    page.chars().map(escaped).collect()
}

/// The page of a command, and those of all below it.
fn write_page(command: &Command, dir: &Path) -> io::Result<()> {
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    text.extend_from_slice(sections::FILES_AND_ENVIRONMENT.as_bytes());
    fs::write(dir.join(page.get_filename()), in_ascii(&String::from_utf8_lossy(&text)))?;
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    shown.into_iter().try_for_each(|below| write_page(below, dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> (tempfile::TempDir, impl Fn(&str) -> String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("man");
        run(&ManArgs { dir: path.clone() }, &mut Vec::new()).unwrap();
        (dir, move |page| fs::read_to_string(path.join(page)).unwrap_or_else(|error| panic!("{page}: {error}")))
    }

    #[test]
    fn every_subcommand_has_a_page_with_files_and_environment() {
        let (_dir, page) = pages();
        for name in ["hostler", "hostler-run", "hostler-inventory", "hostler-claim-create", "hostler-bitstream-remove"]
        {
            let text = page(&format!("man1/{name}.1"));
            for section in ["NAME", "SYNOPSIS", "FILES", "ENVIRONMENT", "SEE ALSO"] {
                assert!(
                    text.lines().any(|line| line == format!(".SH {section}") || line == format!(".SH \"{section}\"")),
                    "{name} lacks {section}: {text}"
                );
            }
            assert!(text.is_ascii(), "{name}: other characters need a formatter that is told of them");
            assert!(text.contains("/etc/hostler/hostler.toml") && text.contains("HOSTLER_NODE_NAME"), "{name}");
        }
    }

    #[test]
    fn the_configuration_has_a_page_with_its_sections_and_defaults() {
        let (_dir, page) = pages();
        let text = page("man5/hostler.toml.5");
        for part in [".TH hostler.toml 5", ".SS [paths]", ".SS [backends.cpu]", "state = \\(dq/var/lib/hostler\\(dq"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
