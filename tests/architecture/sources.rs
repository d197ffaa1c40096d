//! Reads Rust files as far as the rules need it: code without comments, literals and test modules, and the paths in it.

use std::collections::BTreeSet;

/// A Rust file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path in the tree.
    pub(crate) file: String,
    pub(crate) text: String,
    /// Folder of its crate, empty for the daemon's, and path of the module in it, `claims::task`; `None` for tests.
    pub(crate) place: Option<(String, String)>,
    /// True if the whole file is a test, or a support for tests.
    pub(crate) is_test: bool,
    /// The words of the code, test modules left out; then those of the test modules.
    tokens: Vec<String>,
    test_tokens: Vec<String>,
    test_lines: usize,
}

impl Source {
    pub(crate) fn new(file: &str, text: &str) -> Self {
        let is_test = ["tests.rs", "testkit.rs"].iter().any(|name| file.ends_with(&format!("/{name}")))
            || file
                .split('/')
                .any(|folder| ["tests", "testkit", "benches", "examples", "fuzz_targets"].contains(&folder));
        let (tokens, test_tokens, test_lines) = split_tests(&tokens(&code(text)));
        let place = if is_test { None } else { place_of(file) };
        Self { file: file.to_owned(), text: text.to_owned(), place, is_test, tokens, test_tokens, test_lines }
    }

    /// Returns the path of the module in the daemon's crate.
    pub(crate) fn module(&self) -> Option<&str> {
        self.place.as_ref().filter(|(folder, _)| folder.is_empty()).map(|(_, module)| module.as_str())
    }

    /// Returns the number of lines that are not in a test module.
    pub(crate) fn lines(&self) -> usize {
        self.text.lines().count() - self.test_lines
    }

    pub(crate) fn has_unsafe(&self) -> bool {
        self.tokens.iter().chain(&self.test_tokens).any(|token| token == "unsafe")
    }

    /// True if the code, test modules left out, has this word.
    pub(crate) fn has_word(&self, word: &str) -> bool {
        self.tokens.iter().any(|token| token == word)
    }

    /// The tokens that follow each use of a word in the code, test modules left out.
    pub(crate) fn uses_of(&self, word: &str) -> Vec<Vec<&str>> {
        let after = |at: usize| self.tokens[at + 1..].iter().take(3).map(String::as_str).collect();
        (0..self.tokens.len()).filter(|at| self.tokens[*at] == word).map(after).collect()
    }

    /// Returns the names of the types that the code defines outside of functions and `impl`s, test modules left out.
    pub(crate) fn types(&self) -> Vec<&str> {
        let mut depth = 0;
        let mut types = Vec::new();
        for (token, next) in self.tokens.iter().zip(self.tokens.iter().skip(1)) {
            match token.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                "struct" | "enum" | "trait" | "union" | "type" if depth == 0 && is_name(next) => types.push(&**next),
                _ => {}
            }
        }
        types
    }

    pub(crate) fn is_generated(&self) -> bool {
        self.text.lines().take(3).any(|line| line.starts_with("//") && line.contains("@generated"))
    }

    /// Returns every path of more than one name, and every path that is imported, from the root: `crate::claims`,
    /// `std::fs`.
    pub(crate) fn paths(&self) -> BTreeSet<String> {
        let module: Vec<&str> = self.place.iter().flat_map(|(_, module)| module.split("::")).collect();
        let mut paths = BTreeSet::new();
        let mut at = 0;
        while at < self.tokens.len() {
            if self.tokens[at] == "use" {
                let end =
                    at + self.tokens[at..].iter().position(|token| token == ";").unwrap_or(self.tokens.len() - at);
                import(&self.tokens[at + 1..end], &[], &mut |path| paths.extend([absolute(path, &module)]));
                at = end;
            } else if is_name(&self.tokens[at]) {
                let path = leading_path(&self.tokens[at..]);
                at += 2 * path.len() - 1;
                if path.len() > 1 {
                    paths.insert(absolute(&path, &module));
                }
            } else {
                at += 1;
            }
        }
        paths
    }
}

