//! Prometheus metrics of a cluster's informers. Collected from the informers at each scrape, so that they cannot drift.
//!
//! INVARIANT: every label value is a resource type or one of a closed list, so the series do not grow with objects.
//!
//! ```no_run
//! # fn doc(cluster: &informer::Cluster) {
//! let mut registry = prometheus_client::registry::Registry::default();
//! informer::metrics::register(&mut registry, cluster);
//! # }
//! ```
//!
//! Every metric has the label `resource`: the plural of the type, with its group behind a dot if it has one (`pods`,
//! `deployments.apps`). All informers of one type in one [`Cluster`](crate::Cluster) form one series:
//!
//! - counters are summed, including informers that have ended;
//! - amounts (objects, bytes, informers in a state) are summed over running informers. Two informers that hold one
//!   object count it twice, because they store it twice;
//! - `informer_age_seconds` is the age of the oldest state, the one to worry about.
//!
//! | counter | label | meaning |
//! | --- | --- | --- |
//! | `informer_requests_total` | `kind` | requests: `initial` state, further `page`s, `watch`es, `proof`s |
//! | `informer_relists_total` | `cause` | requests for initial state by cause; `start` is the first |
//! | `informer_reconnects_total` | | watches opened from a known position, which cost a server little |
//! | `informer_initial_resumes_total` | | streams of initial state that resumed where an earlier one broke |
//! | `informer_syncs_total` | | initial states completed |
//! | `informer_fallbacks_total` | `cause` | fallbacks from streams to pages |
//! | `informer_failures_total` | `class` | failed responses |
//! | `informer_early_ends_total` | | responses that ended before they were healthy, which delays the next request |
//! | `informer_silences_total` | | responses closed after the idle timeout |
//! | `informer_events_total` | `kind` | `initial` objects, `change`s, `deletion`s, `bookmark`s, `ignored` events |
//! | `informer_received_bytes_total` | | body bytes of accepted responses |
//! | `informer_decode_errors_total` | | failed decodings; the objects are stored and delivered nevertheless |
//! | `informer_unreadable_total` | | objects left out because they have no name |
//! | `informer_skipped_total` | | objects skipped: too large, nested too deep or not JSON objects |
//! | `informer_history_resets_total` | | detected restores of the server to an older state |
//! | `informer_foreign_histories_total` | | detected replacements of the server by one with another history |
//! | `informer_endpoint_moves_total` | | moves of requests to another endpoint |
//! | `informer_refused_moves_total` | | endpoints left again because they lag or have another history |
//! | `informer_checkpoint_failures_total` | | failures to open or save a checkpoint |
//!
//! | gauge | label | meaning |
//! | --- | --- | --- |
//! | `informer_running` | | running informers |
//! | `informer_ready` | | running informers that have completed an initial state |
//! | `informer_polling` | | running informers that poll because watches are forbidden |
//! | `informer_disconnected` | | running informers whose request failed once ready, and nothing was confirmed since |
//! | `informer_on_fallback` | | running informers that use another endpoint than the preferred one |
//! | `informer_strategy` | `strategy` | running informers by their last request for initial state |
//! | `informer_age_seconds` | | time since the server last confirmed the stored state; a minute or two on a quiet type |
//! | `informer_store_objects` | | objects stored |
//! | `informer_store_bytes` | | bytes of the stored objects in their stored form, names included |
//!
//! Suggested alerts: `informer_ready < informer_running` or `informer_disconnected` above zero for minutes;
//! `informer_age_seconds` above 300; a rate of `informer_relists_total` above zero in quiet times.
//!
//! Raw streams and kube's watchers are not counted. To put several clusters into one registry, register each in its own
//! [`sub_registry_with_prefix`](Registry::sub_registry_with_prefix).

use std::{collections::BTreeMap, fmt, sync::Arc};

use informer_core::{
    reflector::{Class, FallBack, RelistCause},
    stats,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
    registry::{Registry, Unit},
};

use crate::{
    cluster::{ClusterOf, InformerState, RunningInformers},
    stats::{Stats, Strategy},
    status::InformerPhase,
};

/// Registers the current and future informers of `cluster` in `registry`. Does not keep informers running.
///
/// Cost: only at a scrape, some 60 numbers per resource type.
pub fn register<V>(registry: &mut Registry, cluster: &ClusterOf<V>) {
    registry.register_collector(Box::new(InformerCollector { informers: Arc::clone(cluster.state().running()) }));
}

