//! Reading and writing specs: bytes to [`CdiSpec`] with errors that name line and field, and back to bytes that every
//! runtime's parser takes.

use std::{
    io,
    path::{Path, PathBuf},
};

use hostler_files::{FileError, read_file};

use crate::spec::CdiSpec;

/// The largest file that is read. Files of real vendors have some hundred KiB; a limit keeps one wrong file from taking
/// the memory of the daemon.
pub const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// Text that is no CDI spec. Displays as place and reason.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}{reason}", place(.line_column.as_ref(), .field.as_deref()))]
pub struct ParseError {
    /// Line and column, both from 1, where known.
    pub line_column: Option<(u64, u64)>,
    /// The field, for example `devices[0].containerEdits.hooks[1].hookName`; absent where the text breaks off before
    /// any field or is no JSON or YAML at all.
    pub field: Option<String>,
    /// Mistake at that place.
    pub reason: String,
}

fn place(line_column: Option<&(u64, u64)>, field: Option<&str>) -> String {
    let line = line_column.map(|(line, column)| format!("line {line}, column {column}: "));
    let field = field.map(|field| format!("{field}: "));
    [line, field].into_iter().flatten().collect()
}

/// A file that could not be read as a spec.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The name ends in neither `.json` nor `.yaml`, so no runtime reads it.
    #[error("{} ends in neither .json nor .yaml", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// The system refused, it is no regular file, or it is larger than [`MAX_FILE_BYTES`].
    #[error("failed to read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The content is no spec.
    #[error("failed to parse {}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Place and reason.
        #[source]
        source: ParseError,
    },
}

impl CdiSpec {
    /// Reads a spec from JSON, without validating it.
    ///
    /// # Errors
    /// Text that is no JSON, an unknown or repeated field, a value of the wrong type.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let spec = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let field = known_field(&error.path().to_string());
            json_error(field, error.inner())
        })?;
        deserializer.end().map_err(|error| json_error(None, &error))?;
        Ok(spec)
    }

    /// Reads a spec from YAML, without validating it.
    ///
    /// # Errors
    /// As [`CdiSpec::from_json`].
    pub fn from_yaml(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut field = None;
        serde_saphyr::with_deserializer_from_slice_with_options(bytes, yaml_options(), |deserializer| {
            serde_path_to_error::deserialize(deserializer).map_err(|error| {
                field = known_field(&error.path().to_string());
                error.into_inner()
            })
        })
        .map_err(|error| yaml_error(field, &error))
    }

    /// Writes the spec as JSON: the same bytes for the same spec, readable, with a newline at the end.
    ///
    /// # Errors
    /// None for the types of this crate; the serializer's interface has one.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut text = escape_for_yaml(serde_json::to_string_pretty(self)?);
        text.push('\n');
        Ok(text.into_bytes())
    }
}

/// Reads one file as the runtimes would: by its extension, following symbolic links.
///
/// # Errors
/// The file cannot be read or is no spec; see [`ReadError`].
pub fn read_spec(path: &Path) -> Result<CdiSpec, ReadError> {
    let parse = match extension(path) {
        Some(SpecExtension::Json) => CdiSpec::from_json,
        Some(SpecExtension::Yaml) => CdiSpec::from_yaml,
        None => return Err(ReadError::Extension { path: path.to_owned() }),
    };
    let bytes =
        read_file(path, MAX_FILE_BYTES).map_err(|FileError { path, source, .. }| ReadError::Read { path, source })?;
    parse(&bytes).map_err(|source| ReadError::Parse { path: path.to_owned(), source })
}

/// The encoding that a file name announces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SpecExtension {
    Json,
    Yaml,
}

/// `None` for the files that runtimes ignore. They look at the end of the name alone: `.json`, with nothing before the
/// dot, is a spec to them.
pub(crate) fn extension(path: &Path) -> Option<SpecExtension> {
    let name = path.file_name()?.as_encoded_bytes();
    if name.ends_with(b".json") {
        Some(SpecExtension::Json)
    } else if name.ends_with(b".yaml") {
        Some(SpecExtension::Yaml)
    } else {
        None
    }
}

/// The path of a field, unless it is `.`, which the tracker writes for "no field yet".
fn known_field(path: &str) -> Option<String> {
    (path != ".").then(|| path.to_owned())
}

fn json_error(field: Option<String>, error: &serde_json::Error) -> ParseError {
    let text = error.to_string();
    // The place is a suffix of the text; it has fields of its own here.
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    let reason = text.strip_suffix(&suffix).unwrap_or(&text).to_owned();
    let line_column = (error.line() > 0).then(|| (error.line() as u64, error.column() as u64));
    with_hint(ParseError { line_column, field, reason })
}

/// Runtimes read YAML with a parser of version 1.1, where `0666` is octal: a `fileMode` means the same here.
fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false }
}

fn yaml_error(field: Option<String>, error: &serde_saphyr::Error) -> ParseError {
    let line_column = error.location().map(|at| (at.line(), at.column())).filter(|(line, _)| *line > 0);
    let text = error.to_string();
    with_hint(ParseError { line_column, field, reason: text })
}

/// Adds a hint on two fields that older runtimes know: without it the file looks right to its author.
fn with_hint(mut error: ParseError) -> ParseError {
    if error.reason.contains("unknown field `enableCMT`") || error.reason.contains("unknown field `enableMBM`") {
        error.reason.push_str(" (dropped in CDI 1.1.0: newer runtimes refuse the file; use enableMonitoring)");
    }
    error
}