/// Returns true if `path` is `prefix` or below it.
pub(crate) fn starts_with(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Returns true if `path` is `suffix`, or ends in it as a whole name.
pub(crate) fn ends_with(path: &str, suffix: &str) -> bool {
    path.strip_suffix(suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
}

/// Returns true if a path is that of a type that starts programs.
pub(crate) fn names_command(path: &str) -> bool {
    ["std::process::Command", "process::Command", "tokio::process"].iter().any(|prefix| starts_with(path, prefix))
}

/// Returns crate and module of a file: `src/claims/task.rs` is `claims::task` of the daemon, `api/src/core.rs` is
/// `core` in `api`; the roots are the empty path.
fn place_of(file: &str) -> Option<(String, String)> {
    let (folder, path) = file.strip_prefix("src/").map(|path| ("", path)).or_else(|| file.split_once("/src/"))?;
    let module = path.strip_suffix(".rs")?;
    let module = if ["lib", "main"].contains(&module) { String::new() } else { module.replace('/', "::") };
    Some((folder.to_owned(), module))
}

/// Returns the text with comments and the content of literals replaced by blanks; lines stay where they are.
fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = at + hidden(&chars[at..], at.checked_sub(1).map(|before| chars[before]));
        out.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        if end == at {
            out.push(chars[at]);
        }
        at = end.max(at + 1);
    }
    out
}

/// Returns the length of the comment or literal that begins here; 0 for code.
fn hidden(rest: &[char], before: Option<char>) -> usize {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    match rest {
        ['/', '/', ..] => rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment(rest),
        ['"', ..] => quoted(rest, '"'),
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => quoted(rest, '\''),
        ['r', '"' | '#', ..] if !in_word => raw_string(&rest[1..]).map_or(0, |length| length + 1),
        ['b' | 'c', 'r', '"' | '#', ..] if !in_word => raw_string(&rest[2..]).map_or(0, |length| length + 2),
        _ => 0,
    }
}

fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] if depth == 1 => return at + 2,
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    at
}

