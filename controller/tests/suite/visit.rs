//! Somebody who looks at the page.

use hostler_testing::{
    apiserver::{ApiServer, PolicyRule},
    browser::Browser,
    controller::RunningController,
};
use serde_json::json;

/// Opens the page, and signs in as somebody who may list these.
pub(crate) fn sign_in(browser: &mut Browser, server: &ApiServer, controller: &RunningController, resources: &[&str]) {
    let url = format!("http://{}/", controller.address());
    let rule = |resource: &&str| PolicyRule {
        api_groups: vec!["*".to_owned()],
        resources: vec![(*resource).to_owned()],
        verbs: vec!["list".to_owned()],
        ..PolicyRule::default()
    };
    server.allow("viewer", resources.iter().map(rule).collect());
    browser.go(&url);
    browser.until("document.activeElement.id === 'token'");
    browser.call("Input.insertText", json!({ "text": "token-of-viewer" }));
    browser.press("Enter");
    browser.until("!document.body.classList.contains('signed-out')");
}
