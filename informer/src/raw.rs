//! Changes as bytes, in order, without a store.
