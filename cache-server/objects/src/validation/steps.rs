//! Steps of checks, which tests count: places that are visited, and causes that are added.

#[cfg(not(test))]
pub(super) const fn count() {}

#[cfg(test)]
pub(super) use counted::{count, taken};

#[cfg(test)]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    pub(in super::super) fn count() {
        STEPS.set(STEPS.get() + 1);
    }

    /// Returns the steps of this thread since the last call.
    pub(in super::super) fn taken() -> usize {
        STEPS.take()
    }
}
