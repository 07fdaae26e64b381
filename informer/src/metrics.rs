//! Counts of informers, for a Prometheus registry.
