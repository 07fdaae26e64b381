//! Benchmark scenarios with units and assertions: [`load`] drives any server of the Kubernetes list/watch API, and
//! [`numbers`] uses it to measure this project's server against targets.

pub mod load;
pub mod numbers;
pub mod publish;
