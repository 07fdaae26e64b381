//! The examples are in the folders beside this one; this library is empty.
