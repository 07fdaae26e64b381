//! Rows about refused requests, their error texts, and odd requests that are accepted.

use super::{Expect, Group, Who, answers, watches};

/// Accepts the metadata of a list, or plain JSON.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Accepts the metadata of an object, or plain JSON.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

const NO_TABLES: &str = "it has no tables, and gives JSON to those who take it";

const NO_YAML: &str = "it has no YAML";

const ONE_WORD: &str = "it says so in one way";

const NO_TYPES: &str = "it has no names for types";

/// The response to a client that accepts no known media type.
const NOTHING_KNOWN: &str = "406 NotAcceptable: 406: Not Acceptable\n\nAvailable representations: application/json, \
    application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, \
    application/vnd.kubernetes.protobuf;stream=watch details {}";

const OBJECTS_ALONE: &str = "it has no paths beside those of objects, and says so in one way";

pub(super) const GROUPS: &[Group] = &[
    Group {
        about: "options that do not go together",
        writes: &["A = create configmap default/a"],
        cases: &[
            answers(
                "a match needs a position",
                "default/configmaps?resourceVersionMatch=NotOlderThan",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                resourceVersionMatch is forbidden unless resourceVersion is provided causes FieldValueForbidden \
                of resourceVersionMatch",
            ),
            answers(
                "an exact match needs a position",
                "default/configmaps?resourceVersionMatch=Exact",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                resourceVersionMatch is forbidden unless resourceVersion is provided causes FieldValueForbidden \
                of resourceVersionMatch",
            ),
            answers(
                "every cause is named",
                "default/configmaps?resourceVersionMatch=Bad&continue=x",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: \
                resourceVersionMatch is forbidden unless resourceVersion is provided, resourceVersionMatch: \
                Forbidden: resourceVersionMatch is forbidden when continue is provided, resourceVersionMatch: \
                Unsupported value: \"Bad\": supported values: \"Exact\", \"NotOlderThan\", \"\"] causes \
                FieldValueForbidden of resourceVersionMatch FieldValueForbidden of resourceVersionMatch \
                FieldValueNotSupported of resourceVersionMatch",
            ),
            answers(
                "a match does not go with a token",
                "default/configmaps?resourceVersionMatch=Exact&continue=x&resourceVersion=1",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                resourceVersionMatch is forbidden when continue is provided causes FieldValueForbidden of \
                resourceVersionMatch",
            ),
            answers(
                "a match must be a known one",
                "default/configmaps?resourceVersionMatch=Bad&resourceVersion=1",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Unsupported value: \
                \"Bad\": supported values: \"Exact\", \"NotOlderThan\", \"\" causes FieldValueNotSupported of \
                resourceVersionMatch",
            ),
            answers(
                "zero cannot be exact",
                "default/configmaps?resourceVersionMatch=Exact&resourceVersion=0",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\" causes FieldValueForbidden \
                of resourceVersionMatch",
            ),
            answers(
                "zero cannot be exact, nor go on",
                "default/configmaps?resourceVersionMatch=Exact&resourceVersion=0&continue=x",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: \
                resourceVersionMatch is forbidden when continue is provided, resourceVersionMatch: Forbidden: \
                resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"] causes FieldValueForbidden \
                of resourceVersionMatch FieldValueForbidden of resourceVersionMatch",
            ),
            answers(
                "a list sends no initial events",
                "default/configmaps?sendInitialEvents=true",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: \
                sendInitialEvents is forbidden for list causes FieldValueForbidden of sendInitialEvents",
            ),
            answers(
                "a list cannot even decline initial events",
                "default/configmaps?sendInitialEvents=false",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: \
                sendInitialEvents is forbidden for list causes FieldValueForbidden of sendInitialEvents",
            ),
            answers(
                "an empty flag is a flag",
                "default/configmaps?sendInitialEvents=",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: \
                sendInitialEvents is forbidden for list causes FieldValueForbidden of sendInitialEvents",
            ),
            answers(
                "a stream's options without watch are those of a bad list",
                "default/configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: \
                resourceVersionMatch is forbidden unless resourceVersion is provided, sendInitialEvents: \
                Forbidden: sendInitialEvents is forbidden for list] causes FieldValueForbidden of \
                resourceVersionMatch FieldValueForbidden of sendInitialEvents",
            ),
            answers(
                "watch=false is a list",
                "default/configmaps?watch=false&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                resourceVersion=0",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: \
                sendInitialEvents is forbidden for list causes FieldValueForbidden of sendInitialEvents",
            ),
            answers(
                "initial events need a match",
                "default/configmaps?watch=1&sendInitialEvents=true",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                sendInitialEvents requires setting resourceVersionMatch to NotOlderThan causes \
                FieldValueForbidden of resourceVersionMatch",
            ),
            answers(
                "declining initial events needs a match",
                "default/configmaps?watch=1&sendInitialEvents=false&resourceVersion=1",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                sendInitialEvents requires setting resourceVersionMatch to NotOlderThan causes \
                FieldValueForbidden of resourceVersionMatch",
            ),
            answers(
                "initial events are never exact",
                "default/configmaps?watch=1&resourceVersion=1&resourceVersionMatch=Exact&sendInitialEvents=true",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: \
                sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: \
                Unsupported value: \"Exact\": supported values: \"NotOlderThan\"] causes FieldValueForbidden of \
                resourceVersionMatch FieldValueNotSupported of resourceVersionMatch",
            ),
            answers(
                "a match of initial events must be a known one",
                "default/configmaps?watch=1&resourceVersion=1&resourceVersionMatch=Bad&sendInitialEvents=true",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: \
                sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: \
                Unsupported value: \"Bad\": supported values: \"NotOlderThan\"] causes FieldValueForbidden of \
                resourceVersionMatch FieldValueNotSupported of resourceVersionMatch",
            ),
            answers(
                "a match needs initial events",
                "default/configmaps?watch=1&resourceVersion=1&resourceVersionMatch=NotOlderThan",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided causes \
                FieldValueForbidden of resourceVersionMatch",
            ),
            answers(
                "a match from nothing needs initial events",
                "default/configmaps?watch=1&resourceVersionMatch=NotOlderThan",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided causes \
                FieldValueForbidden of resourceVersionMatch",
            ),
            answers(
                "every cause of a watch is named",
                "default/configmaps?watch=1&resourceVersionMatch=Exact&continue=x",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: \
                resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided, \
                resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\", \
                resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided] \
                causes FieldValueForbidden of resourceVersionMatch FieldValueNotSupported of resourceVersionMatch \
                FieldValueForbidden of resourceVersionMatch",
            ),
            answers(
                "a stream does not go on",
                "default/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                resourceVersionMatch is forbidden when continue is provided causes FieldValueForbidden of \
                resourceVersionMatch",
            ),
            answers(
                "a watch from nothing is a stream, and does not go on",
                "default/configmaps?watch=1&continue=x",
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                resourceVersionMatch is forbidden when continue is provided causes FieldValueForbidden of \
                resourceVersionMatch",
            ),
        ],
        then: &[],
    },
    Group {
        about: "values that cannot be read",
        writes: &["A = create configmap default/a"],
        cases: &[
            answers(
                "a word is no position",
                "default/configmaps?resourceVersion=abc",
                "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \"abc\": \
                strconv.ParseUint: parsing \"abc\": invalid syntax",
            ),
            answers(
                "a position is not negative",
                "default/configmaps?resourceVersion=-1",
                "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \"-1\": \
                strconv.ParseUint: parsing \"-1\": invalid syntax",
            ),
            answers(
                "a position has no fraction",
                "default/configmaps?resourceVersion=1.5",
                "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \"1.5\": \
                strconv.ParseUint: parsing \"1.5\": invalid syntax",
            ),
            answers(
                "a position has no space",
                "default/configmaps?resourceVersion= 1",
                "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \" 1\": \
                strconv.ParseUint: parsing \" 1\": invalid syntax",
            ),
            answers(
                "a position has no sign",
                "default/configmaps?resourceVersion=+5",
                "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \"+5\": \
                strconv.ParseUint: parsing \"+5\": invalid syntax",
            ),
            answers(
                "a position has 64 bits",
                "default/configmaps?resourceVersion=99999999999999999999",
                "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \
                \"99999999999999999999\": strconv.ParseUint: parsing \"99999999999999999999\": value out of range",
            ),
            answers(
                "an empty limit is no number",
                "default/configmaps?limit=",
                "400 BadRequest: strconv.ParseInt: parsing \"\": invalid syntax",
            ),
            answers(
                "a limit is a number",
                "default/configmaps?limit=x",
                "400 BadRequest: strconv.ParseInt: parsing \"x\": invalid syntax",
            ),
            answers(
                "a timeout is a number",
                "default/configmaps?timeoutSeconds=x",
                "400 BadRequest: strconv.ParseInt: parsing \"x\": invalid syntax",
            ),
            answers(
                "a watch's limit is a number",
                "default/configmaps?watch=1&limit=x",
                "400 BadRequest: strconv.ParseInt: parsing \"x\": invalid syntax",
            ),
            answers(
                "a timeout has no fraction",
                "default/configmaps?watch=1&timeoutSeconds=1.5",
                "400 BadRequest: strconv.ParseInt: parsing \"1.5\": invalid syntax",
            ),
            answers(
                "a limit has 63 bits",
                "default/configmaps?limit=9223372036854775808",
                "400 BadRequest: strconv.ParseInt: parsing \"9223372036854775808\": value out of range",
            ),
            answers(
                "a label selector does not end in a comma",
                "default/configmaps?labelSelector=a,",
                "400 BadRequest: found '', expected: identifier after ','",
            ),
            answers(
                "a set has parentheses",
                "default/configmaps?labelSelector=a in b",
                "400 BadRequest: unable to parse requirement: found 'b' expected: '('",
            ),
            answers(
                "what is absent has a name",
                "default/configmaps?labelSelector=!",
                "400 BadRequest: unable to parse requirement: found '', expected: identifier",
            ),
            answers(
                "a label's value is checked",
                "default/configmaps?labelSelector=a=$$",
                "400 BadRequest: unable to parse requirement: values[0][a]: Invalid value: \"$$\": a valid label \
                must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
                and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
            answers(
                "a watch's labels are checked",
                "default/configmaps?watch=1&labelSelector=a,",
                "400 BadRequest: found '', expected: identifier after ','",
            ),
            answers(
                "a field selector compares",
                "default/configmaps?fieldSelector=foo",
                "400 BadRequest: invalid selector: 'foo'; can't understand 'foo'",
            ),
            answers(
                "a field selector's escapes are known",
                "default/configmaps?fieldSelector=a=\\x",
                "400 BadRequest: invalid field selector: invalid escape sequence: \\x",
            ),
            answers(
                "a type has its fields",
                "default/configmaps?fieldSelector=spec.foo=x",
                "400 BadRequest: \"spec.foo\" is not a known field selector: only \"metadata.name\", \
                \"metadata.namespace\"",
            ),
            answers(
                "a watched type has its fields",
                "default/configmaps?watch=1&fieldSelector=spec.foo=x",
                "400 BadRequest: \"spec.foo\" is not a known field selector: only \"metadata.name\", \
                \"metadata.namespace\"",
            ),
            answers(
                "unknown fields of pods are refused in their own words",
                "pods?fieldSelector=spec.foo=x",
                "400 BadRequest: field label not supported: spec.foo",
            ),
            answers(
                "unknown fields of nodes are refused in their own words",
                "nodes?fieldSelector=spec.foo=x",
                "400 BadRequest: field label not supported: spec.foo",
            ),
            answers(
                "unknown fields of secrets are refused in their own words",
                "secrets?fieldSelector=spec.foo=x",
                "400 BadRequest: field label not supported: spec.foo",
            ),
            answers(
                "unknown fields of grouped types are refused as by default",
                "deployments?fieldSelector=spec.foo=x",
                "400 BadRequest: \"spec.foo\" is not a known field selector: only \"metadata.name\", \
                \"metadata.namespace\"",
            ),
            answers(
                "a watch's bad position is an error that nobody mapped",
                "default/configmaps?watch=1&resourceVersion=abc",
                "500 : resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
            ),
            answers(
                "so is that of an object",
                "default/configmaps/a?resourceVersion=abc",
                "500 : resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
            ),
        ],
        then: &[],
    },
    Group {
        about: "odd values that are taken",
        writes: &["L = list configmaps", "A = create configmap default/a", "NOW = list configmaps"],
        cases: &[
            answers("a list takes what has no meaning for it", "default/configmaps", "[default/a]").also(&[
                "resourceVersion=05",
                "resourceVersion=",
                "continue=",
                "resourceVersionMatch=",
                "labelSelector=",
                "fieldSelector=,",
                "watch=0",
                "watch=FALSE",
                "watch=false",
                "allowWatchBookmarks=perhaps",
                "unknown=parameter",
                "pretty=perhaps",
                "limit=-5",
                "limit=1&limit=x",
            ]),
            watches("everything but 0 and false is a watch", "default/configmaps?watch=1", "ADDED default/a@A"),
            watches("a flag needs no value", "default/configmaps?watch", "ADDED default/a@A"),
            watches("a flag may say ''", "default/configmaps?watch=", "ADDED default/a@A"),
            watches("a flag may say 'no'", "default/configmaps?watch=no", "ADDED default/a@A"),
            watches("a flag may say '2'", "default/configmaps?watch=2", "ADDED default/a@A"),
            watches("a flag may say 'true'", "default/configmaps?watch=true", "ADDED default/a@A"),
            watches(
                "a watch from a position takes a limit and a token",
                "default/configmaps?watch=1&limit=5&continue=x&resourceVersion={L}",
                "ADDED default/a@A",
            ),
        ],
        then: &[],
    },
    Group {
        about: "tokens that cannot be read",
        writes: &["A = create configmap default/a"],
        cases: &[
            answers(
                "a token is base64",
                "default/configmaps?continue=%%%",
                "400 BadRequest: invalid continue token: continue key is not valid: illegal base64 data at input \
                byte 0",
            )
            .also(&["limit=1", "resourceVersion=abc", "resourceVersion=0"]),
            answers(
                "a token is JSON",
                "default/configmaps?continue=invalidContinueToken",
                "400 BadRequest: invalid continue token: continue key is not valid: invalid character '\\u008a' \
                looking for beginning of value",
            )
            .also(&["limit=1", "resourceVersion=abc", "resourceVersion=0"]),
            answers(
                "a token is a JSON object",
                "default/configmaps?continue=aGVsbG8",
                "400 BadRequest: invalid continue token: continue key is not valid: invalid character 'h' looking \
                for beginning of value",
            )
            .also(&["limit=1", "resourceVersion=abc", "resourceVersion=0"]),
            answers(
                "a token's position is not zero",
                "default/configmaps?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhIn0",
                "400 BadRequest: invalid continue token: continue key is not valid: incorrect encoded start \
                resourceVersion (version meta.k8s.io/v1)",
            )
            .also(&["limit=1", "resourceVersion=abc", "resourceVersion=0"]),
            answers(
                "a token starts somewhere",
                "default/configmaps?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIifQ",
                "400 BadRequest: invalid continue token: continue key is not valid: encoded start key empty \
                (version meta.k8s.io/v1)",
            )
            .also(&["limit=1", "resourceVersion=abc", "resourceVersion=0"]),
            answers(
                "a token stays below its list",
                "default/configmaps?continue=token({A}/../b)",
                "400 BadRequest: invalid continue token: continue key is not valid: /../b",
            )
            .also(&["limit=1", "resourceVersion=abc", "resourceVersion=0"]),
            answers(
                "a good token does not go with a position",
                "default/configmaps?continue=token({A}/a$)&resourceVersion=1",
                "400 BadRequest: specifying resource version is not allowed when using continue",
            ),
        ],
        then: &[],
    },
    Group {
        about: "formats",
        writes: &["A = create configmap default/a k=v"],
        cases: &[
            answers("nobody can read HTML here", "default/configmaps", NOTHING_KNOWN).accepting("text/html").differs(
                Who::Fake,
                ONE_WORD,
                Expect::Answer("406 NotAcceptable: only the following media types are accepted: application/json"),
            ),
            answers("nobody can watch what nobody can read", "default/configmaps?watch=1", NOTHING_KNOWN)
                .accepting("application/xyz")
                .differs(
                    Who::Fake,
                    ONE_WORD,
                    Expect::Answer("406 NotAcceptable: only the following media types are accepted: application/json"),
                ),
            answers(
                "a stream of anything but watches is not served",
                "default/configmaps",
                "406 NotAcceptable: only the following media types are accepted: application/json, application/yaml, \
                application/vnd.kubernetes.protobuf",
            )
            .accepting("application/json;stream=foo")
            .differs(
                Who::Fake,
                NO_YAML,
                Expect::Answer("406 NotAcceptable: only the following media types are accepted: application/json"),
            ),
            answers(
                "YAML does not stream",
                "default/configmaps?watch=1",
                "406 raw: apiVersion: v1\ncode: 406\nkind: Status\nmessage: \"only the following media types are accepted: \
                application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch\"\nmetadata: {}\nreason: NotAcceptable\nstatus: Failure\n as application/yaml",
            )
            .accepting("application/yaml")
            .differs(
                Who::Fake,
                NO_YAML,
                Expect::Answer("406 NotAcceptable: only the following media types are accepted: application/json"),
            ),
            answers("JSON is read", "default/configmaps", "[default/a(k=v)] @A").accepting("application/json"),
            answers("anything is JSON", "default/configmaps", "[default/a(k=v)] @A").accepting("*/*"),
            answers("any application's format is JSON", "default/configmaps", "[default/a(k=v)] @A")
                .accepting("application/*"),
            answers("who likes protobuf less gets JSON", "default/configmaps", "[default/a(k=v)] @A")
                .accepting("application/vnd.kubernetes.protobuf;q=0.5,application/json"),
            answers("a form nobody knows is passed over", "default/configmaps", "[default/a(k=v)] @A")
                .accepting("application/json;as=Unknown;v=v1;g=meta.k8s.io,application/json"),
            answers("who likes HTML better gets JSON", "default/configmaps", "[default/a(k=v)] @A")
                .accepting("text/html,application/json;q=0.5"),
            answers("a table has the metadata of its objects", "default/configmaps", "[default/a()] @A")
                .accepting("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
                .differs(Who::Fake, NO_TABLES, Expect::Answer("[default/a(k=v)] @A")),
            answers("metadata alone is a form of a list", "default/configmaps", "[default/a()] @A")
                .accepting(METADATA_LIST),
            answers("metadata alone is a form of an object", "default/configmaps/a", "default/a@A()")
                .accepting(METADATA),
            watches("metadata alone is a form of events", "default/configmaps?watch=1", "ADDED default/a@A()")
                .accepting(METADATA),
            answers(
                "a list is not the metadata of one object",
                "default/configmaps",
                "406 NotAcceptable: you requested PartialObjectMetadata, but the requested object is a list \
                (*core.ConfigMapList)",
            )
            .accepting(METADATA)
            .differs(
                Who::Fake,
                NO_TYPES,
                Expect::Answer(
                    "406 NotAcceptable: you requested PartialObjectMetadata, but the requested object is a list",
                ),
            ),
        ],
        then: &[],
    },
    Group {
        about: "paths",
        writes: &["A = create configmap default/a"],
        cases: &[
            answers(
                "a type that is not served is not found",
                "/api/v1/foos",
                "404 NotFound: the server could not find the requested resource details {}",
            ),
            answers(
                "an object of a type in namespaces needs one",
                "/api/v1/configmaps/a",
                "404 NotFound: the server could not find the requested resource details {}",
            ),
            answers(
                "a type outside of namespaces is in none",
                "/api/v1/namespaces/default/nodes",
                "404 NotFound: the server could not find the requested resource details {}",
            ),
            answers("a slash at the end does not matter", "/api/v1/configmaps/", "[default/a]"),
            answers(
                "a group that is not served is plain text",
                "/apis/none/v1/foos",
                "404 raw: 404 page not found\n as text/plain; charset=utf-8",
            )
            .differs(
                Who::Fake,
                OBJECTS_ALONE,
                Expect::Answer("404 NotFound: the server could not find the requested resource details {}"),
            ),
            answers("nothing is plain text", "/nothing", "404 raw: 404 page not found\n as text/plain; charset=utf-8")
                .differs(
                    Who::Fake,
                    OBJECTS_ALONE,
                    Expect::Answer("404 NotFound: the server could not find the requested resource details {}"),
                ),
        ],
        then: &[],
    },
];
