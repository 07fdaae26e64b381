//! Results compared with targets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    case::{Case, Fields, Row, Target, Unit},
    machine::Machine,
    picture::Graph,
};

/// All results of a run: the content of `numbers.json` and the input of the page.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) outcomes: Vec<Outcome>,
    #[serde(skip)]
    pub(crate) graphs: Vec<Graph>,
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
    /// Duration, including the start of the server.
    pub(crate) seconds: f64,
    /// Reason why there are no numbers.
    pub(crate) problem: Option<String>,
    /// All fields that the run reported.
    pub(crate) found: Fields,
}

/// Result of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) target: Target,
    /// The best value that a prototype reached.
    pub(crate) seen: Option<f64>,
    /// Value in the row's unit; `None` if the run did not report it.
    pub(crate) value: Option<f64>,
}

impl Outcome {
    /// Derives a case's rows from the results of its run.
    pub(crate) fn of(case: &Case, is_stock: bool, time: Duration, found: Result<Fields, String>) -> Self {
        let command = case.text();
        let (found, problem) = match found {
            Ok(found) => (found, None),
            Err(problem) => (Fields::new(), Some(problem)),
        };
        let rows = case.rows.iter().map(|row| Measured::of(row, &found)).collect();
        let seconds = time.as_secs_f64();
        Self { case: case.name.clone(), is_stock, command, rows, seconds, problem, found }
    }

    /// True if every target was met. A stock server has no targets.
    pub(crate) fn holds(&self) -> bool {
        self.is_stock || (self.problem.is_none() && self.rows.iter().all(Measured::holds))
    }
}

impl Measured {
    fn of(row: &Row, found: &Fields) -> Self {
        let Row { what, unit, take, target, seen } = row;
        Self { what: what.clone(), unit: *unit, target: *target, seen: *seen, value: take.read(found, *unit) }
    }

    pub(crate) fn holds(&self) -> bool {
        match self.value {
            Some(value) => self.target.is_met(value),
            None => false,
        }
    }

    /// The value divided by the prototype's value.
    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.value? / self.seen?)
    }
}

impl Report {
    /// Sets a target that depends on another case: the first row of `case` may be at most `more` above the first row of
    /// `like`. Called once both are measured.
    pub(crate) fn relate(&mut self, like: &str, case: &str, more: f64) {
        let first = |outcomes: &[Outcome]| {
            outcomes.iter().find(|outcome| outcome.case == like && !outcome.is_stock)?.rows.first()?.value
        };
        let Some(base) = first(&self.outcomes) else { return };
        let same = self.outcomes.iter_mut().filter(|outcome| outcome.case == case && !outcome.is_stock);
        for row in same.filter_map(|outcome| outcome.rows.first_mut()) {
            row.target = Target::AtMost(base + more);
        }
    }

    pub(crate) fn holds(&self) -> bool {
        self.outcomes.iter().all(Outcome::holds)
    }
}
