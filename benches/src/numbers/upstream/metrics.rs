//! Reads Prometheus' text format.

use super::Failure;
use crate::{
    load::{client::Ask, failure::Failure as LoadFailure},
    numbers::server::{Endpoint, runtime},
};

/// Maximum bytes of a server's metrics.
const METRICS_BYTES_MAX: usize = 64 << 20;

/// Reads one metric of a server: the sum of its samples, whatever their labels.
pub(super) fn read(endpoint: &Endpoint, name: &str) -> Result<f64, Failure> {
    let target = endpoint.target()?;
    let body: Result<Vec<u8>, LoadFailure> = runtime()?.block_on(async {
        let mut connection = target.connect().await?;
        connection.send_well(&Ask::get("/metrics")).await?;
        connection.collect(METRICS_BYTES_MAX).await
    });
    let text = String::from_utf8_lossy(&body?).into_owned();
    sum(&text, name).ok_or_else(|| Failure::Server(format!("{} has no metric {name}", endpoint.url)))
}

/// Sum of a metric's samples; `None` if it has none.
fn sum(text: &str, name: &str) -> Option<f64> {
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        // Other metrics may begin with this name.
        let is_whole = rest.starts_with(['{', ' ']);
        is_whole.then(|| rest.rsplit_once(' ')?.1.parse::<f64>().ok()).flatten()
    });
    samples.reduce(|sum, sample| sum + sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_metric_are_summed() {
        let text = "# HELP sent_bytes x\n# TYPE sent_bytes counter\nsent_bytes{to=\"a b\"} 1.5e+03\nsent_bytes{to=\"b\"} 2\nsent_bytes_more 7\nplain 3\n";
        assert_eq!(sum(text, "sent_bytes"), Some(1502.0));
        assert_eq!(sum(text, "plain"), Some(3.0));
        assert_eq!(sum(text, "sent"), None);
    }
}
