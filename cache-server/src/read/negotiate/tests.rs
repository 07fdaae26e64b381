//! Accept headers and their results.

use std::sync::Arc;

use http::HeaderValue;
use watch_cache::Content;

use super::*;
use crate::registry::{Definition, Registry};

fn headers(agent: &'static str, accept: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
    headers.insert(header::ACCEPT, HeaderValue::from_str(accept).expect("a header"));
    headers
}

fn plain(headers: &HeaderMap, query: &Query) -> PlainFormat {
    PlainFormat::read(&joined(headers, header::ACCEPT), headers, query)
}

/// A type that a CustomResourceDefinition defines.
fn custom() -> Arc<ResourceType> {
    let definition = serde_json::json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com",
        "versions": [{"name": "v1", "served": true, "storage": true}]},
        "status": {"acceptedNames": {"plural": "widgets", "kind": "Widget"}}});
    let definition = Definition::read(definition.as_object().expect("an object")).expect("a definition");
    definition.types(&Arc::new(definition.schema()), 1).swap_remove(0)
}

/// Describes the result of an Accept header.
fn negotiated(accept: &str) -> String {
    negotiated_for(&Registry::builtin().by_id("pods").expect("pods"), &headers("probe/1.0", accept))
}

fn negotiated_for(ty: &ResourceType, headers: &HeaderMap) -> String {
    match AnswerFormat::read(headers, &Query::parse(None), ty, AnswerSubject::Object) {
        Err(status) => format!("{} {}", status.code, status.message.split(':').next().unwrap_or_default()),
        Ok(answer) => {
            let shape = match answer.shape {
                AnswerShape::Whole => "whole".to_owned(),
                AnswerShape::Metadata { list, meta } => {
                    format!("{}{}", if list { "list " } else { "" }, meta.api_version())
                }
                AnswerShape::Table(meta) => format!("table {}", meta.api_version()),
            };
            let indent = if answer.indent { " indented" } else { "" };
            let without = if answer.without_managed_fields { " short" } else { "" };
            let encoding = match answer.encoding {
                AnswerEncoding::Json => "",
                AnswerEncoding::Yaml => " in YAML",
                AnswerEncoding::Protobuf => " in protobuf",
            };
            format!("{shape}{without}{indent}{encoding}")
        }
    }
}

#[test]
fn the_first_clause_that_can_be_served_wins() {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    const OLD_TABLE: &str = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    let refused = "406 only the following media types are accepted";
    for (accept, expected) in [
        ("", "whole"),
        ("*/*", "whole"),
        ("application/*", "whole"),
        ("application/json", "whole"),
        ("Application/JSON; charset=utf-8", "whole"),
        ("application/json;stream=watch", "whole"),
        ("application/json;pretty=1", "whole indented"),
        ("application/json;sv=v1", "whole"),
        ("application/json;sv=v2", refused),
        (TABLE, "table meta.k8s.io/v1"),
        (OLD_TABLE, "table meta.k8s.io/v1beta1"),
        (&format!("{TABLE},{OLD_TABLE},application/json"), "table meta.k8s.io/v1"),
        (&format!("application/json,{TABLE}"), "whole"),
        (&format!("application/json;q=0.5,{TABLE}"), "table meta.k8s.io/v1"),
        (&format!("*/*,{TABLE}"), "table meta.k8s.io/v1"),
        (&format!("{TABLE};q=0.1,application/json"), "whole"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", "whole"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io", refused),
        ("application/json;as=Table;v=v1;g=meta.io", refused),
        ("application/json;as=Table", refused),
        ("application/json;v=v1;g=meta.k8s.io", refused),
        ("application/json;as=", refused),
        ("application/json;as=Pod;v=v1;g=meta.k8s.io", refused),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "meta.k8s.io/v1"),
        ("application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io", "meta.k8s.io/v1beta1"),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io;pretty=1", "list meta.k8s.io/v1 indented"),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
             application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            "list meta.k8s.io/v1 in protobuf",
        ),
        ("application/vnd.kubernetes.protobuf,application/json", "whole in protobuf"),
        ("application/json,application/vnd.kubernetes.protobuf", "whole"),
        ("application/vnd.kubernetes.protobuf;stream=watch,application/json;q=0.5", "whole in protobuf"),
        (
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1;g=meta.k8s.io",
            "table meta.k8s.io/v1",
        ),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", refused),
        ("application/yaml", "whole in YAML"),
        ("application/json;drop=metadata.managedFields", "whole short"),
        ("application/json;drop=spec", "whole"),
        (
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io;drop=metadata.managedFields",
            "meta.k8s.io/v1 short",
        ),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "whole"),
        ("application/json;stream=foo", refused),
        ("application/vnd.kubernetes.protobuf", "whole in protobuf"),
        ("application/json;q=0", "406 406"),
        ("text/html", "406 406"),
        ("nonsense", "406 406"),
    ] {
        assert_eq!(negotiated(accept), expected, "{accept}");
    }
}

