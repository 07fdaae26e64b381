//! This server's own token in a file, as client-go reads it: without white space around it, and again as it changes.
//!
//! kube sends the file's content as it is, so a line break at its end would fail each request; and it reads the file in
//! requests, which a disk that hangs would hold up.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use kube::config::AuthInfo;

use crate::error::UpstreamError;
use crate::watched::{FileWatcher, WatchedFile};

/// A file with a token, checked for changes until the last clone is dropped. A token that cannot be read any more stays in use.
#[derive(Clone)]
pub struct TokenFile(Arc<WatchedFile<HeaderValue, UpstreamError>>);

impl TokenFile {
    /// Takes the token file out of an identity in which it counts, for `files` to check; `None` if there is none, or
    /// another credential precedes it.
    ///
    /// # Errors
    /// [`UpstreamError`] if the file cannot be read, or holds no token.
    pub(super) async fn take(identity: &mut AuthInfo, files: &FileWatcher) -> Result<Option<Self>, UpstreamError> {
        let has_password = identity.username.is_some() && identity.password.is_some();
        if identity.auth_provider.is_some() || has_password || identity.token.is_some() {
            return Ok(None);
        }
        let Some(path) = identity.token_file.take().map(PathBuf::from) else { return Ok(None) };
        // As in kube, the file precedes a plugin, whose token would replace the file's.
        identity.exec = None;
        let named = path.clone();
        let unreadable = |path: &Path, source| UpstreamError::File { path: path.to_owned(), source };
        let parse = move |contents: Vec<Vec<u8>>| {
            header(&contents.concat()).map_err(|problem| UpstreamError::Content { path: named.clone(), problem })
        };
        Ok(Some(Self(Arc::new(WatchedFile::load_all(files, vec![path], unreadable, parse).await?))))
    }

    /// Sets the Authorization header.
    pub(super) fn set(&self, headers: &mut HeaderMap) {
        headers.insert(AUTHORIZATION, HeaderValue::clone(&self.0.current().0));
    }
}

fn header(text: &[u8]) -> Result<HeaderValue, &'static str> {
    let token = text.trim_ascii();
    if token.is_empty() {
        return Err("there is no token in it");
    }
    let header = HeaderValue::from_bytes(&[b"Bearer ", token].concat());
    let mut header = header.map_err(|_| "it holds characters that no token has")?;
    header.set_sensitive(true);
    Ok(header)
}
