//! Shares and borrowing, with the scenarios of kube-apiserver's tests.

use super::*;
use crate::flow::objects::FlowObject;

fn level(name: &str, shares: i32, lendable_percent: i32, borrowing_percent: Option<i32>) -> PriorityLevel {
    let response = LimitResponse::Queue(QueueSettings { queues: 10, hand_size: 2, length_limit: 10 });
    PriorityLevel { name: name.to_owned(), uid: String::new(), response, shares, lendable_percent, borrowing_percent }
}

fn seats_of(levels: &PriorityLevels, name: &str) -> LevelSeats {
    levels.seats().find(|seats| seats.name == name).unwrap()
}

/// Goal: levels have as many seats as on a kube-apiserver. Method: the built-in levels with 600 seats; a kube-apiserver's
/// `apiserver_flowcontrol_{nominal,lower,upper}_limit_seats`.
#[test]
fn builtin_levels_divide_the_seats_as_kube_apiserver_does() {
    let levels = PriorityLevels::new(Duration::ZERO, 600, &FlowConfig::builtin());
    let bounds = |name: &str| {
        let seats = seats_of(&levels, name);
        (seats.nominal, seats.lower, seats.upper)
    };
    assert_eq!(bounds("exempt"), (0, 0, 600));
    assert_eq!(bounds("catch-all"), (13, 13, 613));
    assert_eq!(bounds("leader-election"), (25, 25, 625));
    assert_eq!(bounds("node-high"), (98, 73, 698));
    assert_eq!(bounds("system"), (74, 50, 674));
    assert_eq!(bounds("workload-high"), (98, 49, 698));
    assert_eq!(bounds("workload-low"), (245, 24, 845));
    assert_eq!(bounds("global-default"), (49, 24, 649));
    let width = |name| levels.find(name).unwrap().1;
    assert_eq!((width("workload-low"), width("global-default"), width("leader-election")), (10, 8, 4));
}

/// Runs a level with as many clients as `threads` for 25 s, and returns its average seats in use of the last 15 s.
/// Method: kube-apiserver's `TestBorrowing`: each request takes 250 ms.
fn borrow(specs: [PriorityLevel; 2], threads: [usize; 2]) -> [f64; 2] {
    let names = [specs[0].name.clone(), specs[1].name.clone()];
    let config = FlowConfig::new(specs.map(FlowObject::Level));
    // 5 shares of `catch-all`.
    let mut levels = PriorityLevels::new(Duration::ZERO, 24, &config);
    let ids = names.map(|name| levels.find(&name).unwrap().0);
    let mut executing: Vec<(Duration, LevelId, SeatGrant)> = Vec::new();
    let mut used = [0.0; 2];
    let step = Duration::from_millis(10);
    let mut now = Duration::ZERO;
    while now < Duration::from_secs(25) {
        let mut woken = Vec::new();
        let mut at = 0;
        while at < executing.len() {
            if now < executing[at].0 {
                at += 1;
                continue;
            }
            let (_, id, grant) = executing.swap_remove(at);
            levels.finish(now, id, grant, |_, grant| woken.push((id, grant)));
        }
        levels.tick(now, 0, |id, _, grant| woken.push((id, grant)));
        for (id, threads) in ids.iter().zip(threads) {
            loop {
                let busy = executing.iter().filter(|one| one.1 == *id).count()
                    + woken.iter().filter(|one| one.0 == *id).count()
                    + levels.level(*id).unwrap().queues.waiting();
                if busy >= threads {
                    break;
                }
                let flow = u64::try_from(busy).unwrap();
                match levels.arrive(now, *id, flow, 1, |_, grant| woken.push((*id, grant))) {
                    Some(Arrival::Dispatched(grant)) => woken.push((*id, grant)),
                    Some(Arrival::Queued(_)) => {}
                    Some(Arrival::Refused(_)) | None => break,
                }
            }
        }
        executing.extend(woken.into_iter().map(|(id, grant)| (now + Duration::from_millis(250), id, grant)));
        if now >= Duration::from_secs(10) {
            for (at, id) in ids.iter().enumerate() {
                used[at] += f64::from(levels.level(*id).unwrap().queues.seats_in_use()) * step.as_secs_f64() / 15.0;
            }
        }
        now += step;
    }
    used
}

