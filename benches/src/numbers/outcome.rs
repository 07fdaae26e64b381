//! Results compared with targets.
//!
//! INVARIANT: a target is met if every run met it, and missed if none did. In between, the spread hides the verdict.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    case::{Case, Fields, Row, Target, Unit, amount},
    cases::RelatedTarget,
    machine::{self, Machine},
    picture::Graph,
};

/// All results: the content of `numbers.json` and the input of the page.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) command: String,
    pub(crate) machine: Machine,
    /// Start of the newest run of the program, in Unix seconds; `--resume` continues that run.
    #[serde(default)]
    pub(crate) started: u64,
    pub(crate) outcomes: Vec<Outcome>,
    /// Results of the bare server, without targets.
    #[serde(default)]
    pub(crate) floors: Vec<Outcome>,
    #[serde(skip)]
    pub(crate) graphs: Vec<Graph>,
}

/// A server under a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    /// This project's server.
    Own,
    /// A stock kube-apiserver.
    Stock,
    /// The [bare server](crate::bare), for floors.
    Bare,
}

/// Result of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) case: String,
    /// True for a stock kube-apiserver.
    pub(crate) is_stock: bool,
    /// Description of setup and load, to repeat them by hand.
    pub(crate) command: String,
    pub(crate) rows: Vec<Measured>,
    /// [`Report::started`] of the run of the program that measured it.
    #[serde(default)]
    pub(crate) started: u64,
    /// UTC date of the first run.
    #[serde(default)]
    pub(crate) date: String,
    /// Duration of one run, including the start of the server.
    pub(crate) seconds: f64,
    /// Reason why runs have no numbers.
    pub(crate) problem: Option<String>,
    /// All fields that the runs reported; numbers are means of the runs.
    pub(crate) found: Fields,
    /// The runs, in order.
    #[serde(default)]
    pub(crate) runs: Vec<OutcomeRun>,
}

/// One run of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OutcomeRun {
    pub(crate) seconds: f64,
    /// Percentage of all CPU time that other programs took meanwhile.
    pub(crate) others_percent: f64,
    pub(crate) failed: bool,
}

/// Result of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) target: Target,
    /// Mean of the runs in the row's unit; `None` if no run reported it.
    pub(crate) value: Option<f64>,
    /// Value of each run that reported it.
    #[serde(default)]
    pub(crate) runs: Vec<f64>,
}

/// Comparison of a row with its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetVerdict {
    /// Every run met the target, or there is none.
    Met,
    /// No run met the target, or none reported the row.
    Missed,
    /// Some runs met the target, and some missed it.
    Hidden,
}

impl Outcome {
    /// The outcome of a case before its first run.
    pub(crate) fn new(case: &Case, by: Contender, started: u64, date: &str) -> Self {
        let mut rows: Vec<Measured> = case.rows.iter().map(Measured::new).collect();
        if by == Contender::Bare {
            rows.iter_mut().for_each(|row| row.target = Target::None);
        }
        Self {
            case: case.name.clone(),
            is_stock: by == Contender::Stock,
            command: case.text(),
            rows,
            started,
            date: date.to_owned(),
            seconds: 0.0,
            problem: None,
            found: Fields::new(),
            runs: Vec::new(),
        }
    }

    /// Adds a run, and derives the rows from all of them.
    pub(crate) fn add(&mut self, case: &Case, time: Duration, others_percent: f64, found: Result<Fields, String>) {
        let seconds = time.as_secs_f64();
        self.runs.push(OutcomeRun { seconds, others_percent, failed: found.is_err() });
        self.seconds = mean(self.runs.iter().map(|run| run.seconds)).unwrap_or_default();
        let found = match found {
            Ok(found) => found,
            Err(problem) => {
                let run = self.runs.len();
                self.problem = Some(if run == 1 { problem } else { format!("run {run}: {problem}") });
                return;
            }
        };
        for (row, measured) in case.rows.iter().zip(&mut self.rows) {
            measured.runs.extend(row.take.read(&found, row.unit));
            measured.value = mean(measured.runs.iter().copied());
        }
        let succeeded = self.runs.iter().filter(|run| !run.failed).count();
        for (name, new) in found {
            let value = self.found.entry(name).or_insert_with(|| new.clone());
            if let (Some(before), Some(new)) = (value.as_f64(), new.as_f64())
                && before.to_bits() != new.to_bits()
            {
                *value = Value::from(before + (new - before) / count(succeeded));
            }
        }
    }

    /// True if every target was met. A stock server has no targets.
    pub(crate) fn holds(&self) -> bool {
        self.is_stock || (self.problem.is_none() && self.rows.iter().all(|row| row.verdict() == TargetVerdict::Met))
    }
}

