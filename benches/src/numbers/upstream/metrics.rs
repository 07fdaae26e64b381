//! Reads Prometheus' text format.

use super::{Failure, row::SideRow};
use crate::{
    load::{client::Ask, failure::Failure as LoadFailure},
    numbers::{
        case::Unit,
        server::{Endpoint, runtime},
    },
};

/// Maximum bytes of a server's metrics.
const METRICS_BYTES_MAX: usize = 64 << 20;

/// Reads one metric of a server: the sum of its samples, whatever their labels.
pub(super) fn read(endpoint: &Endpoint, name: &str) -> Result<f64, Failure> {
    let found = sum(&text(endpoint)?, name, |_| true);
    found.ok_or_else(|| Failure::Server(format!("{} has no metric {name}", endpoint.url)))
}

/// Reads how many reviews of rights, users and tokens a kube-apiserver has answered since its start.
pub(super) fn reviews(endpoint: &Endpoint) -> Result<f64, Failure> {
    let is_review = |labels: &str| labels.contains("reviews\"");
    Ok(sum(&text(endpoint)?, "apiserver_request_total", is_review).unwrap_or(0.0))
}

/// The row of the reviews in a case whose kube-apiserver has both sides' clients.
pub(super) fn reviews_row(endpoint: &Endpoint) -> Result<SideRow, Failure> {
    Ok(SideRow::new(REVIEWS, Unit::Count, reviews(endpoint)?, None))
}

/// Name of a row with reviews.
pub(super) const REVIEWS: &str = "reviews of rights that kube-apiserver answered";

fn text(endpoint: &Endpoint) -> Result<String, Failure> {
    let target = endpoint.target()?;
    let body: Result<Vec<u8>, LoadFailure> = runtime()?.block_on(async {
        let mut connection = target.connect().await?;
        connection.send_well(&Ask::get("/metrics")).await?;
        connection.collect(METRICS_BYTES_MAX).await
    });
    Ok(String::from_utf8_lossy(&body?).into_owned())
}

/// Sum of a metric's samples with these labels; `None` if it has none.
fn sum(text: &str, name: &str, is_counted: impl Fn(&str) -> bool) -> Option<f64> {
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        // Other metrics may begin with this name.
        let is_whole = rest.starts_with(['{', ' ']);
        let (_, value) = rest.rsplit_once(' ').filter(|(labels, _)| is_whole && is_counted(labels))?;
        value.parse::<f64>().ok()
    });
    samples.reduce(|sum, sample| sum + sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_metric_are_summed() {
        let text = "# HELP sent_bytes x\n# TYPE sent_bytes counter\nsent_bytes{to=\"a b\"} 1.5e+03\nsent_bytes{to=\"b\"} 2\nsent_bytes_more 7\nplain 3\n";
        assert_eq!(sum(text, "sent_bytes", |_| true), Some(1502.0));
        assert_eq!(sum(text, "sent_bytes", |labels| labels.contains("\"b\"")), Some(2.0));
        assert_eq!(sum(text, "plain", |_| true), Some(3.0));
        assert_eq!(sum(text, "sent", |_| true), None);
    }
}
