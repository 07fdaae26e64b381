//! The informer beside kube's own runtime: memory, time, CPU and requests, measured in one run.

fn main() {}