impl Measured {
    fn new(row: &Row) -> Self {
        let Row { what, unit, target, .. } = row;
        Self { what: what.clone(), unit: *unit, target: *target, value: None, runs: Vec::new() }
    }

    pub(crate) fn verdict(&self) -> TargetVerdict {
        // Results of older versions of this program have no list of runs.
        let runs = if self.runs.is_empty() { self.value.as_slice() } else { &self.runs };
        match self.runs_met() {
            _ if runs.is_empty() => TargetVerdict::Missed,
            met if met == runs.len() => TargetVerdict::Met,
            0 => TargetVerdict::Missed,
            _ => TargetVerdict::Hidden,
        }
    }

    /// Number of runs that met the target.
    pub(crate) fn runs_met(&self) -> usize {
        let runs = if self.runs.is_empty() { self.value.as_slice() } else { &self.runs };
        runs.iter().filter(|value| self.target.is_met(**value)).count()
    }

    /// The smallest and the largest value of several runs.
    pub(crate) fn spread(&self) -> Option<(f64, f64)> {
        let least = self.runs.iter().copied().reduce(f64::min)?;
        let most = self.runs.iter().copied().reduce(f64::max)?;
        (1 < self.runs.len()).then_some((least, most))
    }

    /// The cell of the measured value, with its verdict.
    pub(crate) fn cell(&self) -> String {
        let Some(value) = self.value.map(amount) else { return "**failed**".to_owned() };
        match self.verdict() {
            TargetVerdict::Met => value,
            TargetVerdict::Missed => format!("**{value}** missed"),
            TargetVerdict::Hidden => {
                format!("**{value}** no verdict: {} of {} runs met it", self.runs_met(), self.runs.len())
            }
        }
    }
}

impl Report {
    /// Returns the outcome of a case in the current run of the program. A result of an earlier one is replaced.
    pub(crate) fn outcome(&mut self, case: &Case, by: Contender) -> &mut Outcome {
        let new = Outcome::new(case, by, self.started, &machine::date());
        let outcomes = if by == Contender::Bare { &mut self.floors } else { &mut self.outcomes };
        let known = outcomes.iter().position(|known| known.case == new.case && known.is_stock == new.is_stock);
        let place = known.unwrap_or(outcomes.len());
        if known.is_none() {
            outcomes.push(new);
        } else if outcomes[place].started != self.started {
            outcomes[place] = new;
        }
        &mut outcomes[place]
    }

    /// Number of runs of a case in the current run of the program.
    pub(crate) fn runs(&self, case: &str, by: Contender) -> usize {
        let outcomes = if by == Contender::Bare { &self.floors } else { &self.outcomes };
        let is_stock = by == Contender::Stock;
        let mut known = outcomes.iter().filter(|known| known.case == case && known.is_stock == is_stock);
        known.find(|known| known.started == self.started).map_or(0, |known| known.runs.len())
    }

    /// Returns the bare server's value of a row. A case over HTTP/2 has the value over HTTP/1.1, without frames.
    pub(crate) fn floor(&self, case: &str, row: usize) -> Option<f64> {
        let case = case.replace("-h2", "-h1");
        self.floors.iter().find(|floor| floor.case == case)?.rows.get(row)?.value
    }

    /// Sorts by the order of the cases, and removes those that are no cases any more. Sets the targets that depend on
    /// other cases.
    pub(crate) fn settle(&mut self, names: &[String], related: &[RelatedTarget]) {
        let place = |outcome: &Outcome| names.iter().position(|name| *name == outcome.case);
        for outcomes in [&mut self.outcomes, &mut self.floors] {
            outcomes.retain(|outcome| place(outcome).is_some());
        }
        self.floors.sort_by_key(place);
        self.outcomes.sort_by_key(|outcome| (outcome.is_stock, place(outcome)));
        related.iter().for_each(|related| self.relate(related));
    }

    /// Sets a target that depends on another case.
    fn relate(&mut self, related: &RelatedTarget) {
        let RelatedTarget { like, case, row, times, plus } = related;
        let like = self.outcomes.iter().find(|outcome| outcome.case == *like && !outcome.is_stock);
        let Some(base) = like.and_then(|outcome| outcome.rows.get(*row)?.value) else { return };
        let same = self.outcomes.iter_mut().filter(|outcome| outcome.case == *case && !outcome.is_stock);
        for measured in same.filter_map(|outcome| outcome.rows.get_mut(*row)) {
            measured.target = Target::AtMost(base * times + plus);
        }
    }

    /// True if all targets were met that the current run of the program measured.
    pub(crate) fn holds(&self) -> bool {
        self.outcomes.iter().filter(|outcome| outcome.started == self.started).all(Outcome::holds)
    }
}

