//! Flags of `cache-server serve` for traces.

use clap::Args;
use http::{Uri, uri::Scheme};

use crate::config::TraceConfig;

/// Flags that trace requests.
#[derive(Debug, Args)]
#[command(next_help_heading = "Traces")]
pub(super) struct TraceFlags {
    /// Collector of OpenTelemetry that gets a span of each sampled request by OTLP over HTTP, such as
    /// http://collector:4318. Left out: OTEL_EXPORTER_OTLP_ENDPOINT, else no traces. Further variables OTEL_… set headers,
    /// names and the queue.
    #[arg(long, env = "CACHE_SERVER_OTLP_ENDPOINT", value_name = "URL", value_parser = endpoint)]
    otlp_endpoint: Option<String>,

    /// Requests in a million that begin a trace, if their clients name none. The others follow their client's traceparent.
    #[arg(
        long, env = "CACHE_SERVER_OTLP_SAMPLING_RATE_PER_MILLION", value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=1_000_000)
    )]
    otlp_sampling_rate_per_million: u32,
}

/// Checks the URL of a collector.
fn endpoint(text: &str) -> Result<String, String> {
    let uri: Uri = text.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let is_web = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&uri.scheme());
    let is_plain = uri.query().is_none() && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if is_web && is_plain { Ok(text.to_owned()) } else { Err("not a URL such as http://collector:4318".to_owned()) }
}

impl TraceFlags {
    /// Returns the settings; `None` if neither the flag nor the environment names a collector.
    pub(super) fn into_config(self) -> Option<TraceConfig> {
        let of_environment = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        (self.otlp_endpoint.is_some() || of_environment.into_iter().any(is_set)).then_some(TraceConfig {
            endpoint: self.otlp_endpoint,
            sampled_per_million: self.otlp_sampling_rate_per_million,
        })
    }
}
