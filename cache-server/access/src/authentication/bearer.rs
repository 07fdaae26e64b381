//! Bearer tokens in the headers of a request.
//!
//! Source: apiserver `authentication/request/bearertoken/bearertoken.go`, `authentication/request/websocket/protocol.go`.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// Prefix of the WebSocket subprotocol in which browsers send a bearer token.
pub const SUBPROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Error for credentials in headers that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BearerError {
    /// There are several Authorization headers, or several subprotocols with a token.
    #[error("there is more than one bearer token")]
    Several,
    /// A token in a subprotocol is not the base64 of a text.
    #[error("the token in the subprotocol is not base64 of a text")]
    Encoding,
    /// The subprotocol with the token is the only one: the server could choose none.
    #[error("missing additional subprotocol")]
    OnlySubprotocol,
}

/// Returns the token in the value of an Authorization header; `None` for another scheme or an empty token.
#[must_use]
pub fn of_authorization(value: &str) -> Option<&str> {
    let mut parts = value.trim().split(' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Returns the token among the subprotocols of a WebSocket handshake: the values of Sec-WebSocket-Protocol.
///
/// # Errors
/// [`BearerError`] if there is a token that cannot be used.
pub fn of_subprotocols<'a>(values: impl Iterator<Item = &'a str>) -> Result<Option<String>, BearerError> {
    let (mut token, mut has_other) = (None, false);
    for protocol in values.flat_map(|value| value.split(',')).map(str::trim) {
        let Some(encoded) = protocol.strip_prefix(SUBPROTOCOL_PREFIX) else {
            has_other = true;
            continue;
        };
        let decoded = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| BearerError::Encoding)?;
        let text = String::from_utf8(decoded).map_err(|_| BearerError::Encoding)?;
        if token.replace(text).is_some() {
            return Err(BearerError::Several);
        }
    }
    if token.is_some() && !has_other {
        return Err(BearerError::OnlySubprotocol);
    }
    Ok(token.filter(|token| !token.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_kube_apiserver_does() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bEARER abc def", Some("abc")),
            ("  Bearer abc  ", Some("abc")),
            ("Bearer  abc", None),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("", None),
        ] {
            assert_eq!(of_authorization(value), token, "{value:?}");
        }
    }

    #[test]
    fn browsers_send_tokens_as_subprotocols() {
        let bearer = |token: &str| format!("{SUBPROTOCOL_PREFIX}{}", URL_SAFE_NO_PAD.encode(token));
        let read = |values: &[&str]| of_subprotocols(values.iter().copied());
        let (one, two) = (bearer("abc"), bearer("def"));
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["v4.channel.k8s.io"]), Ok(None));
        assert_eq!(read(&[&one, "v4.channel.k8s.io"]), Ok(Some("abc".to_owned())));
        assert_eq!(read(&[&format!("x, {one}")]), Ok(Some("abc".to_owned())));
        assert_eq!(read(&[&one]), Err(BearerError::OnlySubprotocol));
        assert_eq!(read(&[&one, &two, "x"]), Err(BearerError::Several));
        assert_eq!(read(&["x", "base64url.bearer.authorization.k8s.io.*"]), Err(BearerError::Encoding));
    }
}
