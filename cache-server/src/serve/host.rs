//! The host names under which clients may address the server.
//!
//! Any process on this machine is served without credentials, and a browser on it runs pages of foreign sites. A page
//! can resolve its own name to 127.0.0.1 (DNS rebinding), but cannot make the browser send another Host than that
//! name.

use std::net::IpAddr;

use http::{Request, header};

/// Returns true if the request names this server: `localhost`, a loopback address, or the address it listens on. A
/// request without a name is not from a browser.
pub(super) fn is_ours<B>(request: &Request<B>, bound: IpAddr) -> bool {
    let headers = request.headers().get_all(header::HOST).iter();
    let named = headers.map(|value| value.to_str().is_ok_and(|host| is_allowed(host, bound)));
    let authority = request.uri().authority().map(|authority| is_allowed(authority.as_str(), bound));
    // All of them count: HTTP/2 sends `:authority`, and an HTTP/1 target may be absolute.
    named.chain(authority).all(|ours| ours)
}

fn is_allowed(host: &str, bound: IpAddr) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback() || address == bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_answered() {
        let bound = "10.1.2.3".parse().unwrap();
        for host in [
            "localhost",
            "localhost:8001",
            "LOCALHOST:1",
            "127.0.0.1:8001",
            "127.0.0.9",
            "[::1]:8001",
            "[::1]",
            "10.1.2.3:80",
        ] {
            assert!(is_allowed(host, bound), "{host}");
        }
        for host in [
            "",
            "example.com",
            "example.com:8001",
            "localhost.example.com",
            "127.0.0.1.example.com:80",
            "10.1.2.4",
            "a:b",
            "[::2]:80",
        ] {
            assert!(!is_allowed(host, bound), "{host}");
        }
    }

    #[test]
    fn every_name_in_a_request_counts() {
        let bound = "127.0.0.1".parse().unwrap();
        let request = |uri: &str, hosts: &[&str]| {
            let builder = hosts.iter().fold(Request::get(uri), |builder, host| builder.header("host", *host));
            builder.body(()).unwrap()
        };
        assert!(is_ours(&request("/", &[]), bound), "HTTP/1.0 needs no name");
        assert!(is_ours(&request("/", &["localhost:1"]), bound));
        assert!(is_ours(&request("http://127.0.0.1:8001/", &[]), bound));
        assert!(!is_ours(&request("/", &["evil.example"]), bound));
        assert!(!is_ours(&request("/", &["localhost", "evil.example"]), bound));
        assert!(!is_ours(&request("http://evil.example/", &["localhost"]), bound));
    }
}
