//! The dashboard and the alerts of `deploy/observe` beside the metrics of running servers and informers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use cache_server_top::exposition::samples;
use informer::Cluster;
use k8s_openapi::api::core::v1::Pod;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::Value;
use tests::{
    genuine::{ADMIN, token_of},
    http::watch_list,
    objects::pod,
    process::Server,
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Labels that Prometheus adds, and `le` of buckets.
const ADDED: [&str; 4] = ["instance", "job", "le", "placement"];

/// Series that the servers of this test lack: Prometheus' own, those of a full window and of a panic.
const OTHERS: [&str; 3] =
    ["up 1", "cache_window_seconds{resource=\"pods\"} 80", "cache_task_panics_total{task=\"flow-seats\"} 1"];

/// Words of PromQL that are no metrics: operators, and aggregations before `by`.
const WORDS: [&str; 9] = ["and", "avg", "count", "max", "min", "offset", "or", "sum", "unless"];

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("a list of {name} in {value}"))
}

/// The labels of each metric, with their values.
#[derive(Default)]
struct Series(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl Series {
    fn add(&mut self, scrape: &str) {
        for sample in samples(scrape) {
            let known = self.0.entry(sample.name.to_owned()).or_default();
            for (label, value) in sample.labels() {
                known.entry(label.to_owned()).or_default().insert(value.into_owned());
            }
        }
    }
}

/// A condition on a label: name, operator, value.
type Matcher = (String, String, String);

/// The metrics of an expression with their matchers, and the labels by which it groups.
#[derive(Default)]
struct Expression {
    metrics: Vec<(String, Vec<Matcher>)>,
    groups: Vec<String>,
}

impl Expression {
    /// Reads as much of PromQL as the files use.
    fn parse(mut rest: &str) -> Self {
        let mut read = Self::default();
        while let Some(first) = rest.chars().next() {
            let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
            let length = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
            let word = &rest[..length];
            rest = &rest[length.max(first.len_utf8())..];
            let next = rest.trim_start();
            let mut take = |until: char| {
                let (inside, behind) = next[1..].split_once(until).expect("its end");
                rest = behind;
                inside
            };
            match (first, word) {
                ('[', _) => rest = rest.split_once(']').expect("its end").1,
                (_, "by" | "on" | "ignoring") => {
                    read.groups.extend(take(')').split(',').map(|label| label.trim().to_owned()));
                }
                _ if !first.is_ascii_alphabetic() || next.starts_with('(') => {}
                _ if WORDS.contains(&word) => {}
                _ if next.starts_with('{') => {
                    let matchers = take('}').split("\",").map(matcher).collect();
                    read.metrics.push((word.to_owned(), matchers));
                }
                _ => read.metrics.push((word.to_owned(), Vec::new())),
            }
        }
        read
    }

    /// Returns what it names and the series lack. `shown` are labels in texts beside it.
    fn unknown(&self, series: &Series, shown: &BTreeSet<String>) -> Vec<String> {
        let page = text("docs/metrics.md");
        let mut unknown = Vec::new();
        let mut all: BTreeSet<&str> = ADDED.into();
        for (metric, matchers) in &self.metrics {
            let Some(labels) = series.0.get(metric) else {
                unknown.push(metric.clone());
                continue;
            };
            all.extend(labels.keys().map(String::as_str));
            for (label, operator, value) in matchers.iter().filter(|(label, ..)| !ADDED.contains(&&**label)) {
                let Some(values) = labels.get(label) else {
                    unknown.push(format!("{metric}: {label}"));
                    continue;
                };
                let is_documented = || page.contains(&format!("`{value}`")) || page.contains(&format!("\"{value}\""));
                if !operator.contains('~') && label != "code" && !values.contains(value) && !is_documented() {
                    unknown.push(format!("{metric}: {label}={value}"));
                }
            }
        }
        unknown.extend(self.groups.iter().filter(|label| !all.contains(&***label)).cloned());
        // An aggregation has no other labels than its groups.
        let kept = |label: &str| {
            if self.groups.is_empty() { all.contains(label) } else { self.groups.iter().any(|group| group == label) }
        };
        unknown.extend(shown.iter().filter(|label| !kept(label)).map(|label| format!("shown: {label}")));
        unknown
    }
}

fn matcher(text: &str) -> Matcher {
    let at = text.find(['=', '!']).expect("an operator");
    let (operator, value) = text[at..].split_once('"').expect("a value");
    (text[..at].trim().to_owned(), operator.to_owned(), value.trim_end_matches('"').to_owned())
}

/// Labels of templates that begin with `begin`, such as `{{ $labels.`.
fn shown(template: &str, begin: &str) -> BTreeSet<String> {
    let labels = template.split(begin).skip(1).filter_map(|rest| rest.split([' ', '}']).next());
    labels.map(str::to_owned).collect()
}

/// Starts a server with users, a folder and an audit log, one in memory, one in front of that, and an informer, and reads
/// the metrics of all after a few requests.
async fn scraped() -> Series {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("tokens"), format!("{},{ADMIN},1,system:masters\n", token_of(ADMIN))).expect("a file");
    fs::write(path("policy"), "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
        .expect("a file");
    let flags =
        [("data-dir", "data"), ("token-auth-file", "tokens"), ("audit-policy-file", "policy"), ("audit-log", "log")];
    let flags: Vec<String> = flags.iter().map(|(flag, file)| format!("--{flag}={}", path(file))).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["--authorization=rbac"]).collect();
    let stored = Server::start(BINARY, &flags).await.with_token(&token_of(ADMIN));
    let memory = Server::start(BINARY, &[]).await;
    let url = format!("http://{}", memory.address());
    let front = Server::start(BINARY, &["--upstream", &url, "--resources", "pods"]).await;
    let mut series = Series::default();
    for (name, server) in [("a", &stored), ("b", &memory), ("c", &front)] {
        server.client().create(&pod(name)).await;
        server.client().get("/api/v1/pods").await.with_code(200);
        let mut watch = server.client().watch(&watch_list("/api/v1/pods")).await;
        watch.events(2).await;
        series.add(server.client().get("/metrics").await.with_code(200).text());
    }
    let cluster = Cluster::try_from(kube::Config::new(url.parse().expect("a URL"))).expect("a cluster");
    let pods = cluster.informer::<Pod>().start().expect("an informer");
    pods.ready(Duration::from_secs(60)).await.expect("a copy");
    let (mut registry, mut scrape) = (Registry::default(), String::new());
    informer::metrics::register(&mut registry, &cluster);
    encode(&mut scrape, &registry).expect("text");
    series.add(&scrape);
    series.add(&OTHERS.join("\n"));
    series
}

