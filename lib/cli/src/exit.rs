//! Ends of commands: exit codes, which are the same for both programs, and the words on standard error.
//!
//! docs/exit-codes.md has the table for users; a test holds it to [`CliOutcome`].

use std::{
    error::Error,
    io::{self, Write},
};

use hostler_api::{Chain, plain_line};

use crate::reader::is_output_gone;

/// The exit codes, for the end of `--help`.
pub const EXIT_CODES: &str = "Exit codes: 0 done, or the answer is yes; 1 failed, or the answer is no; 2 wrong usage, or no answer; \
    78 the configuration is wrong.";

/// The end of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CliOutcome {
    /// All is well.
    Done,
    /// The answer is no: something is not in order or does not fit; the output says why.
    NotInOrder,
    /// The command could not do its work.
    Failed,
    /// The question has no answer.
    NoAnswer,
    /// The command line contradicts itself, or names nothing that could be.
    WrongUsage,
    /// The input of a question is wrong. The error has a line for each mistake.
    WrongInput,
    /// The configuration is wrong. The error has a line for each mistake, each with its own place in front, as compilers do.
    WrongConfig,
}

impl CliOutcome {
    /// Returns the end of a command whose answer standard output did not take. Readers that have seen enough, and terminals
    /// that have gone away, are no failure.
    pub fn of_output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe || is_output_gone() { Self::Done } else { Self::Failed }
    }

    /// Returns the exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::NotInOrder | Self::Failed => 1,
            // The parser of arguments ends with it as well.
            Self::NoAnswer | Self::WrongUsage | Self::WrongInput => 2,
            // EX_CONFIG: systemd shows it as CONFIG, and the units do not start the program again.
            Self::WrongConfig => 78,
        }
    }
}

/// Writes on `err` the error that `program` ended with, and its whole chain.
pub(crate) fn report(program: &str, error: &dyn Error, outcome: CliOutcome, err: &mut dyn Write) {
    let chain = Chain(error).to_string();
    let words = match outcome {
        CliOutcome::Done => return,
        CliOutcome::WrongConfig => error.to_string(),
        CliOutcome::WrongInput => format!("{program}: {chain}"),
        _ => format!("{program}: {}", plain_line(&chain)),
    };
    // A closed standard error has no reader.
    let _ = writeln!(err, "{words}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to open {0}")]
    struct OpenError(&'static str, #[source] io::Error);

    fn reported(error: &dyn Error, outcome: CliOutcome) -> (u8, String) {
        let mut err = Vec::new();
        report("hostler", error, outcome, &mut err);
        (outcome.code(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let gone = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(reported(&gone, CliOutcome::of_output(&gone)), (0, String::new()));
    }

    #[test]
    fn a_failure_shows_its_whole_chain_in_one_line() {
        let error = OpenError("/x\ny", io::Error::other("disk full"));
        let expected = "hostler: failed to open /x\\ny: disk full\n".to_owned();
        assert_eq!(reported(&error, CliOutcome::Failed), (1, expected.clone()));
        assert_eq!(reported(&error, CliOutcome::NoAnswer), (2, expected));
    }

    #[test]
    fn mistakes_have_a_line_each() {
        let mistakes = io::Error::other("a.toml:1: x\na.toml:2: y");
        assert_eq!(reported(&mistakes, CliOutcome::WrongConfig), (78, "a.toml:1: x\na.toml:2: y\n".to_owned()));
        let problems = io::Error::other("2 problems\n  x\n  y");
        assert_eq!(reported(&problems, CliOutcome::WrongInput), (2, "hostler: 2 problems\n  x\n  y\n".to_owned()));
    }

    #[test]
    fn the_page_about_exit_codes_has_those_that_there_are_and_the_words_of_the_help() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exit-codes.md");
        let page = std::fs::read_to_string(path).unwrap();
        let rows: Vec<(u8, &str)> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
            .filter_map(|(code, meaning)| Some((code.parse().ok()?, meaning)))
            .collect();
        let mut codes: Vec<u8> = ALL.map(CliOutcome::code).to_vec();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(rows.iter().map(|(code, _)| *code).collect::<Vec<_>>(), codes, "{page}");
        let help = EXIT_CODES.strip_prefix("Exit codes: ").unwrap().trim_end_matches('.').split("; ");
        for (row, words) in rows.iter().zip(help) {
            let (code, meaning) = words.split_once(' ').unwrap();
            assert!(code == row.0.to_string() && row.1.starts_with(meaning), "{words}: {row:?}");
        }
    }

    const ALL: [CliOutcome; 7] = [
        CliOutcome::Done,
        CliOutcome::NotInOrder,
        CliOutcome::Failed,
        CliOutcome::NoAnswer,
        CliOutcome::WrongUsage,
        CliOutcome::WrongInput,
        CliOutcome::WrongConfig,
    ];
}
