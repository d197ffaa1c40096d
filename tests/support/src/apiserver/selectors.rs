//! Label and field selectors: which objects a list, a watch or a delete is about.

use serde_json::Value;

use super::{
    refusal::StatusError,
    resources::{ApiServerRelease, ObjectKind, ServedResource},
    store::meta,
};

/// Both selectors of a request, for fields and labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectSelector {
    labels: Vec<LabelRequirement>,
    fields: Vec<(String, String, bool)>,
}

#[derive(Clone, Debug)]
struct LabelRequirement {
    key: String,
    test: LabelOperator,
}

#[derive(Clone, Debug)]
enum LabelOperator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl ObjectSelector {
    pub(crate) fn parse(
        release: ApiServerRelease,
        resource: &ServedResource,
        labels: &str,
        fields: &str,
    ) -> Result<Self, StatusError> {
        let labels = terms(labels).iter().map(|term| requirement(term)).collect::<Result<_, _>>()?;
        let fields = terms(fields).iter().map(|term| field(release, resource, term)).collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|requirement| requirement.holds(object))
            && self.fields.iter().all(|(path, value, equal)| (text_at(object, path) == *value) == *equal)
    }
}

impl LabelRequirement {
    fn holds(&self, object: &Value) -> bool {
        let label = object["metadata"]["labels"].get(&self.key).and_then(Value::as_str);
        match &self.test {
            LabelOperator::In(values) => label.is_some_and(|label| values.iter().any(|value| value == label)),
            LabelOperator::NotIn(values) => label.is_none_or(|label| values.iter().all(|value| value != label)),
            LabelOperator::Exists => label.is_some(),
            LabelOperator::Absent => label.is_none(),
        }
    }
}

/// Split at commas that are not in parentheses.
fn terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                terms.push(String::new());
                continue;
            }
            _ => {}
        }
        terms.last_mut().expect("never empty").push(c);
    }
    terms.retain(|term| !term.trim().is_empty());
    terms
}

fn requirement(term: &str) -> Result<LabelRequirement, StatusError> {
    let term = term.trim();
    let of = |key: &str, test| Ok(LabelRequirement { key: key.trim().to_owned(), test });
    let set = |values: &str| -> Vec<String> {
        values.trim().trim_matches(['(', ')']).split(',').map(|value| value.trim().to_owned()).collect()
    };
    if let Some((key, values)) = term.split_once(" notin ") {
        return of(key, LabelOperator::NotIn(set(values)));
    }
    if let Some((key, values)) = term.split_once(" in ") {
        return of(key, LabelOperator::In(set(values)));
    }
    if let Some((key, value)) = term.split_once("!=") {
        return of(key, LabelOperator::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return of(key, LabelOperator::In(vec![value.trim().to_owned()]));
    }
    match term.strip_prefix('!') {
        Some(key) => of(key, LabelOperator::Absent),
        None if term.contains(char::is_whitespace) => {
            Err(StatusError::bad_request(format!("unable to parse requirement: {term:?}")))
        }
        None => of(term, LabelOperator::Exists),
    }
}

fn field(
    release: ApiServerRelease,
    resource: &ServedResource,
    term: &str,
) -> Result<(String, String, bool), StatusError> {
    let (path, value, equal) = match term.split_once("!=") {
        Some((path, value)) => (path, value, false),
        None => {
            term.split_once("==").or_else(|| term.split_once('=')).map(|(path, value)| (path, value, true)).ok_or_else(
                || StatusError::bad_request(format!("invalid selector: '{term}'; can't understand '{term}'")),
            )?
        }
    };
    let by_name = path == "metadata.name" || (path == "metadata.namespace" && resource.namespaced);
    let known = match resource.kind {
        ObjectKind::ResourceSlice => {
            matches!(path, "spec.nodeName" | "spec.driver")
                || (path == "spec.pool.name" && release >= ApiServerRelease::V1_37)
        }
        ObjectKind::Pod => {
            matches!(
                path,
                "spec.nodeName"
                    | "spec.restartPolicy"
                    | "spec.schedulerName"
                    | "spec.serviceAccountName"
                    | "spec.hostNetwork"
                    | "status.phase"
                    | "status.podIP"
                    | "status.nominatedNodeName"
            )
        }
        ObjectKind::Event => {
            matches!(path, "reason" | "type" | "reportingComponent") || path.starts_with("involvedObject.")
        }
        ObjectKind::Node => path == "spec.unschedulable",
        ObjectKind::Namespace => path == "status.phase",
        ObjectKind::Custom(_) => resource.custom.is_some_and(|custom| custom.selectable.iter().any(|one| one == path)),
        _ => false,
    };
    if !by_name && !known {
        let of = format!("{}, Kind={}", resource.stored_version(), resource.kind_name);
        return Err(StatusError::bad_request(format!("field label not supported for {of}: {path}")));
    }
    Ok((path.to_owned(), value.to_owned(), equal))
}

fn text_at(object: &Value, path: &str) -> String {
    match path {
        "metadata.name" => return meta(object, "name").to_owned(),
        "metadata.namespace" => return meta(object, "namespace").to_owned(),
        _ => {}
    }
    let value = path.split('.').fold(object, |value, part| &value[part]);
    match value {
        Value::String(text) => text.clone(),
        Value::Null => {
            if matches!(path, "spec.unschedulable" | "spec.hostNetwork") {
                "false".to_owned()
            } else {
                String::new()
            }
        }
        other => other.to_string(),
    }
}
