//! Reading by other things than the key.