#[test]
fn a_busy_level_borrows_what_another_lends() {
    for (name, lendable, borrowing) in [("lendable", [50, 33], [67, 50]), ("borrowing", [50, 67], [33, 50])] {
        let specs = [0, 1].map(|at| level(["a", "b"][at], 100, lendable[at], Some(borrowing[at])));
        let [busy, calm] = borrow(specs, [24, 6]);
        assert!((busy - 16.0).abs() < 1.6, "{name}: {busy}");
        assert!((calm - 6.0).abs() < 0.6, "{name}: {calm}");
    }
}

/// Goal: exempt requests use seats that others lend. Method: kube-apiserver's `TestUpdateBorrowing`.
#[test]
fn exempt_requests_take_seats_from_the_others() {
    let spec = |name: &str| FlowConfig::builtin().levels()[name].clone();
    let config = FlowConfig::new(["workload-high", "workload-low"].map(|name| FlowObject::Level(spec(name))));
    let total = (40 + 100 + 5) * 6;
    let mut levels = PriorityLevels::new(Duration::ZERO, total, &config);
    let names = ["workload-high", "workload-low", "catch-all"];
    let demand = |levels: &mut PriorityLevels, now: Duration, name: &str, seats: u32| {
        let id = levels.find(name).unwrap().0;
        levels.level(id).unwrap().queues.demand.set(now, seats);
    };
    let all = |levels: &PriorityLevels| names.map(|name| seats_of(levels, name));
    let at = |period: u64| Duration::from_secs(10 * period);
    for name in names {
        demand(&mut levels, at(0), name, total + 100);
    }
    assert!(levels.tick(at(1), total + 100, |_, _, _| {}));
    assert_eq!(seats_of(&levels, "exempt").current, total + 100);
    all(&levels).iter().for_each(|seats| assert_eq!(seats.current, seats.lower, "{seats:?}"));

    let halves = all(&levels).map(|seats| (seats.nominal + seats.lower) / 2);
    let exempt = total - halves.iter().sum::<u32>();
    assert!(levels.tick(at(3), exempt, |_, _, _| {}));
    assert_eq!(all(&levels).map(|seats| seats.current), halves);

    let [high, low, catch_all] = all(&levels);
    demand(&mut levels, at(3), "workload-low", 1);
    let exempt = total - (high.nominal + low.lower + catch_all.nominal);
    levels.tick(at(4), exempt, |_, _, _| {});
    levels.tick(at(5), exempt, |_, _, _| {});
    assert_eq!(all(&levels).map(|seats| seats.current), [high.nominal, low.lower, catch_all.nominal]);
}

#[test]
fn a_level_that_is_gone_serves_the_requests_that_it_has() {
    let config = FlowConfig::new([FlowObject::Level(level("a", 10, 0, Some(0)))]);
    let mut levels = PriorityLevels::new(Duration::ZERO, 3, &config);
    let id = levels.find("a").unwrap().0;
    let (mut grants, mut waiting) = (Vec::new(), 0);
    for flow in 0..5 {
        match levels.arrive(Duration::ZERO, id, flow, 1, |_, _| {}) {
            Some(Arrival::Dispatched(grant)) => grants.push(grant),
            Some(Arrival::Queued(_)) => waiting += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(waiting > 0);
    levels.configure(Duration::ZERO, &FlowConfig::builtin(), 0, |_, _, grant| {
        waiting -= 1;
        grants.push(grant);
    });
    assert_eq!(levels.find("a"), None);
    assert_eq!(levels.arrive(Duration::ZERO, id, 1, 1, |_, _| {}), None, "new requests have another level");
    while let Some(grant) = grants.pop() {
        levels.finish(Duration::from_secs(1), id, grant, |_, grant| {
            waiting -= 1;
            grants.push(grant);
        });
    }
    assert_eq!(waiting, 0);
    assert!(levels.seats().any(|seats| seats.name == "a"));
    levels.tick(ADJUST_EVERY, 0, |_, _, _| {});
    assert!(!levels.seats().any(|seats| seats.name == "a"));
}
