//! Scripts about delays: healthy sessions, growing delays, silence.

use super::*;

#[test]
fn only_a_healthy_session_resets_delays() {
    let same = proof(Proof::Same);
    let early = [OK, after(400, Input::Ended(End::Closed)), Timer, same];
    let healthy = [OK, CLOSED_LATER, Timer, same];
    let own_end = [OK, after(5_000, Input::Ended(End::Closed)), Timer, same];
    let mut script = vec![START, OK, end_of_state("7"), CLOSED, Timer, same];
    for session in [early, early, early, early, healthy, early, healthy] {
        script.extend(session);
    }
    let delays: Vec<f64> = run(Config::default(), &script).delays.iter().map(Duration::as_secs_f64).collect();
    let bounds = [(0.0, 1.0), (0.8, 1.6), (1.6, 3.2), (3.2, 6.4), (6.4, 12.8), (0.0, 0.1), (0.0, 1.0), (0.0, 0.1)];
    assert_eq!(delays.len(), bounds.len());
    for (delay, (least, most)) in delays.iter().zip(bounds) {
        assert!(least <= *delay && *delay < most, "{delay} not in [{least}, {most}): {delays:?}");
    }
    // The server ended it at timeoutSeconds, before `healthy_after`.
    let config = Config { watch_timeout_seconds: 5..=5, ..Config::default() };
    let mut script = vec![START, OK, end_of_state("7"), CLOSED, Timer, same, OK, CLOSED, Timer, same];
    script.extend(own_end);
    assert!(run(config, &script).delays[2] < Duration::from_millis(100));
}

#[test]
fn a_first_410_after_an_outage_costs_a_moment_and_the_second_the_grown_delay() {
    let mut script = vec![START, OK, end_of_state("7"), after(60_000, Input::Ended(End::Closed)), Timer];
    for _ in 0..8 {
        script.extend([fails(Class::Server), Timer]);
    }
    script.push(proof(Proof::Same));
    script.extend([fails(Class::Expired), Timer, OK, end_of_state("9"), CLOSED, Timer, fails(Class::Expired)]);
    let delays = run(Config::default(), &script).delays;
    assert!(delays[8] >= Duration::from_secs(30));
    assert!(delays[9] < Duration::from_secs(1), "{delays:?}");
    assert!(delays[10] >= Duration::from_secs(30), "{delays:?}");
    assert!(delays[11] >= Duration::from_secs(30), "{delays:?}");
}

#[test]
fn retry_after_is_a_lower_bound_even_after_a_healthy_session() {
    let failure = Failure { class: Class::TooMany, retry_after: Some(Duration::from_secs(7)) };
    let script = [
        START,
        OK,
        end_of_state("7"),
        after(60_000, Input::Ended(End::Failed(failure))),
        Timer,
        now(Input::Ended(End::Failed(failure))),
    ];
    for (delay, most) in run(Config::default(), &script).delays.iter().zip([7.1, 8.0]) {
        assert!(7.0 <= delay.as_secs_f64() && delay.as_secs_f64() < most, "{delay:?}");
    }
}

/// Goal: a session that delivered something was healthy, however short. Method: sessions of five seconds with a change or
/// a bookmark each, after failures that made the delays grow.
#[test]
fn a_session_that_delivered_something_resets_delays_however_short_it_was() {
    for (number, delivered) in [modified("a", "8"), bookmark("8"), deleted("a", "8")].into_iter().enumerate() {
        let mut script = vec![START, OK, end_of_state("7"), CLOSED_LATER, Timer];
        script.extend([fails(Class::Server), Timer, proof(Proof::Same)].repeat(5));
        script.extend([OK, delivered, after(5_000, Input::Ended(End::Closed)), Timer, proof(Proof::Same), OK]);
        script.push(CLOSED);
        let delays = run(Config::default(), &script).delays;
        let [.., grown, at_once, first] = delays[..] else { panic!("{delays:?}") };
        assert!(grown > Duration::from_secs(6), "{number}: {delays:?}");
        assert!(at_once < Duration::from_millis(100) && first < Duration::from_secs(1), "{number}: {delays:?}");
    }
}

