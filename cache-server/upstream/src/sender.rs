//! Sends small requests of this server itself: to the API server with its own identity, and to issuers of tokens without
//! any.
//!
//! INVARIANT: an answer is read up to a bound, and within a time.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, StatusCode, Uri, header, uri::Scheme};
use http_body_util::{BodyExt as _, Limited};
use informer_core::text::Chain;
use kube::client::Body;
use tokio::time::timeout;

use super::{
    connect::{authorities, client, is_loopback, parse_url},
    error::{UpstreamError, without_user},
    last_answer::LastAnswer,
    own_requests::{AnswerBounds, OwnRequestError, SendOwn},
};

/// Clients of the addresses of one server, in order of preference.
#[derive(Clone)]
pub struct OwnRequests {
    clients: Vec<kube::Client>,
    /// Time of the last answer of the API server; `None` for another server.
    last_answer: Option<Arc<LastAnswer>>,
}

impl OwnRequests {
    /// `clients` have this server's own identity at the API server. `last_answer` is shared with all requests to it.
    pub const fn new(clients: Vec<kube::Client>, last_answer: Arc<LastAnswer>) -> Self {
        Self { clients, last_answer: Some(last_answer) }
    }

    /// Sends without any identity to the server of `url`, whose path and query are not used. `ca_file` has its
    /// authorities; `None`: those of the operating system.
    ///
    /// # Errors
    /// [`UpstreamError`] if the URL or the file cannot be used. Plain HTTP is used on loopback only: an attacker on the way
    /// could replace the keys.
    pub fn anonymous(url: &str, ca_file: Option<&Path>) -> Result<Self, UpstreamError> {
        let parsed = parse_url(url.split('?').next().unwrap_or(url))?;
        if parsed.scheme() == Some(&Scheme::HTTP) && !is_loopback(&parsed) {
            let problem = "keys that verify tokens are fetched over https only";
            return Err(UpstreamError::Url { url: without_user(url), problem });
        }
        let mut root = parsed.into_parts();
        root.path_and_query = Some("/".parse().expect("a path"));
        let mut config = kube::Config::new(Uri::from_parts(root).expect("a URL with another path"));
        config.root_cert = ca_file.map(authorities).transpose()?;
        config.root_cert_file = ca_file.map(Path::to_owned);
        Ok(Self { clients: vec![client(config, None)?], last_answer: None })
    }

    /// Sends to the first address that answers.
    async fn sent(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        bytes_max: usize,
    ) -> Result<(StatusCode, Bytes), OwnRequestError> {
        let mut failure = OwnRequestError::Failed("there is no address".to_owned());
        for client in &self.clients {
            let request = Request::builder()
                .method(&method)
                .uri(path)
                .header(header::CONTENT_TYPE, "application/json")
                // Keys have a media type of their own.
                .header(header::ACCEPT, "application/json, */*")
                .body(Body::from(body.to_vec()))
                .map_err(|error| OwnRequestError::Failed(error.to_string()))?;
            match client.send(request).await {
                Ok(answer) => {
                    let (head, body) = answer.into_parts();
                    return match Limited::new(body, bytes_max).collect().await {
                        Ok(body) => Ok((head.status, body.to_bytes())),
                        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(OwnRequestError::TooLong),
                        Err(error) => Err(OwnRequestError::Failed(error.to_string())),
                    };
                }
                Err(error) => failure = OwnRequestError::Failed(Chain(&error).to_string()),
            }
        }
        Err(failure)
    }
}

