//! ValidatingAdmissionPolicies, as far as they are expressions: the decision about an object that a client writes. The
//! objects that a policy is for are not considered. Policies are evaluated as the rules of a kind without others.

use serde_json::{Value, json};

use super::{custom::CustomVersion, slices::items};

/// The expressions of a policy.
#[derive(Debug)]
pub struct AdmissionPolicy {
    /// Names and expressions, in their order.
    variables: Vec<(String, String)>,
    /// Expressions and messages.
    validations: Vec<(String, String)>,
}

impl AdmissionPolicy {
    /// Reads a policy as users write it.
    pub fn new(policy: &Value) -> Self {
        let pairs = |list: &Value, first: &str, second: &str| {
            let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
            items(list).iter().map(|item| (text(item, first), text(item, second))).collect()
        };
        Self {
            variables: pairs(&policy["spec"]["variables"], "name", "expression"),
            validations: pairs(&policy["spec"]["validations"], "expression", "message"),
        }
    }

    /// The words with which it refuses an object; an expression that cannot be evaluated refuses as well.
    pub fn refusals(&self, object: &Value) -> Vec<String> {
        let rule =
            |(expression, message): &(String, String)| json!({ "rule": self.bound(expression), "message": message });
        let rules: Vec<Value> = self.validations.iter().map(rule).collect();
        let kind = CustomVersion {
            version: "v1",
            storage: "v1",
            selectable: Vec::new(),
            categories: Vec::new(),
            schema: json!({ "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-validations": rules }),
        };
        kind.check(None, object).iter().map(|error| error.why().to_owned()).collect()
    }

    /// An expression in which `object` and `variables` stand for what they are. A variable may name those before it.
    fn bound(&self, expression: &str) -> String {
        let mut known = "dyn({})".to_owned();
        let mut entries: Vec<String> = Vec::new();
        for (name, of_variable) in &self.variables {
            entries.push(format!("{}: {}", Value::from(name.as_str()), bind("variables", &known, of_variable)));
            known = format!("dyn({{{}}})", entries.join(", "));
        }
        bind("object", "self", &bind("variables", &known, expression))
    }
}

fn bind(name: &str, value: &str, body: &str) -> String {
    format!("cel.bind({name}, {value}, {body})")
}