/// The mean; `None` without values.
fn mean(values: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let number = values.len();
    (0 < number).then(|| values.sum::<f64>() / count(number))
}

#[expect(clippy::cast_precision_loss, reason = "a count of runs")]
const fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::numbers::{
        case::{How, Setup, Take},
        run,
    };

    fn case() -> Case {
        let row = Row {
            what: "memory".to_owned(),
            unit: Unit::Count,
            take: Take::Field("bytes"),
            target: Target::AtMost(16.0),
        };
        Case {
            name: "list".to_owned(),
            setup: Setup::default(),
            before: None,
            how: How::Idle,
            rows: vec![row],
            is_comparable: false,
            has_floor: false,
            is_quick: false,
        }
    }

    fn report(started: u64) -> Report {
        let machine = machine::describe();
        Report {
            command: String::new(),
            machine,
            started,
            outcomes: Vec::new(),
            floors: Vec::new(),
            graphs: Vec::new(),
        }
    }

    fn measured(values: &[f64]) -> Outcome {
        let mut outcome = Outcome::new(&case(), Contender::Own, 1, "2026-01-01");
        for value in values {
            let found = run::flat(json!({ "bytes": value }));
            outcome.add(&case(), Duration::from_secs(2), 0.0, Ok(found));
        }
        outcome
    }

    /// Goal: a verdict is given only if all runs agree. Method: two runs on either side of the target.
    #[test]
    fn a_spread_around_the_target_hides_the_verdict() {
        let verdict = |values: &[f64]| measured(values).rows[0].verdict();
        assert_eq!(verdict(&[14.0, 16.0]), TargetVerdict::Met);
        assert_eq!(verdict(&[17.0, 18.0]), TargetVerdict::Missed);
        assert_eq!(verdict(&[]), TargetVerdict::Missed);
        let hidden = measured(&[15.0, 17.0]);
        assert_eq!(hidden.rows[0].verdict(), TargetVerdict::Hidden);
        assert!(!hidden.holds(), "no target is met silently");
        assert_eq!(hidden.rows[0].cell(), "**16** no verdict: 1 of 2 runs met it");
        assert_eq!(hidden.rows[0].spread(), Some((15.0, 17.0)));
    }

    #[test]
    fn fields_are_means_of_the_runs() {
        let outcome = measured(&[1.0, 2.0, 6.0]);
        assert_eq!(outcome.found["bytes"], json!(3.0));
        assert_eq!((outcome.runs.len(), outcome.seconds), (3, 2.0));
    }

    #[test]
    fn a_run_that_fails_leaves_the_numbers_of_the_others() {
        let mut outcome = measured(&[10.0]);
        outcome.add(&case(), Duration::from_secs(4), 0.0, Err("cut".to_owned()));
        assert_eq!(outcome.rows[0].value, Some(10.0));
        assert_eq!(outcome.problem.as_deref(), Some("run 2: cut"));
        assert!(!outcome.holds());
    }

    /// Goal: a new run of the program replaces the results of the cases that it measures, a resumed one adds to them.
    #[test]
    fn results_of_an_earlier_run_are_replaced() {
        let mut report = report(1);
        report.outcome(&case(), Contender::Own).add(&case(), Duration::ZERO, 0.0, Ok(Fields::new()));
        assert_eq!(report.runs("list", Contender::Own), 1);
        report.outcome(&case(), Contender::Own).add(&case(), Duration::ZERO, 0.0, Ok(Fields::new()));
        assert_eq!((report.runs("list", Contender::Own), report.runs("list", Contender::Stock)), (2, 0));
        report.started = 2;
        assert_eq!(report.runs("list", Contender::Own), 0);
        assert_eq!(report.outcome(&case(), Contender::Own).runs.len(), 0);
        assert_eq!(report.outcomes.len(), 1);
    }

    #[test]
    fn a_target_may_be_told_by_another_row() {
        let mut report = report(1);
        for (name, value) in [("large", 19.0), ("small", 10.0), ("gone", 1.0)] {
            let outcome = Outcome { case: name.to_owned(), ..measured(&[value]) };
            report.outcomes.push(outcome);
        }
        let related = RelatedTarget { like: "small", case: "large", row: 0, times: 1.0, plus: 8.0 };
        report.settle(&["small", "large"].map(str::to_owned), &[related]);
        let names: Vec<&str> = report.outcomes.iter().map(|outcome| &*outcome.case).collect();
        assert_eq!(names, ["small", "large"]);
        assert_eq!(report.outcomes[1].rows[0].target, Target::AtMost(18.0));
        assert!(!report.holds());
    }
}
