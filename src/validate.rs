//! Checks the opaque configuration in manifests, before anything is created from them. Pure: from text to findings.
//!
//! [`hostler_api::opaque`] alone knows the content of a configuration; it also reads the configuration when a claim is
//! prepared. This module knows its place: in claims, templates and classes of all versions of the API that have them.

use hostler_api::{
    ConfigProblem, ManifestFinding, few,
    opaque::{CpuConfig, CpuIsolation, OpaqueConfig},
};
use serde_json::Value;

/// The group of the kinds that are read.
const GROUP: &str = "resource.k8s.io";
/// Versions of that group whose objects have the shape that is read here.
const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1beta1"];

/// Result of the check of one text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ValidationReport {
    /// Number of objects that were checked.
    pub checked: usize,
    /// Problems.
    pub problems: Vec<ManifestFinding>,
    /// Parts that were not checked, and why.
    pub notes: Vec<ManifestFinding>,
}

/// The driver and the node for which manifests are checked.
#[derive(Clone, Copy, Debug)]
pub struct ValidationTarget<'a> {
    /// Name of the driver.
    pub driver: &'a str,
    /// True if the node lets claims keep L3 caches to themselves; `None` if no particular node is meant.
    pub allow_l3_exclusive: Option<bool>,
}

impl<'a> ValidationTarget<'a> {
    /// Makes a target of any node that has the driver.
    pub fn of_driver(driver: &'a str) -> Self {
        Self { driver, allow_l3_exclusive: None }
    }
}

/// Checks every document of `text`, which is YAML or JSON.
pub fn check(text: &str, target: ValidationTarget<'_>) -> ValidationReport {
    let mut report = ValidationReport::default();
    match documents(text) {
        Ok(documents) => {
            for (index, document) in documents.iter().enumerate().filter(|(_, document)| !document.is_null()) {
                let mut checker = DocumentChecker { document: index + 1, target, report: &mut report };
                checker.object(document, "");
            }
        }
        Err(reason) => {
            let reason = format!("it is not valid JSON or YAML: {reason}");
            report.problems.push(ManifestFinding { reason, ..ManifestFinding::default() });
        }
    }
    report
}

/// Parses the documents of a text in YAML or JSON; `null` for an empty one.
///
/// # Errors
/// When the text is neither.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
    if text.trim_start().starts_with('{') {
        let values = serde_json::Deserializer::from_str(text).into_iter();
        return values.collect::<Result<_, _>>().map_err(|error| error.to_string());
    }
    // Without the booleans of YAML 1.1: a request may be called `n`.
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())
}

struct DocumentChecker<'a> {
    document: usize,
    target: ValidationTarget<'a>,
    report: &'a mut ValidationReport,
}

