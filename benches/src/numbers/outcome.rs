//! What was measured, held to its targets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    case::{Case, Fields, Row, Target, Unit},
    machine::Machine,
    picture::Graph,
};

/// Everything one run of the program found: what is written as `numbers.json`, and what the page is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) outcomes: Vec<Outcome>,
    #[serde(skip)]
    pub(crate) graphs: Vec<Graph>,
}

/// One case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) case: String,
    /// Whether a stock kube-apiserver was measured, not ours.
    pub(crate) is_stock: bool,
    /// What was done, so that it can be done again by hand.
    pub(crate) command: String,
    pub(crate) rows: Vec<Measured>,
    /// How long it took, the server's start included.
    pub(crate) seconds: f64,
    /// Why there are no numbers.
    pub(crate) problem: Option<String>,
    /// All that was found.
    pub(crate) found: Fields,
}

/// One row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) target: Target,
    /// The limit that prototypes have shown.
    pub(crate) seen: Option<f64>,
    /// In the row's unit; `None` where the run did not find it.
    pub(crate) value: Option<f64>,
}

impl Outcome {
    /// Reads a case's rows off what was found.
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

    /// A row's words, with how the server is spoken to where the case's name tells.
    pub(crate) fn named(&self, what: &str) -> String {
        let ways = [("-h1-tls", "HTTP/1.1, TLS"), ("-h2-tls", "HTTP/2, TLS"), ("-h1", "HTTP/1.1"), ("-h2", "HTTP/2")];
        match ways.iter().find(|(ending, _)| self.case.ends_with(ending)) {
            Some((_, way)) => format!("{what} ({way})"),
            None => what.to_owned(),
        }
    }

    /// Whether every target was met. A stock server has none.
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

    /// Measured by the limit of prototypes.
    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.value? / self.seen?)
    }
}

impl Report {
    /// Turns targets that are told by another row into numbers, now that both are there: at most `more` above what the
    /// row of the same place in the case `like` measured.
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
