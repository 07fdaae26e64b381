//! A live copy of Kubernetes objects in your program, without hurting the cluster.
//!
//! INVARIANT: the only crate that knows kube-client. Semver promises start here.