#[derive(Debug)]
struct InformerCollector {
    informers: Arc<RunningInformers>,
}

/// Sums over all informers of one resource type.
#[derive(Default)]
struct TypeSums {
    /// Includes informers that have ended.
    counts: Stats,
    running: u64,
    ready: u64,
    polling: u64,
    disconnected: u64,
    on_fallback: u64,
    strategies: [u64; STRATEGIES.len()],
    age_seconds: Option<f64>,
    objects: u64,
    bytes: u64,
}

impl InformerCollector {
    fn types(&self) -> BTreeMap<String, TypeSums> {
        let (live, ended) = self.informers.read();
        let with_counts = |(resource, counts)| (resource, TypeSums { counts, ..TypeSums::default() });
        let mut types: BTreeMap<String, TypeSums> = ended.into_iter().map(with_counts).collect();
        for informer in live {
            types.entry(informer.resource().to_owned()).or_default().add(&informer);
        }
        types
    }
}

impl TypeSums {
    fn add(&mut self, informer: &InformerState) {
        let stats = informer.stats();
        self.counts += &stats;
        let progress = informer.progress.borrow();
        self.running += 1;
        self.ready += u64::from(progress.is_synced);
        self.polling += u64::from(progress.is_polling);
        self.disconnected += u64::from(progress.phase == InformerPhase::Disconnected);
        self.on_fallback += u64::from(progress.endpoint > 0);
        if let Some(strategy) = stats.strategy {
            self.strategies[strategy as usize] += 1;
        }
        let age = progress.age().map(|age| age.as_secs_f64());
        drop(progress);
        // `None` compares less than any age.
        self.age_seconds = if age > self.age_seconds { age } else { self.age_seconds };
        let now = informer.now.borrow();
        self.objects += now.objects.len() as u64;
        self.bytes += now.stored_bytes;
    }
}

