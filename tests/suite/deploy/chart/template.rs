//! An object as a template: its YAML, with holes that Helm fills.

use serde_json::{Map, Value, json};

/// A place of an object that Helm fills.
enum Hole {
    /// A scalar: what the expression renders.
    Expression(String),
    /// A field, with the value of that path; nothing where it is empty.
    Tree(String),
    /// A field or an item that is there under a condition.
    Added { condition: String, yaml: Value },
    /// A field with text of several lines.
    Text(String),
    /// Fields of the map that is the value of that path.
    Fields(String),
}

/// An object that becomes a template.
pub(super) struct Template {
    object: Value,
    holes: Vec<Hole>,
}

impl Template {
    pub(super) fn new(object: Value) -> Self {
        Self { object, holes: Vec::new() }
    }

    pub(super) fn kind(&self) -> String {
        self.object["kind"].as_str().unwrap().to_owned()
    }

    /// Returns a map of the object, which is made where it is missing.
    pub(super) fn map(&mut self, path: &str) -> &mut Map<String, Value> {
        let mut at = &mut self.object;
        for key in path.split('/').skip(1) {
            at = match at {
                Value::Array(items) => &mut items[key.parse::<usize>().unwrap()],
                _ => &mut at[key],
            };
        }
        if at.is_null() {
            *at = json!({});
        }
        at.as_object_mut().unwrap()
    }

    /// Makes a field what an expression renders.
    pub(super) fn expression(&mut self, path: &str, expression: &str) {
        self.put(path, Hole::Expression(format!("{{{{ {expression} }}}}")));
    }

    /// Makes a field the value of a path, a list or a map.
    pub(super) fn tree(&mut self, path: &str, value: &str) {
        self.put(path, Hole::Tree(value.to_owned()));
    }

    /// Makes a field the text that an expression renders.
    pub(super) fn text(&mut self, map: &str, key: &str, expression: &str) {
        let hole = self.hole(Hole::Text(expression.to_owned()));
        self.map(map).insert(key.to_owned(), hole);
    }

    /// Adds the fields of a value to a map.
    pub(super) fn fields(&mut self, map: &str, value: &str) {
        let hole = self.hole(Hole::Fields(value.to_owned()));
        // Written last: no label begins like that.
        self.map(map).insert("~".to_owned(), hole);
    }

    /// Applies a strategic merge patch as far as a condition holds.
    pub(super) fn patch(&mut self, patch: &Value, condition: &str) {
        let mut object = self.object.take();
        self.merge(&mut object, patch, condition);
        self.object = object;
    }

    fn merge(&mut self, own: &mut Value, patch: &Value, condition: &str) {
        let added = |yaml| Hole::Added { condition: condition.to_owned(), yaml };
        match (own, patch) {
            (Value::Object(own), Value::Object(patch)) => {
                for (key, value) in patch {
                    match own.get_mut(key) {
                        Some(own) => self.merge(own, value, condition),
                        None => {
                            let hole = self.hole(added(json!({ key: value })));
                            own.insert(key.clone(), hole);
                        }
                    }
                }
            }
            (Value::Array(own), Value::Array(patch)) => {
                for item in patch {
                    // Mounts have a name as well: that of their volume.
                    let key = if item["mountPath"].is_string() { "mountPath" } else { "name" };
                    match own.iter_mut().find(|own| own[key] == item[key]) {
                        Some(own) => self.merge(own, item, condition),
                        None => own.push(self.hole(added(json!([item])))),
                    }
                }
            }
            (own, patch) if own == patch => {}
            (own, patch) => {
                assert!(!own.is_object() && !own.is_array() && !patch.is_object(), "{own} cannot become {patch}");
                *own = self
                    .hole(Hole::Expression(format!("{{{{ if {condition} }}}}{patch}{{{{ else }}}}{own}{{{{ end }}}}")));
            }
        }
    }

    fn put(&mut self, path: &str, hole: Hole) {
        let (map, key) = path.rsplit_once('/').unwrap();
        let hole = self.hole(hole);
        self.map(map).insert(key.replace("~1", "/"), hole);
    }

    fn hole(&mut self, hole: Hole) -> Value {
        self.holes.push(hole);
        Value::String(format!("@@{}@@", self.holes.len() - 1))
    }

    /// Writes the template.
    pub(super) fn write(&self) -> String {
        let text = escaped(&serde_saphyr::to_string(&self.object).unwrap());
        text.lines().map(|line| self.line(line) + "\n").collect()
    }

    fn line(&self, line: &str) -> String {
        let Some((start, rest)) = line.split_once("@@") else { return line.to_owned() };
        let (number, _) = rest.split_once("@@").unwrap();
        let start = start.trim_end_matches(['"', '\'']);
        let indent = &start[..start.len() - start.trim_start().len()];
        let depth = indent.len();
        match &self.holes[number.parse::<usize>().unwrap()] {
            Hole::Expression(expression) => format!("{start}{expression}"),
            Hole::Tree(path) => {
                let (with, end) =
                    (format!("{indent}{{{{- with .Values.{path} }}}}"), format!("{indent}{{{{- end }}}}"));
                let inner = format!("{indent}  {{{{- toYaml . | nindent {} }}}}", depth + 2);
                [with, start.trim_end().to_owned(), inner, end].join("\n")
            }
            Hole::Fields(path) => {
                format!(
                    "{indent}{{{{- with .Values.{path} }}}}\n{indent}{{{{- toYaml . | nindent {depth} }}}}\n{indent}{{{{- end }}}}"
                )
            }
            Hole::Added { condition, yaml } => {
                let yaml = escaped(&serde_saphyr::to_string(yaml).unwrap());
                let lines: String = yaml.lines().map(|line| format!("{indent}{line}\n")).collect();
                format!("{indent}{{{{- if {condition} }}}}\n{lines}{indent}{{{{- end }}}}")
            }
            Hole::Text(expression) => format!("{start}|\n{indent}  {{{{- {expression} | nindent {} }}}}", depth + 2),
        }
    }
}

/// Text that Helm renders as it is here.
pub(super) fn escaped(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}
