//! Credentials: from the parts of a request to the identity they prove.
//!
//! INVARIANT: decides without I/O: files, keys and certificates come as bytes, and the time as Unix seconds. Signatures
//! and hashes are computed by `ring`. INVARIANT: no error contains a part of a token or of a key.
//!
//! In reading order: [`bearer`] (tokens in headers), [`token_file`] (static tokens), [`signed_token`] (JSON Web Tokens and
//! their keys), [`claims`] (users of verified tokens), [`token_request`] (new tokens), [`certificate`] (users of TLS certificates),
//! [`impersonation`]
//! (acting as another user).

pub mod bearer;
pub mod certificate;
pub mod claims;
pub mod impersonation;
pub mod signed_token;
pub mod token_file;
pub mod token_request;
