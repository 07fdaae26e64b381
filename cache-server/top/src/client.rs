//! Reads the documents of one server over HTTP/1.1, in the clear or over TLS. Connects again by itself.
//!
//! INVARIANT: a token or a client certificate is sent over TLS, or on loopback, and never to another server: redirects
//! are not followed.

use std::{
    error::Error,
    fmt, fs,
    io::{self, Read as _},
    net::IpAddr,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header, uri::Scheme};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::time::timeout;

use crate::{
    limits::{TOKEN_BYTES_MAX, TOP_ANSWER_BYTES_MAX, TOP_ANSWER_WAIT, TOP_CONNECT_WAIT, WATCH_PAGE, WATCH_PAGES_MAX},
    reading::{self, Figures, HealthReport, ListedWatches, PartResult, ServerReading, clean},
};

/// Address of a server. Text form: `http://HOST:PORT` or `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopUrl {
    /// The scheme and `HOST:PORT`.
    base: String,
    is_https: bool,
    is_loopback: bool,
}

impl FromStr for TopUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "not the URL of a server; for example https://127.0.0.1:8001";
        let uri: Uri = text.parse().map_err(|_| FORM)?;
        let is_https = uri.scheme() == Some(&Scheme::HTTPS);
        let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or(FORM)?;
        let has_scheme = is_https || uri.scheme() == Some(&Scheme::HTTP);
        if !has_scheme || authority.as_str().contains('@') || uri.path() != "/" || uri.query().is_some() {
            return Err(FORM);
        }
        let host = authority.host();
        let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        let is_loopback = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        let base = format!("{}://{authority}", if is_https { "https" } else { "http" });
        Ok(Self { base, is_https, is_loopback })
    }
}

impl fmt::Display for TopUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

/// A server, and who reads it.
#[derive(Clone, Debug)]
pub struct TopServer {
    /// Its address.
    pub url: TopUrl,
    /// File with a bearer token, read again for each frame.
    pub token_file: Option<PathBuf>,
    /// PEM file with the authorities of the server's certificate; `None`: those of the system.
    pub authorities: Option<PathBuf>,
    /// PEM files of a client certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Reason why settings cannot be used: one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopSettingsError {
    /// A file cannot be read, or has unusable content.
    #[error("{}: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The token would be readable by others on the way.
    #[error("a token is sent over https:// or to loopback only")]
    TokenInClear,
    /// The authorities of the system, or the certificate with its key, cannot be used.
    #[error("TLS cannot be used: {0}")]
    Tls(String),
}

/// A client of one server.
pub(crate) struct TopClient {
    server: TopServer,
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
}

impl TopClient {
    /// Does not connect yet.
    pub(crate) fn new(server: TopServer) -> Result<Self, TopSettingsError> {
        if server.token_file.is_some() && !server.url.is_https && !server.url.is_loopback {
            return Err(TopSettingsError::TokenInClear);
        }
        token(&server)?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(TOP_CONNECT_WAIT));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls(&server)?).https_or_http().enable_http1();
        let connector = connector.wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Ok(Self { server, client })
    }

    /// Reads all documents.
    ///
    /// # Errors
    /// The server cannot be reached, or its answers broke: one line.
    pub(crate) async fn read(&self) -> PartResult<ServerReading> {
        let (code, health) = self.get("/readyz?verbose").await?;
        let health = match code {
            StatusCode::OK | StatusCode::INTERNAL_SERVER_ERROR => {
                Ok(HealthReport::read(code.as_u16(), &String::from_utf8_lossy(&health)))
            }
            code => Err(refusal(code, "/readyz")),
        };
        let figures = self.document("/metrics").await?;
        let figures = figures.map(|text| Figures::read(&String::from_utf8_lossy(&text)));
        let watches = self.watches().await?;
        let windows = self.document("/debug/snapshots").await?.and_then(|document| reading::windows(&document));
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Ok(ServerReading { at, health, figures, watches, windows })
    }

    async fn watches(&self) -> PartResult<PartResult<ListedWatches>> {
        let mut table = ListedWatches::default();
        let mut after = Some(0);
        for _ in 0..WATCH_PAGES_MAX {
            let Some(position) = after else { break };
            let page = self.document(&format!("/debug/watches?limit={WATCH_PAGE}&continue={position}")).await?;
            match page.and_then(|page| table.add(&page)) {
                Ok(next) => after = next,
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Ok(table))
    }

    /// Returns a document, or why the server refused it.
    async fn document(&self, path: &str) -> PartResult<PartResult<Bytes>> {
        let (code, body) = self.get(path).await?;
        let path = path.split('?').next().unwrap_or(path);
        Ok(if code == StatusCode::OK { Ok(body) } else { Err(refusal(code, path)) })
    }

    async fn get(&self, path: &str) -> PartResult<(StatusCode, Bytes)> {
        let mut request = Request::get(format!("{}{path}", self.server.url.base));
        if let Some(token) = token(&self.server).map_err(|error| clean(&error.to_string()))? {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.header(header::USER_AGENT, "cache-server-top").body(Empty::new());
        let request = request.map_err(|error| error.to_string())?;
        let answer = async {
            let answer = self.client.request(request).await.map_err(|error| cause(&error))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, TOP_ANSWER_BYTES_MAX).collect().await;
            Ok((head.status, body.map_err(|error| cause(&*error))?.to_bytes()))
        };
        let silent = |_| format!("no answer within {} s", TOP_ANSWER_WAIT.as_secs());
        timeout(TOP_ANSWER_WAIT, answer).await.map_err(silent)?
    }
}

