//! Counters of an API server at one moment, from its metrics.

use std::collections::BTreeMap;

use cache_server_top::exposition::{MetricSample, samples};

/// Metrics at one moment.
///
/// kube-apiserver is a client of itself and counts its own watches and lists too, so tests compare two moments.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Counters {
    /// Reads Prometheus' text format. Skips comments and samples without a number.
    pub fn parse(text: &str) -> Self {
        let labels = |sample: &MetricSample<'_>| {
            sample.labels().map(|(name, value)| (name.to_owned(), value.into_owned())).collect()
        };
        let owned = |sample: MetricSample<'_>| Sample {
            name: sample.name.to_owned(),
            labels: labels(&sample),
            value: sample.value,
        };
        Self { samples: samples(text).map(owned).collect() }
    }

    /// Sum of the samples of one metric that have all these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let matches = |sample: &&Sample| {
            let has = |(name, value): &(&str, &str)| sample.labels.get(*name).is_some_and(|found| found == value);
            sample.name == name && labels.iter().all(has)
        };
        let sum: f64 = self.samples.iter().filter(matches).map(|sample| sample.value).sum();
        #[expect(clippy::cast_possible_truncation, reason = "counts are small")]
        let count = sum as u64;
        count
    }

    /// Watches of a resource that are open now.
    pub fn open_watches(&self, resource: &str) -> u64 {
        self.sum("apiserver_longrunning_requests", &[("verb", "WATCH"), ("resource", resource)])
    }

    /// Lists of a resource so far, whatever their answers.
    pub fn lists(&self, resource: &str) -> u64 {
        self.sum("apiserver_request_total", &[("verb", "LIST"), ("resource", resource)])
    }

    /// Streams of initial state of a resource that were sent so far.
    pub fn initial_streams(&self, resource: &str) -> u64 {
        self.sum("apiserver_watch_list_duration_seconds_count", &[("resource", resource)])
    }

    /// Initial events of a resource sent to watches so far.
    pub fn initial_events(&self, resource: &str) -> u64 {
        self.sum("apiserver_init_events_total", &[("resource", resource)])
    }
}
