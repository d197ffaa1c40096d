//! From names on a command line to texts: files, folders with all that is below them, standard input.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use hostler_files::{read_argument, read_stream};

use super::InputProblem;

/// The name of `-f -` in messages.
const STDIN: &str = "standard input";

/// The most bytes of a text: five thousand nodes with a hundred devices each have 370 MB of slices in JSON, and twice
/// as much as `kubectl` writes it.
const MOST_BYTES: u64 = 2 << 30;

/// Endings of the files that are read in a folder. A file that is named itself may have any ending.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// A text, and its name in messages.
#[derive(Debug)]
pub(crate) struct InputText {
    /// File, or `standard input`.
    pub(crate) name: String,
    /// The content.
    pub(crate) text: String,
}

/// Gives each text to `each`, one after the other: the texts need not all be in memory. A file that cannot be read is
/// reported, and the others are read all the same. A file or folder that is met twice is read once.
pub(crate) fn for_each_text(named: &[PathBuf], problems: &mut Vec<InputProblem>, each: &mut dyn FnMut(InputText)) {
    let mut walk = FileWalk { seen: BTreeSet::new(), left: MOST_BYTES, problems, each };
    for path in named {
        if path.as_os_str() == "-" { walk.stdin() } else { walk.visit(path) }
    }
}

struct FileWalk<'a> {
    /// Real paths that were read: a folder that links back to itself is met once.
    seen: BTreeSet<PathBuf>,
    left: u64,
    problems: &'a mut Vec<InputProblem>,
    each: &'a mut dyn FnMut(InputText),
}

impl FileWalk<'_> {
    fn visit(&mut self, path: &Path) {
        if !path.canonicalize().is_ok_and(|real| !self.seen.insert(real)) {
            if path.is_dir() { self.folder(path) } else { self.file(path) }
        }
    }

    fn folder(&mut self, path: &Path) {
        match entries(path) {
            Ok(entries) => {
                for entry in entries.iter().filter(|entry| is_read(entry)) {
                    self.visit(entry);
                }
            }
            Err(error) => self.problem(path.display().to_string(), format!("it cannot be read: {error}")),
        }
    }

    fn file(&mut self, path: &Path) {
        let read = read_argument(path, self.left).map_err(|error| error.source);
        self.found(path.display().to_string(), read);
    }

    fn stdin(&mut self) {
        if self.seen.insert(PathBuf::from("-")) {
            let read = read_stream(io::stdin().lock(), self.left).and_then(|bytes| {
                String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
            });
            self.found(STDIN.to_owned(), read);
        }
    }

    fn found(&mut self, name: String, read: io::Result<String>) {
        match read {
            Ok(text) => {
                self.left = self.left.saturating_sub(text.len() as u64);
                (self.each)(InputText { name, text });
            }
            Err(error) => self.problem(name, format!("it cannot be read: {error}")),
        }
    }

    fn problem(&mut self, source: String, reason: String) {
        self.problems.push(InputProblem::whole(source, reason));
    }
}

/// Returns entries sorted by name, so that two runs see one order.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

/// True for folders, and for files that look like manifests; hidden ones are private.
fn is_read(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let is_manifest = || path.extension().is_some_and(|found| EXTENSIONS.iter().any(|known| found == *known));
    !is_hidden && (path.is_dir() || is_manifest())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn read(paths: &[&Path]) -> (Vec<String>, Vec<String>) {
        let (mut names, mut problems) = (Vec::new(), Vec::new());
        let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).to_owned()).collect();
        for_each_text(&paths, &mut problems, &mut |input| names.push(format!("{}:{}", input.name, input.text)));
        (names, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_folder_is_read_to_its_depth_once_in_the_order_of_names() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        fs::create_dir_all(path("b/below")).unwrap();
        for (name, text) in
            [("c.yaml", "c"), ("b/below/x.json", "x"), ("a.yml", "a"), ("notes.txt", "n"), (".h.yaml", "h")]
        {
            fs::write(path(name), text).unwrap();
        }
        symlink("..", path("b/loop")).unwrap();
        symlink("c.yaml", path("d.yaml")).unwrap();
        let root = temp.path().display();
        let expected = [format!("{root}/a.yml:a"), format!("{root}/b/below/x.json:x"), format!("{root}/c.yaml:c")];
        assert_eq!(read(&[temp.path(), &path("c.yaml")]), (expected.to_vec(), Vec::new()));
    }

    #[test]
    fn what_cannot_be_read_hides_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        fs::write(path("b.yaml"), "b").unwrap();
        fs::File::create(path("a.yaml")).unwrap().set_len(3 << 30).unwrap();
        let (names, problems) = read(&[temp.path(), &path("absent.yaml")]);
        assert_eq!(names, [format!("{}:b", path("b.yaml").display())]);
        assert!(problems[0].contains("a.yaml: it cannot be read: it has 3221225472 bytes"), "{problems:?}");
        assert!(problems[1].contains("absent.yaml: it cannot be read: No such file"), "{problems:?}");
    }
}
