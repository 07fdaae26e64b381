//! Objects compressed by a dictionary trained on the first of them.
