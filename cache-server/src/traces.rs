//! Spans of requests, which a collector of OpenTelemetry gets by OTLP over HTTP.
//!
//! INVARIANT: a span has no path, query, object or error text of a request, and of its headers only the User-Agent.
//! INVARIANT: no request waits for the collector. Spans wait in the bounded queue of the exporter's thread, and further ones
//! are dropped.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Version, request::Parts};
use hyper_rustls::HttpsConnectorBuilder;
use opentelemetry::{
    Context, Key, KeyValue,
    propagation::TextMapPropagator as _,
    trace::{
        Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, TraceState, Tracer as _, TracerProvider as _,
    },
};
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError, hyper::HyperClient};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{Sampler, SdkTracer, SdkTracerProvider, Span},
};
use rustls::crypto::ring;
use tokio::{runtime::Handle, time::Instant};

use crate::{
    access::RequestContext,
    config::{Config, TraceConfig},
    limits::LOGGED_CHARS_MAX,
};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Longest time that the shutdown waits for the collector, within the grace period. Spans that are left are lost.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

/// Timeout of one request to the collector. Meanwhile spans wait in the queue of the exporter, and those that find it full
/// are lost: 2,048 spans, `OTEL_BSP_MAX_QUEUE_SIZE`.
const EXPORT_WAIT: Duration = Duration::from_secs(30);

/// Name of the service, unless the environment has another one.
const SERVICE: &str = "cache-server";

/// Makes the spans of requests.
#[derive(Default)]
pub(crate) struct Traces(Option<RequestTracer>);

struct RequestTracer {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    /// True if requests without a parent may have spans.
    has_roots: bool,
}

impl Traces {
    /// Starts the exporter of the settings, if they name a collector. Needs a tokio runtime, on which spans are sent.
    ///
    /// # Errors
    /// The address, or a variable `OTEL_…`, cannot be used.
    pub(crate) fn open(config: &Config) -> Result<Self, String> {
        let Some(config) = &config.traces else { return Ok(Self(None)) };
        let rate = f64::from(config.sampled_per_million) / 1e6;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter(config)?)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(rate))))
            .with_resource(resource())
            .build();
        let tracer = provider.tracer(SERVICE);
        Ok(Self(Some(RequestTracer { provider, tracer, has_roots: config.sampled_per_million > 0 })))
    }

    /// Begins the span of a request, and makes it the parent of what an upstream does for it. Without a span the headers
    /// pass unchanged.
    pub(crate) fn begin(&self, parts: &mut Parts) -> RequestSpan {
        let Some(RequestTracer { tracer, has_roots, .. }) = &self.0 else { return RequestSpan(None) };
        let parent = parent(parts);
        let is_root = parent.is_none();
        if !parent.as_ref().map_or(*has_roots, SpanContext::is_sampled) {
            return RequestSpan(None);
        }
        let context = parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
        let builder = tracer.span_builder("").with_kind(SpanKind::Server);
        let span = builder.start_with_context(tracer, &context);
        if !span.is_recording() {
            return RequestSpan(None);
        }
        let own = span.span_context();
        let value = format!("00-{}-{}-01", own.trace_id(), own.span_id());
        let value = HeaderValue::from_str(&value).expect("hexadecimal digits and dashes are a header");
        parts.headers.insert(TRACEPARENT, value);
        if is_root {
            // That of another trace, or of none.
            parts.headers.remove(TRACESTATE);
        }
        RequestSpan(Some(Box::new(span)))
    }

    /// Sends what is left, until `deadline`, and for at most [`FLUSH_WAIT`].
    pub(crate) async fn shut_down(&self, deadline: Instant) {
        let Some(RequestTracer { provider, .. }) = &self.0 else { return };
        let (provider, wait) = (provider.clone(), deadline.saturating_duration_since(Instant::now()).min(FLUSH_WAIT));
        // An error means that the collector has not answered in time, or a panic of the exporter.
        let _ = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(wait)).await;
    }
}

/// Returns the parent that the client named. Its `tracestate` goes to an upstream as it is, and is not kept with the span.
fn parent(parts: &Parts) -> Option<SpanContext> {
    if !parts.headers.contains_key(TRACEPARENT) {
        return None;
    }
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &HeaderExtractor(&parts.headers));
    let (span, state) = (context.span().span_context().clone(), TraceState::NONE);
    span.is_valid().then(|| SpanContext::new(span.trace_id(), span.span_id(), span.trace_flags(), true, state))
}

/// The span of a request, which ends when it is dropped. `None`: it is not sampled.
#[derive(Default)]
pub(crate) struct RequestSpan(Option<Box<Span>>);

impl RequestSpan {
    /// Names the request. `verb` and `resource` are those of logs and metrics.
    pub(crate) fn describe(&mut self, verb: &'static str, resource: &str, parts: &Parts, context: &RequestContext) {
        let Some(span) = &mut self.0 else { return };
        span.update_name(format!("{verb} {resource}").trim_end().to_owned());
        let version = match parts.version {
            Version::HTTP_2 => "2",
            Version::HTTP_10 => "1.0",
            _ => "1.1",
        };
        let attributes = [
            ("http.request.method", parts.method.as_str()),
            ("network.protocol.version", version),
            ("user_agent.original", user_agent(parts)),
            ("audit-id", context.id.to_str().unwrap_or_default()),
            ("verb", verb),
            ("resource", resource),
            ("namespace", context.info.resource.as_ref().map_or("", |of| &of.namespace)),
        ];
        for (name, value) in attributes.into_iter().filter(|(_, value)| !value.is_empty()) {
            let value: String = value.chars().take(LOGGED_CHARS_MAX).collect();
            span.set_attribute(KeyValue::new(name, value));
        }
    }

