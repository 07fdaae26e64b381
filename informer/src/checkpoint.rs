//! Saved state on disk, so that a restart resumes.
