//! The page for people: files that are part of the binary. They are open to every client: nothing of the cluster is in
//! them.

use axum::{
    Router,
    extract::Request,
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
    },
    middleware::Next,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get},
};
use hostler_api::fingerprint;

/// The policy of every answer: scripts, styles, pictures and answers come from the controller; nothing else is loaded,
/// called, framed or sent to.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const SECURITY: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    // The address of an open node is in the log of no other server.
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A file of the page.
#[derive(Clone, Copy, Debug)]
struct PageFile {
    path: &'static str,
    content_type: &'static str,
    content: &'static str,
}

/// A file of `controller/web`, with the type that its name stands for.
macro_rules! page_files {
    ($($name:literal: $type:ident),+ $(,)?) => {
        [$(PageFile {
            path: concat!("/", $name),
            content_type: $type,
            content: include_str!(concat!("../../web/", $name)),
        }),+]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

const INDEX: &str = "/index.html";

static FILES: [PageFile; 23] = page_files! {
    "index.html": HTML,
    "style.css": STYLE,
    "machine.css": STYLE,
    "icon.svg": PICTURE,
    "main.js": SCRIPT,
    "api.js": SCRIPT,
    "cells.js": SCRIPT,
    "dom.js": SCRIPT,
    "fit.js": SCRIPT,
    "grid.js": SCRIPT,
    "holders.js": SCRIPT,
    "kept.js": SCRIPT,
    "keys.js": SCRIPT,
    "machine.js": SCRIPT,
    "paint.js": SCRIPT,
    "signin.js": SCRIPT,
    "signs.js": SCRIPT,
    "stream.js": SCRIPT,
    "sums.js": SCRIPT,
    "switches.js": SCRIPT,
    "text.js": SCRIPT,
    "theme.js": SCRIPT,
    "walk.js": SCRIPT,
};

/// The files, at the root.
pub(crate) fn routes() -> Router {
    let add = |routes: Router, file: &PageFile| match file.path {
        INDEX => routes.route(INDEX, serving(*file)).route("/", serving(*file)),
        path => routes.route(path, serving(*file)),
    };
    FILES.iter().fold(Router::new(), add)
}

fn serving(file: PageFile) -> MethodRouter {
    // The tag tells one build's file from another's, and needs no protection from forgers.
    let etag = format!("\"{}\"", fingerprint(file.content));
    get(move |headers: HeaderMap| async move { answer(file, etag.clone(), &headers) })
}

/// Answers a request for a file; a client that has the present file gets no copy. A file changes only with the binary,
/// and then at once.
fn answer(file: PageFile, etag: String, headers: &HeaderMap) -> Response {
    let known = headers.get(IF_NONE_MATCH).and_then(|known| known.to_str().ok()).unwrap_or_default();
    let is_known = known.split(',').any(|known| known.trim().trim_start_matches("W/") == etag);
    let head = [(CONTENT_TYPE, file.content_type.to_owned()), (CACHE_CONTROL, "no-cache".to_owned()), (ETAG, etag)];
    if is_known {
        return (StatusCode::NOT_MODIFIED, head).into_response();
    }
    (head, file.content).into_response()
}

/// Adds the headers that protect browsers to every answer.
pub(crate) async fn secured(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in SECURITY {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const WEB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/web");

    #[test]
    fn every_file_of_the_folder_is_served() {
        let there: BTreeSet<String> = std::fs::read_dir(WEB)
            .unwrap()
            .map(|entry| format!("/{}", entry.unwrap().file_name().into_string().unwrap()))
            .collect();
        assert_eq!(there, FILES.iter().map(|file| file.path.to_owned()).collect());
    }

    #[test]
    fn every_script_is_loaded_ahead() {
        let index = FILES.iter().find(|file| file.path == INDEX).unwrap().content;
        for file in FILES.iter().filter(|file| file.content_type == SCRIPT && file.path != "/main.js") {
            assert!(
                index.contains(&format!("<link rel=\"modulepreload\" href=\"{}\">", &file.path[1..])),
                "{}",
                file.path
            );
        }
    }

    /// A text that becomes HTML would be a script by the next name that a user gives a node.
    #[test]
    fn no_script_makes_html_or_code_out_of_texts() {
        for file in FILES.iter().filter(|file| file.content_type == SCRIPT) {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "DOMParser",
                "cookie",
            ] {
                assert!(!file.content.contains(word), "{}: {word}", file.path);
            }
        }
        for file in FILES.iter().filter(|file| file.content_type == HTML) {
            assert!(!file.content.contains(" style=") && !file.content.contains(" onclick="), "{}", file.path);
        }
    }
}
