//! `/ui/`: a page for people, which polls the other documents of this server. It contains no data itself.
//!
//! INVARIANT: a browser runs nothing but the script of this file, whatever texts of clients the page shows. Its
//! Content-Security-Policy names the script and the style by their hashes, allows requests to this server only, and
//! refuses HTML that is made of texts (`require-trusted-types-for`).

use std::sync::LazyLock;

use api_rules::openapi::document::fingerprint;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use ring::digest::{SHA256, digest};

use crate::read::body::{self, Response};

const PAGE: &str = include_str!("page.html");

/// Headers that depend on the page.
static HEADERS: LazyLock<[(HeaderName, HeaderValue); 3]> = LazyLock::new(|| {
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        source_hash("script"),
        source_hash("style")
    );
    let value = |text: &str| HeaderValue::from_str(text).expect("is ASCII");
    [
        (header::CONTENT_SECURITY_POLICY, value(&policy)),
        (header::REFERRER_POLICY, value("no-referrer")),
        (header::ETAG, value(&format!("\"{}\"", fingerprint(PAGE.as_bytes())))),
    ]
});

/// Returns the hash of the text in the only element of this name, as a policy names it.
fn source_hash(element: &str) -> String {
    let (_, text) = PAGE.split_once(&format!("<{element}>")).expect("the page has it");
    let (text, _) = text.split_once(&format!("</{element}>")).expect("it ends");
    format!("sha256-{}", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

/// The page; 304 for a browser that has it.
pub(super) fn page(request: &HeaderMap) -> Response {
    let [.., (_, etag)] = &*HEADERS;
    let (code, text) = body::unless_known(request, etag, Bytes::from_static(PAGE.as_bytes()));
    let mut response = body::typed(code, HeaderValue::from_static("text/html; charset=utf-8"), text.into());
    response.headers_mut().extend(HEADERS.iter().cloned());
    response
}

/// Leads to the page by a relative address, so that it is right behind a proxy that adds a prefix.
pub(super) fn redirect() -> Response {
    let mut response = body::text(StatusCode::MOVED_PERMANENTLY, Bytes::new().into());
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("ui/"));
    response
}
