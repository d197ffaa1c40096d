//! The files of the page, and what stands above every answer.

use hyper::Method;

use super::Scene;

#[tokio::test]
async fn every_answer_says_what_a_browser_may_do_with_it() {
    let scene = Scene::start().await;
    for path in ["/", "/main.js", "/style.css", "/v1/nodes", "/v1/access", "/absent", "/metrics", "/healthz"] {
        for visitor in [scene.stranger(), scene.viewer()] {
            let answer = visitor.get(path).await;
            let policy = answer.header("content-security-policy");
            for part in ["default-src 'none'", "script-src 'self'", "form-action 'none'", "frame-ancestors 'none'"] {
                assert!(policy.contains(part), "{path}: {policy}");
            }
            assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
            assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
            assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
            assert_eq!(answer.header("set-cookie"), "", "{path}");
        }
    }
    assert_eq!(scene.stranger().send(Method::PUT, "/", &[], "").await.header("x-frame-options"), "DENY");
}

#[tokio::test]
async fn a_file_that_is_known_is_not_sent_again() {
    let scene = Scene::start().await;
    let stranger = scene.stranger();
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/main.js", "text/javascript; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let whole = stranger.get(path).await;
        let etag = whole.header("etag").to_owned();
        assert_eq!((whole.code, whole.header("content-type"), etag.len()), (200, content_type, 18), "{path}");
        let again = stranger.send(Method::GET, path, &[("If-None-Match", &format!("\"x\", W/{etag}"))], "").await;
        assert_eq!((again.code, again.body.len(), again.header("etag")), (304, 0, &*etag), "{path}");
        let other = stranger.send(Method::GET, path, &[("If-None-Match", "\"x\"")], "").await;
        assert_eq!((other.code, other.body.len()), (200, whole.body.len()), "{path}");
        let head = stranger.send(Method::HEAD, path, &[], "").await;
        assert_eq!((head.code, head.body.len(), head.header("etag")), (200, 0, &*etag), "{path}");
        assert_eq!(head.header("content-length"), whole.body.len().to_string(), "{path}");
    }
}
