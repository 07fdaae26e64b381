//! Rows about the state, objects and page that a LIST or GET returns.

use super::{Group, answers, watches};

pub(super) const GROUPS: &[Group] = &[
    Group {
        about: "which state a list reads",
        writes: &[
            "R0 = list pods",
            "R1 = create pod first/bar",
            "R2 = create pod second/bar",
            "R3 = create pod second/foo",
            "R4 = create pod third/barfoo",
            "R5 = create pod third/foo",
            "R6 = create pod second/baz",
            "R7 = update pod first/bar node=fakeNode",
            "C = delete pod second/baz",
            "NOW = create configmap default/unrelated",
        ],
        cases: &[
            answers(
                "a position that is no number is refused",
                "first/pods?resourceVersion=abc",
                "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \"abc\": \
                strconv.ParseUint: parsing \"abc\": invalid syntax",
            ),
            answers(
                "a negative position is refused",
                "first/pods?resourceVersion=-1",
                "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \"-1\": \
                strconv.ParseUint: parsing \"-1\": invalid syntax",
            ),
            answers(
                "a position far in the future is waited for and then refused",
                "first/pods?resourceVersion=9223372036854775807",
                "504 Timeout: Timeout: Too large resource version: 9223372036854775807, current: * causes \
                ResourceVersionTooLarge (Too large resource version) wait 1 after 3 s",
            ),
            answers(
                "a list without a position is the state of now",
                "first/pods",
                "[first/bar@R7(node=fakeNode)] @>=NOW",
            ),
            answers(
                "an exact list is the state at its position",
                "first/pods?resourceVersion={R1}&resourceVersionMatch=Exact",
                "[first/bar@R1] @R1",
            ),
            answers(
                "an exact list of an empty state is empty",
                "second/pods?resourceVersion={R1}&resourceVersionMatch=Exact",
                "[] @R1",
            ),
            answers(
                "an exact list before the history has expired",
                "first/pods?resourceVersion={R0-1}&resourceVersionMatch=Exact",
                "410 Expired: The resourceVersion for the provided list is too old.",
            ),
            answers(
                "a limit without a match means the exact position, which may have expired",
                "first/pods?resourceVersion={R0-1}&limit=1",
                "410 Expired: The resourceVersion for the provided list is too old.",
            ),
            answers(
                "the position of the first list is kept",
                "first/pods?resourceVersion={R0}&resourceVersionMatch=Exact",
                "[] @R0",
            ),
            answers(
                "not older than zero is anything",
                "first/pods?resourceVersion=0&resourceVersionMatch=NotOlderThan",
                "[first/bar@R7(node=fakeNode)] @>=R0",
            ),
            answers("zero is anything", "first/pods?resourceVersion=0", "[first/bar@R7(node=fakeNode)] @>=R0"),
            answers(
                "not older than something long gone is now",
                "first/pods?resourceVersion={R0-1}&resourceVersionMatch=NotOlderThan",
                "[first/bar@R7(node=fakeNode)] @>=C",
            ),
            answers(
                "a position without a match is not older than it",
                "first/pods?resourceVersion={R0-1}",
                "[first/bar@R7(node=fakeNode)] @>=C",
            ),
            answers(
                "the last position of a type is served",
                "first/pods?resourceVersion={C}",
                "[first/bar@R7(node=fakeNode)] @>=C",
            ),
            answers(
                "not older than the last position of a type is now",
                "first/pods?resourceVersion={C}&resourceVersionMatch=NotOlderThan",
                "[first/bar@R7(node=fakeNode)] @>=C",
            ),
            answers("a namespace that does not exist is empty", "non-existing/pods", "[] @>=NOW"),
            answers(
                "a page of now says how much remains",
                "second/pods?limit=1",
                "[second/bar] @>=NOW more(bar) remaining 1",
            ),
            answers(
                "a page without a match is exact",
                "second/pods?limit=1&resourceVersion={C}",
                "[second/bar] @C more(bar) remaining 1",
            ),
            answers(
                "a page not older than a position is of now",
                "second/pods?limit=1&resourceVersion={C}&resourceVersionMatch=NotOlderThan",
                "[second/bar] @>=C more(bar) remaining 1",
            ),
            answers("zero ignores the limit", "second/pods?limit=1&resourceVersion=0", "[second/bar second/foo] @>=R0"),
            answers(
                "not older than zero ignores the limit",
                "second/pods?limit=1&resourceVersion=0&resourceVersionMatch=NotOlderThan",
                "[second/bar second/foo] @>=R0",
            ),
            answers(
                "an exact page may be the last one",
                "second/pods?limit=1&resourceVersion={R2}&resourceVersionMatch=Exact",
                "[second/bar] @R2",
            ),
            answers("a token at a key includes it", "second/pods?limit=1&continue=token({C}/foo)", "[second/foo] @C"),
            answers(
                "a token after the last key gives nothing",
                "second/pods?limit=1&continue=token({C}/foo$)",
                "[] @C",
            ),
            answers(
                "a token ignores position zero",
                "second/pods?limit=1&resourceVersion=0&continue=token({C}/foo)",
                "[second/foo] @C",
            ),
            answers("one namespace is listed alone", "second/pods", "[second/bar second/foo] @>=NOW"),
            answers(
                "a selector hides how much remains, and a page ends at its limit",
                "pods?fieldSelector=metadata.name=barfoo&limit=1",
                "[third/barfoo] @>=NOW more(third/barfoo)",
            ),
            answers(
                "zero ignores the limit of a selector too",
                "pods?fieldSelector=metadata.name=barfoo&limit=2&resourceVersion=0",
                "[third/barfoo] @>=R0",
            ),
            answers(
                "a page of a selector ends at its limit",
                "pods?fieldSelector=metadata.name=bar&limit=2",
                "[first/bar@R7(node=fakeNode) second/bar] @>=NOW more(second/bar)",
            ),
            answers(
                "a selector goes on after a token",
                "pods?fieldSelector=metadata.name=foo&limit=2&continue=token({C}/third/barfoo)",
                "[third/foo] @C",
            ),
            answers(
                "the last page of a selector has no token when nothing follows",
                "pods?fieldSelector=metadata.name=foo&limit=1&continue=token({C}/third/barfoo)",
                "[third/foo] @C",
            ),
            answers(
                "all namespaces are listed in order of their keys",
                "pods",
                "[first/bar@R7(node=fakeNode) second/bar second/foo third/barfoo third/foo] @>=NOW",
            ),
            answers(
                "a field selector reads the state of now",
                "pods?fieldSelector=spec.nodeName=fakeNode&resourceVersion={C}&resourceVersionMatch=NotOlderThan&\
                limit=5",
                "[first/bar@R7(node=fakeNode)] @>=C",
            ),
            answers(
                "a field selector reads the exact state",
                "pods?fieldSelector=spec.nodeName=fakeNode&resourceVersion={R5}&resourceVersionMatch=Exact",
                "[] @R5",
            ),
            answers("an empty namespace is empty at any freshness", "empty/pods", "[] @>=NOW"),
            answers("an empty namespace is empty at zero", "empty/pods?resourceVersion=0", "[] @>=R0"),
            answers(
                "an exact list has what was deleted later",
                "pods?resourceVersion={R7}&resourceVersionMatch=Exact",
                "[first/bar@R7(node=fakeNode) second/bar second/baz second/foo third/barfoo third/foo] @R7",
            ),
            answers(
                "an exact list has not what was deleted before",
                "pods?resourceVersion={C}&resourceVersionMatch=Exact",
                "[first/bar@R7(node=fakeNode) second/bar second/foo third/barfoo third/foo] @C",
            ),
            answers(
                "an exact position in the future is waited for and then refused",
                "pods?resourceVersion={NOW+1000}&resourceVersionMatch=Exact",
                "504 Timeout: Timeout: Too large resource version: {NOW+1000}, current: * causes \
                ResourceVersionTooLarge (Too large resource version) wait 1 after 3 s",
            ),
            answers(
                "an exact page counts the objects of its own time",
                "pods?limit=1&resourceVersion={R2}&resourceVersionMatch=Exact",
                "[first/bar@R1] @R2 more(first/bar) remaining 1",
            ),
            answers(
                "an exact page that holds everything has no token",
                "pods?limit=4&resourceVersion={R4}&resourceVersionMatch=Exact",
                "[first/bar@R1 second/bar second/foo third/barfoo] @R4",
            ),
            answers(
                "an exact page says how much remained then",
                "pods?limit=1&resourceVersion={R5}&resourceVersionMatch=Exact",
                "[first/bar@R1] @R5 more(first/bar) remaining 4",
            ),
            answers(
                "an exact page ends within what was deleted later",
                "pods?limit=4&resourceVersion={R7}&resourceVersionMatch=Exact",
                "[first/bar@R7(node=fakeNode) second/bar second/baz second/foo] @R7 more(second/foo) remaining 2",
            ),
            answers(
                "an exact page larger than everything is everything",
                "pods?limit=8&resourceVersion={C}&resourceVersionMatch=Exact",
                "[first/bar@R7(node=fakeNode) second/bar second/foo third/barfoo third/foo] @C",
            ),
            answers(
                "a token after the only object gives nothing",
                "pods?limit=1&continue=token({R1}/first/bar$)",
                "[] @R1",
            ),
            answers(
                "a token reads its own state, not that of now",
                "pods?limit=1&continue=token({R5}/first/bar$)",
                "[second/bar] @R5 more(second/bar) remaining 3",
            ),
            answers(
                "a token reads an object as it was",
                "pods?limit=4&continue=token({R7}/second/foo$)",
                "[third/barfoo third/foo] @R7",
            ),
            answers(
                "a token without a limit reads the rest",
                "pods?continue=token({R7}/second/foo$)",
                "[third/barfoo third/foo] @R7",
            ),
            answers(
                "a token at the latest state reads the rest of now",
                "pods?continue=token(-1/first/bar$)",
                "[second/bar second/foo third/barfoo third/foo] @>=NOW",
            ),
            answers(
                "a position and a token do not go together",
                "pods?resourceVersion={C}&continue=token({C}/a)",
                "400 BadRequest: specifying resource version is not allowed when using continue",
            ),
            answers(
                "limit zero is no limit",
                "pods?limit=0",
                "[first/bar@R7(node=fakeNode) second/bar second/foo third/barfoo third/foo] @>=NOW",
            ),
            answers(
                "a limit below zero is no limit",
                "pods?limit=-1",
                "[first/bar@R7(node=fakeNode) second/bar second/foo third/barfoo third/foo] @>=NOW",
            ),
        ],
        then: &[],
    },
    Group {
        about: "a position in the future",
        writes: &["NOW = create configmap default/a"],
        cases: &[
            answers(
                "a list not older than the future waits and is refused with the current position",
                "default/configmaps?resourceVersion={NOW+1000}",
                "504 Timeout: Timeout: Too large resource version: {NOW+1000}, current: {NOW} causes \
                ResourceVersionTooLarge (Too large resource version) wait 1 after 3 s",
            )
            .also(&["limit=1", "resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan"]),
            answers(
                "one object not older than the future waits and is refused",
                "default/configmaps/a?resourceVersion={NOW+1000}",
                "504 Timeout: Timeout: Too large resource version: {NOW+1000}, current: {NOW} causes \
                ResourceVersionTooLarge (Too large resource version) wait 1 after 3 s",
            ),
        ],
        then: &[],
    },
    Group {
        about: "order of keys",
        writes: &[
            "R1 = create configmap b/z",
            "R2 = create configmap a/x",
            "R3 = create configmap a-b/x",
            "R4 = create configmap a/x-1",
            "R5 = create configmap a/x.1",
            "R6 = create configmap a/x1",
            "R7 = create configmap a0/x",
            "N1 = create node node-2",
            "N2 = create node node-10",
            "N3 = create node node-1",
        ],
        cases: &[
            answers(
                "keys are in byte order, where dash and dot come before the slash",
                "configmaps",
                "[a-b/x a/x a/x-1 a/x.1 a/x1 a0/x b/z] @N3",
            ),
            answers(
                "pages follow the same order and name the last key",
                "nodes?limit=2",
                "[node-1 node-10] @N3 more(node-10) remaining 1",
            ),
            answers(
                "a cluster-scoped token goes on after its name",
                "nodes?limit=2&continue=token({N3}/node-10$)",
                "[node-2] @N3",
            ),
        ],
        then: &[],
    },
    Group {
        about: "namespaces with a common prefix",
        writes: &[
            "R1 = create pod foo/a",
            "R2 = create pod foo/b",
            "R3 = create pod foo-bar/a",
            "R4 = create pod foo-bar/b",
            "R5 = create pod foobar/a",
            "R6 = create pod foobar/b",
        ],
        cases: &[
            answers("a namespace does not show one whose name begins with its own", "foo/pods", "[foo/a foo/b]")
                .also(&["limit=2", "resourceVersion=0"]),
            answers("a name with a dash is a namespace of its own", "foo-bar/pods", "[foo-bar/a foo-bar/b]"),
            answers("a longer name is a namespace of its own", "foobar/pods", "[foobar/a foobar/b]"),
            answers("the beginning of a namespace's name is no namespace", "fo/pods", "[]"),
            answers(
                "a namespace can be selected as a field",
                "pods?fieldSelector=metadata.namespace=foo",
                "[foo/a foo/b]",
            ),
            answers(
                "a page counts the objects of its namespace alone",
                "foo/pods?limit=1",
                "[foo/a] @R6 more(a) remaining 1",
            ),
            watches(
                "initial state of a namespace is its own",
                "foo/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                allowWatchBookmarks=true",
                "ADDED foo/a@R1 | ADDED foo/b@R2 | INITIAL-END@R6",
            ),
            answers(
                "a token cannot reach into another namespace",
                "foo/pods?continue=token({R6}/../foo-bar/a)",
                "400 BadRequest: invalid continue token: continue key is not valid: /../foo-bar/a",
            ),
            answers(
                "a token cannot reach into another type",
                "foo/pods?continue=token({R6}/../../secrets/x)",
                "400 BadRequest: invalid continue token: continue key is not valid: /../../secrets/x",
            ),
        ],
        then: &[],
    },
    Group {
        about: "names and namespaces as fields",
        writes: &[
            "R1 = create secret ns0/bar",
            "R2 = create secret ns0/foo",
            "R3 = create secret ns1/bar",
            "R4 = create secret ns1/foo",
            "R5 = create secret ns2/bar",
            "R6 = create secret ns2/foo",
        ],
        cases: &[
            answers(
                "a name selects in every namespace",
                "secrets?fieldSelector=metadata.name=foo",
                "[ns0/foo ns1/foo ns2/foo]",
            )
            .also(&["resourceVersion=0", "limit=500"]),
            answers("two names select nothing", "secrets?fieldSelector=metadata.name=foo,metadata.name=bar", "[]")
                .also(&["resourceVersion=0", "limit=500"]),
            answers(
                "a name and a namespace select one",
                "secrets?fieldSelector=metadata.name=foo,metadata.namespace=ns1",
                "[ns1/foo]",
            )
            .also(&["resourceVersion=0", "limit=500"]),
            answers(
                "a namespace selects what is in it",
                "secrets?fieldSelector=metadata.namespace=ns1",
                "[ns1/bar ns1/foo]",
            )
            .also(&["resourceVersion=0", "limit=500"]),
            answers(
                "other names and namespaces select the rest",
                "secrets?fieldSelector=metadata.namespace!=ns1,metadata.name!=foo",
                "[ns0/bar ns2/bar]",
            )
            .also(&["resourceVersion=0", "limit=500"]),
            answers("a name that nothing has selects nothing", "secrets?fieldSelector=metadata.name=none", "[]")
                .also(&["resourceVersion=0", "limit=500"]),
            answers("a name in a namespace selects one", "ns1/secrets?fieldSelector=metadata.name=foo", "[ns1/foo]")
                .also(&["resourceVersion=0", "limit=500"]),
            answers(
                "the same namespace twice is one",
                "ns1/secrets?fieldSelector=metadata.name=foo,metadata.namespace=ns1",
                "[ns1/foo]",
            )
            .also(&["resourceVersion=0", "limit=500"]),
            answers(
                "a name in two namespaces is nowhere",
                "ns1/secrets?fieldSelector=metadata.name=foo,metadata.namespace=ns2",
                "[]",
            )
            .also(&["resourceVersion=0", "limit=500"]),
            answers(
                "the empty namespace is another one",
                "ns1/secrets?fieldSelector=metadata.name=foo,metadata.namespace=",
                "[]",
            )
            .also(&["resourceVersion=0", "limit=500"]),
            answers("two namespaces hold nothing in common", "ns1/secrets?fieldSelector=metadata.namespace=ns2", "[]")
                .also(&["resourceVersion=0", "limit=500"]),
            answers(
                "other names in a namespace select the rest",
                "ns1/secrets?fieldSelector=metadata.name!=foo",
                "[ns1/bar]",
            )
            .also(&["resourceVersion=0", "limit=500"]),
        ],
        then: &[],
    },
    Group {
        about: "selectors",
        writes: &[
            "R0 = list pods",
            "OLD = create pod default/a app=web node=n1",
            "B = create pod default/b app=api tier=front",
            "C = create pod default/c weight=5",
            "NEW = update pod default/a app=api node=n2",
        ],
        cases: &[
            answers("labels: equal", "pods?labelSelector=app=web", "[]"),
            answers("labels: equal to what two have", "pods?labelSelector=app=api", "[default/a default/b]"),
            answers("labels: in a set, and absent", "pods?labelSelector=app in (web,api),!tier", "[default/a]"),
            answers("labels: not in a set, or absent", "pods?labelSelector=app notin (api)", "[default/c]"),
            answers("labels: not equal, or absent", "pods?labelSelector=app!=api", "[default/c]"),
            answers("labels: present", "pods?labelSelector=app", "[default/a default/b]"),
            answers("labels: absent", "pods?labelSelector=!app", "[default/c]"),
            answers("labels: two at once", "pods?labelSelector=tier=front,app==api", "[default/b]"),
            answers("labels: a number below a bound", "pods?labelSelector=weight<10", "[default/c]"),
            answers("labels: a number above a bound", "pods?labelSelector=weight>2", "[default/c]"),
            answers(
                "a label reads the labels of then",
                "pods?resourceVersion={OLD}&resourceVersionMatch=Exact&labelSelector=app=web",
                "[default/a@OLD(app=web,node=n1)] @OLD",
            ),
            answers(
                "a label that came later selects nothing then",
                "pods?resourceVersion={OLD}&resourceVersionMatch=Exact&labelSelector=app=api",
                "[] @OLD",
            ),
            answers(
                "a field reads the fields of then",
                "pods?resourceVersion={OLD}&resourceVersionMatch=Exact&fieldSelector=spec.nodeName=n1",
                "[default/a@OLD(app=web,node=n1)] @OLD",
            ),
            answers(
                "a label that is gone selects nothing now",
                "pods?resourceVersion={NEW}&resourceVersionMatch=Exact&labelSelector=app=web",
                "[] @NEW",
            ),
            answers(
                "a field that moved selects nothing now",
                "pods?resourceVersion={NEW}&resourceVersionMatch=Exact&fieldSelector=spec.nodeName=n1",
                "[] @NEW",
            ),
            answers(
                "label and field select together",
                "pods?resourceVersion={NEW}&resourceVersionMatch=Exact&labelSelector=app=api&\
                fieldSelector=spec.nodeName=n2",
                "[default/a@NEW(app=api,node=n2)] @NEW",
            ),
            answers(
                "an empty field selects what has none",
                "pods?resourceVersion={NEW}&resourceVersionMatch=Exact&labelSelector=app=api&\
                fieldSelector=spec.nodeName=",
                "[default/b@B] @NEW",
            ),
        ],
        then: &[],
    },
    Group {
        about: "pages of a selector",
        writes: &[
            "R0 = create configmap default/test-0 odd=false",
            "R1 = create configmap default/test-1 odd=true",
            "R2 = create configmap default/test-2 odd=false",
            "R3 = create configmap default/test-3 odd=true",
            "R4 = create configmap default/test-4 odd=false",
            "R5 = create configmap default/test-5 odd=true",
            "R6 = create configmap default/test-6 odd=false",
            "R7 = create configmap default/test-7 odd=true",
            "R8 = create configmap default/test-8 odd=false",
            "R9 = create configmap default/test-9 odd=true",
        ],
        cases: &[
            answers(
                "a page holds as many as match, and does not say how many remain",
                "configmaps?limit=3&labelSelector=odd=true",
                "[default/test-1 default/test-3 default/test-5] @R9 more(default/test-5)",
            ),
            answers(
                "the last page of a selector has no token",
                "configmaps?limit=3&labelSelector=odd=true&continue=token({R9}/default/test-5$)",
                "[default/test-7 default/test-9] @R9",
            ),
            answers(
                "a full page has a token when anything at all follows",
                "configmaps?limit=1&labelSelector=odd=false&fieldSelector=metadata.name=test-8",
                "[default/test-8] @R9 more(default/test-8)",
            ),
            answers(
                "so the page after the last match may be empty",
                "configmaps?limit=1&labelSelector=odd=false&continue=token({R9}/default/test-8$)",
                "[] @R9",
            ),
        ],
        then: &[],
    },
    Group {
        about: "tokens that have expired",
        writes: &[
            "R0 = list configmaps",
            "R1 = create configmap default/a",
            "R2 = create configmap default/b",
            "R3 = create configmap default/c",
            "R4 = create configmap default/d",
        ],
        cases: &[
            answers(
                "an expired token is answered with one that goes on at the latest state",
                "configmaps?continue=token({R0-1}/default/a$)",
                "410 Expired: The provided continue parameter is too old to display a consistent list result. You \
                can start a new list without the continue parameter, or use the continue token in this response \
                to retrieve the remainder of the results. Continuing with the provided token results in an \
                inconsistent list - objects that were created, modified, or deleted between the time the first \
                chunk was returned and now may show up in the list. offers(default/a)",
            )
            .also(&["limit=1"]),
            answers(
                "the token offered reads the latest state, whose token is consistent again",
                "configmaps?limit=2&continue=token(-1/default/a$)",
                "[default/b default/c] @R4 more(default/c) remaining 1",
            ),
        ],
        then: &[],
    },
    Group {
        about: "one object",
        writes: &["A = create configmap default/a k=v", "B = create configmap default/b", "NOW = list configmaps"],
        cases: &[
            answers("an object is read at any position that has come", "default/configmaps/a", "default/a@A(k=v)")
                .also(&["resourceVersion=0", "resourceVersion={A}", "resourceVersion={NOW}"]),
            answers(
                "an object that is not there is not found",
                "default/configmaps/nope",
                "404 NotFound: configmaps \"nope\" not found about configmaps nope",
            ),
            answers(
                "an object in another namespace is not found",
                "other/configmaps/a",
                "404 NotFound: configmaps \"a\" not found about configmaps a",
            ),
            answers(
                "a grouped type is named with its group",
                "default/replicasets/nope",
                "404 NotFound: replicasets.apps \"nope\" not found about replicasets nope",
            ),
            answers(
                "one name of a namespace is read without pages",
                "default/configmaps?fieldSelector=metadata.name=a&limit=1",
                "[default/a@A] @NOW",
            ),
            answers(
                "one name at an exact position is that object then",
                "default/configmaps?fieldSelector=metadata.name=a&resourceVersion={A}&resourceVersionMatch=Exact",
                "[default/a@A] @A",
            ),
        ],
        then: &[],
    },
];
