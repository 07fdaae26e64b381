//! Scenarios with units and assertions: [`load`] drives any server of the Kubernetes list/watch API, [`numbers`] takes
//! this project's own to its limits with it, and says target and measurement side by side.

pub mod load;
pub mod numbers;
pub mod publish;
