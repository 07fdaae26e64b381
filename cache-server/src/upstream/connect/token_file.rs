//! This server's own token in a file, as client-go reads it: without white space around it, and again as it changes.
//!
//! kube sends the file's content as it is, so a line break at its end would fail each request.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use kube::config::AuthInfo;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::UpstreamError;
use crate::limits::UPSTREAM_TOKEN_AGE;

/// A file with a token. Clones share what was read.
#[derive(Clone)]
pub(crate) struct TokenFile {
    path: Arc<Path>,
    last: Arc<Mutex<ReadToken>>,
}

struct ReadToken {
    header: HeaderValue,
    at: Instant,
}

impl TokenFile {
    /// Takes the token file out of an identity in which it counts; `None` if there is none, or another credential precedes
    /// it.
    ///
    /// # Errors
    /// [`UpstreamError`] if the file cannot be read, or holds no token.
    pub(super) fn take(identity: &mut AuthInfo) -> Result<Option<Self>, UpstreamError> {
        let has_password = identity.username.is_some() && identity.password.is_some();
        if identity.auth_provider.is_some() || has_password || identity.token.is_some() {
            return Ok(None);
        }
        let Some(path) = identity.token_file.take().map(PathBuf::from) else { return Ok(None) };
        let last = ReadToken { header: read(&path)?, at: Instant::now() };
        Ok(Some(Self { path: path.into(), last: Arc::new(Mutex::new(last)) }))
    }

    /// Sets the Authorization header. Reads the file again if the last time is [`UPSTREAM_TOKEN_AGE`] ago; a token that
    /// cannot be read any more stays in use, as in client-go.
    pub(super) fn set(&self, headers: &mut HeaderMap) {
        let last = &mut *self.last.lock();
        if last.at.elapsed() >= UPSTREAM_TOKEN_AGE {
            last.at = Instant::now();
            match read(&self.path) {
                Ok(header) => last.header = header,
                Err(error) => tracing::warn!(%error, "upstream token reload failed"),
            }
        }
        headers.insert(AUTHORIZATION, last.header.clone());
    }
}

fn read(path: &Path) -> Result<HeaderValue, UpstreamError> {
    let content = |problem| UpstreamError::Content { path: path.to_owned(), problem };
    let text = super::read(path)?;
    let token = text.trim_ascii();
    if token.is_empty() {
        return Err(content("there is no token in it"));
    }
    let mut header = HeaderValue::from_bytes(&[b"Bearer ", token].concat())
        .map_err(|_| content("it holds characters that no token has"))?;
    header.set_sensitive(true);
    Ok(header)
}
