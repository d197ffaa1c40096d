//! What a server says, and what follows from it.

use serde_json::{Value, json};

use super::*;
use crate::CallError;

fn page(core: &mut FollowCore, names: &[&str], token: &str, version: &str) -> Vec<String> {
    let items: Vec<Value> = names.iter().map(|name| json!({ "metadata": { "name": name } })).collect();
    let page = json!({ "metadata": { "continue": token, "resourceVersion": version }, "items": items });
    words(core.page(page.to_string().as_bytes()).unwrap())
}

fn line(core: &mut FollowCore, kind: &str, object: impl Into<Value>) -> Result<Vec<String>, LineError> {
    let line = json!({ "type": kind, "object": object.into() }).to_string();
    core.line(line.as_bytes()).map(words)
}

fn object(name: &str, version: u64) -> Value {
    json!({ "metadata": { "name": name, "uid": name, "resourceVersion": version.to_string() } })
}

fn bookmark(version: u64, is_end: bool) -> Value {
    let annotations = if is_end { json!({ "k8s.io/initial-events-end": "true" }) } else { json!({}) };
    json!({ "metadata": { "resourceVersion": version.to_string(), "annotations": annotations } })
}

fn words(events: impl IntoIterator<Item = FollowEvent>) -> Vec<String> {
    let word = |event: FollowEvent| match &event {
        FollowEvent::Listed(object) => format!("listed {}", object.name()),
        FollowEvent::Applied(object) => format!("applied {}", object.name()),
        FollowEvent::Deleted(object) => format!("deleted {}", object.name()),
        other => format!("{other:?}"),
    };
    events.into_iter().map(word).collect()
}

fn failure(code: u16) -> ApiFailure {
    let status = StatusError { code, ..StatusError::default() };
    ApiFailure::Call { step: "watch things".to_owned(), source: CallError::Status(status) }
}

