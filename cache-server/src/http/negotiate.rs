//! Reads Accept, and decides whether people read the answer.
//!
//! INVARIANT: what is answered is JSON of the objects themselves. A clause that asks for anything else (a table, only
//! metadata, YAML) is passed over, so that a client that also takes plain JSON gets that.
//!
//! Source: apiserver `endpoints/handlers/negotiation/negotiate.go`.

use http::{HeaderMap, header};
use informer_core::wire::{query::Query, status::Status};

/// The media types this server answers in.
const ACCEPTED: [&str; 1] = ["application/json"];

/// One header, or all of them joined as if they were one; empty when there is none or it is no text.
pub(crate) fn joined(headers: &HeaderMap, name: header::HeaderName) -> String {
    let values: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}

/// Whether plain JSON is acceptable.
///
/// # Errors
/// 406 when no clause takes it.
pub(crate) fn check(accept: &str) -> Result<(), Status> {
    let acceptable = accept.trim().is_empty() || clauses(accept).any(|clause| clause.takes_json());
    if acceptable { Ok(()) } else { Err(Status::not_acceptable(&ACCEPTED)) }
}

/// Whether a JSON body that is not a stream is indented: `;pretty=1` in Accept, else `?pretty=`, else by the program
/// that asks.
pub(crate) fn is_for_people(headers: &HeaderMap, query: &Query) -> bool {
    let accept = joined(headers, header::ACCEPT);
    if clauses(&accept).find(Clause::takes_json).is_some_and(|clause| clause.parameter("pretty") == Some("1")) {
        return true;
    }
    match query.get("pretty") {
        None | Some("") => {
            let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|program| agent.starts_with(program))
        }
        Some(value) => matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True"),
    }
}

/// One media range and its parameters.
struct Clause<'a> {
    range: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

/// The clauses of a header, the preferred ones first; those of equal quality as they came.
fn clauses(accept: &str) -> impl Iterator<Item = Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept.split(',').filter_map(Clause::parse).collect();
    clauses.sort_by(|left, right| right.quality.total_cmp(&left.quality));
    clauses.into_iter()
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let range = parts.next().filter(|range| !range.is_empty())?;
        let parameters: Vec<_> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
            .collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q").and_then(|(_, value)| value.parse().ok());
        Some(Self { range, parameters, quality: quality.unwrap_or(1.0) })
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    /// JSON, as it is stored; in a stream if the client likes to say so.
    fn takes_json(&self) -> bool {
        let names_json = ["application/json", "application/*", "*/*"].iter().any(|ours| {
            // Names of media types do not depend on case.
            self.range.eq_ignore_ascii_case(ours)
        });
        names_json
            && self.quality > 0.0
            && matches!(self.parameter("stream"), None | Some("" | "watch"))
            && matches!(self.parameter("as"), None | Some(""))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn plain_json_is_found_among_the_clauses() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let kubectl = format!("{table},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json");
        for (accept, acceptable) in [
            ("", true),
            ("*/*", true),
            ("application/*", true),
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/json;stream=watch", true),
            ("application/json;pretty=1", true),
            (&*kubectl, true),
            ("application/json,application/json;as=Table;v=v1;g=meta.k8s.io", true),
            ("application/vnd.kubernetes.protobuf,application/json;q=0.5", true),
            ("text/html,application/xhtml+xml,*/*;q=0.8", true),
            ("application/json;stream=foo", false),
            ("application/json;q=0", false),
            (table, false),
            ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", false),
            ("application/yaml", false),
            ("application/vnd.kubernetes.protobuf", false),
            ("text/html", false),
            ("nonsense", false),
        ] {
            assert_eq!(check(accept).is_ok(), acceptable, "{accept}");
        }
    }

    #[test]
    fn a_refusal_names_what_there_is() {
        let status = check("text/html").expect_err("no JSON");
        assert_eq!((status.code, status.reason.to_string().as_str()), (406, "NotAcceptable"));
        assert_eq!(status.message, "only the following media types are accepted: application/json");
    }

    #[test]
    fn people_get_indented_json() {
        for (agent, accept, query, expected) in [
            ("curl/8.5.0", "", "", true),
            ("Wget/1.21", "", "", true),
            ("Mozilla/5.0 (X11)", "", "", true),
            ("kubectl/v1.32.4", "", "", false),
            ("kubectl/v1.32.4", "application/json;pretty=1", "", true),
            ("kubectl/v1.32.4", "application/json;as=Table;pretty=1,application/json", "", false),
            ("kubectl/v1.32.4", "application/json;pretty=1", "pretty=0", true),
            ("curl/8", "", "pretty=0", false),
            ("curl/8", "", "pretty=false", false),
            ("curl/8", "", "pretty=yes", false),
            ("curl/8", "", "pretty=", true),
            ("probe/1.0", "", "pretty=true", true),
            ("probe/1.0", "", "pretty=T", true),
            ("", "", "", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            let query = Query::parse(Some(query));
            assert_eq!(is_for_people(&headers, &query), expected, "{agent} {accept} {query:?}");
        }
    }
}
