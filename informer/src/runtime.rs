//! Events in the form of `kube::runtime`.
