//! OpenAPI documents of types: version 3 has one for each group version ([`document`]), version 2 one for all
//! ([`swagger`]), which is sent as JSON or as protobuf.
//!
//! Cost: `api/v1` has 580 KiB, `apps/v1` 350 KiB, the others 40 to 270 KiB, and the 18 of built-in types together 2.5 MiB.
//! In a debug build the first takes 0.1 s and all of them 0.5 s.
//!
//! Source: kube-openapi `pkg/handler3`, apiserver `endpoints/installer.go`.

pub mod document;
mod operations;
pub mod protobuf;
mod schemas;
pub mod swagger;
