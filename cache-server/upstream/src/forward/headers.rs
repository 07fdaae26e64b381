//! Headers between a caller and the upstream: which of them pass, and which say who the caller is.
//!
//! INVARIANT: a header that says who the caller is always passes, or all of them are replaced. No header passes with which
//! a front proxy of the API server would name a user.
//!
//! Source: RFC 9110, section 7.6.1; apiserver `authentication/request/{headerrequest,websocket}`,
//! `endpoints/filters/impersonation`; client-go `transport/round_trippers.go`.

use access_rules::{authentication::bearer, user::User};
use http::{HeaderMap, HeaderName, HeaderValue, Version, header, request::Parts};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Headers that concern one connection only, besides those that `Connection` names.
const OF_ONE_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HTTP2_SETTINGS,
];

/// Beginnings of the headers in which the API server's front proxy names a user. The upstream believes them only with
/// that proxy's certificate, which is never sent with them.
const OF_FRONT_PROXIES: [&str; 4] = ["x-remote-user", "x-remote-group", "x-remote-uid", "x-remote-extra-"];

const IMPERSONATE: &str = "impersonate-";
const USER: HeaderName = HeaderName::from_static("impersonate-user");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Returns the headers that say who a caller is: Authorization and Impersonate-*. A bearer token in a subprotocol of a
/// WebSocket becomes an Authorization header, because the upstream accepts it only with an upgrade.
pub fn credentials(headers: &HeaderMap) -> HeaderMap {
    let mut found = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| is_credential(name)) {
        found.append(name, value.clone());
    }
    let is_websocket =
        has_token(headers, &header::CONNECTION, "upgrade") && has_token(headers, &header::UPGRADE, "websocket");
    if is_websocket
        && !found.contains_key(header::AUTHORIZATION)
        && let Some(authorization) = websocket_token(headers)
    {
        found.insert(header::AUTHORIZATION, authorization);
    }
    found
}

/// Returns the bearer token that a WebSocket handshake carries, as an Authorization header. `None` if there is none that
/// the API server accepts.
fn websocket_token(headers: &HeaderMap) -> Option<HeaderValue> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let token = bearer::of_subprotocols(values).ok()??;
    let mut authorization = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    authorization.set_sensitive(true);
    Some(authorization)
}

/// An attribute of a user that no header can hold as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its name, uid, groups or extra attributes do not fit into headers")]
pub struct ImpersonationError;

/// Returns the headers with which this server's own account acts as `user`: exactly its name, uid, groups and extra
/// attributes.
///
/// # Errors
/// [`ImpersonationError`] for an attribute that the API server would read differently: it trims values.
pub fn user_headers(user: &User) -> Result<HeaderMap, ImpersonationError> {
    let mut headers = HeaderMap::new();
    headers.insert(USER, value(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert(UID, value(&user.uid)?);
    }
    for group in &user.groups {
        headers.append(GROUP, value(group)?);
    }
    for (key, texts) in &user.extra {
        let name = HeaderName::try_from(format!("{EXTRA_PREFIX}{}", escaped(key))).map_err(|_| ImpersonationError)?;
        for text in texts {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(headers)
}

/// The value of a header that is read as this very text.
fn value(text: &str) -> Result<HeaderValue, ImpersonationError> {
    if text.is_empty() || text.trim() != text {
        return Err(ImpersonationError);
    }
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| ImpersonationError)
}

/// Escapes a key for the name of a header: the API server reads it in lower case before it decodes `%41`.
fn escaped(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    key.bytes().map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") }).collect()
}

/// Replaces all credentials of a caller by `own`, those of this server with the user to act as.
pub(super) fn act_as(headers: &mut HeaderMap, own: &HeaderMap) {
    let credentials: Vec<HeaderName> = headers.keys().filter(|name| is_credential(name)).cloned().collect();
    for name in credentials {
        headers.remove(name);
    }
    // A token of this server's own file must not leave it.
    let protocols = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let protocols = protocols.flat_map(|value| value.split(',')).map(str::trim);
    let remaining: Vec<&str> = protocols.filter(|protocol| !protocol.starts_with(bearer::SUBPROTOCOL_PREFIX)).collect();
    let remaining = HeaderValue::from_str(&remaining.join(", ")).ok().filter(|remaining| !remaining.is_empty());
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if let Some(remaining) = remaining {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, remaining);
    }
    for (name, value) in own {
        headers.append(name, value.clone());
    }
}

fn is_credential(name: &HeaderName) -> bool {
    *name == header::AUTHORIZATION || name.as_str().starts_with(IMPERSONATE)
}

/// Returns the protocol to which a request wants to change its connection. HTTP/1.0 and HTTP/2 have no such upgrade.
/// `h2c` is none: it would hide requests in a tunnel, and servers may ignore it.
pub(super) fn upgrade(parts: &Parts) -> Option<HeaderValue> {
    let upgrade = parts.headers.get(header::UPGRADE)?;
    let is_requested = parts.version == Version::HTTP_11 && has_token(&parts.headers, &header::CONNECTION, "upgrade");
    (is_requested && !has_token(&parts.headers, &header::UPGRADE, "h2c")).then(|| upgrade.clone())
}

/// Returns the headers of a request that the upstream gets, without Host.
pub(super) fn of_request(parts: &Parts) -> HeaderMap {
    let mut headers = end_to_end(&parts.headers);
    headers.remove(header::HOST);
    let named: Vec<HeaderName> = headers
        .keys()
        .filter(|name| OF_FRONT_PROXIES.iter().any(|beginning| name.as_str().starts_with(beginning)))
        .cloned()
        .collect();
    for name in named {
        headers.remove(name);
    }
    join_cookies(&mut headers);
    headers
}

/// HTTP/2 may split cookies into several headers, and HTTP/1.1 may not.
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, joined);
    }
}