/// Returns the reason of a refusal, in words.
fn refusal(code: StatusCode, path: &str) -> String {
    match code {
        StatusCode::UNAUTHORIZED => format!("401: the server does not know these credentials ({path})"),
        StatusCode::FORBIDDEN => format!("403: needs the right to get {path}"),
        StatusCode::NOT_FOUND => format!("404: this server has no {path}"),
        code => format!("the server answered {} to {path}", code.as_u16()),
    }
}

/// The innermost error's text.
fn cause(error: &(dyn Error + 'static)) -> String {
    let mut bottom = error;
    while let Some(next) = bottom.source() {
        bottom = next;
    }
    clean(&bottom.to_string())
}

/// Reads the header of the token.
fn token(server: &TopServer) -> Result<Option<HeaderValue>, TopSettingsError> {
    let Some(path) = &server.token_file else { return Ok(None) };
    let mut text = String::new();
    let file = fs::File::open(path).and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text));
    file.map_err(|error| unusable(path, &error))?;
    let value = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
    let mut value = value.map_err(|_| unusable(path, &io::Error::other("has no token")))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn unusable(path: &Path, reason: &dyn fmt::Display) -> TopSettingsError {
    TopSettingsError::File { path: path.to_owned(), reason: reason.to_string() }
}

fn tls(server: &TopServer) -> Result<ClientConfig, TopSettingsError> {
    let failed = |error: &dyn fmt::Display| TopSettingsError::Tls(error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| failed(&error))?;
    let builder = match &server.authorities {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| unusable(path, &error))?;
            }
            builder.with_root_certificates(roots)
        }
        // A machine without authorities can still be used in the clear.
        None if !server.url.is_https => builder.with_root_certificates(RootCertStore::empty()),
        None => builder.with_native_roots().map_err(|error| failed(&error))?,
    };
    let Some((chain, key)) = &server.certificate else { return Ok(builder.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
    builder.with_client_auth_cert(certificates(chain)?, key).map_err(|error| failed(&error))
}

/// Returns the certificates of a PEM file: at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TopSettingsError> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| unusable(path, &error))?;
    if all.is_empty() { Err(unusable(path, &"has no certificate")) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme_and_a_host() {
        for (text, base, is_loopback) in [
            ("http://127.0.0.1:8001", "http://127.0.0.1:8001", true),
            ("HTTPS://cache.example/", "https://cache.example", false),
            ("https://[::1]:8443", "https://[::1]:8443", true),
        ] {
            let url: TopUrl = text.parse().expect("a URL");
            assert_eq!((url.to_string().as_str(), url.is_loopback), (base, is_loopback), "{text}");
        }
        for text in
            ["", "127.0.0.1:8001", "ftp://a", "http://", "http://a:b@c", "http://a/api", "http://a?b", "http://a b"]
        {
            assert!(text.parse::<TopUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_does_not_leave_in_the_clear() {
        let server = TopServer {
            url: "http://cache.example:80".parse().expect("a URL"),
            token_file: Some("/nowhere".into()),
            authorities: None,
            certificate: None,
        };
        assert!(matches!(TopClient::new(server.clone()), Err(TopSettingsError::TokenInClear)));
        let near = TopServer { url: "http://127.0.0.1:80".parse().expect("a URL"), ..server };
        assert!(matches!(TopClient::new(near), Err(TopSettingsError::File { .. })), "its file is missing");
    }
}
