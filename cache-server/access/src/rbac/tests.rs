//! Decisions of roles and bindings: tables, and random policies.

mod cases;
mod naive;
mod speed;