impl DocumentChecker<'_> {
    /// Checks an object that stands at `path`, which is empty or ends with a dot.
    fn object(&mut self, object: &Value, path: &str) {
        let text = |field: &str| object.get(field).and_then(Value::as_str);
        let (Some(kind), Some(version)) = (text("kind"), text("apiVersion")) else {
            let field = if text("kind").is_none() { "kind" } else { "apiVersion" };
            return self.problem(object, format!("{path}{field}"), "it is missing, or no text".to_owned());
        };
        if let Some(items) = object.get("items").and_then(Value::as_array).filter(|_| kind.ends_with("List")) {
            for (index, item) in items.iter().enumerate() {
                self.object(item, &format!("{path}items[{index}]."));
            }
            return;
        }
        let places: &[(&str, &str)] = match kind {
            "ResourceClaim" => {
                &[("/spec/devices", "spec.devices."), ("/status/allocation/devices", "status.allocation.devices.")]
            }
            "ResourceClaimTemplate" => &[("/spec/spec/devices", "spec.spec.devices.")],
            "DeviceClass" => &[("/spec", "spec.")],
            _ => &[],
        };
        let own_version = version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
        let Some(own_version) = own_version.filter(|_| !places.is_empty()) else {
            let problem = ConfigProblem::new("", "skipped: this kind has no configuration of devices");
            self.report.notes.push(self.finding(object, problem));
            return;
        };
        self.report.checked += 1;
        if !VERSIONS.contains(&own_version) {
            let reason = format!("{version:?} is not known; write {GROUP}/{}", VERSIONS[0]);
            self.problem(object, format!("{path}apiVersion"), reason);
        }
        for (pointer, place) in places {
            if let Some(holder) = object.pointer(pointer) {
                self.configs(object, holder, &format!("{path}{place}"));
            }
        }
    }

    /// Checks the list `config` of `holder`, which stands at `path`.
    fn configs(&mut self, object: &Value, holder: &Value, path: &str) {
        let Some(config) = holder.get("config").filter(|config| !config.is_null()) else { return };
        let Some(entries) = config.as_array() else {
            return self.problem(object, format!("{path}config"), "it is not a list".to_owned());
        };
        for (index, entry) in entries.iter().enumerate() {
            let path = format!("{path}config[{index}]");
            let Some(driver) = entry.pointer("/opaque/driver").and_then(Value::as_str) else {
                let reason = "it is missing; name the driver that the parameters are for".to_owned();
                self.problem(object, format!("{path}.opaque.driver"), reason);
                continue;
            };
            if driver == self.target.driver {
                self.entry(object, holder, entry, &path);
            }
        }
    }

    fn entry(&mut self, object: &Value, holder: &Value, entry: &Value, path: &str) {
        let parameters = entry.pointer("/opaque/parameters").unwrap_or(&Value::Null);
        let path_of_parameters = format!("{path}.opaque.parameters");
        match OpaqueConfig::parse(parameters, &path_of_parameters) {
            Ok(OpaqueConfig::Cpu(CpuConfig { l3_exclusive: Some(true), .. })) => {
                self.l3_exclusive(object, format!("{path_of_parameters}.l3Exclusive"));
            }
            Ok(OpaqueConfig::Cpu(CpuConfig { isolation: Some(CpuIsolation::L3), .. })) => {
                self.l3_exclusive(object, format!("{path_of_parameters}.isolation"));
            }
            Ok(_) => {}
            Err(problems) => problems.into_iter().for_each(|problem| {
                self.report.problems.push(self.finding(object, problem));
            }),
        }
        // Classes and allocations do not list requests; the configuration of a class holds for every claim of it.
        let Some(requests) = holder.get("requests").and_then(Value::as_array) else { return };
        let known = request_names(requests);
        let named = entry.get("requests").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (index, name) in named.iter().enumerate() {
            if !known.iter().any(|known| name.as_str() == Some(known)) {
                let reason = format!("{name} is no request of the claim; it has {}", few(&known));
                self.problem(object, format!("{path}.requests[{index}]"), reason);
            }
        }
    }

    /// Checks the use of a whole L3 cache. It takes more than the scheduler knows, so an operator may forbid it.
    fn l3_exclusive(&mut self, object: &Value, field: String) {
        let key = "backends.cpu.allow_l3_exclusive";
        match self.target.allow_l3_exclusive {
            Some(true) => {}
            Some(false) => self.problem(object, field, format!("the node forbids it: {key} is false")),
            None => {
                let reason = format!("it takes more than the scheduler knows; nodes with {key} = false refuse it");
                self.report.notes.push(self.finding(object, ConfigProblem::new(field, reason)));
            }
        }
    }

    fn problem(&mut self, object: &Value, field: String, reason: String) {
        let finding = self.finding(object, ConfigProblem::new(field, reason));
        self.report.problems.push(finding);
    }

    fn finding(&self, object: &Value, problem: ConfigProblem) -> ManifestFinding {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let name = match (text("/metadata/namespace"), text("/metadata/name").or(text("/metadata/generateName"))) {
            (Some(namespace), Some(name)) => format!(" {namespace}/{name}"),
            (None, Some(name)) => format!(" {name}"),
            _ => String::new(),
        };
        let object = format!("{}{name}", text("/kind").unwrap_or_default());
        let ConfigProblem { field, reason } = problem;
        ManifestFinding { document: self.document, object: object.trim().to_owned(), line: None, field, reason }
    }
}

/// Names by which a configuration may call requests: `request`, and `request/subrequest` of alternatives.
fn request_names(requests: &[Value]) -> Vec<String> {
    let name = |request: &Value| request.get("name").and_then(Value::as_str).map(str::to_owned);
    let names = requests.iter().filter_map(|request| Some((name(request)?, request)));
    names
        .flat_map(|(main, request)| {
            let alternatives = request.get("firstAvailable").and_then(Value::as_array);
            let sub = alternatives.into_iter().flatten().filter_map(name).map(|sub| format!("{main}/{sub}"));
            std::iter::once(main.clone()).chain(sub.collect::<Vec<_>>())
        })
        .collect()
}

#[cfg(test)]
mod tests;
