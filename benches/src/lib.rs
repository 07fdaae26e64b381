//! Benchmark scenarios with units and assertions: [`load`] drives any server of the Kubernetes list/watch API, and
//! [`numbers`] uses it to measure this project's server against targets. [`cascade`] computes from those numbers what a
//! tree of servers costs.

mod bare;
pub mod cascade;
pub mod load;
mod marked;
pub mod numbers;
pub mod publish;