/// Goal: the relist after a 410 waits a moment, not a full delay. Method: connections that flap, an outage, and a 410.
#[test]
fn a_410_after_flapping_and_an_outage_is_relisted_at_once() {
    let mut script = vec![START, OK, end_of_state("7")];
    for version in ["8", "9", "10", "11"] {
        let closed = after(5_000, Input::Ended(End::Failed(Failure::new(Class::Connection))));
        script.extend([modified("a", version), closed, Timer, proof(Proof::Same), OK]);
    }
    script.extend([fails(Class::Connection), Timer].repeat(6));
    script.extend([proof(Proof::Same), fails(Class::Expired)]);
    let flapped = run(Config::default(), &script);
    let delays = &flapped.delays;
    assert!(delays.last().unwrap() < &Duration::from_secs(1), "{delays:?}");
    assert!(flapped.time < Time(Duration::from_secs(4 * 6 + 30)), "{delays:?}");
}

/// Goal: a copy resumes at once although its connection was reset soon after an outage and a 410, whether something
/// changed in between or not. Method: five sessions that break 900 ms after their watch was sent.
#[test]
fn five_resets_a_second_apart_soon_after_an_outage_and_a_410_cost_no_delay() {
    let reset = Input::Ended(End::Failed(Failure::new(Class::Connection)));
    for (lived, delivers) in [(60_000, false), (60_000, true), (1_000, false), (1_000, true)] {
        let mut script = vec![START, OK, end_of_state("7"), after(lived, reset), Timer];
        script.extend([fails(Class::Connection), Timer].repeat(5));
        script.extend([proof(Proof::Same), OK, fails(Class::Expired), Timer, OK, end_of_state("9")]);
        let mut reset_often = run(Config::default(), &script);
        let before = reset_often.delays.len();
        for version in ["10", "11", "12", "13", "14"] {
            if delivers {
                reset_often.step(modified("a", version));
            }
            reset_often.step(after(900, reset));
            reset_often.step(Timer);
            if reset_often.shown.last().unwrap().starts_with("prove") {
                reset_often.step(proof(Proof::Same));
            }
            reset_often.step(OK);
        }
        let delays = &reset_often.delays[before..];
        assert_eq!(delays.len(), 5);
        assert!(delays.iter().all(|delay| *delay < Duration::from_millis(100)), "{lived}, {delivers}: {delays:?}");
    }
}

/// Goal: a server that sends one event and closes, or closes after half a second, is still backed off, whatever fails in
/// between. Method: ten minutes of each pattern of such sessions, refusals and broken connections; count the requests of
/// each minute.
#[test]
fn sessions_that_end_early_cost_a_server_30_requests_a_minute_at_most_and_19_on_average() {
    let patterns = ["d", "df", "ddf", "db", "dbf", "dddf", "l", "lf", "lb", "dlb", "dc", "dcc", "lc", "dlc", "dg"];
    for (seed, pattern) in (0..20).flat_map(|seed| patterns.map(|pattern| (seed, pattern))) {
        let mut flapping = run(Config { seed, ..Config::default() }, &[START, OK, end_of_state("7")]);
        let (mut requests, mut turns) = (Vec::new(), pattern.chars().cycle());
        for version in 8.. {
            let version: &'static str = version.to_string().leak();
            match turns.next().unwrap() {
                'd' => [OK, modified("a", version), CLOSED].into_iter().for_each(|step| flapping.step(step)),
                'l' => [OK, after(500, Input::Ended(End::Closed))].into_iter().for_each(|step| flapping.step(step)),
                'f' => flapping.step(fails(Class::Server)),
                'c' => flapping.step(fails(Class::Connection)),
                'g' => [OK, fails(Class::Connection)].into_iter().for_each(|step| flapping.step(step)),
                _ => [OK, fails(Class::Connection)].into_iter().for_each(|step| flapping.step(step)),
            }
            flapping.step(Timer);
            while flapping.shown.last().unwrap().starts_with("prove") {
                requests.push(flapping.time);
                // Refused as GET and as LIST: the client may not read objects.
                flapping.step(if pattern.contains('g') { fails(Class::Forbidden) } else { proof(Proof::Same) });
            }
            requests.push(flapping.time);
            if flapping.time > Time(Duration::from_mins(10)) {
                break;
            }
        }
        let minute =
            |from: &Time| requests.iter().filter(|at| *at >= from && at.since(*from) < Duration::from_mins(1)).count();
        let most = requests.iter().map(minute).max().unwrap();
        assert!((8..=30).contains(&most), "{most} in a minute of {pattern}");
        let all = requests.iter().filter(|at| **at <= Time(Duration::from_mins(10))).count();
        assert!(all <= 190, "{all} in ten minutes of {pattern}");
        assert_eq!(flapping.reflector.stats().syncs, 1, "no relist");
    }
}