/// Returns the headers of a response that the caller gets.
pub(super) fn of_response(headers: &HeaderMap) -> HeaderMap {
    end_to_end(headers)
}

/// Adds the headers of an upgrade to `upgrade`.
pub(super) fn insert_upgrade(headers: &mut HeaderMap, upgrade: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, upgrade);
}

/// Returns the headers that are not of one hop. A client may not have its own identity removed by naming it in
/// Connection: a proxy before us may have added it.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    let is_named = |name: &HeaderName| named.iter().any(|token| token.eq_ignore_ascii_case(name.as_str()));
    let mut passed = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if !OF_ONE_HOP.contains(name) && (!is_named(name) || is_credential(name)) {
            passed.append(name, value.clone());
        }
    }
    passed
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.split(',').any(|it| it.trim().eq_ignore_ascii_case(token)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let builder = http::Request::get("/");
        let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        builder.body(()).unwrap().into_parts().0
    }

    fn names(headers: &HeaderMap) -> Vec<String> {
        let mut names: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        names.sort();
        names
    }

    #[test]
    fn headers_of_one_hop_stay_on_it() {
        let passed = of_request(&parts(&[
            ("connection", "keep-alive, X-Mine"),
            ("connection", "x-second,Authorization, impersonate-user"),
            ("x-mine", "1"),
            ("x-second", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic eA=="),
            ("te", "trailers"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABkAAQCAAAAAAIAAAAA"),
            ("host", "localhost:8001"),
            ("authorization", "Bearer t"),
            ("impersonate-user", "jane"),
            ("accept-encoding", "gzip"),
            ("x-forwarded-for", "10.0.0.1"),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("tracestate", "vendor=1"),
            ("warning", "a"),
            ("warning", "b"),
        ]));
        let expected = [
            "accept-encoding: gzip",
            "authorization: Bearer t",
            "impersonate-user: jane",
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "tracestate: vendor=1",
            "warning: a",
            "warning: b",
            "x-forwarded-for: 10.0.0.1",
        ];
        assert_eq!(names(&passed), expected);
    }

    #[test]
    fn a_caller_is_no_front_proxy() {
        let passed = of_request(&parts(&[
            ("X-Remote-User", "admin"),
            ("X-Remote-Group", "system:masters"),
            ("X-Remote-Uid", "1"),
            ("X-Remote-Extra-Scopes", "all"),
            ("x-remote-addr", "kept"),
        ]));
        assert_eq!(names(&passed), ["x-remote-addr: kept"]);
    }

    #[test]
    fn cookies_of_http2_become_one_header() {
        assert_eq!(names(&of_request(&parts(&[("cookie", "a=1"), ("cookie", "b=2")]))), ["cookie: a=1; b=2"]);
    }

    #[test]
    fn credentials_are_found_wherever_a_client_puts_them() {
        let handshake = [("connection", "Upgrade"), ("upgrade", "websocket")];
        let protocol = |value| ("sec-websocket-protocol", value);
        for (more, expected) in [
            (&[("authorization", "Bearer t"), ("accept", "*/*")][..], &["authorization: Bearer t"][..]),
            (
                &[("impersonate-user", "a"), ("impersonate-group", "b"), ("impersonate-group", "c")],
                &["impersonate-group: b", "impersonate-group: c", "impersonate-user: a"],
            ),
            (
                &[protocol("base64.binary.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0")],
                &["authorization: Bearer secret"],
            ),
            (
                &[("authorization", "Bearer t"), protocol("base64url.bearer.authorization.k8s.io.c2VjcmV0")],
                &["authorization: Bearer t"],
            ),
            (&[protocol("base64url.bearer.authorization.k8s.io.YQ,base64url.bearer.authorization.k8s.io.YQ")], &[]),
            (&[protocol("base64url.bearer.authorization.k8s.io.!")], &[]),
        ] {
            let all = [&handshake[..], more].concat();
            assert_eq!(names(&credentials(&parts(&all).headers)), expected, "{more:?}");
        }
        let no_handshake = parts(&[protocol("base64url.bearer.authorization.k8s.io.c2VjcmV0")]);
        assert!(credentials(&no_handshake.headers).is_empty(), "the API server reads it only with an upgrade");
    }

    /// Goal: the API server reads exactly the user that was authenticated here, or the request is refused. Method: attributes
    /// with characters that headers change, or cannot have.
    #[test]
    fn a_user_is_named_exactly_or_not_at_all() {
        let user = |name: &str| User { name: name.to_owned(), ..User::default() };
        let extra =
            |key: &str, value: &str| User { extra: [(key.to_owned(), vec![value.to_owned()])].into(), ..user("a") };
        let groups = ["dev".to_owned(), "system:authenticated".to_owned()];
        let alice = User { uid: "1".to_owned(), groups: groups.into(), ..extra("example.com/Scope_é", "x y") };
        assert_eq!(
            names(&user_headers(&alice).unwrap()),
            [
                "impersonate-extra-example.com%2f%53cope_%c3%a9: x y",
                "impersonate-group: dev",
                "impersonate-group: system:authenticated",
                "impersonate-uid: 1",
                "impersonate-user: a",
            ],
        );
        assert_eq!(user_headers(&user("ali ce")).unwrap()[USER], "ali ce");
        assert_eq!(user_headers(&user("älice")).unwrap()[USER].as_bytes(), "älice".as_bytes());
        for wrong in [
            user(""),
            user("alice "),
            user("\talice"),
            user("alice\u{a0}"),
            user("a\r\nImpersonate-Group: system:masters"),
            User { groups: vec![String::new()], ..user("a") },
            User { groups: vec![" system:masters".to_owned()], ..user("a") },
            User { uid: " ".to_owned(), ..user("a") },
            extra("a", "b\n"),
        ] {
            assert_eq!(user_headers(&wrong), Err(ImpersonationError), "{wrong:?}");
        }
    }

    #[test]
    fn no_credential_of_a_caller_passes_beside_our_own() {
        let mut passed = of_request(&parts(&[
            ("authorization", "Bearer local"),
            ("impersonate-user", "admin"),
            ("impersonate-group", "system:masters"),
            ("impersonate-extra-scopes", "all"),
            ("connection", "impersonate-user"),
            ("sec-websocket-protocol", "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.bG9jYWw"),
            ("accept", "*/*"),
        ]));
        let own = parts(&[("authorization", "Bearer own"), ("impersonate-user", "alice")]).headers;
        act_as(&mut passed, &own);
        assert_eq!(
            names(&passed),
            [
                "accept: */*",
                "authorization: Bearer own",
                "impersonate-user: alice",
                "sec-websocket-protocol: v4.channel.k8s.io"
            ],
        );
    }

    #[test]
    fn only_http_1_1_upgrades_and_never_to_another_http() {
        let asks = |headers: &[(&str, &str)]| upgrade(&parts(headers));
        assert_eq!(asks(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]).unwrap(), "SPDY/3.1");
        assert_eq!(asks(&[("connection", "keep-alive, upgrade"), ("upgrade", "websocket")]).unwrap(), "websocket");
        for headers in [
            &[("upgrade", "websocket")][..],
            &[("connection", "upgrade")],
            &[("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c")],
        ] {
            assert_eq!(asks(headers), None, "{headers:?}");
        }
        let mut two = parts(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
        two.version = Version::HTTP_2;
        assert_eq!(upgrade(&two), None);
    }
}
