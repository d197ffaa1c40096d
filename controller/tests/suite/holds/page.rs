//! What the page says of devices that are kept, and for whom. Skipped with a word where there is no Chromium.

use hostler_testing::{browser::Browser, controller::RunningController};
use serde_json::json;

use super::cluster::HoldCluster;
use crate::visit::sign_in;

/// Two cards, of which one is kept for a pod.
async fn scene() -> (HoldCluster, RunningController) {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 2);
    let controller = cluster.controller().await;
    cluster.reserve("train", 1, "owner", &json!({ "ttl": "0" }));
    cluster.until_phase("train", "Available").await;
    (cluster, controller)
}

/// Opens the drawing of the one machine, when it says that something is held.
fn open_machine(browser: &mut Browser) {
    browser.until("document.getElementById('count').textContent === '1 node'");
    browser.until("document.getElementById('cell').getAttribute('aria-label').includes('1 held')");
    browser.press("g");
    browser.press("Enter");
    browser.until("document.querySelector('#machine .zone') !== null");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_says_what_is_held_and_for_whom_to_those_who_may_know() {
    let Some(mut browser) = Browser::start() else { return };
    let (cluster, controller) = scene().await;
    sign_in(&mut browser, &cluster.server, &controller, &["nodehardware", "resourceclaims", "reservations"]);
    open_machine(&mut browser);
    let label = "document.querySelector('.device.held').getAttribute('aria-label')";
    browser.until(&format!("{label} === 'card-0: held, kept for train'"));
    let row = "[...document.querySelectorAll('#kept tbody td')].map((cell) => cell.textContent)";
    let expected = json!(["train", "Available", "Pod default/owner", "for ever", "1 device"]);
    assert_eq!(browser.evaluate(row), expected);
    browser.evaluate("document.querySelector('.device.held').focus()");
    browser.until("document.querySelector('.facts').textContent.includes('n1/fake/card-0held')");
    let facts = browser.evaluate("document.querySelector('.facts').textContent");
    let kept = "kept for train (Available): Pod default/owner, for ever";
    assert!(facts.as_str().unwrap().contains(kept), "{facts}");
    browser.picture("kept-machine");
    // What is opened is free on the page as well.
    cluster.ask_to_go("train");
    cluster.until_no_fence().await;
    browser.until("document.getElementById('cell').getAttribute('aria-label').includes('2 free')");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_names_nobody_to_who_may_not_see_reservations_and_says_why() {
    let Some(mut browser) = Browser::start() else { return };
    let (cluster, controller) = scene().await;
    sign_in(&mut browser, &cluster.server, &controller, &["nodehardware", "resourceclaims"]);
    open_machine(&mut browser);
    let notes = browser.evaluate("document.getElementById('machine').textContent");
    let notes = notes.as_str().unwrap();
    let why = "for whom devices are held is left out: your token may not list reservations.hostler.dev";
    assert!(notes.contains(why) && !notes.contains("train") && !notes.contains("owner"), "{notes}");
    assert_eq!(browser.evaluate("document.getElementById('kept')"), json!(null));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
