//! Refuses requests that a page of another site may have sent.
//!
//! A browser adds client certificates to the requests of any page, and a server on loopback may need no credentials. So
//! any page could write, open watches and WebSockets, or have large lists sent. Browsers send the page's origin in
//! `Origin` and its relation to the server in `Sec-Fetch-Site`; pages can set neither. Programs send neither, and fabric8
//! sends the server's own origin. Older browsers send neither with reads, whose responses a page cannot see without CORS
//! headers.
//!
//! A link that opens a document is followed, because its page does not see the document, unless it leads to a pod or
//! service, whose GET may have an effect.

use http::{HeaderMap, HeaderName, Method, Request, header};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Returns true if a page of another site may have sent this request.
pub fn is_foreign<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let own = request.uri().authority().map(http::uri::Authority::as_str).or_else(|| text(headers, &header::HOST));
    let is_own = |origin: &[u8]| own.is_some_and(|own| std::str::from_utf8(origin).is_ok_and(|it| is_at(it, own)));
    let from_here = |site: &[u8]| matches!(site, b"same-origin" | b"none");
    let all = |name: &HeaderName, holds: &dyn Fn(&[u8]) -> bool| {
        headers.get_all(name).iter().all(|value| holds(value.as_bytes()))
    };
    let is_from_here = all(&header::ORIGIN, &is_own) && all(&SEC_FETCH_SITE, &from_here);
    !(is_from_here || opens_document(request))
}

/// Returns true if the browser opens the response as a document of its own, for a link or a bookmark.
fn opens_document<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let is = |name: &HeaderName, value: &str| text(headers, name) == Some(value);
    let has_origin = headers.contains_key(header::ORIGIN) || headers.contains_key(header::UPGRADE);
    *request.method() == Method::GET
        && is(&SEC_FETCH_MODE, "navigate")
        && is(&SEC_FETCH_DEST, "document")
        && !has_origin
        && !request.uri().path().contains("proxy")
        && !request.uri().path().contains('%')
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns true if pages of `origin` come from the server that its clients call `host`. The scheme's default port may
/// be omitted.
fn is_at(origin: &str, host: &str) -> bool {
    let (there, port) = match origin.split_once("://") {
        Some(("http", there)) => (there, ":80"),
        Some(("https", there)) => (there, ":443"),
        // `null`: a page without an origin, such as a file or a sandboxed frame.
        Some(_) | None => return false,
    };
    let bare = |host: &str| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
    bare(there) == bare(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let builder = Request::builder().method(method).uri(path).header("host", "localhost:8001");
        headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value)).body(()).unwrap()
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        for (headers, foreign) in [
            (&[][..], false),
            (&[("origin", "http://localhost:8001")], false),
            (&[("origin", "http://LOCALHOST:8001"), ("sec-fetch-site", "same-origin")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("origin", "http://localhost:8002")], true),
            (&[("origin", "http://127.0.0.1:8001")], true),
            (&[("origin", "https://evil.example")], true),
            (&[("origin", "null")], true),
            (&[("origin", "")], true),
            (&[("origin", "http://localhost:8001"), ("origin", "http://evil.example")], true),
            (&[("origin", "http://localhost:8001"), ("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "same-site")], true),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")], true),
        ] {
            for method in ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "BREW"] {
                assert_eq!(is_foreign(&request(method, "/api/v1/pods", headers)), foreign, "{method} {headers:?}");
            }
            let upgrade = [headers, &[("upgrade", "websocket")]].concat();
            assert_eq!(is_foreign(&request("GET", "/api/v1/pods", &upgrade)), foreign, "WebSocket {headers:?}");
        }
    }

    #[test]
    fn links_open_documents_without_effects() {
        let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        let frame = [link[0], link[1], ("sec-fetch-dest", "iframe")];
        for (method, path, headers, foreign) in [
            ("GET", "/metrics", &link[..], false),
            ("POST", "/metrics", &link, true),
            ("GET", "/metrics", &frame, true),
            ("GET", "/api/v1/namespaces/a/services/b/proxy/delete", &link, true),
            ("GET", "/api/v1/namespaces/a/services/b/%70roxy/delete", &link, true),
            ("GET", "/api/v1/pods?watch=1", &[&link[..], &[("upgrade", "websocket")]].concat(), true),
            ("GET", "/metrics", &[&link[..], &[("origin", "null")]].concat(), true),
        ] {
            assert_eq!(is_foreign(&request(method, path, headers)), foreign, "{method} {path} {headers:?}");
        }
    }

    #[test]
    fn the_port_of_a_scheme_may_be_left_out() {
        assert!(is_at("http://localhost", "localhost:80") && is_at("https://[::1]:443", "[::1]"));
        assert!(!is_at("http://localhost", "localhost:443") && !is_at("http://localhost:80", "localhost:8080"));
    }

    #[test]
    fn the_name_may_stand_in_the_uri() {
        let request = |origin: &str| {
            let request = Request::post("http://127.0.0.1:8001/api/v1/pods").header("origin", origin);
            request.body(()).unwrap()
        };
        assert!(!is_foreign(&request("http://127.0.0.1:8001")));
        assert!(is_foreign(&request("http://localhost:8001")));
    }
}
