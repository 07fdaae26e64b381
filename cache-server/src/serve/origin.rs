//! Refuses requests that a page of another site may have sent.
//!
//! The server requires no credentials, so any page in a browser on this machine could write. Browsers send the page's
//! origin in `Origin` and its relation to the server in `Sec-Fetch-Site`; pages can set neither. Programs send
//! neither, and fabric8 sends the server's own origin. Reads need no check: a page cannot see the responses without
//! CORS headers. WebSockets need one, because CORS does not apply to them.

use http::{HeaderMap, HeaderName, Method, Request, header};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns true if a page of another site may have sent this request, and it is a write or opens a WebSocket.
pub(super) fn is_foreign<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if reads && !headers.contains_key(header::UPGRADE) {
        return false;
    }
    let own = request.uri().authority().map(http::uri::Authority::as_str).or_else(|| text(headers, &header::HOST));
    let is_own = |origin: &[u8]| own.is_some_and(|own| std::str::from_utf8(origin).is_ok_and(|it| is_at(it, own)));
    let from_here = |site: &[u8]| matches!(site, b"same-origin" | b"none");
    let all = |name: &HeaderName, holds: &dyn Fn(&[u8]) -> bool| {
        headers.get_all(name).iter().all(|value| holds(value.as_bytes()))
    };
    !(all(&header::ORIGIN, &is_own) && all(&SEC_FETCH_SITE, &from_here))
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

    #[test]
    fn pages_of_other_sites_neither_write_nor_open_websockets() {
        let request = |method: &str, headers: &[(&str, &str)]| {
            let builder = Request::builder().method(method).uri("/api/v1/pods").header("host", "localhost:8001");
            headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value)).body(()).unwrap()
        };
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
        ] {
            for method in ["POST", "PUT", "PATCH", "DELETE", "BREW"] {
                assert_eq!(is_foreign(&request(method, headers)), foreign, "{method} {headers:?}");
            }
            assert!(!is_foreign(&request("GET", headers)), "GET {headers:?}");
            let upgrade = [headers, &[("upgrade", "websocket")]].concat();
            assert_eq!(is_foreign(&request("GET", &upgrade)), foreign, "WebSocket {headers:?}");
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