/// Goal: clients that also accept JSON get it of what protobuf cannot hold, in the shape that they asked for.
#[test]
fn json_instead_of_protobuf_has_the_same_shape() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    const METADATA: &str = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let pods = Registry::builtin().by_id("pods").expect("pods");
    for (accept, expected) in [
        (PROTOBUF.to_owned(), None),
        (format!("{PROTOBUF},application/yaml"), None),
        (format!("{PROTOBUF},application/json;pretty=1"), Some((AnswerShape::Whole, true))),
        (format!("application/json;q=0.5,{PROTOBUF}"), Some((AnswerShape::Whole, false))),
        (format!("{PROTOBUF}{METADATA},application/json"), None),
        (
            format!("{PROTOBUF}{METADATA},application/json,application/json{METADATA}"),
            Some((AnswerShape::Metadata { list: false, meta: MetaVersion::V1 }, false)),
        ),
        ("application/json".to_owned(), None),
    ] {
        let format = AnswerFormat::read(&headers("", &accept), &Query::parse(None), &pods, AnswerSubject::Object);
        let format = format.expect("a format");
        let json = format.in_json().map(|json| (json.shape, json.indent));
        assert_eq!(json, expected, "{accept}");
        assert!(format.in_json().is_none_or(|json| json.encoding == AnswerEncoding::Json), "{accept}");
    }
}

/// Goal: a WebSocket, whose messages are lines, carries JSON. Method: the header of its handshake.
#[test]
fn a_websocket_is_no_protobuf() {
    let mut upgrade = headers("", "application/vnd.kubernetes.protobuf,application/json;q=0.5");
    upgrade.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    assert_eq!(negotiated_for(&Registry::builtin().by_id("pods").expect("pods"), &upgrade), "whole");
}

#[test]
fn a_form_fits_what_it_is_of() {
    let registry = Registry::builtin();
    let pods = registry.by_id("pods").expect("pods");
    let deployments = registry.by_id("deployments.apps").expect("deployments");
    let form = |accept: &str, ty: &ResourceType, of: AnswerSubject, query: &str| {
        let accept = format!("application/json;v=v1;g=meta.k8s.io;as={accept}");
        let answer = AnswerFormat::read(&headers("", &accept), &Query::parse(Some(query)), &pods, of).expect("a form");
        answer.form(ty, of).map_err(|status| format!("{} {}", status.code, status.message))
    };
    let (object, list) = ("PartialObjectMetadata", "PartialObjectMetadataList");
    for (accept, ty, of, expected) in [
        (object, &pods, AnswerSubject::Object, None),
        (object, &pods, AnswerSubject::Events, None),
        (
            object,
            &pods,
            AnswerSubject::List,
            Some("406 you requested PartialObjectMetadata, but the requested object is a list (*core.PodList)"),
        ),
        (list, &pods, AnswerSubject::List, None),
        (list, &pods, AnswerSubject::Events, None),
        (
            list,
            &deployments,
            AnswerSubject::Object,
            Some(
                "406 you requested PartialObjectMetadataList, but the requested object is not a list (*apps.Deployment)",
            ),
        ),
        ("Table", &pods, AnswerSubject::Object, None),
        ("Table", &pods, AnswerSubject::List, None),
    ] {
        let came = form(accept, ty, of, "").err();
        assert_eq!(came.as_deref(), expected, "{accept} {of:?}");
    }
    for (query, expected) in [
        ("", Ok(RowObject::Metadata)),
        ("includeObject=", Ok(RowObject::Metadata)),
        ("includeObject=Metadata", Ok(RowObject::Metadata)),
        ("includeObject=Object", Ok(RowObject::Whole)),
        ("includeObject=None", Ok(RowObject::None)),
        (
            "includeObject=X",
            Err("400 Unable to convert to Table as requested: includeObject: Invalid value: \"X\": must be \
                 'Metadata', 'Object', 'None', or empty"
                .to_owned()),
        ),
    ] {
        let came = form("Table", &pods, AnswerSubject::List, query).map(|form| match form.content {
            Content::Row(row) => row.object,
            Content::Whole | Content::Metadata(_) => panic!("no table"),
        });
        assert_eq!(came, expected, "{query}");
    }
}