/// Goal: clients that a server cuts at one moment do not return together for ever. Method: 1,000 of them get one event a
/// session from a server that then closes; count the requests in each 100 ms of the second and third minute.
#[test]
fn clients_cut_at_one_moment_drift_apart() {
    let mut requests = std::collections::HashMap::<u128, usize>::new();
    let deliver: Vec<[Step; 4]> =
        (8..80).map(|version: u32| [OK, modified("a", version.to_string().leak()), CLOSED, Timer]).collect();
    for seed in 0..1_000 {
        let mut cut = run(Config { seed, ..Config::default() }, &[START, OK, end_of_state("7")]);
        for step in deliver.iter().flatten() {
            cut.step(*step);
            if cut.shown.last().unwrap().starts_with("prove") {
                cut.step(proof(Proof::Same));
            }
            if matches!(step, Timer) && (60..180).contains(&cut.time.0.as_secs()) {
                *requests.entry(cut.time.0.as_millis() / 100).or_default() += 1;
            }
        }
        assert!(cut.time > Time(Duration::from_mins(3)), "{}", cut.time);
    }
    let most = requests.values().max().unwrap();
    assert!(*most <= 100, "{most} of 1,000 clients in 100 ms");
}

/// Accepts a watch and stays silent until the reflector sends the next request. Returns that request.
fn stay_silent(quiet: &mut Run) -> String {
    quiet.step(OK);
    quiet.step(Timer);
    assert_eq!(quiet.shown.last().unwrap(), "healthy");
    quiet.step(Timer);
    quiet.shown.last().unwrap().clone()
}

#[test]
fn silence_closes_and_resumes_without_failure_and_grows_patient() {
    let mut quiet =
        run(Config { watch_timeout_seconds: 500..=500, ..Config::default() }, &[START, OK, end_of_state("7")]);
    let mut bounds = Vec::new();
    for session in 1..=6 {
        let before = quiet.time;
        let next = stay_silent(&mut quiet);
        bounds.push(quiet.time.since(before).as_secs());
        if session % 2 == 0 {
            assert_eq!(next, "prove 7 by 0", "twice silent from one position");
            quiet.step(proof(Proof::Same));
        }
        assert_eq!(quiet.shown.last().unwrap(), "watch 7");
    }
    assert_eq!(bounds, [150, 150, 300, 500, 500, 500]);
    assert!(quiet.delays.is_empty(), "nobody waits");
    for step in [OK, bookmark("8"), Timer, Timer] {
        quiet.step(step);
    }
    let before = quiet.time;
    assert_eq!(stay_silent(&mut quiet), "prove 8 by 0");
    assert_eq!(quiet.time.since(before).as_secs(), 150, "a bookmark makes it impatient again");
    assert_eq!(quiet.reflector.stats().silences, 8);
    assert_eq!(quiet.reflector.stats().relists(Start), 1);
}

/// Regression: a load balancer drops idle flows. A stuck watch (reported for Kars and Calico) must be found at low cost
/// for the server.
#[test]
fn an_hour_of_silence_costs_at_most_twenty_requests_and_stays_ready() {
    for seed in 0..200 {
        for (answer, relists_max) in [(Proof::Same, 0), (Proof::Nothing, 8)] {
            let mut quiet = run(Config { seed, ..Config::default() }, &[START, OK, end_of_state("7")]);
            while quiet.time < Time(Duration::from_hours(1)) {
                let action = quiet.shown.last().unwrap().clone();
                match action.split(' ').next().unwrap() {
                    "prove" => quiet.step(proof(answer)),
                    "watch" => quiet.step(OK),
                    "stream" => [OK, end_of_state("7")].into_iter().for_each(|step| quiet.step(step)),
                    _ => quiet.step(Timer),
                }
                assert!(quiet.reflector.is_synced());
            }
            let stats = quiet.reflector.stats();
            let relists: u64 = RelistCause::ALL.iter().map(|cause| stats.relists(*cause)).sum::<u64>() - 1;
            assert!(stats.requests <= 20 && relists <= relists_max, "{} requests, {relists} lists", stats.requests);
        }
    }
}

#[test]
fn starts_are_spread_and_only_starts() {
    let config = |seed| Config { spread: Duration::from_secs(60), seed, ..Config::default() };
    let starts: Vec<u64> =
        (0..100).map(|seed| run(config(seed), &[START]).reflector.poll_timeout().unwrap().0.as_secs() / 20).collect();
    for third in 0..3 {
        assert!(starts.iter().filter(|start| **start == third).count() > 15, "{starts:?}");
    }
    check_with(
        config(1),
        &[START, now(Input::TimedOut), Timer, OK, end_of_state("7"), CLOSED_LATER, Timer],
        "spread · - · [Start] · stream any · init · init-done 7 · healthy · wait Closed · watch 7",
    );
}