impl SendOwn for OwnRequests {
    fn send<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        body: Bytes,
        bounds: AnswerBounds,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), OwnRequestError>> {
        Box::pin(async move {
            if self.last_answer.as_ref().is_some_and(|last_answer| last_answer.silent_for().is_some()) {
                // It would take all of its time, and get no answer. A check finds out when the server is back.
                return Err(OwnRequestError::Silent);
            }
            let sending = self.sent(method, path, body, bounds.bytes_max);
            timeout(bounds.wait, sending).await.unwrap_or_else(|_| {
                self.last_answer.iter().for_each(|last_answer| last_answer.doubt());
                Err(OwnRequestError::Late)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        time::Instant,
    };

    use super::*;

    const BOUNDS: AnswerBounds = AnswerBounds { bytes_max: 1 << 20, wait: Duration::from_secs(2) };

    /// The answer of a server that sends `head`, and then `piece` for ever if it is not empty.
    async fn answer(head: &'static str, piece: &'static [u8]) -> Result<(StatusCode, Bytes), OwnRequestError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/ignored", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4 << 10];
            let count = stream.read(&mut request).await.unwrap();
            assert!(request[..count].starts_with(b"GET /keys?a=b HTTP/1.1\r\n"), "{request:?}");
            stream.write_all(head.as_bytes()).await.unwrap();
            while !piece.is_empty() && stream.write_all(piece).await.is_ok() {}
            // Silent, until the client leaves.
            let _ = stream.read(&mut request).await;
        });
        let requests = OwnRequests::anonymous(&url, None).unwrap();
        let answer = requests.send(Method::GET, "/keys?a=b", Bytes::new(), BOUNDS).await;
        serving.abort();
        answer
    }

    /// Goal: an issuer's server can neither hold a request nor fill the memory. Method: answers that are whole, missing,
    /// endless, and longer than the bound by their own account.
    #[tokio::test]
    async fn answers_are_bounded_in_length_and_time() {
        let whole = answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"").await;
        assert_eq!(whole, Ok((StatusCode::OK, Bytes::from_static(b"{}"))));
        let began = Instant::now();
        for head in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{"] {
            assert_eq!(answer(head, b"").await, Err(OwnRequestError::Late), "{head:?}");
        }
        assert!(began.elapsed() < 4 * BOUNDS.wait, "{:?}", began.elapsed());
        for head in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"] {
            assert_eq!(answer(head, &[b' '; 1 << 10]).await, Err(OwnRequestError::TooLong), "{head:?}");
        }
        let closed = OwnRequests::anonymous("http://127.0.0.1:1/", None).unwrap();
        let failure = closed.send(Method::GET, "/", Bytes::new(), BOUNDS).await.unwrap_err();
        assert!(matches!(failure, OwnRequestError::Failed(_)), "{failure}");
    }

    /// Goal: callers that only the API server knows are not delayed by one that hangs. Method: a server that answers nothing;
    /// the second question comes after a check has found that out.
    #[tokio::test]
    async fn a_silent_server_is_not_asked() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (last_answer, sent) = (Arc::<LastAnswer>::default(), Instant::now());
        let clients = OwnRequests::anonymous(&url, None).unwrap().clients;
        let requests = OwnRequests::new(clients, Arc::clone(&last_answer));
        let bounds = AnswerBounds { wait: Duration::from_millis(50), ..BOUNDS };
        let answer = requests.send(Method::GET, "/", Bytes::new(), bounds).await;
        assert_eq!(answer, Err(OwnRequestError::Late));
        last_answer.doubted().await;
        last_answer.miss(sent);
        assert_eq!(requests.send(Method::GET, "/", Bytes::new(), BOUNDS).await, Err(OwnRequestError::Silent));
    }

    #[tokio::test]
    async fn keys_are_fetched_over_https_beyond_this_machine() {
        for (url, is_used) in [
            ("https://issuer.example.com/keys", true),
            ("https://issuer.example.com/keys?policy=b", true),
            ("http://localhost:1/keys", true),
            ("http://[::1]:1/keys", true),
            ("http://issuer.example.com/keys", false),
            ("http://127.0.0.1.example.com/keys", false),
            ("https://user:password@issuer.example.com/", false),
            ("ftp://localhost/keys", false),
            ("keys", false),
        ] {
            assert_eq!(OwnRequests::anonymous(url, None).is_ok(), is_used, "{url}");
        }
    }
}