/// Runtimes read JSON with a YAML parser. Within strings JSON allows some characters that YAML refuses (DEL, C1
/// controls, the byte order mark) or takes for a line break and folds into a space (NEL, LS, PS); both know `\u`
/// escapes for them.
fn escape_for_yaml(json: String) -> String {
    // Nearly every file is this.
    if json.bytes().all(|byte| byte < 0x7f) {
        return json;
    }
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::HookName;

    const YAML: &str = "\
cdiVersion: 0.6.0
kind: vendor.com/gpu
annotations:
devices:
  - name: 0
    containerEdits:
      env: [\"A=1\"]
      deviceNodes:
        - path: /dev/gpu0
          fileMode: 0666
      hooks:
        - hookName: createContainer
          path: /usr/bin/hook
";

    #[test]
    fn yaml_is_read_as_the_runtimes_read_it() {
        let spec = CdiSpec::from_yaml(YAML.as_bytes()).unwrap();
        assert_eq!((spec.cdi_version.as_str(), spec.devices[0].name.as_str()), ("0.6.0", "0"));
        assert!(spec.annotations.is_empty());
        let edits = &spec.devices[0].container_edits;
        // YAML 1.1 takes a leading zero for octal.
        assert_eq!(edits.device_nodes[0].file_mode, Some(0o666));
        assert_eq!(edits.hooks[0].hook_name, HookName::CreateContainer);
        assert_eq!(CdiSpec::from_json(&spec.to_json().unwrap()), Ok(spec));
    }

    #[test]
    fn null_is_the_empty_value() {
        let json = r#"{"cdiVersion": "0.3.0", "kind": "a/b", "annotations": null, "devices": null}"#;
        let spec = CdiSpec::from_json(json.as_bytes()).unwrap();
        assert!(spec.devices.is_empty() && spec.annotations.is_empty());
    }

    #[test]
    fn an_unknown_field_is_named_with_its_place_in_json() {
        let json = "{\"devices\": [\n {\"name\": \"a\",\n  \"containerEdits\": {\"enviroment\": []}}]}";
        let error = CdiSpec::from_json(json.as_bytes()).unwrap_err();
        assert_eq!(error.line_column.map(|(line, _)| line), Some(3));
        let text = error.to_string();
        assert!(text.starts_with("line 3, column 33: devices[0].containerEdits.enviroment: "), "{text}");
        assert!(text.contains("unknown field `enviroment`, expected one of `env`, `deviceNodes`"), "{text}");
        assert!(!text.contains("at line"), "{text}");
    }

    #[test]
    fn an_unknown_field_is_named_with_its_place_in_yaml() {
        let error = CdiSpec::from_yaml(YAML.replace("fileMode", "filemode").as_bytes()).unwrap_err();
        assert_eq!(error.line_column.map(|(line, _)| line), Some(10), "{error}");
        assert_eq!(error.field.as_deref(), Some("devices[0].containerEdits.deviceNodes[0].filemode"), "{error}");
        assert!(error.reason.contains("filemode"), "{error}");
    }

    #[test]
    fn an_unknown_hook_is_named_with_those_that_exist() {
        for result in [
            CdiSpec::from_yaml(YAML.replace("createContainer", "create").as_bytes()),
            CdiSpec::from_json(br#"{"containerEdits": {"hooks": [{"hookName": "create", "path": "/a"}]}}"#),
        ] {
            let error = result.unwrap_err();
            assert!(error.field.as_deref().is_some_and(|field| field.ends_with("hooks[0].hookName")), "{error}");
            assert!(error.reason.contains("create") && error.reason.contains("createRuntime"), "{error}");
        }
    }

    #[test]
    fn repeated_fields_and_trailing_text_are_refused() {
        for json in [r#"{"kind": "a/b", "kind": "c/d"}"#, "{} {}", "", "7", "{\"devices\": 1}"] {
            assert!(CdiSpec::from_json(json.as_bytes()).is_err(), "{json}");
        }
        for yaml in ["kind: a/b\nkind: c/d\n", "kind: a/b\n---\nkind: c/d\n", "\u{1}", "- 1\n", "kind: &a [*a]\n"] {
            assert!(CdiSpec::from_yaml(yaml.as_bytes()).is_err(), "{yaml}");
        }
    }

    #[test]
    fn fields_that_were_dropped_are_explained() {
        let json = br#"{"containerEdits": {"intelRdt": {"enableCMT": true}}}"#;
        let error = CdiSpec::from_json(json).unwrap_err();
        assert!(error.reason.ends_with("use enableMonitoring)"), "{error}");
    }

    #[test]
    fn characters_that_yaml_cannot_hold_are_escaped() {
        let spec = CdiSpec { kind: "\u{7f}\u{85}\u{2028}\u{feff}\u{e9}\u{1f600}".to_owned(), ..CdiSpec::default() };
        let text = String::from_utf8(spec.to_json().unwrap()).unwrap();
        assert!(text.contains("\"\\u007f\\u0085\\u2028\\ufeff\u{e9}\u{1f600}\""), "{text}");
        assert_eq!(CdiSpec::from_json(text.as_bytes()), Ok(spec));
    }

    #[test]
    fn only_the_two_extensions_are_read() {
        let error = read_spec(Path::new("/nowhere/a.yml")).unwrap_err();
        assert_eq!(error.to_string(), "/nowhere/a.yml ends in neither .json nor .yaml");
        assert!(matches!(read_spec(Path::new("/nowhere/a.json")), Err(ReadError::Read { .. })));
    }
}