/// Goal: a refusal names the media types of the path: kube-apiserver has streams only at collections.
#[test]
fn refusals_name_what_there_is() {
    let pods = Registry::builtin().by_id("pods").expect("pods");
    let refused = |ty: &ResourceType, accept, of| {
        AnswerFormat::read(&headers("", accept), &Query::parse(None), ty, of).expect_err("nothing to serve")
    };
    let served = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let streamed = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let only = format!("only the following media types are accepted: {served}");
    for of in [AnswerSubject::Object, AnswerSubject::List] {
        let status = refused(&pods, "application/json;stream=foo", of);
        assert_eq!((status.code, status.reason.to_string().as_str()), (406, "NotAcceptable"));
        assert_eq!(status.message, only);
    }
    let available = format!("406: Not Acceptable\n\nAvailable representations: {served}");
    let status = refused(&pods, "text/html", AnswerSubject::Object);
    assert_eq!(status.message, available);
    assert!(status.details.is_some());
    assert_eq!(refused(&pods, "text/html", AnswerSubject::List).message, format!("{available}, {streamed}"));
    for of in [AnswerSubject::Object, AnswerSubject::List] {
        assert_eq!(refused(&custom(), "text/html", of).message, only, "no router knows the type");
    }
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
        let (headers, query) = (headers(agent, accept), Query::parse(Some(query)));
        assert_eq!(plain(&headers, &query).indent, expected, "{agent} {accept} {query:?}");
        let pods = Registry::builtin().by_id("pods").expect("pods");
        let format = AnswerFormat::read(&headers, &query, &pods, AnswerSubject::Object).expect("JSON");
        assert_eq!(format.indent, expected, "{agent} {accept} {query:?}");
        let errors = if expected { RequestedEncoding::Indented } else { RequestedEncoding::Json };
        assert_eq!(plain(&headers, &query).errors, errors, "{agent} {accept} {query:?}");
    }
}

#[test]
fn errors_are_written_for_those_who_get_them() {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (accept, expected) in [
        (table.to_owned(), RequestedEncoding::Indented),
        (format!("{table},application/json"), RequestedEncoding::Json),
        (format!("{table},*/*;q=0.1"), RequestedEncoding::Json),
        ("text/html".to_owned(), RequestedEncoding::Indented),
        ("application/yaml".to_owned(), RequestedEncoding::Yaml),
        ("application/json;q=0.5,application/yaml".to_owned(), RequestedEncoding::Yaml),
        ("application/yaml;stream=watch".to_owned(), RequestedEncoding::Indented),
        ("application/vnd.kubernetes.protobuf,application/json".to_owned(), RequestedEncoding::Protobuf),
        ("application/vnd.kubernetes.protobuf;stream=watch".to_owned(), RequestedEncoding::Protobuf),
        (String::new(), RequestedEncoding::Json),
    ] {
        assert_eq!(plain(&headers("", &accept), &Query::parse(None)).errors, expected, "{accept}");
    }
}