fn streams() -> FollowRequest {
    FollowRequest::Watch { query: "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned() }
}

fn watches_from(version: u64) -> FollowRequest {
    FollowRequest::Watch { query: format!("resourceVersion={version}") }
}

fn first_page() -> FollowRequest {
    FollowRequest::Page { query: "limit=250".to_owned() }
}

#[test]
fn a_list_that_is_told_as_a_watch_ends_with_its_bookmark_and_goes_on_from_there() {
    let mut core = FollowCore::new(ListFreshness::Streamed);
    assert_eq!(core.request(), streams());
    assert_eq!(core.opened(), FollowEvent::ListStarted);
    assert_eq!(line(&mut core, "ADDED", object("a", 3)).unwrap(), ["listed a"]);
    assert!(line(&mut core, "BOOKMARK", bookmark(4, false)).unwrap().is_empty());
    assert_eq!(line(&mut core, "BOOKMARK", bookmark(5, true)).unwrap(), ["ListEnded"]);
    assert_eq!(line(&mut core, "MODIFIED", object("a", 7)).unwrap(), ["applied a"]);
    assert_eq!(line(&mut core, "DELETED", object("a", 9)).unwrap(), ["deleted a"]);
    core.ended();
    assert_eq!(core.request(), watches_from(9));
    assert_eq!(core.opened(), FollowEvent::UpToDate);
    assert_eq!(line(&mut core, "BOOKMARK", bookmark(20, false)).unwrap(), ["UpToDate"]);
    assert_eq!(core.request(), watches_from(20));
}

#[test]
fn a_server_that_tells_no_list_as_a_watch_is_asked_for_pages_and_nobody_is_troubled() {
    for code in [400, 422] {
        let mut core = FollowCore::new(ListFreshness::Streamed);
        assert!(!core.failed(&failure(code)), "that is no news");
        assert_eq!(core.request(), first_page());
        assert_eq!(page(&mut core, &["a", "b"], "next", "7"), ["ListStarted", "listed a", "listed b"]);
        assert_eq!(core.request(), FollowRequest::Page { query: "limit=250&continue=next".to_owned() });
        assert_eq!(page(&mut core, &["c"], "", "7"), ["listed c", "ListEnded"]);
        assert_eq!(core.request(), watches_from(7));
        // The same no to anything else is one.
        assert!(core.failed(&failure(code)));
    }
}

#[test]
fn half_a_list_begins_anew_however_it_broke() {
    let mut streamed = FollowCore::new(ListFreshness::Streamed);
    streamed.opened();
    line(&mut streamed, "ADDED", object("a", 3)).unwrap();
    streamed.ended();
    assert_eq!((streamed.request(), streamed.opened()), (streams(), FollowEvent::ListStarted));
    assert!(streamed.failed(&failure(500)));
    assert_eq!(streamed.request(), streams());
    let mut paged = FollowCore::new(ListFreshness::Newest);
    page(&mut paged, &["a"], "next", "7");
    // A page that failed is asked for again; one that the server has forgotten is not.
    assert!(paged.failed(&failure(503)));
    assert_eq!(paged.request(), FollowRequest::Page { query: "limit=250&continue=next".to_owned() });
    assert!(paged.failed(&failure(410)));
    assert_eq!(paged.request(), first_page());
    assert_eq!(page(&mut paged, &["a"], "", "9"), ["ListStarted", "listed a", "ListEnded"]);
}

#[test]
fn a_version_that_the_server_has_forgotten_is_followed_by_a_list() {
    let mut core = FollowCore::new(ListFreshness::Streamed);
    core.opened();
    line(&mut core, "BOOKMARK", bookmark(5, true)).unwrap();
    let said = line(&mut core, "ERROR", json!({ "kind": "Status", "code": 410, "message": "too old" }));
    let Err(LineError::Refused(status)) = said else { panic!("{said:?}") };
    assert_eq!((status.code, &*status.message), (410, "too old"));
    assert!(core.failed(&ApiFailure::Call { step: String::new(), source: CallError::Status(status) }));
    assert_eq!(core.request(), streams());
    // Any other trouble goes on where it was.
    core.opened();
    line(&mut core, "BOOKMARK", bookmark(6, true)).unwrap();
    assert!(core.failed(&failure(500)));
    assert_eq!(core.request(), watches_from(6));
}

#[test]
fn an_object_that_cannot_be_read_is_an_object_still() {
    let mut core = FollowCore::new(ListFreshness::Streamed);
    core.opened();
    for odd in [json!([]), json!("x"), json!({ "metadata": 7 }), json!({ "metadata": { "name": 7 } })] {
        assert_eq!(line(&mut core, "ADDED", odd).unwrap(), ["listed "]);
    }
    line(&mut core, "BOOKMARK", bookmark(5, true)).unwrap();
    // It moves nothing: what comes behind it is told again after a break.
    assert_eq!(line(&mut core, "MODIFIED", json!({ "metadata": [] })).unwrap(), ["applied "]);
    assert_eq!(core.request(), watches_from(5));
    let odd = json!({ "metadata": { "name": "a", "resourceVersion": "6" }, "spec": "x" });
    assert_eq!(line(&mut core, "MODIFIED", odd).unwrap(), ["applied a"]);
    assert_eq!(core.request(), watches_from(6));
    assert!(matches!(core.line(b"{\"type\":"), Err(LineError::Unreadable(_))));
}

#[test]
fn a_list_that_need_not_be_new_comes_from_the_servers_memory_at_once() {
    let mut core = FollowCore::new(ListFreshness::Cached);
    let FollowRequest::Watch { query } = core.request() else { panic!("{:?}", core.request()) };
    assert_eq!(query, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0");
    assert!(!core.failed(&failure(400)));
    assert_eq!(core.request(), FollowRequest::Page { query: "resourceVersion=0".to_owned() });
    assert_eq!(page(&mut core, &["a"], "", "7"), ["ListStarted", "listed a", "ListEnded"]);
    assert_eq!(core.request(), watches_from(7));
}
