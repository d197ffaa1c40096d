//! The manual page of the configuration file, made from the file that is installed: its comments are the one place
//! where the keys are explained. Pure.

/// The page of a configuration file, for man(1): `name` (`hostler.toml`), what it configures, the example that is
/// installed, and other pages as roff names them.
pub fn config_page(name: &str, of_what: &str, example: &str, see_also: &str) -> String {
    let mut page = format!(
        ".TH {name} 5 \"\" \"hostler\" \"File formats\"\n.SH NAME\n{name} \\- configuration of {of_what}\n.SH DESCRIPTION\n"
    );
    let mut builder = PageBuilder::default();
    example.lines().for_each(|line| builder.line(line));
    builder.comment_ends();
    page.push_str(&builder.page);
    page.push_str(&format!(".SH FILES\n.I /etc/hostler/{name}\n.SH \"SEE ALSO\"\n{see_also}"));
    page
}

/// Reads the example line by line.
#[derive(Debug, Default)]
struct PageBuilder {
    page: String,
    /// The comment above whatever comes next.
    comment: Vec<String>,
    /// True once the keys have begun: text before them is about the whole file.
    keys: bool,
}

impl PageBuilder {
    fn line(&mut self, line: &str) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let comment = self.comment_text();
            self.begin_keys();
            self.page.push_str(&format!(".SS [{section}]\n{comment}"));
        } else if let Some((key, value)) = key(line) {
            let comment = self.comment_text();
            self.begin_keys();
            self.page.push_str(&format!(".TP\n.B {} = {}\n{comment}", plain(key), plain(value)));
        } else if let Some(text) = line.strip_prefix('#') {
            self.comment.push(text.strip_prefix(' ').unwrap_or(text).to_owned());
        } else {
            self.comment_ends();
        }
    }

    /// An empty line: the comment above it is about no key.
    fn comment_ends(&mut self) {
        let comment = self.comment_text();
        if !comment.is_empty() {
            self.page.push_str(&format!(".PP\n{comment}"));
        }
    }

    fn begin_keys(&mut self) {
        if !self.keys {
            self.page.push_str(".SH KEYS\n");
            self.keys = true;
        }
    }

    fn comment_text(&mut self) -> String {
        std::mem::take(&mut self.comment).iter().map(|line| format_line(line)).collect()
    }
}

/// `key = value`, or `#key = value` where that is no default.
fn key(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.strip_prefix('#').unwrap_or(line).split_once(" = ")?;
    let is_key =
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    is_key.then_some((key, value))
}

/// An indented line is an example and stays a line.
fn format_line(line: &str) -> String {
    if line.is_empty() {
        return ".PP\n".to_owned();
    }
    if line.starts_with("  ") {
        return format!(".br\n{}\n", plain(line.trim_start()));
    }
    format!("{}\n", plain(line))
}

/// Text that roff prints as it is.
fn plain(text: &str) -> String {
    // A macro takes quotes for the ends of its arguments.
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_comment_is_taken_for_an_order_to_the_formatter() {
        let mut builder = PageBuilder::default();
        ["# .TH a-b\\", "key = \"1\""].into_iter().for_each(|line| builder.line(line));
        assert_eq!(builder.page, ".SH KEYS\n.TP\n.B key = \\(dq1\\(dq\n\\&.TH a\\-b\\e\n");
    }
}
