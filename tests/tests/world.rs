//! The reflector and the store against a model API server with every fault, and against servers that only refuse.
//!
//! `SEEDS=5000 cargo test -p tests --test world` runs more worlds; `SEED=17` runs one again and prints its end.

use std::{env, time::Duration};

use informer_core::{
    InitialList, Read,
    reflector::{self, Class, End, Failure, FallBack, RelistCause},
    stats::Stats,
};
use tests::{api::Fact, world};

/// Worlds of an ordinary run: enough for every fault to meet every state, in a few seconds.
const SEEDS: u64 = 200;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

#[test]
fn every_guarantee_holds_in_random_worlds() {
    let one = number("SEED");
    let seeds = one.map_or_else(|| 0..number("SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let (ran, failed): (Vec<_>, Vec<_>) = seeds.map(world::run).partition(Result::is_ok);
    if let Some(Err(first)) = failed.first() {
        panic!(
            "{}\n{}\n{} of {} seeds failed. Again: SEED={} cargo test -p tests --test world random_worlds",
            first.trace.join("\n"),
            first.violation,
            failed.len(),
            failed.len() + ran.len(),
            first.seed
        );
    }
    let counted: Vec<Stats> = ran.into_iter().filter_map(Result::ok).flatten().collect();
    if one.is_none() {
        storms_reach_everything(&counted);
    }
}

/// A simulation finds what its faults can express: what never happens in any world is not tested.
fn storms_reach_everything(counted: &[Stats]) {
    let total = |count: &dyn Fn(&Stats) -> u64| counted.iter().map(count).sum::<u64>();
    for cause in RelistCause::ALL.into_iter().take(8) {
        assert!(total(&|stats| stats.relists(cause)) > 0, "no relist because of {cause:?}");
    }
    for cause in FallBack::ALL {
        assert!(total(&|stats| stats.fallbacks(cause)) > 0, "no fallback because of {cause:?}");
    }
    for class in Class::ALL {
        assert!(total(&|stats| stats.failures(class)) > 0, "nothing failed as {class:?}");
    }
    for (what, count) in [
        ("silences", total(&|stats| stats.silences)),
        ("positions that went back", total(&|stats| stats.went_back)),
        ("pages", total(&|stats| stats.pages)),
        ("healthy sessions", total(&|stats| stats.healthy_sessions)),
        ("resumes", total(&|stats| stats.resumes)),
    ] {
        assert!(count > 0, "no {what}");
    }
}

/// Clients that differ in how they were configured and in their luck.
fn clients() -> impl Iterator<Item = reflector::Config> {
    (0..50).flat_map(|seed| {
        [InitialList::Auto, InitialList::Stream, InitialList::Paged, InitialList::Unpaged]
            .map(|initial| reflector::Config { seed, initial, ..reflector::Config::default() })
    })
}

fn refuses(class: Class, retry_after: Option<u64>) -> Vec<(Duration, Fact)> {
    let failure = Failure { class, retry_after: retry_after.map(Duration::from_secs) };
    vec![(Duration::ZERO, Fact::Ended(End::Failed(failure)))]
}

/// An answer with an empty state at 7; watches end as `end` after `lived`.
fn lives(read: &Read, lived: Duration, end: End) -> Vec<(Duration, Fact)> {
    let mut facts = vec![(Duration::ZERO, Fact::Accepted)];
    match read {
        Read::List { .. } | Read::Page { .. } => {
            facts.push((Duration::ZERO, Fact::PageEnd { version: 7, token: None }));
            return facts;
        }
        Read::Stream { .. } => facts.push((Duration::ZERO, Fact::Bookmark { version: "7".into(), end: true })),
        Read::Watch { .. } => {}
    }
    facts.push((lived, Fact::Ended(end)));
    facts
}

#[test]
fn refused_for_ten_minutes_is_at_most_twenty_requests() {
    for config in clients() {
        for class in Class::ALL {
            for retry_after in [None, Some(1)] {
                let sent = world::requests(config.clone(), Duration::from_mins(10), |_| refuses(class, retry_after));
                assert!(sent.len() <= 20, "{} requests at {class:?} {config:?}", sent.len());
            }
        }
    }
}

#[test]
fn every_watch_closed_at_once_is_at_most_twelve_requests_a_minute() {
    for config in clients() {
        let sent =
            world::requests(config.clone(), Duration::from_mins(1), |read| lives(read, Duration::ZERO, End::Closed));
        assert!(sent.len() <= 12, "{} requests of {config:?}", sent.len());
    }
}

#[test]
fn a_410_after_every_list_is_at_most_twenty_lists_in_ten_minutes() {
    let expired = End::Failed(Failure::new(Class::Expired));
    for config in clients() {
        let sent =
            world::requests(config.clone(), Duration::from_mins(10), |read| lives(read, Duration::ZERO, expired));
        let lists = sent.iter().filter(|(_, read)| read.is_initial()).count();
        assert!(lists <= 20, "{lists} lists of {config:?}");
    }
}

/// Goal: pages give no way around the delays. Method: a server that pages whatever is asked and lets every second page
/// expire, and one whose tokens lead in a circle; both answer at once.
#[test]
fn pages_without_end_are_at_most_twenty_lists_in_ten_minutes() {
    let page = |token: &str| vec![(Duration::ZERO, Fact::PageEnd { version: 7, token: Some(token.to_owned()) })];
    for config in clients() {
        let expired = |read: &Read| match read {
            Read::List { .. } => page("next"),
            Read::Page { .. } => refuses(Class::Expired, None),
            Read::Stream { .. } | Read::Watch { .. } => refuses(Class::Server, None),
        };
        let circle = |read: &Read| match read {
            Read::List { .. } => page("a"),
            Read::Page { token, .. } => page(if token == "a" { "b" } else { "a" }),
            Read::Stream { .. } | Read::Watch { .. } => refuses(Class::Server, None),
        };
        for answer in [&expired as &dyn Fn(&Read) -> _, &circle] {
            let sent = world::requests(config.clone(), Duration::from_mins(10), answer);
            let reads = sent.iter().filter(|(_, read)| !matches!(read, Read::Page { .. })).count();
            // An attempt may be two lists: one in pages and one without.
            assert!(reads <= 2 * 20 && sent.len() <= 5 * 20, "{reads} of {} requests of {config:?}", sent.len());
        }
    }
}

#[test]
fn a_balancer_that_cuts_every_minute_makes_no_delay_grow() {
    for end in [End::Closed, End::Failed(Failure::new(Class::Connection))] {
        for config in clients() {
            let minute = Duration::from_mins(1);
            let sent = world::requests(config, 60 * minute, |read| lives(read, minute, end));
            assert_eq!(sent.iter().filter(|(_, read)| read.is_initial()).count(), 1, "resumed, never listed again");
            for pair in sent.windows(2).skip(1) {
                let pause = pair[1].0.since(pair[0].0) - minute;
                assert!(pause < Duration::from_millis(100), "{pause:?}");
            }
        }
    }
}

#[test]
fn a_server_without_streams_is_asked_for_one_once() {
    for seed in 0..20 {
        let config = reflector::Config { seed, ..reflector::Config::default() };
        let sent = world::requests(config, Duration::from_mins(50), |read| match read {
            Read::Stream { .. } => refuses(Class::Refused, None),
            Read::List { .. } | Read::Page { .. } | Read::Watch { .. } => {
                lives(read, Duration::from_mins(5), End::Closed)
            }
        });
        let streams = sent.iter().filter(|(_, read)| matches!(read, Read::Stream { .. })).count();
        let lists = sent.iter().filter(|(_, read)| matches!(read, Read::List { .. })).count();
        assert_eq!((streams, lists), (1, 1));
    }
}
