//! The manual page of the configuration file, made from the file that is installed: its comments are the one place where the
//! keys are explained. Pure.

/// The example that `make install` puts down.
const EXAMPLE: &str = include_str!("../../../systemd/hostler.toml");

/// The page, for man(1).
pub(super) fn page() -> String {
    let mut page = String::from(
        ".TH hostler.toml 5 \"\" \"hostler\" \"File formats\"\n.SH NAME\nhostler.toml \\- configuration of the hostler daemon\n.SH DESCRIPTION\n",
    );
    let mut builder = PageBuilder::default();
    EXAMPLE.lines().for_each(|line| builder.line(line));
    builder.comment_ends();
    page.push_str(&builder.page);
    page.push_str(
        ".SH FILES\n.I /etc/hostler/hostler.toml\n.SH \"SEE ALSO\"\n.BR hostler (1),\n.BR hostler\\-config (1)\n",
    );
    page
}

/// Reads the example line by line.
#[derive(Debug, Default)]
struct PageBuilder {
    page: String,
    /// The comment above whatever comes next.
    comment: Vec<String>,
    /// Whether the keys have begun: before them stands what is said of the whole file.
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
    use crate::config::{DaemonConfig, ScrapeAddress, TopologyManagerPolicy, TopologyManagerScope};

    /// The keys that stand below each section of the page.
    fn documented() -> Vec<String> {
        let mut section = String::new();
        let mut keys = Vec::new();
        for line in page().lines() {
            if let Some(name) = line.strip_prefix(".SS [") {
                section = format!("{}.", name.trim_end_matches(']'));
            } else if let Some((key, _)) = line.strip_prefix(".B ").and_then(|line| line.split_once(" = ")) {
                keys.push(format!("{section}{key}"));
            }
        }
        keys
    }

    /// Every key that the daemon knows; those without a value get one, since only what has one is written.
    fn known() -> Vec<String> {
        let mut config = DaemonConfig { hook_dir: Some("/x".into()), ..DaemonConfig::default() };
        config.cluster.kubeconfig = Some("/x".into());
        config.metrics.listen = Some(config.metrics_listen());
        config.metrics.scrape = Some(ScrapeAddress("127.0.0.1:1".parse().unwrap()));
        config.topology_export.topology_manager_policy = Some(TopologyManagerPolicy::None);
        config.topology_export.topology_manager_scope = Some(TopologyManagerScope::Pod);
        config.nri.socket = Some("/x".into());
        config.pod_resources.socket = Some(config.pod_resources_socket());
        config.pod_resources.kubelet_socket = Some(config.kubelet_pod_resources_socket());
        config.backends.fake.config.script = "/x".into();
        config.backends.fake.config.state_dir = Some("/x".into());
        let table: toml::Table = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
        let mut keys = Vec::new();
        list(&table, "", &mut keys);
        keys
    }

    fn list(table: &toml::Table, section: &str, keys: &mut Vec<String>) {
        for (name, value) in table {
            match value {
                // Maps that are values of a key.
                toml::Value::Table(inner) if !["reserved", "blank"].contains(&&**name) => {
                    list(inner, &format!("{section}{name}."), keys);
                }
                _ => keys.push(format!("{section}{name}")),
            }
        }
    }

    #[test]
    fn the_page_has_every_key_and_no_other() {
        let (mut documented, mut known) = (documented(), known());
        documented.sort();
        known.sort();
        assert_eq!(documented, known);
    }

    #[test]
    fn no_line_of_a_comment_is_taken_for_an_order_to_the_formatter() {
        let mut builder = PageBuilder::default();
        ["# .TH a-b\\", "key = \"1\""].into_iter().for_each(|line| builder.line(line));
        assert_eq!(builder.page, ".SH KEYS\n.TP\n.B key = \\(dq1\\(dq\n\\&.TH a\\-b\\e\n");
    }
}
