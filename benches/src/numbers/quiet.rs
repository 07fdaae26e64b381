//! Lets a run begin only while the machine is idle: the table is worth nothing beside a compiler.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    Failure,
    machine::{CpuTicks, Machine, describe, load_average},
};

/// Largest load average, and largest number of busy cores, before a run.
const LOAD_MAX: f64 = 0.5;
/// Time over which busy cores are counted.
const LOOK: Duration = Duration::from_secs(3);
/// Longest wait for the load average of an idle machine: after a build on two cores it takes some two minutes to fall.
const DECAY_WAIT: Duration = Duration::from_secs(300);

/// Describes the machine once it is idle; at once with `allow_load`.
///
/// # Errors
/// [`Failure::Busy`] if programs run. A load average that is left over from programs that ended is waited for.
pub(crate) fn machine(allow_load: bool) -> Result<Machine, Failure> {
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        let before = CpuTicks::now();
        thread::sleep(LOOK);
        let (load, busy) = (load_average(), CpuTicks::now().cores_since(before));
        if !is_told {
            eprintln!("numbers: load average {load:.2}, {busy:.2} cores busy");
            is_told = true;
        }
        let decision = if allow_load { StartDecision::Begin } else { StartDecision::of(load, busy, begun.elapsed()) };
        match decision {
            StartDecision::Begin => return Ok(Machine { busy_before: Some(busy), ..describe() }),
            StartDecision::Refuse => return Err(Failure::Busy { load, busy, most: LOAD_MAX }),
            StartDecision::LookAgain => {}
        }
    }
}

/// Decision about the start of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartDecision {
    Begin,
    Refuse,
    /// Nothing runs, but the load average still remembers what ran.
    LookAgain,
}

impl StartDecision {
    fn of(load: f64, busy: f64, waited: Duration) -> Self {
        if LOAD_MAX < busy || (LOAD_MAX < load && DECAY_WAIT < waited) {
            Self::Refuse
        } else if load <= LOAD_MAX {
            Self::Begin
        } else {
            Self::LookAgain
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_refused_and_an_old_load_average_is_waited_for() {
        let decided = |load, busy| StartDecision::of(load, busy, Duration::ZERO);
        assert_eq!(decided(0.5, 0.5), StartDecision::Begin);
        assert_eq!(decided(0.1, 0.6), StartDecision::Refuse);
        assert_eq!(decided(3.0, 0.6), StartDecision::Refuse);
        assert_eq!(decided(3.0, 0.1), StartDecision::LookAgain);
        assert_eq!(StartDecision::of(3.0, 0.1, DECAY_WAIT * 2), StartDecision::Refuse, "threads that wait for a disk");
    }
}
