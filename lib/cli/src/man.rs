//! Manual pages: one for each command of a program, and one for its configuration file.

mod config_page;

use std::{fs, io, path::Path};

use clap::Command;
use clap_mangen::Man;

pub use config_page::config_page;

/// Contents of a program's manual pages.
#[derive(Clone, Debug)]
pub struct ManPages {
    /// The commands of the program.
    pub command: Command,
    /// The end of every command's page: files, variables, other pages; in the language of man(7).
    pub sections: &'static str,
    /// The page of the configuration file: its name, and its text.
    pub config: (&'static str, String),
}

impl ManPages {
    /// Writes all pages below a folder, which is made with `man1` and `man5` where it is not there.
    pub fn write(self, dir: &Path) -> io::Result<()> {
        let [commands, files] = ["man1", "man5"].map(|section| dir.join(section));
        fs::create_dir_all(&commands)?;
        fs::create_dir_all(&files)?;
        let mut command = self.command.disable_help_subcommand(true);
        command.build();
        write_page(&command, self.sections, &commands)?;
        let (name, page) = self.config;
        fs::write(files.join(name), in_ascii(&page))
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
