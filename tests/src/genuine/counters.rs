//! Counters of an API server at one moment, from its metrics.

use std::collections::BTreeMap;

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
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(sample);
        Self { samples: samples.collect() }
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

/// `name{label="value",…} 1.5`, where the labels may be missing.
fn sample(line: &str) -> Option<Sample> {
    let (head, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = head.split_once('{').unwrap_or((head, ""));
    // Values of the metrics that tests read contain no commas and no escapes.
    let pairs = labels.trim_end_matches('}').split("\",").filter_map(|pair| pair.split_once("=\""));
    let labels = pairs.map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned())).collect();
    Some(Sample { name: name.to_owned(), labels, value })
}