    /// Notes the status of the answer.
    pub(crate) fn answered(&mut self, code: StatusCode) {
        let Some(span) = &mut self.0 else { return };
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(code.as_u16())));
        if code.is_server_error() {
            span.set_attribute(KeyValue::new("error.type", code.as_str().to_owned()));
            span.set_status(Status::error(""));
        }
    }

    /// Notes the bytes of the body that were handed to the connection.
    pub(crate) fn sent(&mut self, bytes: u64) {
        let Some(span) = &mut self.0 else { return };
        span.set_attribute(KeyValue::new("http.response.body.size", i64::try_from(bytes).unwrap_or(i64::MAX)));
    }

    /// Notes why a watch ended, or a request without an answer.
    pub(crate) fn ended(&mut self, cause: &'static str) {
        let Some(span) = &mut self.0 else { return };
        span.set_attribute(KeyValue::new("cause", cause));
    }
}

fn user_agent(parts: &Parts) -> &str {
    parts.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The service as the collector knows it: by `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`.
fn resource() -> Resource {
    let version = || Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let named = version().build();
    let name = named.get(&Key::from_static_str("service.name"));
    // The crate's own default, which names the program's file.
    let is_unnamed = name.is_none_or(|name| name.as_str().starts_with("unknown_service"));
    if is_unnamed { version().with_service_name(SERVICE).build() } else { named }
}

fn exporter(config: &TraceConfig) -> Result<SpanExporter, String> {
    let client: Arc<dyn HttpClient> = match HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(ring::default_provider())
    {
        Ok(builder) => Arc::new(HyperClient::new(builder.https_or_http().enable_http1().build(), EXPORT_WAIT, None)),
        // A minimal image has none, and a collector in the cluster needs none.
        Err(error) => {
            tracing::warn!(%error, "no authorities for a collector over https");
            Arc::new(HyperClient::with_default_connector(EXPORT_WAIT, None))
        }
    };
    let client = CollectorClient { client, runtime: Handle::current(), is_lost: AtomicBool::new(false) };
    let mut builder = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary).with_http_client(client);
    if let Some(endpoint) = &config.endpoint {
        builder = builder.with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')));
    }
    builder.build().map_err(|error| error.to_string())
}

/// Sends spans on the server's runtime: the exporter's thread has none.
struct CollectorClient {
    client: Arc<dyn HttpClient>,
    runtime: Handle,
    /// True from a failure to the next success.
    is_lost: AtomicBool,
}

impl fmt::Debug for CollectorClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectorClient").finish_non_exhaustive()
    }
}

impl CollectorClient {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = Arc::clone(&self.client);
        let sent = self.runtime.spawn(async move { client.send_bytes(request).await }).await?;
        match &sent {
            Ok(response) if response.status().is_success() => {
                if self.is_lost.swap(false, Ordering::Relaxed) {
                    tracing::info!("trace export resumed");
                }
            }
            Ok(response) => self.note_failure(&RefusedError(response.status())),
            Err(error) => self.note_failure(&**error),
        }
        sent
    }

    /// Logs the first failure of an outage.
    fn note_failure(&self, error: &(dyn Error + 'static)) {
        if !self.is_lost.swap(true, Ordering::Relaxed) {
            tracing::warn!(error, "trace export failed");
        }
    }
}

impl HttpClient for CollectorClient {
    // As the macro `async_trait` writes it.
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.send(request))
    }
}

/// A refusal of the collector.
#[derive(Debug, thiserror::Error)]
#[error("the collector answered {0}")]
struct RefusedError(StatusCode);

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a span for each request of a sampled trace, and for as many others as the settings name; what an upstream gets
    /// has the span as its parent, or is unchanged. Method: each kind of parent with both rates.
    #[tokio::test(flavor = "multi_thread")]
    async fn spans_follow_their_parents() {
        const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
        let parent = |flags: &str| format!("00-{TRACE}-b7ad6b7169203331-{flags}");
        for (rate, incoming, is_sampled) in [
            (0, None, false),
            (1_000_000, None, true),
            (0, Some(parent("01")), true),
            (1_000_000, Some(parent("00")), false),
            (0, Some("not a parent".to_owned()), false),
            (1_000_000, Some("not a parent".to_owned()), true),
        ] {
            let config = TraceConfig { endpoint: Some("http://127.0.0.1:1".to_owned()), sampled_per_million: rate };
            let traces = Traces::open(&Config { traces: Some(config), ..Config::default() }).unwrap();
            let mut request = Request::get("/api/v1/pods").header(TRACESTATE, "vendor=1");
            if let Some(incoming) = &incoming {
                request = request.header(TRACEPARENT, incoming);
            }
            let mut parts = request.body(()).unwrap().into_parts().0;
            let RequestSpan(span) = traces.begin(&mut parts);
            let is_new = is_sampled && incoming.as_ref().is_none_or(|parent| !parent.contains(TRACE));
            assert_eq!(parts.headers.contains_key(TRACESTATE), !is_new, "{rate} {incoming:?}");
            let passed = parts.headers.get(TRACEPARENT).map(|value| value.to_str().unwrap());
            assert_eq!(span.is_some(), is_sampled, "{rate} {incoming:?}");
            match span {
                Some(span) => {
                    let (own, passed) = (span.span_context(), passed.unwrap());
                    assert!(passed.contains(&own.span_id().to_string()) && passed.ends_with("-01"), "{passed}");
                    assert_eq!(passed.contains(TRACE), !is_new);
                }
                None => assert_eq!(passed, incoming.as_deref()),
            }
            traces.shut_down(Instant::now()).await;
        }
    }
}
