//! Metrics: each scrape reports what happened, for any number of informers.

use std::{collections::BTreeMap, time::Duration};

use informer::{Cluster, Informer, InitialList, ResourceVersion};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use prometheus_client::{encoding::text, registry::Registry};

use crate::fixture::{
    Live, SOON, Step, added, bookmark, deleted, end_bookmark, event, in_memory, is_stream, is_watch, item, list,
    modified, ok, pod, refuse, status, until,
};

/// The series of one scrape. Checks that every line is a series, none is repeated, and each family is contiguous.
pub(crate) fn scrape(registry: &Registry) -> BTreeMap<String, f64> {
    let mut text = String::new();
    text::encode(&mut text, registry).unwrap();
    let (mut series, mut families, mut family) = (BTreeMap::new(), Vec::new(), "");
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.split(' ');
            let (kind, name) = (words.next().unwrap(), words.next().unwrap_or_default());
            match kind {
                "HELP" => {
                    assert!(!families.contains(&name), "{name} twice");
                    assert!(comment.ends_with('.') && words.count() > 1, "{comment}");
                    families.push(name);
                    family = name;
                }
                "TYPE" | "UNIT" => assert_eq!(name, family),
                other => assert_eq!(other, "EOF"),
            }
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(family) && name.contains("{resource=\"") && name.ends_with("\"}"), "{line}");
            assert!(series.insert(name.to_owned(), value.parse().unwrap()).is_none(), "twice: {line}");
        }
    }
    assert!(text.ends_with("# EOF\n"));
    series
}

#[track_caller]
fn check(series: &BTreeMap<String, f64>, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        let found = series.get(*name).unwrap_or_else(|| panic!("{name} in {series:#?}"));
        assert!((found - value).abs() < 1e-9, "{name} is {found} and not {value}");
    }
}

/// Serves two namespaces of pods and all deployments. Lists of pods in `a` answer in turn; watches carry the live
/// events.
fn cluster(live: &Live, other: &Live) -> Cluster {
    let (live, other) = (live.clone(), other.clone());
    let (cluster, _log) = in_memory(move |number, uri| match uri {
        _ if uri.contains("deployments") && is_stream(uri) => refuse(422, status(422, "Invalid", "no streams")),
        _ if uri.contains("deployments") && is_watch(uri) => ok([Step::Hang]),
        _ if uri.contains("deployments") => ok([Step::Send(list(&[], 5, "").replace("PodList", "DeploymentList"))]),
        _ if uri.contains("namespaces/b") && is_stream(uri) => {
            ok([Step::Send(added("b/one", 4) + &end_bookmark(9))]).live(&other)
        }
        _ if is_watch(uri) => ok([]).live(&live),
        _ if number > 1 => ok([Step::Send(list(&[item("a/x", 3), item("a/z", 18)], 20, ""))]),
        _ => ok([Step::Send(list(&[item("a/x", 3), item("a/y", 4)], 9, ""))]),
    });
    cluster
}

async fn pods(cluster: &Cluster, namespace: &str, initial: InitialList) -> Informer<Pod> {
    let informer = cluster.informer::<Pod>().namespace(namespace).initial_list(initial).start().unwrap();
    informer.ready(SOON).await.unwrap();
    until("the watch", || informer.age().is_some() && informer.explain().contains("watch")).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    informer
}