#[test]
fn initial_state_that_expires_soon_again_and_again_is_asked_for_with_growing_pauses() {
    let eleven_seconds = [after(11_000, Input::Ignored), fails(Class::Expired), Timer, OK, end_of_state("7")];
    let script: Vec<Step> =
        [START, OK, end_of_state("7")].into_iter().chain(std::iter::repeat_n(eleven_seconds, 8).flatten()).collect();
    let expiring = run(Config::default(), &script);
    let bounds = [(0.0, 0.1), (0.0, 1.0), (0.8, 1.6), (1.6, 3.2), (3.2, 6.4), (6.4, 12.8), (12.8, 25.6), (25.6, 51.2)];
    assert_eq!(expiring.reflector.stats().healthy_sessions, 8, "eleven seconds are healthy");
    for (delay, (least, most)) in expiring.delays.iter().map(Duration::as_secs_f64).zip(bounds) {
        assert!(least <= delay && delay < most, "{:?}", expiring.delays);
    }
    // A list that lasts clears the early expiries, whether its session ends in silence or not.
    for end in [CLOSED, fails(Class::Connection)] {
        let mut forgiven = run(Config::default(), &script);
        for step in [after(40_000, Input::Ignored), end, Timer, CLOSED] {
            forgiven.step(step);
        }
        let [healthy, first] = forgiven.delays[8..] else { panic!("{:?}", forgiven.delays) };
        assert!(healthy < Duration::from_millis(100) && first < Duration::from_secs(1), "{:?}", forgiven.delays);
    }
}

/// Delays of one, two and three seconds, then `None`.
struct Counting {
    next: u64,
    resets: std::sync::Arc<std::sync::atomic::AtomicU32>,
}

impl Delays for Counting {
    fn next(&mut self) -> Option<Duration> {
        self.next += 1;
        (self.next <= 3).then(|| Duration::from_secs(self.next))
    }

    fn reset(&mut self) {
        self.next = 0;
        self.resets.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn delays_of_somebody_else_are_kept_until_a_session_is_healthy() {
    let resets = std::sync::Arc::default();
    let delays = Box::new(Counting { next: 0, resets: std::sync::Arc::clone(&resets) });
    let mut run = Run::new(Config::default());
    run.reflector = Reflector::with_delays(Config::default(), delays);
    let refused = [fails(Class::TooMany), Timer];
    let failure = Failure { class: Class::TooMany, retry_after: Some(Duration::from_secs(20)) };
    let healthy = [OK, end_of_state("7"), after(60_000, Input::Ended(End::Closed)), Timer];
    for step in [START]
        .into_iter()
        .chain(std::iter::repeat_n(refused, 5).flatten())
        .chain([now(Input::Ended(End::Failed(failure))), Timer])
    {
        run.step(step);
    }
    let seconds: Vec<u64> = run.delays.iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [1, 2, 3, 3, 3, 20], "its last delay again; never below what the server asked for");
    for step in healthy.into_iter().chain(refused) {
        run.step(step);
    }
    assert_eq!(resets.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert!(run.delays[6] < Duration::from_millis(100) && run.delays[7].as_secs() == 1, "{:?}", run.delays);
}

/// Goal: a position that the server refuses to watch from, or one bad server behind a load balancer, delays the client
/// by about its own duration and not by a poll interval. Method: six lists, each with its watch refused until the next.
#[test]
fn polls_begin_early_and_watches_are_requested_in_between() {
    for class in [Class::Refused, Class::Forbidden, Class::NotFound] {
        let mut polled = run(paged(), &[START]);
        let mut intervals = Vec::new();
        for _ in 0..6 {
            let listed = polled.time;
            [OK, page("5", None)].into_iter().for_each(|step| polled.step(step));
            while polled.shown.last().unwrap().starts_with("watch") {
                let refused = polled.time;
                polled.step(fails(class));
                polled.step(Timer);
                assert!(polled.time.since(refused) < Duration::from_secs(45), "{:?}", polled.delays);
            }
            intervals.push(polled.time.since(listed).as_secs());
        }
        let least = [20, 60, 120, 300, 300, 300];
        for (interval, least) in intervals.iter().zip(least) {
            assert!((least..=least + least / 5 + 8).contains(interval), "{intervals:?}");
        }
    }
}