/// A metric family; each series is a label value and a number.
struct Family<N> {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    label: Option<&'static str>,
    read: fn(&TypeSums) -> Vec<(&'static str, N)>,
}

impl<N> Family<N> {
    const fn new(name: &'static str, help: &'static str, read: fn(&TypeSums) -> Vec<(&'static str, N)>) -> Self {
        Self { name, help, unit: None, label: None, read }
    }

    fn by(self, label: &'static str) -> Self {
        Self { label: Some(label), ..self }
    }

    fn encode(
        &self,
        types: &BTreeMap<String, TypeSums>,
        encoder: &mut DescriptorEncoder<'_>,
        kind: MetricType,
        encode: impl Fn(&mut prometheus_client::encoding::MetricEncoder<'_>, &N) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), kind)?;
        for (resource, of) in types {
            for (value, number) in (self.read)(of) {
                let labels: Vec<(&str, &str)> =
                    [("resource", &**resource)].into_iter().chain(self.label.map(|label| (label, value))).collect();
                encode(&mut metric.encode_family(&labels)?, &number)?;
            }
        }
        Ok(())
    }
}

impl Collector for InformerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let types = self.types();
        for family in counters() {
            family.encode(&types, &mut encoder, MetricType::Counter, |metric, number| {
                metric.encode_counter::<NoLabelSet, u64, u64>(number, None)
            })?;
        }
        for family in gauges() {
            family.encode(&types, &mut encoder, MetricType::Gauge, |metric, number| metric.encode_gauge(number))?;
        }
        Ok(())
    }
}

fn counters() -> [Family<u64>; 19] {
    let bytes = Family::new("informer_received", "Body bytes of accepted answers.", |of| one(of.counts.bytes_received));
    [
        Family::new("informer_requests", "Requests sent, or about to be.", |of| requests(reflector(of))).by("kind"),
        Family::new("informer_relists", "Times initial state was asked for.", |of| {
            RelistCause::all().map(|cause| (cause.as_str(), reflector(of).relists(cause))).collect()
        })
        .by("cause"),
        Family::new("informer_reconnects", "Watches opened from a known position.", |of| one(reflector(of).resumes)),
        Family::new("informer_initial_resumes", "Streams of initial state that went on where one broke.", |of| {
            one(reflector(of).initial_resumes)
        }),
        Family::new("informer_syncs", "Times initial state was complete.", |of| one(reflector(of).syncs)),
        Family::new("informer_fallbacks", "Times streams were given up for pages.", |of| {
            FallBack::all().map(|cause| (cause.as_str(), reflector(of).fallbacks(cause))).collect()
        })
        .by("cause"),
        Family::new("informer_failures", "Answers that failed.", |of| {
            Class::all().map(|class| (class.as_str(), reflector(of).failures(class))).collect()
        })
        .by("class"),
        Family::new("informer_early_ends", "Answers that ended before they were healthy.", |of| {
            one(reflector(of).unhealthy_ends)
        }),
        Family::new("informer_silences", "Answers given up because nothing came for too long.", |of| {
            one(reflector(of).silences)
        }),
        Family::new("informer_events", "Objects and bookmarks received.", |of| events(reflector(of))).by("kind"),
        Family { unit: Some(Unit::Bytes), ..bytes },
        Family::new("informer_decode_errors", "Times an object did not decode.", |of| one(of.counts.undecodable)),
        Family::new("informer_unreadable", "Objects left out, without a name.", |of| one(of.counts.unreadable)),
        Family::new("informer_skipped", "Objects left out, too large, too deep or no objects.", |of| {
            one(of.counts.skipped)
        }),
        Family::new("informer_history_resets", "Times the server was found restored to an older state.", |of| {
            one(reflector(of).history_resets)
        }),
        Family::new("informer_foreign_histories", "Times the server was found to have another history.", |of| {
            one(reflector(of).foreign)
        }),
        Family::new("informer_endpoint_moves", "Times requests went to another endpoint.", |of| one(of.counts.moves)),
        Family::new("informer_refused_moves", "Endpoints left again, behind or of another history.", |of| {
            one(reflector(of).refused_moves)
        }),
        Family::new("informer_checkpoint_failures", "Times that a checkpoint could not be opened or saved.", |of| {
            one(of.counts.checkpoint_failures)
        }),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "numbers of things in memory are far below 2^53")]
fn gauges() -> [Family<f64>; 9] {
    let age =
        Family::new("informer_age", "How long ago the server confirmed the oldest state held.", |of: &TypeSums| {
            of.age_seconds.map(|age| ("", age)).into_iter().collect()
        });
    let bytes = Family::new("informer_store", "Bytes kept for objects.", |of: &TypeSums| one(of.bytes as f64));
    [
        Family::new("informer_running", "Informers that run.", |of| one(of.running as f64)),
        Family::new("informer_ready", "Informers whose initial state was complete once.", |of| one(of.ready as f64)),
        Family::new("informer_polling", "Informers that poll, since watches are forbidden.", |of| {
            one(of.polling as f64)
        }),
        Family::new(
            "informer_disconnected",
            "Informers whose request failed once ready, and nothing was confirmed since.",
            |of| one(of.disconnected as f64),
        ),
        Family::new("informer_on_fallback", "Informers that read from another endpoint than the preferred.", |of| {
            one(of.on_fallback as f64)
        }),
        Family::new("informer_strategy", "Informers by how they asked for initial state last.", |of| {
            STRATEGIES.iter().map(|it| (strategy_text(*it), of.strategies[*it as usize] as f64)).collect()
        })
        .by("strategy"),
        Family { unit: Some(Unit::Seconds), ..age },
        Family::new("informer_store_objects", "Objects held.", |of| one(of.objects as f64)),
        Family { unit: Some(Unit::Bytes), ..bytes },
    ]
}

const fn reflector(of: &TypeSums) -> &stats::ReflectorStats {
    &of.counts.reflector
}

fn one<N>(number: N) -> Vec<(&'static str, N)> {
    vec![("", number)]
}

fn requests(stats: &stats::ReflectorStats) -> Vec<(&'static str, u64)> {
    let others = [("page", stats.pages), ("watch", stats.resumes), ("proof", stats.proofs)];
    let initial = stats.requests.saturating_sub(others.iter().map(|(_, count)| count).sum());
    [("initial", initial)].into_iter().chain(others).collect()
}

fn events(stats: &stats::ReflectorStats) -> Vec<(&'static str, u64)> {
    vec![
        ("initial", stats.initial_objects),
        ("change", stats.live_objects - stats.live_deletions),
        ("deletion", stats.live_deletions),
        ("bookmark", stats.bookmarks),
        ("ignored", stats.ignored),
    ]
}

const STRATEGIES: [Strategy; 3] = [Strategy::Stream, Strategy::Paged, Strategy::Unpaged];

const fn strategy_text(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Stream => "stream",
        Strategy::Paged => "paged",
        Strategy::Unpaged => "unpaged",
    }
}
