//! Numbers of synthetic objects, as settings name them.

use std::{fmt, str::FromStr};

use crate::limits::POPULATE_MAX;

/// Numbers of objects to generate. Text form: `pods=7130,nodes=80,namespaces=40,seed=1`, each part optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopulateSpec {
    /// Number of pods, exact. Default 7,130.
    pub pods: u32,
    /// Number of nodes, named from `node-0`; pods are spread over them evenly. Default 80.
    pub nodes: u32,
    /// Number of namespaces, exact. Default 40.
    pub namespaces: u32,
    /// Seed of the random numbers. Default 1.
    pub seed: u64,
}

/// Reason why a specification cannot be used: one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PopulateSpecError {
    /// A part without `=`.
    #[error("{part:?} is not key=number; for example pods=7130,nodes=80,namespaces=40,seed=1")]
    NotAPair {
        /// The part.
        part: String,
    },
    /// A key that does not exist.
    #[error("unknown key {key:?}; known are pods, nodes, namespaces and seed")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A key that was given before.
    #[error("{key} is given twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// A value that is not a number or is too large.
    #[error("{key}={value} is not a number from 0 to {max}")]
    BadNumber {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The largest number allowed.
        max: u64,
    },
    /// Pods without a node or a namespace.
    #[error("pods need at least one node and one namespace")]
    Homeless,
}

impl Default for PopulateSpec {
    fn default() -> Self {
        Self { pods: 7_130, nodes: 80, namespaces: 40, seed: 1 }
    }
}

impl FromStr for PopulateSpec {
    type Err = PopulateSpecError;

    fn from_str(text: &str) -> Result<Self, PopulateSpecError> {
        let mut spec = Self::default();
        let mut seen = Vec::new();
        for part in text.split(',') {
            let Some((key, value)) = part.split_once('=') else {
                return Err(PopulateSpecError::NotAPair { part: part.to_owned() });
            };
            if seen.contains(&key) {
                return Err(PopulateSpecError::Twice { key: key.to_owned() });
            }
            seen.push(key);
            match key {
                "pods" => spec.pods = count(key, value)?,
                "nodes" => spec.nodes = count(key, value)?,
                "namespaces" => spec.namespaces = count(key, value)?,
                "seed" => spec.seed = number(key, value, u64::MAX)?,
                _ => return Err(PopulateSpecError::UnknownKey { key: key.to_owned() }),
            }
        }
        if spec.pods > 0 && (spec.nodes == 0 || spec.namespaces == 0) {
            return Err(PopulateSpecError::Homeless);
        }
        Ok(spec)
    }
}

impl fmt::Display for PopulateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pods, nodes, namespaces, seed } = self;
        write!(f, "pods={pods},nodes={nodes},namespaces={namespaces},seed={seed}")
    }
}

fn count(key: &str, value: &str) -> Result<u32, PopulateSpecError> {
    let count = number(key, value, u64::from(POPULATE_MAX))?;
    Ok(u32::try_from(count).expect("checked against a u32"))
}

fn number(key: &str, value: &str, max: u64) -> Result<u64, PopulateSpecError> {
    let bad = || PopulateSpecError::BadNumber { key: key.to_owned(), value: value.to_owned(), max };
    value.parse().ok().filter(|number| *number <= max).ok_or_else(bad)
}
