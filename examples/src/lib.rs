//! This library is empty; the examples are in the folders beside it.
