//! The command: files in; objects, notes and an exit code out.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::ValueEnum;
use hostler_api::ManifestFinding;
use hostler_cli::{
    exit::CliOutcome,
    output::{write_json, write_yaml},
};
use serde_json::{Value, json};

use super::{
    ConvertNote, Difference,
    manifest::{ConvertedObject, convert},
};
use crate::{
    called::PROGRAM,
    plan::{InputProblem, InputText, ObjectHead, QuestionError, RawObject, for_each_object, for_each_text},
};

const EXAMPLES: &str = "\
Examples:
  kubectl get reservations.scheduling.koordinator.sh -o yaml | hostler-controller convert -f - > hostler.yaml
  hostler-controller convert -f manifests/ -o json | kubectl apply -f -

Every field that hostler does not have in the same way has a line on standard error: the file and document, the field,
and what to do. Objects without anything of Koordinator's are written as they are.

Exit codes: 0 all is written, 1 all is written but fields without a counterpart, 2 wrong usage or wrong input: nothing is
written.";

/// Write objects of Koordinator as hostler's: Reservations, and pods or templates of pods that name them
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConvertArgs {
    /// Manifests in YAML or JSON; a folder is read with all that is below it; - for standard input
    #[arg(short, long = "filename", value_name = "FILE|DIR", required = true)]
    files: Vec<PathBuf>,
    /// How the objects are written
    #[arg(short, long, default_value = "yaml")]
    output: ManifestFormat,
}

/// The shape of manifests.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum ManifestFormat {
    /// One document for each object
    Yaml,
    /// One list of all objects
    Json,
}

/// Objects that were converted, and what is to be said about them.
#[derive(Debug, Default)]
struct Conversion {
    objects: Vec<Value>,
    /// Notes, each with its place; true if a field has no counterpart.
    notes: Vec<(InputProblem, bool)>,
    problems: Vec<InputProblem>,
    /// Number of objects that were read.
    read: usize,
}

/// Writes the objects on `out`, and notes on standard error.
pub(crate) fn run(args: &ConvertArgs, out: &mut dyn Write) -> Result<CliOutcome, QuestionError> {
    let mut conversion = Conversion::default();
    let mut unreadable = Vec::new();
    for_each_text(&args.files, &mut unreadable, &mut |input| conversion.read(&input));
    conversion.problems.extend(unreadable);
    if conversion.read == 0 && conversion.problems.is_empty() {
        conversion.problems.push(InputProblem::whole("--filename", "there is no object in it; name files with some"));
    }
    if !conversion.problems.is_empty() {
        return Err(QuestionError::Input(conversion.problems));
    }
    match args.output {
        ManifestFormat::Json => {
            write_json(&json!({ "apiVersion": "v1", "kind": "List", "items": conversion.objects }), out)?;
        }
        ManifestFormat::Yaml => {
            for object in &conversion.objects {
                writeln!(out, "---")?;
                write_yaml(object, out)?;
            }
        }
    }
    out.flush()?;
    for (note, _) in &conversion.notes {
        // A closed standard error has no reader.
        let _ = writeln!(io::stderr(), "{PROGRAM}: {note}");
    }
    let is_whole = conversion.notes.iter().all(|(_, is_missing)| !is_missing);
    Ok(if is_whole { CliOutcome::Done } else { CliOutcome::NotInOrder })
}

impl Conversion {
    /// Converts every object of a text; a mistake in one hides no other.
    fn read(&mut self, input: &InputText) {
        let Self { objects, notes, problems, read } = self;
        for_each_object(input, problems, &mut |object, head| {
            *read += 1;
            let title = head.title();
            let converted = convert_object(&object, &head)?;
            let told = |note: ConvertNote| {
                let reason = format!("{}: {}", note.difference, note.reason);
                let finding = ManifestFinding { object: title.clone(), ..object.finding(&note.field, reason) };
                (InputProblem { source: input.name.clone(), finding }, note.difference == Difference::Missing)
            };
            notes.extend(converted.notes.into_iter().map(told));
            objects.extend(converted.object);
            Ok(())
        });
    }
}

fn convert_object(object: &RawObject<'_>, head: &ObjectHead) -> Result<ConvertedObject, ManifestFinding> {
    convert(&head.api_version, &head.kind, object.read()?)
        .map_err(|problem| ManifestFinding { object: head.title(), ..object.finding(&problem.field, problem.reason) })
}
