//! The program `etcd` of a folder for envtest: answers the question for its health until SIGTERM, and stores nothing.

use std::{
    convert::Infallible,
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, runtime::Runtime, time::sleep};

use super::{super::supervised, fail_input, flags::ProgramFlags};

/// Flags with an effect.
pub(super) const USED: &[&str] = &["listen-client-urls"];

/// Flags that envtest passes, without an effect here.
pub(super) const IGNORED: &[&str] = &["advertise-client-urls", "data-dir", "listen-peer-urls", "unsafe-no-fsync"];

pub(super) fn run(flags: &ProgramFlags, runtime: &Runtime) -> ExitCode {
    let urls: Vec<String> = flags.all("listen-client-urls").map(ToOwned::to_owned).collect();
    supervised(async |mut signals| {
        for url in urls {
            match listen(&url).await {
                Ok(listener) => drop(runtime.spawn(serve(listener))),
                Err(problem) => return fail_input(&format!("cannot listen on {url}: {problem}")),
            }
        }
        signals.next().await;
        ExitCode::SUCCESS
    })
}

async fn listen(url: &str) -> Result<TcpListener, String> {
    let parsed: Uri = url.parse().map_err(|_| "not a URL".to_owned())?;
    let (Some("http"), Some(host)) = (parsed.scheme_str(), parsed.host()) else { return Err("not http".to_owned()) };
    let host = host.trim_matches(['[', ']']);
    TcpListener::bind((host, parsed.port_u16().unwrap_or(2379))).await.map_err(|error| error.to_string())
}

/// Pause after a failed accept, so that a process without file descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until the runtime ends.
async fn serve(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service_fn(answer)));
            }
            Err(error) => {
                let _ = writeln!(io::stderr(), "etcd: connection accept failed: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (code, text) = match request.uri().path() {
        "/health" => (StatusCode::OK, r#"{"health":"true","reason":""}"#),
        "/version" => (StatusCode::OK, r#"{"etcdserver":"3.6.0","etcdcluster":"3.6.0"}"#),
        _ => (StatusCode::NOT_FOUND, ""),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Ok(response)
}
