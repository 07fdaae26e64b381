//! WebSocket handshakes, which fabric8 and browsers use for watches.
//!
//! INVARIANT: only a watch becomes a WebSocket. Every error before that is an ordinary HTTP/1.1 response.
//!
//! Differences from kube-apiserver, on purpose: no Origin is required, and the first of several subprotocols is chosen.
//!
//! Source: RFC 6455, section 4.2; `golang.org/x/net/websocket/hybi.go`; apiserver `endpoints/handlers/watch.go`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header, request::Parts};
use informer_serving::status::{Status, StatusExt as _};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::read::{body::Response, negotiate};

/// GUID that RFC 6455 has servers append to the client's key.
const SERVER_KEY: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Decoded length of a client's key.
const KEY_BYTES: usize = 16;

/// Protocol version of RFC 6455.
const VERSION: &str = "13";

/// Prefix of the subprotocol in which browsers send a bearer token. It is a credential, so the server never echoes it.
///
/// Source: apiserver `authentication/request/websocket/protocol.go`.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// A valid handshake.
#[derive(Debug)]
pub(super) struct Handshake {
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
}

impl Handshake {
    /// Reads the handshake of a request; `None` if it requests no WebSocket. HTTP/1.0 and HTTP/2 have no such upgrade.
    /// `is_stream` is true for requests that kube-apiserver serves over WebSockets: watches and connections to pods.
    ///
    /// # Errors
    /// 400 for an invalid handshake.
    pub(super) fn read(parts: &Parts, is_stream: bool, has_body: bool) -> Result<Option<Self>, Status> {
        let headers = &parts.headers;
        let is_upgrade =
            has_token(headers, header::UPGRADE, "websocket") && has_token(headers, header::CONNECTION, "upgrade");
        if !is_upgrade || parts.version != Version::HTTP_11 {
            return Ok(None);
        }
        let key = headers.get(header::SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).unwrap_or_default().trim();
        let wrong = if !is_stream {
            "only watches are served over a WebSocket: this request is none"
        } else if parts.method != Method::GET || has_body {
            "a WebSocket handshake is a GET without a body"
        } else if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
            "the Sec-WebSocket-Version must be 13"
        } else if STANDARD.decode(key).map_or(0, |key| key.len()) != KEY_BYTES {
            "the Sec-WebSocket-Key must be 16 bytes in base64"
        } else {
            let accept = HeaderValue::from_str(&accept(key)).expect("base64 is a header");
            return Ok(Some(Self { accept, protocol: protocol(headers) }));
        };
        Err(Status::bad_request(wrong))
    }

    /// Turns the response of a watch into a WebSocket upgrade. Leaves errors unchanged.
    pub(super) fn accept(self, answer: Response) -> Response {
        if !answer.body().has_events() {
            return answer;
        }
        let (mut head, body) = answer.into_parts();
        head.status = StatusCode::SWITCHING_PROTOCOLS;
        // Content-Type describes an HTTP body, and a WebSocket has none.
        head.headers.remove(header::CONTENT_TYPE);
        head.headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        head.headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        if let Some(protocol) = self.protocol {
            head.headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        Response::from_parts(head, body)
    }
}

/// Computes Sec-WebSocket-Accept, which proves that the server read the client's key.
fn accept(key: &str) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{SERVER_KEY}").as_bytes()))
}

/// Chooses the first subprotocol that the client offers. No subprotocol changes how a watch is sent.
fn protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let offered = negotiate::joined(headers, header::SEC_WEBSOCKET_PROTOCOL);
    let mut offered = offered.split(',').map(str::trim);
    let chosen = offered.find(|protocol| !protocol.is_empty() && !protocol.starts_with(BEARER))?;
    HeaderValue::from_str(chosen).ok()
}

fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.split(',').any(|it| it.trim().eq_ignore_ascii_case(token)))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const KEY: (&str, &str) = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    const HANDSHAKE: [(&str, &str); 4] =
        [("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-version", "13"), KEY];

    fn parts(method: &str, headers: &[(&str, &str)]) -> Parts {
        let builder = Request::builder().method(method).uri("/");
        headers
            .iter()
            .fold(builder, |builder, (name, value)| builder.header(*name, *value))
            .body(())
            .unwrap()
            .into_parts()
            .0
    }

    /// The key and its accept value are the example of RFC 6455, section 1.3.
    #[test]
    fn a_handshake_is_accepted_with_the_proof_of_its_key() {
        let handshake = Handshake::read(&parts("GET", &HANDSHAKE), true, false).unwrap().unwrap();
        assert_eq!(handshake.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(handshake.protocol, None);
    }

    #[test]
    fn only_a_request_to_upgrade_is_a_handshake() {
        let tokens = [("upgrade", "h2c, WebSocket"), ("connection", "keep-alive, upgrade"), HANDSHAKE[2], KEY];
        assert!(Handshake::read(&parts("GET", &tokens), true, false).unwrap().is_some());
        for headers in [&HANDSHAKE[1..], &[HANDSHAKE[0], HANDSHAKE[2], KEY], &[("upgrade", "h2c"), HANDSHAKE[1]], &[]] {
            assert!(Handshake::read(&parts("GET", headers), true, false).unwrap().is_none(), "{headers:?}");
        }
        let mut old = parts("GET", &HANDSHAKE);
        old.version = Version::HTTP_10;
        assert!(Handshake::read(&old, true, false).unwrap().is_none());
    }

    #[test]
    fn handshakes_that_cannot_be_accepted_say_why() {
        let without = |at: usize, with: &[(&'static str, &'static str)]| {
            let others = HANDSHAKE.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, header)| *header);
            others.chain(with.iter().copied()).collect::<Vec<_>>()
        };
        for (method, headers, is_watch, has_body, text) in [
            ("GET", HANDSHAKE.to_vec(), false, false, "only watches"),
            ("GET", HANDSHAKE.to_vec(), true, true, "without a body"),
            ("POST", HANDSHAKE.to_vec(), true, false, "is a GET"),
            ("GET", without(2, &[]), true, false, "Version"),
            ("GET", without(2, &[("sec-websocket-version", "8")]), true, false, "Version"),
            ("GET", without(3, &[]), true, false, "Key"),
            ("GET", without(3, &[("sec-websocket-key", "c2hvcnQ=")]), true, false, "Key"),
            ("GET", without(3, &[("sec-websocket-key", "not base64 at all!!!")]), true, false, "Key"),
        ] {
            let status = Handshake::read(&parts(method, &headers), is_watch, has_body).unwrap_err();
            assert_eq!(status.code, 400);
            assert!(status.message.contains(text), "{}", status.message);
        }
    }

    #[test]
    fn a_token_in_a_subprotocol_is_not_sent_back() {
        for (offered, chosen) in [
            ("", None),
            ("base64.binary.k8s.io", Some("base64.binary.k8s.io")),
            ("a, b", Some("a")),
            ("base64url.bearer.authorization.k8s.io.c2VjcmV0, b", Some("b")),
            ("base64url.bearer.authorization.k8s.io.c2VjcmV0", None),
        ] {
            let parts = parts("GET", &[("sec-websocket-protocol", offered)]);
            assert_eq!(protocol(&parts.headers).as_ref().map(|it| it.to_str().unwrap()), chosen, "{offered}");
        }
    }
}
