//! The host names under which clients may address the server.
//!
//! Any process on this machine may be served without credentials, and a browser on it runs pages of foreign sites. A page
//! can resolve its own name to 127.0.0.1 (DNS rebinding), but cannot make the browser send another Host than that
//! name. Browsers send client certificates by themselves, so names count on every address.

use std::net::IpAddr;

use access_rules::authentication::certificate::ServerNames;
use http::{Request, header};

/// The names of this server.
#[derive(Clone, Copy)]
pub struct OwnNames<'a> {
    /// The address at which the client has reached it; `None` for a Unix socket.
    pub bound: Option<IpAddr>,
    /// Names of its certificate.
    pub certified: &'a ServerNames,
    /// Names of the settings.
    pub listed: &'a ServerNames,
}

/// Returns true if the request names this server: `localhost`, a loopback address, the address of the connection, or one
/// of its own names. A request without a name is not from a browser.
pub fn is_ours<B>(request: &Request<B>, own: OwnNames<'_>) -> bool {
    let headers = request.headers().get_all(header::HOST).iter();
    let named = headers.map(|value| value.to_str().is_ok_and(|host| is_allowed(host, own)));
    let authority = request.uri().authority().map(|authority| is_allowed(authority.as_str(), own));
    // All of them count: HTTP/2 sends `:authority`, and an HTTP/1 target may be absolute.
    named.chain(authority).all(|ours| ours)
}

fn is_allowed(host: &str, own: OwnNames<'_>) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback() || Some(address) == own.bound)
        || own.certified.contains(address)
        || own.listed.contains(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a server at `bound` with two further names.
    fn check(bound: &str, test: impl FnOnce(OwnNames<'_>)) {
        let certified = ServerNames::listed(&["*.pods.example.com".to_owned()]);
        let listed = ServerNames::listed(&["cache.example.com".to_owned(), "10.9.9.9".to_owned()]);
        test(OwnNames { bound: bound.parse().ok(), certified: &certified, listed: &listed });
    }

    #[test]
    fn only_our_own_names_are_answered() {
        check("10.1.2.3", |own| {
            for host in [
                "localhost",
                "localhost:8001",
                "LOCALHOST:1",
                "127.0.0.1:8001",
                "127.0.0.9",
                "[::1]:8001",
                "[::1]",
                "10.1.2.3:80",
                "cache.example.com:8001",
                "a.pods.example.com",
                "10.9.9.9",
            ] {
                assert!(is_allowed(host, own), "{host}");
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
                assert!(!is_allowed(host, own), "{host}");
            }
        });
    }

    #[test]
    fn every_name_in_a_request_counts() {
        check("127.0.0.1", |own| {
            let request = |uri: &str, hosts: &[&str]| {
                let builder = hosts.iter().fold(Request::get(uri), |builder, host| builder.header("host", *host));
                builder.body(()).unwrap()
            };
            assert!(is_ours(&request("/", &[]), own), "HTTP/1.0 needs no name");
            assert!(is_ours(&request("/", &["localhost:1"]), own));
            assert!(is_ours(&request("http://127.0.0.1:8001/", &[]), own));
            assert!(!is_ours(&request("/", &["evil.example"]), own));
            assert!(!is_ours(&request("/", &["localhost", "evil.example"]), own));
            assert!(!is_ours(&request("http://evil.example/", &["localhost"]), own));
        });
    }
}