fn quoted(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// Returns the length of a raw string from the first `#` or quote on; `None` for a raw identifier.
fn raw_string(rest: &[char]) -> Option<usize> {
    let hashes = rest.iter().take_while(|c| **c == '#').count();
    (rest.get(hashes) == Some(&'"')).then_some(())?;
    let closes = |at: &usize| rest[*at] == '"' && rest[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
    Some((hashes + 1..rest.len()).find(closes).map_or(rest.len(), |at| at + 1 + hashes))
}

/// A word of the code with its line, from 0.
type Token = (String, usize);

/// Splits code into names, `::`, and every other character by itself.
fn tokens(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let name = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let length = if rest.starts_with("::") { 2 } else { name.max(first.len_utf8()) };
            tokens.push((rest[..length].to_owned(), number));
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// Splits off every `#[cfg(test)] mod … { … }`: returns the words outside, the words inside, and the number of lines
/// inside.
fn split_tests(tokens: &[Token]) -> (Vec<String>, Vec<String>, usize) {
    let (mut outside, mut inside, mut lines) = (Vec::new(), Vec::new(), 0);
    let mut at = 0;
    while at < tokens.len() {
        let end = test_module(&tokens[at..]).map_or(at, |length| at + length);
        if end > at {
            lines += tokens[end - 1].1 - tokens[at].1 + 1;
            inside.extend(tokens[at..end].iter().map(|(word, _)| word.clone()));
            at = end;
        } else {
            outside.push(tokens[at].0.clone());
            at += 1;
        }
    }
    (outside, inside, lines)
}

/// Returns the number of words of the test module that begins here.
fn test_module(tokens: &[Token]) -> Option<usize> {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let begins =
        tokens.len() > ATTRIBUTE.len() && tokens.iter().zip(ATTRIBUTE).all(|((word, _), wanted)| word == wanted);
    begins.then_some(())?;
    let opening = tokens.iter().position(|(word, _)| word == "{" || word == ";")?;
    tokens[..opening].iter().any(|(word, _)| word == "mod").then_some(())?;
    let mut depth = 0;
    for (at, (word, _)) in tokens.iter().enumerate().skip(opening) {
        match word.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    Some(tokens.len())
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Returns the names of the path that begins here.
fn leading_path(tokens: &[String]) -> Vec<&str> {
    let mut path = vec![tokens[0].as_str()];
    let mut rest = &tokens[1..];
    while let [separator, name, tail @ ..] = rest {
        if separator != "::" || !is_name(name) {
            break;
        }
        path.push(name);
        rest = tail;
    }
    path
}

/// Passes every path of an import tree, `a::{b, c::{d, e as f}}`, to `found`.
fn import<'a>(tokens: &'a [String], prefix: &[&'a str], found: &mut dyn FnMut(&[&str])) {
    let mut path = prefix.to_vec();
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => return branches(&tokens[at + 1..], &path, found),
            "as" => break,
            name if is_name(name) => path.push(name),
            _ => {}
        }
    }
    found(&path);
}

fn branches<'a>(tokens: &'a [String], prefix: &[&'a str], found: &mut dyn FnMut(&[&str])) {
    let mut depth = 0;
    let mut start = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" if depth > 0 => depth -= 1,
            "," | "}" if depth == 0 => {
                if start < at {
                    import(&tokens[start..at], prefix, found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Returns the path from the root: `self` and `super` are resolved against the file's module.
fn absolute(path: &[&str], module: &[&str]) -> String {
    let mut base = module.to_vec();
    let rest = match path.first() {
        Some(&"crate") => {
            base.clear();
            &path[1..]
        }
        Some(&("self" | "super")) => {
            let supers = path.iter().take_while(|name| **name == "super").count();
            base.truncate(base.len().saturating_sub(supers));
            &path[supers.max(1)..]
        }
        _ => return path.join("::"),
    };
    let names = base.iter().chain(rest).copied().filter(|name| !name.is_empty() && *name != "self");
    std::iter::once("crate").chain(names).collect::<Vec<_>>().join("::")
}

#[test]
fn comments_and_literals_are_blanked_and_lines_stay() {
    let text = "a /* b /* c */ d */ e // f\n'g' \"h\\\"i\" r#\"j\"k\"# br\"l\" 'm: loop r#type";
    let words: Vec<Token> = tokens(&code(text));
    let names: Vec<(&str, usize)> = words.iter().map(|(word, line)| (word.as_str(), *line)).collect();
    let rest = [("'", 1), ("m", 1), (":", 1), ("loop", 1), ("r", 1), ("#", 1), ("type", 1)];
    let blank_prefix = [("a", 0), ("e", 0), ("b", 1)];
    // The `b` of a byte string is left over when the literal behind it is blanked; it is no path.
    assert!(names.iter().filter(|word| !blank_prefix.contains(word)).eq(rest.iter()), "{names:?}");
}

#[test]
fn paths_are_told_from_the_root() {
    let text = "use self::{a, b::{self, c as d}}; use super::e; fn f() { super::super::g::h(i::j::<K>(), l); }";
    let paths = Source::new("src/claims/task.rs", text).paths();
    let expected = [
        "crate::claims::e",
        "crate::claims::task::a",
        "crate::claims::task::b",
        "crate::claims::task::b::c",
        "crate::g::h",
        "i::j",
    ];
    assert!(paths.iter().eq(expected), "{paths:?}");
}

#[test]
fn a_test_module_counts_neither_lines_nor_paths() {
    let source =
        Source::new("src/a.rs", "//! A.\nfn f() {}\n#[cfg(test)]\nmod tests {\n    use x::y;\n    fn g() { {} }\n}\n");
    assert_eq!(source.lines(), 2);
    assert!(source.paths().is_empty());
    assert_eq!(Source::new("src/a.rs", "fn f() {}\n#[cfg(test)]\nmod tests;\nuse b::c;").paths().len(), 1);
}

#[test]
fn types_are_those_that_a_module_defines() {
    let text = "//! A.\npub(crate) struct S<T>(T);\nenum E { A }\nimpl I for S<u8> { type Item = u8; }\ntype T = S<E>;\nfn f() { \
                struct Inner; }\ntrait R {}\n#[cfg(test)]\nmod tests { struct InTest; }\n";
    assert_eq!(Source::new("src/a.rs", text).types(), ["S", "E", "T", "R"]);
}
