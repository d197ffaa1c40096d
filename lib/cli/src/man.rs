//! Manual pages: one for each command of a program, and one for its configuration file.

mod config_page;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Command;
use clap_mangen::Man;

pub use config_page::config_page;

/// Variables that every command of both programs heeds.
const ENVIRONMENT: &str = r#".TP
.B NO_COLOR
With any value but an empty one: no colours, also on terminals. Pipes and files never get any.
.TP
.B TERM
A terminal that is called dumb gets no colours.
.TP
.B JOURNAL_STREAM
Set by systemd. Where it means standard error, lines of the log have a priority in front, as in
.BR sd\-daemon (3).
"#;

/// The arguments of `man`.
#[derive(clap::Args, Debug)]
pub struct ManArgs {
    /// The folder that holds man1 and man5; all are made where they are not there
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Failure to write manual pages.
#[derive(Debug, thiserror::Error)]
#[error("failed to write manual pages to {}", dir.display())]
pub struct ManError {
    /// The folder.
    dir: PathBuf,
    source: io::Error,
}

/// Contents of a program's manual pages. The language is that of man(7).
#[derive(Clone, Debug)]
pub struct ManPages {
    /// The commands of the program.
    pub command: Command,
    /// Files, at the end of every command's page.
    pub files: &'static str,
    /// Variables of this program, below its files.
    pub environment: &'static str,
    /// The variable that completion scripts set, see [`Completions`](crate::completions::Completions).
    pub completions: &'static str,
    /// Other pages.
    pub see_also: &'static str,
    /// The page of the configuration file: its name, and its text.
    pub config: (&'static str, String),
}

impl ManPages {
    /// Writes all pages below the folder that the arguments name, which is made with `man1` and `man5` where it
    /// is not there.
    ///
    /// # Errors
    /// Of a disk that is full, or a folder that is not ours.
    pub fn write(self, args: &ManArgs) -> Result<(), ManError> {
        self.write_to(&args.dir).map_err(|source| ManError { dir: args.dir.clone(), source })
    }

    fn write_to(self, dir: &Path) -> io::Result<()> {
        let [commands, files] = ["man1", "man5"].map(|section| dir.join(section));
        fs::create_dir_all(&commands)?;
        fs::create_dir_all(&files)?;
        let sections = self.sections();
        let mut command = self.command.disable_help_subcommand(true);
        command.build();
        write_page(&command, &sections, &commands)?;
        let (name, page) = self.config;
        fs::write(files.join(name), in_ascii(&page))
    }

    /// Returns the end of every command's page.
    fn sections(&self) -> String {
        let Self { files, environment, completions, see_also, .. } = self;
        format!(
            ".SH FILES\n{files}.SH ENVIRONMENT\n{environment}{ENVIRONMENT}.TP\n.B {completions}\nSet by the completion scripts of \
             shells while they ask.\n.SH \"SEE ALSO\"\n{see_also}"
        )
    }
}

/// Formatters take other characters for single bytes, unless they are told.
fn in_ascii(page: &str) -> String {
    let escaped = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) };
    page.chars().map(escaped).collect()
}

/// The page of a command, and those of all below it.
fn write_page(command: &Command, sections: &str, dir: &Path) -> io::Result<()> {
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    text.extend_from_slice(sections.as_bytes());
    fs::write(dir.join(page.get_filename()), in_ascii(&String::from_utf8_lossy(&text)))?;
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    shown.into_iter().try_for_each(|below| write_page(below, sections, dir))
}