async fn at(informer: &Informer<Pod>, version: u64) {
    informer.wait_for(&ResourceVersion::from(version), SOON).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_scrape_says_what_happened() {
    let (live, other) = (Live::default(), Live::default());
    let cluster = cluster(&live, &other);
    let mut registry = Registry::default();
    informer::metrics::register(&mut registry, &cluster);
    assert!(scrape(&registry).is_empty(), "nothing runs");

    let a = pods(&cluster, "a", InitialList::Unpaged).await;
    live.send(modified("a/x", 10) + &deleted("a/y", 11) + &bookmark(12) + &event("WHATEVER", &pod("a/x", 13)));
    at(&a, 12).await;
    live.send(event("ADDED", &pod("a/bad", 14).replace("\"node-1\"", "{\"no\":1}")));
    at(&a, 14).await;
    assert!(a.store().snapshot().get("a/bad").unwrap().decode().is_err());
    live.send(format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410, "Expired", "too old").trim()));
    at(&a, 20).await;

    let seen = scrape(&registry);
    check(
        &seen,
        &[
            (r#"informer_running{resource="pods"}"#, 1.0),
            (r#"informer_ready{resource="pods"}"#, 1.0),
            (r#"informer_polling{resource="pods"}"#, 0.0),
            (r#"informer_strategy{resource="pods",strategy="unpaged"}"#, 1.0),
            (r#"informer_strategy{resource="pods",strategy="stream"}"#, 0.0),
            (r#"informer_relists_total{resource="pods",cause="start"}"#, 1.0),
            (r#"informer_relists_total{resource="pods",cause="expired"}"#, 1.0),
            (r#"informer_relists_total{resource="pods",cause="foreign"}"#, 0.0),
            (r#"informer_syncs_total{resource="pods"}"#, 2.0),
            (r#"informer_failures_total{resource="pods",class="expired"}"#, 1.0),
            (r#"informer_requests_total{resource="pods",kind="initial"}"#, 2.0),
            (r#"informer_events_total{resource="pods",kind="initial"}"#, 4.0),
            (r#"informer_events_total{resource="pods",kind="change"}"#, 2.0),
            (r#"informer_events_total{resource="pods",kind="deletion"}"#, 1.0),
            (r#"informer_events_total{resource="pods",kind="bookmark"}"#, 1.0),
            (r#"informer_events_total{resource="pods",kind="ignored"}"#, 1.0),
            (r#"informer_decode_errors_total{resource="pods"}"#, 1.0),
            (r#"informer_received_bytes_total{resource="pods"}"#, as_number(a.stats().bytes_received)),
            (r#"informer_reconnects_total{resource="pods"}"#, as_number(a.stats().reflector.resumes)),
            (r#"informer_store_objects{resource="pods"}"#, 2.0),
        ],
    );
    assert!(seen.keys().all(|name| !name.contains("a/x") && !name.contains("node-1")), "no series per object");
}

#[expect(clippy::cast_precision_loss, reason = "numbers of a test")]
const fn as_number(count: u64) -> f64 {
    count as f64
}

/// Goal: all informers of one type form one series. Method: two informers of pods and one of deployments; then one of
/// each type ends.
#[tokio::test(start_paused = true)]
async fn informers_of_one_type_add_up_and_counts_outlive_them() {
    let (live, other) = (Live::default(), Live::default());
    let cluster = cluster(&live, &other);
    let mut registry = Registry::default();
    informer::metrics::register(&mut registry, &cluster);
    let a = pods(&cluster, "a", InitialList::Unpaged).await;
    let bytes_of_a = scrape(&registry)[r#"informer_store_bytes{resource="pods"}"#];
    let b = pods(&cluster, "b", InitialList::Stream).await;
    let deployments = cluster.informer::<Deployment>().start().unwrap();
    deployments.ready(SOON).await.unwrap();
    tokio::time::sleep(Duration::from_secs(40)).await;
    other.send(modified("b/one", 10));
    at(&b, 10).await;
    tokio::time::sleep(Duration::from_secs(2)).await;

    let both = scrape(&registry);
    let age = both[r#"informer_age_seconds{resource="pods"}"#];
    assert!((42.0..43.0).contains(&age), "that of the older, which is not b: {age}");
    let sum = as_number(a.stats().bytes_received + b.stats().bytes_received);
    check(
        &both,
        &[
            (r#"informer_running{resource="pods"}"#, 2.0),
            (r#"informer_store_objects{resource="pods"}"#, 3.0),
            (r#"informer_strategy{resource="pods",strategy="stream"}"#, 1.0),
            (r#"informer_strategy{resource="pods",strategy="unpaged"}"#, 1.0),
            (r#"informer_relists_total{resource="pods",cause="start"}"#, 2.0),
            (r#"informer_received_bytes_total{resource="pods"}"#, sum),
            (r#"informer_running{resource="deployments.apps"}"#, 1.0),
            (r#"informer_fallbacks_total{resource="deployments.apps",cause="refused"}"#, 1.0),
            (r#"informer_strategy{resource="deployments.apps",strategy="paged"}"#, 1.0),
            (r#"informer_on_fallback{resource="deployments.apps"}"#, 0.0),
        ],
    );
    assert!(both[r#"informer_store_bytes{resource="pods"}"#] > bytes_of_a);

    drop((b, deployments));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = scrape(&registry);
    check(
        &after,
        &[
            (r#"informer_running{resource="pods"}"#, 1.0),
            (r#"informer_store_objects{resource="pods"}"#, 2.0),
            (r#"informer_store_bytes{resource="pods"}"#, bytes_of_a),
            (r#"informer_received_bytes_total{resource="pods"}"#, sum),
            (r#"informer_running{resource="deployments.apps"}"#, 0.0),
        ],
    );
    let counters = |series: &BTreeMap<String, f64>| -> Vec<(String, f64)> {
        let counters = series.iter().filter(|(name, _)| name.contains("_total{"));
        counters.map(|(name, value)| (name.clone(), *value)).collect()
    };
    assert_eq!(counters(&both), counters(&after), "counts never go back");
    assert!(!after.contains_key(r#"informer_age_seconds{resource="deployments.apps"}"#), "nothing is held");
}

/// Goal: two clusters in one registry do not mix. Method: one prefix each, as documented; no name may repeat.
#[tokio::test(start_paused = true)]
async fn clusters_with_prefixes_share_a_registry() {
    let (live, other) = (Live::default(), Live::default());
    let (near, far) = (cluster(&live, &other), cluster(&live, &other));
    let mut registry = Registry::default();
    for (name, cluster) in [("near", &near), ("far", &far)] {
        informer::metrics::register(registry.sub_registry_with_prefix(name), cluster);
    }
    let _pods = pods(&near, "a", InitialList::Unpaged).await;
    let mut text = String::new();
    text::encode(&mut text, &registry).unwrap();
    let mut families: Vec<&str> = text.lines().filter(|line| line.starts_with("# HELP")).collect();
    let count = families.len();
    families.sort_unstable();
    families.dedup();
    assert_eq!(families.len(), count, "{text}");
    assert!(text.contains("\nnear_informer_running{resource=\"pods\"} 1.0\n"), "{text}");
    assert!(!text.contains("\nfar_informer_running{"), "nothing runs there: {text}");
}

/// Goal: the documentation lists exactly the exposed metrics. Method: compare the names in its tables with a scrape.
#[tokio::test(start_paused = true)]
async fn every_metric_is_documented_and_nothing_else() {
    let (live, other) = (Live::default(), Live::default());
    let cluster = cluster(&live, &other);
    let mut registry = Registry::default();
    informer::metrics::register(&mut registry, &cluster);
    let _a = pods(&cluster, "a", InitialList::Unpaged).await;
    let series = scrape(&registry);
    let exposed: std::collections::BTreeSet<&str> = series.keys().filter_map(|name| name.split('{').next()).collect();
    for (file, prefix) in [("src/metrics.rs", "//! | `"), ("../docs/metrics.md", "| `")] {
        let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(path).unwrap();
        // The server's metrics follow in the same file.
        let ours = source.lines().take_while(|line| *line != "# Metrics of the server");
        let rows = ours.filter_map(|line| line.strip_prefix(prefix)?.split('`').next());
        assert_eq!(rows.collect::<std::collections::BTreeSet<_>>(), exposed, "{file}");
    }
}
