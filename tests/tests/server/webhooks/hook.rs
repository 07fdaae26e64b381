//! A webhook: an HTTPS server that answers as a test decides, and keeps the questions.

use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Mutex},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tests::tls::Authority;
use tokio::{net::TcpListener, task::JoinSet};

/// The answer of a webhook.
#[derive(Clone)]
pub(super) enum Reply {
    /// A review with this response, which gets the uid of the question unless it has one.
    Response(Value),
    /// A code and a body.
    Raw(u16, String),
    /// Nothing.
    Never,
}

impl Reply {
    /// Allows the write with a JSON patch.
    pub(super) fn patch(patch: &Value) -> Self {
        let patch = STANDARD.encode(patch.to_string());
        Self::Response(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
    }
}

type Decide = dyn Fn(&str, &Value) -> Reply + Send + Sync;
type Meanwhile = dyn Fn(Value) -> BoxFuture<'static, ()> + Send + Sync;

struct HookState {
    decide: Box<Decide>,
    meanwhile: Mutex<Option<Arc<Meanwhile>>>,
    /// Paths and questions, in order.
    seen: Mutex<Vec<(String, Value)>>,
}

/// A running webhook. Ends when it is dropped.
pub(super) struct Hook {
    port: u16,
    authority: Authority,
    /// Its own, in PEM.
    certificate: String,
    state: Arc<HookState>,
    _tasks: JoinSet<()>,
}

impl Hook {
    /// `decide` gets the path without its slash, and the question.
    pub(super) async fn start(decide: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::new();
        let files = authority.issue(folder.path());
        let acceptor = files.acceptor();
        let chain = std::fs::read_to_string(&files.cert).expect("a file");
        let certificate = chain.strip_suffix(&authority.pem()).expect("its issuer is the last one").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state =
            Arc::new(HookState { decide: Box::new(decide), meanwhile: Mutex::default(), seen: Mutex::default() });
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(Arc::clone(&state), request));
                    // An error means that the client left.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { port, authority, certificate, state, _tasks: tasks }
    }

    /// Runs `work` with each question from now on, before it is answered.
    pub(super) fn meanwhile<F>(&self, work: impl Fn(Value) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let work: Arc<Meanwhile> = Arc::new(move |question| Box::pin(work(question)));
        *self.state.meanwhile.lock().expect("no panic") = Some(work);
    }

    /// Paths and questions so far.
    pub(super) fn seen(&self) -> Vec<(String, Value)> {
        self.state.seen.lock().expect("no panic").clone()
    }

    /// The `clientConfig` of a webhook at a path, with empty segments such as envtest writes.
    pub(super) fn client_config(&self, path: &str) -> Value {
        self.config_by(path, &self.authority.pem())
    }

    /// Like [`client_config`](Self::client_config), with its own certificate in place of its issuer's.
    pub(super) fn config_by_itself(&self, path: &str) -> Value {
        self.config_by(path, &self.certificate)
    }

    fn config_by(&self, path: &str, bundle: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}//{path}/", self.port), "caBundle": STANDARD.encode(bundle)})
    }
}

async fn answer(state: Arc<HookState>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().strip_prefix('/').expect("a path").to_owned();
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let mut review: Value = serde_json::from_slice(&body).expect("a review");
    let question = review["request"].take();
    state.seen.lock().expect("no panic").push((path.clone(), question.clone()));
    let work = state.meanwhile.lock().expect("no panic").clone();
    if let Some(work) = work {
        work(question.clone()).await;
    }
    let (code, body) = match (state.decide)(&path, &question) {
        Reply::Response(mut response) => {
            if response["uid"].is_null() {
                response["uid"] = question["uid"].clone();
            }
            review["response"] = response;
            (200, review.to_string())
        }
        Reply::Raw(code, body) => (code, body),
        Reply::Never => pending().await,
    };
    Ok(Response::builder().status(code).body(body.into()).expect("a response"))
}
