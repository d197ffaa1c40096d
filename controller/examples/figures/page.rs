//! The page, in a browser.

use hostler_testing::{
    apiserver::{ApiServer, PolicyRule},
    browser::Browser,
    controller::RunningController,
};
use serde_json::json;

/// From the page's question to its first picture, and from the visitor's click.
pub(crate) fn paint(server: &ApiServer, controller: &RunningController) {
    let Some(mut browser) = Browser::start() else {
        return crate::report("  page's first picture", "no Chromium here", "≤ 1 s");
    };
    let rule = PolicyRule {
        api_groups: vec!["*".to_owned()],
        resources: ["nodehardware", "resourceclaims", "resourceslices"].map(str::to_owned).to_vec(),
        verbs: vec!["list".to_owned()],
        ..PolicyRule::default()
    };
    server.allow("viewer", vec![rule]);
    browser.go(&format!("http://{}/", controller.address()));
    browser.until("document.activeElement.id === 'token'");
    browser.call("Input.insertText", json!({ "text": "token-of-viewer" }));
    browser.evaluate("window.clicked = performance.now()");
    browser.press("Enter");
    browser.until("performance.getEntriesByName('hostler:painted').length === 1");
    let painted = "performance.getEntriesByName('hostler:painted')[0].startTime";
    let took = browser.evaluate(&format!("Math.round({painted} - window.clicked)"));
    crate::report("  page: signed in to first picture", format!("{took} ms"), "≤ 1 s");
    let start = browser.evaluate("Math.round(performance.getEntriesByName('first-contentful-paint')[0].startTime)");
    crate::report("  page: opened to first words (Chromium's first paint)", format!("{start} ms"), "≤ 1 s");
}
