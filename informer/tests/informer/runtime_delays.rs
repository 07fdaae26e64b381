//! Delay policies of other crates, under paused time.

use std::time::Duration;

use futures::StreamExt;
use informer::{
    Cluster, Informer,
    delays::{self, Delays},
    kube5,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    runtime::{utils::Backoff, watcher},
};

use crate::fixture::{Log, Step, client_in_memory, in_memory, list, ok, refuse, status};

const SECOND: Duration = Duration::from_secs(1);

/// A policy that returns 1 s, 2 s, 3 s and so on up to `last`, and ends.
struct Counting {
    next: u32,
    last: u32,
}

impl Iterator for Counting {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.next += 1;
        (self.next <= self.last).then(|| self.next * SECOND)
    }
}

impl Backoff for Counting {
    fn reset(&mut self) {
        self.next = 0;
    }
}

/// Adapts a policy of the crate `backoff`, as the documentation of `delays` shows.
fn from_backoff<P>(mut policy: impl FnMut() -> P + Send + 'static) -> impl Delays + 'static
where
    P: backoff::backoff::Backoff + Send + 'static,
{
    delays::from_fn(move || {
        let mut policy = policy();
        std::iter::from_fn(move || policy.next_backoff())
    })
}

/// Gaps between requests, in whole seconds.
fn gaps(log: &Log) -> Vec<u64> {
    log.times().windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect()
}

async fn refused(start: impl FnOnce(&Cluster) -> Informer<Pod>) -> Vec<u64> {
    let (cluster, log) = in_memory(|_, _| refuse(500, status(500, "InternalError", "no")));
    let informer = start(&cluster);
    let _ = informer.ready(60 * SECOND).await;
    gaps(&log)
}

/// Goal: a policy of kube, or of a closure, sets the delays, and after its end the last delay repeats. Method: time the
/// requests to a server that refuses all.
#[tokio::test(start_paused = true)]
async fn a_policy_says_when_and_one_that_ends_keeps_its_last_delay() {
    let counting = || Counting { next: 0, last: 3 };
    let of_kube = refused(|cluster| cluster.informer().delays(kube5::delays(counting())).start().unwrap()).await;
    assert_eq!(of_kube[..6], [1, 2, 3, 3, 3, 3]);
    let other = refused(|cluster| cluster.informer().delays(delays::from_fn(counting)).start().unwrap()).await;
    assert_eq!(other[..6], [1, 2, 3, 3, 3, 3]);
}

/// Covers the complaint of 55,000 requests a second for policies, too: the crate `backoff` has a policy that never
/// waits, and one that ends at once.
#[tokio::test(start_paused = true)]
async fn p3_no_policy_makes_a_loop_without_a_pause() {
    type Start = fn() -> Box<dyn backoff::backoff::Backoff + Send>;
    let zero: Start = || Box::new(backoff::backoff::Zero {});
    let stop: Start = || Box::new(backoff::backoff::Stop {});
    for (policy, least, most) in [(zero, 5_000, 6_001), (stop, 1, 3)] {
        let gaps = refused(|cluster| cluster.informer().delays(from_backoff(policy)).start().unwrap()).await;
        assert!((least..most).contains(&gaps.len()), "{} requests in a minute", gaps.len());
    }
}

/// Policies of today's programs, with their defaults.
#[tokio::test(start_paused = true)]
async fn policies_of_both_crates_grow() {
    let kubes = watcher::DefaultBackoff::default;
    let of_kube = refused(|cluster| cluster.informer().delays(kube5::delays(kubes())).start().unwrap()).await;
    assert!((4..=10).contains(&of_kube.len()), "{of_kube:?}");
    let backoffs = || backoff::ExponentialBackoff { randomization_factor: 0.0, ..Default::default() };
    let other = refused(|cluster| cluster.informer().delays(from_backoff(backoffs)).start().unwrap()).await;
    // 0.5 s × 1.5^n
    assert_eq!(other[..8], [0, 0, 1, 1, 2, 3, 5, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_healthy_session_starts_the_policy_again() {
    let counting = || Counting { next: 0, last: 9 };
    assert_eq!(gaps_around_a_healthy_minute(kube5::delays(counting())).await, [1, 2, 0, 60, 1, 2]);
    assert_eq!(gaps_around_a_healthy_minute(delays::from_fn(counting)).await, [1, 2, 0, 60, 1, 2]);
}

/// Gaps between the requests to a server that refuses two, serves a minute, and refuses two.
async fn gaps_around_a_healthy_minute(policy: impl Delays + 'static) -> Vec<u64> {
    let minute = 60 * SECOND;
    let (cluster, log) = in_memory(move |number, _| match number {
        1 | 2 | 5 | 6 => refuse(429, status(429, "TooManyRequests", "later")),
        3 => ok([Step::Send(list(&[], 9, ""))]),
        4 => ok([Step::Wait(minute)]),
        _ => ok([Step::Hang]),
    });
    let pods = cluster.informer::<Pod>().delays(policy).initial_list(informer::InitialList::Paged).start().unwrap();
    tokio::time::sleep(2 * minute).await;
    drop(pods);
    gaps(&log)[..6].to_vec()
}

/// Covers the complaint that clients with equal `Retry-After` return together: for policies, too, it is a lower bound
/// to which jitter is added.
#[tokio::test(start_paused = true)]
async fn p2b_retry_after_is_a_lower_bound_with_jitter_for_policies_too() {
    let (client, log) =
        client_in_memory(|_, _| refuse(429, status(429, "TooMany", "later")).header("retry-after", "5"));
    let api: Api<Pod> = Api::all(client.clone());
    let declared = Cluster::new(client).watcher(&api, watcher::Config::default());
    let events = declared.delays(kube5::delays(Counting { next: 0, last: 1 })).stream();
    let _ = events.take(8).collect::<Vec<_>>().await;
    let times = log.times();
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // The test clock rounds up to milliseconds.
    assert!(gaps.iter().all(|gap| (5 * SECOND..=6 * SECOND).contains(gap)), "{gaps:?}");
    assert!(gaps.windows(2).any(|pair| pair[0].abs_diff(pair[1]) > SECOND / 10), "no jitter: {gaps:?}");
}