/// Goal: no alert and no panel is silent because a name is wrong. Method: every metric, label and value of their expressions
/// and texts beside the scrapes of servers in three modes and of an informer.
#[tokio::test]
async fn every_name_of_the_dashboard_and_the_alerts_exists() {
    let series = scraped().await;
    let mut wrong = Vec::new();
    let mut check = |place: &str, expression: &str, shown: &BTreeSet<String>| {
        let read = Expression::parse(expression);
        assert!(!read.metrics.is_empty(), "{place}: no metric in {expression}");
        wrong.extend(read.unknown(&series, shown).into_iter().map(|name| format!("{place}: {name}")));
    };
    let alerts: Value = serde_saphyr::from_str(&text("deploy/observe/alerts.yaml")).expect("YAML");
    for alert in list(&alerts, "groups").iter().flat_map(|group| list(group, "rules")) {
        let texts = shown(&alert["annotations"].to_string(), "{{ $labels.");
        check(alert["alert"].as_str().expect("a name"), alert["expr"].as_str().expect("an expression"), &texts);
    }
    let dashboard: Value = serde_json::from_str(&text("deploy/observe/dashboard.json")).expect("JSON");
    let panels = list(&dashboard, "panels").iter().filter(|panel| panel["type"] != "row");
    for (panel, target) in panels.flat_map(|panel| list(panel, "targets").iter().map(move |target| (panel, target))) {
        let legend = shown(target["legendFormat"].as_str().expect("a legend"), "{{");
        check(panel["title"].as_str().expect("a title"), target["expr"].as_str().expect("an expression"), &legend);
    }
    for variable in list(&dashboard["templating"], "list").iter().filter(|variable| variable["type"] == "query") {
        let query =
            variable["definition"].as_str().and_then(|query| query.strip_prefix("label_values(")).expect("a query");
        check("a variable", query.rsplit_once(',').expect("a label").0, &BTreeSet::new());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Goal: an operator who is woken finds where to look. Method: of each alert the texts, the section of its page, the lines of
/// the log that it names, and its scenario.
#[test]
fn every_alert_leads_to_a_page_and_has_a_scenario() {
    let alerts: Value = serde_saphyr::from_str(&text("deploy/observe/alerts.yaml")).expect("YAML");
    let (scenarios, logs) = (text("deploy/observe/alerts.test.yaml"), text("docs/logs.md"));
    for alert in list(&alerts, "groups").iter().flat_map(|group| list(group, "rules")) {
        let name = alert["alert"].as_str().expect("a name");
        let part = |part: &str| alert["annotations"][part].as_str().unwrap_or_else(|| panic!("{name} has no {part}"));
        assert!(scenarios.contains(&format!("- name: {name}\n")), "{name} has no scenario");
        assert!(alert["labels"]["severity"].is_string() && !part("summary").is_empty(), "{name}");
        let (page, section) = part("runbook").split_once('#').expect("a section");
        let heading = |line: &str| line.trim_start_matches(['#', ' ']).to_lowercase().replace(' ', "-");
        let slug = |line: &str| heading(line).replace(|letter: char| !letter.is_alphanumeric() && letter != '-', "");
        let has_section = text(page).lines().any(|line| line.starts_with('#') && slug(line) == section);
        assert!(has_section, "{name}: {page} has no section {section}");
        let lines =
            part("description").split_once("Log line").map_or("", |(_, rest)| rest.split(". ").next().unwrap_or(""));
        for line in lines.split('`').skip(1).step_by(2) {
            assert!(logs.contains(&format!("`{line}`")), "{name}: docs/logs.md has no line {line}");
        }
    }
}
