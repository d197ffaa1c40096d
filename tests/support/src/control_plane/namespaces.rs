//! The end of a namespace: everything in it goes, then itself.

use serde_json::{Value, json};

use super::{ControllerCommand, ControllerWrite, list, text};
use crate::apiserver::ApiServerView;

const NAME: &str = "kube-controller-manager";

/// The controller of namespaces, which keeps no state between its steps.
#[derive(Debug, Default)]
pub(crate) struct NamespaceController;

impl NamespaceController {
    pub(crate) fn next(&mut self, view: &ApiServerView<'_>) -> Option<ControllerCommand> {
        let ending = |namespace: &&Value| namespace["metadata"]["deletionTimestamp"].is_string();
        let write = view.list("namespaces").iter().filter(ending).find_map(|namespace| end(view, namespace))?;
        Some(ControllerCommand { who: NAME, write })
    }
}

fn end(view: &ApiServerView<'_>, namespace: &Value) -> Option<ControllerWrite> {
    let objects = view.all();
    let name = text(&namespace["metadata"], "name");
    let inside: Vec<&Value> = objects.iter().filter(|object| text(&object["metadata"], "namespace") == name).collect();
    let mut left = inside.iter().filter(|object| object["metadata"]["deletionTimestamp"].is_null());
    if let Some(object) = left.next() {
        let options =
            json!({ "preconditions": { "uid": object["metadata"]["uid"] }, "propagationPolicy": "Background" });
        return Some(ControllerWrite::Delete { object: (*object).clone(), options });
    }
    let is_done = inside.is_empty() && !list(&namespace["spec"]["finalizers"]).is_empty();
    is_done.then(|| {
        let mut finalized = namespace.clone();
        finalized["spec"]["finalizers"] = json!([]);
        ControllerWrite::Update(finalized)
    })
}
