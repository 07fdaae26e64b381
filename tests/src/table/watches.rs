//! Rows about the position at which a watch starts, its events, and its end.

use super::{Expect, Group, Who, watches};

pub(super) const GROUPS: &[Group] = &[
    Group {
        about: "where a watch starts",
        writes: &[
            "R0 = list configmaps",
            "BEFORE = create configmap default/before",
            "P1 = create configmap row/p1",
            "P2 = create configmap row/p2",
            "P3 = create configmap row/p3",
            "U2 = update configmap row/p2 k=new",
            "FOREIGN = create configmap default/foreign",
            "NOW = list configmaps",
        ],
        cases: &[
            watches(
                "a stream from nothing is the state, its end, and what follows",
                "row/configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                allowWatchBookmarks=true",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | INITIAL-END@FOREIGN | ADDED \
                row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "no initial events from nothing starts now",
                "row/configmaps?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&\
                allowWatchBookmarks=true",
                "ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "no initial events from nothing starts now without bookmarks too",
                "row/configmaps?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
                "ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "the end is marked only for those who know bookmarks",
                "row/configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "a watch from nothing starts with the state",
                "row/configmaps?watch=true",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "a watch from nothing that knows bookmarks is told the end",
                "row/configmaps?watch=true&allowWatchBookmarks=true",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | INITIAL-END@FOREIGN | ADDED \
                row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "a stream from zero is the state",
                "row/configmaps?watch=true&resourceVersion=0&sendInitialEvents=true&\
                resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | INITIAL-END@FOREIGN | ADDED \
                row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "no initial events from zero starts now",
                "row/configmaps?watch=true&resourceVersion=0&sendInitialEvents=false&\
                resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                "ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "no initial events from zero starts now without bookmarks too",
                "row/configmaps?watch=true&resourceVersion=0&sendInitialEvents=false&\
                resourceVersionMatch=NotOlderThan",
                "ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "a stream from zero without bookmarks has no mark",
                "row/configmaps?watch=true&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "no initial events from a position is history",
                "row/configmaps?watch=true&resourceVersion={BEFORE}&sendInitialEvents=false&\
                resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                "ADDED row/p1@P1 | ADDED row/p2@P2 | ADDED row/p3@P3 | MODIFIED row/p2@U2(k=new) | ADDED row/p4@P4 \
                | ADDED row/p5@P5",
            ),
            watches(
                "no initial events from a position is history without bookmarks too",
                "row/configmaps?watch=true&resourceVersion={BEFORE}&sendInitialEvents=false&\
                resourceVersionMatch=NotOlderThan",
                "ADDED row/p1@P1 | ADDED row/p2@P2 | ADDED row/p3@P3 | MODIFIED row/p2@U2(k=new) | ADDED row/p4@P4 \
                | ADDED row/p5@P5",
            ),
            watches(
                "a watch from a position is history",
                "row/configmaps?watch=true&resourceVersion={BEFORE}&allowWatchBookmarks=true",
                "ADDED row/p1@P1 | ADDED row/p2@P2 | ADDED row/p3@P3 | MODIFIED row/p2@U2(k=new) | ADDED row/p4@P4 \
                | ADDED row/p5@P5",
            ),
            watches(
                "a stream not older than now is the state",
                "row/configmaps?watch=true&resourceVersion={FOREIGN}&sendInitialEvents=true&\
                resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | INITIAL-END@FOREIGN | ADDED \
                row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "no initial events from now is what follows",
                "row/configmaps?watch=true&resourceVersion={FOREIGN}&sendInitialEvents=false&\
                resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                "ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "no initial events from now is what follows without bookmarks too",
                "row/configmaps?watch=true&resourceVersion={FOREIGN}&sendInitialEvents=false&\
                resourceVersionMatch=NotOlderThan",
                "ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "a stream not older than now without bookmarks has no mark",
                "row/configmaps?watch=true&resourceVersion={FOREIGN}&sendInitialEvents=true&\
                resourceVersionMatch=NotOlderThan",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "a watch from now is what follows",
                "row/configmaps?watch=true&resourceVersion={FOREIGN}",
                "ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "a watch from zero starts with the state",
                "row/configmaps?watch=true&resourceVersion=0",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "a watch from zero that knows bookmarks is told the end",
                "row/configmaps?watch=true&resourceVersion=0&allowWatchBookmarks=true",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | INITIAL-END@FOREIGN | ADDED \
                row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "a stream not older than something old is the state of now",
                "row/configmaps?watch=true&resourceVersion={BEFORE}&sendInitialEvents=true&\
                resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | INITIAL-END@FOREIGN | ADDED \
                row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "a stream is never too old",
                "row/configmaps?watch=true&resourceVersion={R0-1}&sendInitialEvents=true&\
                resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | INITIAL-END@FOREIGN | ADDED \
                row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "another spelling of zero starts with the state",
                "row/configmaps?watch=true&resourceVersion=00",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | ADDED row/p4@P4 | ADDED row/p5@P5",
            ),
            watches(
                "bookmarks need not be asked in the same words",
                "row/configmaps?watch=1&allowWatchBookmarks=perhaps",
                "ADDED row/p1@P1 | ADDED row/p2@U2(k=new) | ADDED row/p3@P3 | INITIAL-END@FOREIGN | ADDED \
                row/p4@P4 | ADDED row/p5@P5",
            ),
        ],
        then: &["P4 = create configmap row/p4", "P5 = create configmap row/p5"],
    },
    Group {
        about: "the oldest position",
        writes: &["R0 = list configmaps", "S = create secret default/elsewhere"],
        cases: &[
            watches(
                "a start before the history is an error in the stream",
                "configmaps?watch=1&resourceVersion={R0-1}",
                "ERROR 410 Expired: too old resource version: {R0-1} ({R0}) | END",
            )
            .also(&["allowWatchBookmarks=true", "sendInitialEvents=false&resourceVersionMatch=NotOlderThan"]),
            watches(
                "the position of the first list is the oldest to start from",
                "configmaps?watch=1&resourceVersion={R0}",
                "ADDED default/a@A",
            ),
            watches(
                "a position that nothing happened at is as good",
                "configmaps?watch=1&resourceVersion={R0+1}",
                "ADDED default/a@A",
            ),
        ],
        then: &["A = create configmap default/a"],
    },
    Group {
        about: "a watch from the future",
        writes: &["NOW = create configmap default/a"],
        cases: &[watches(
            "a plain start in the future is accepted at once and silent until then",
            "configmaps?watch=1&resourceVersion={NOW+3}",
            "ADDED default/e@E | ADDED default/f@F",
        )
        .differs(
            Who::CacheServer,
            "the store assigns its positions alone, so this one is of another history",
            Expect::Events("ERROR 410 Expired: unknown resource version: {NOW+3}, current: {NOW} | END"),
        )],
        then: &[
            "B = create configmap default/b",
            "C = create configmap default/c",
            "D = create configmap default/d",
            "E = create configmap default/e",
            "F = create configmap default/f",
        ],
    },
    Group {
        about: "a watch that stays in the future",
        writes: &["NOW = create configmap default/a"],
        cases: &[watches(
            "a plain start that the server does not reach is waited for in silence",
            "configmaps?watch=1&resourceVersion={NOW+3}&timeoutSeconds=6",
            "END",
        )
        .differs(
            Who::CacheServer,
            "it is of another history, and silence would hide this one",
            Expect::Events("ERROR 410 Expired: unknown resource version: {NOW+3}, current: {NOW} | END"),
        )],
        then: &[],
    },
    Group {
        about: "a stream from the future",
        writes: &["NOW = create configmap default/a"],
        cases: &[watches(
            "initial state that does not come in time is refused in the stream",
            "configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                allowWatchBookmarks=true&resourceVersion={NOW+2}",
            "(after 3 s) | ERROR 504 Timeout: Timeout: Too large resource version: {NOW+2}, current: {NOW} \
                causes ResourceVersionTooLarge (Too large resource version) wait 1 | END",
        )],
        then: &[],
    },
    Group {
        about: "initial state",
        writes: &[
            "R1 = create configmap b/a",
            "R2 = create configmap a/z",
            "R3 = create configmap a-b/x",
            "R4 = create configmap a/a",
        ],
        cases: &[
            watches(
                "it is sorted by key, and each object carries its own position",
                "configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                allowWatchBookmarks=true",
                "ADDED a-b/x@R3 | ADDED a/a@R4 | ADDED a/z@R2 | ADDED b/a@R1 | INITIAL-END@R4",
            ),
            watches(
                "a page size does not matter to a watch",
                "configmaps?watch=1&limit=1",
                "ADDED a-b/x@R3 | ADDED a/a@R4 | ADDED a/z@R2 | ADDED b/a@R1",
            ),
        ],
        then: &[],
    },
    Group {
        about: "nothing to send",
        writes: &["S = create secret default/s"],
        cases: &[
            watches(
                "a type without objects is at the position of the whole storage",
                "configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                allowWatchBookmarks=true",
                "INITIAL-END@S(ConfigMap v1)",
            ),
            watches(
                "a namespace without objects is as well",
                "none/secrets?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                allowWatchBookmarks=true",
                "INITIAL-END@S(Secret v1)",
            ),
            watches(
                "a selector that matches nothing is as well",
                "secrets?labelSelector=none&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                allowWatchBookmarks=true",
                "INITIAL-END@S",
            ),
            watches(
                "a name that nothing has is as well",
                "default/secrets?fieldSelector=metadata.name=none&watch=true&sendInitialEvents=true&\
                resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                "INITIAL-END@S",
            ),
            watches(
                "the mark is an empty object of the type",
                "pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                "INITIAL-END@S(Pod v1)",
            ),
            watches(
                "also of a grouped one",
                "deployments?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                allowWatchBookmarks=true",
                "INITIAL-END@S(Deployment apps/v1)",
            ),
        ],
        then: &[],
    },
    Group {
        about: "one name",
        writes: &["SINGLE = create configmap default/single app=x", "LATER = create configmap default/later"],
        cases: &[watches(
            "a name is watched alone, and marked with the position of all",
            "default/configmaps?fieldSelector=metadata.name=single&watch=true&sendInitialEvents=true&\
                resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            "ADDED default/single@SINGLE | INITIAL-END@LATER | MODIFIED default/single@U2",
        )],
        then: &["U1 = update configmap default/later k=new", "U2 = update configmap default/single app=x k=new"],
    },
    Group {
        about: "history",
        writes: &[
            "L = list configmaps",
            "C = create configmap default/a k=1",
            "SAME = update configmap default/a k=1",
            "U = update configmap default/a k=2",
            "D = delete configmap default/a",
            "AGAIN = create configmap default/a k=1",
        ],
        cases: &[
            watches(
                "every write is one event, and what changes nothing is none",
                "configmaps?watch=1&timeoutSeconds=6&resourceVersion={L}",
                "ADDED default/a@C(k=1) | MODIFIED default/a@U(k=2) | DELETED default/a@D(k=2) | ADDED \
                default/a@AGAIN(k=1) | END",
            ),
            watches(
                "after a creation comes the rest",
                "configmaps?watch=1&timeoutSeconds=6&resourceVersion={C}",
                "MODIFIED default/a@U(k=2) | DELETED default/a@D(k=2) | ADDED default/a@AGAIN(k=1) | END",
            ),
            watches(
                "after an update comes the rest",
                "configmaps?watch=1&timeoutSeconds=6&resourceVersion={U}",
                "DELETED default/a@D(k=2) | ADDED default/a@AGAIN(k=1) | END",
            ),
            watches(
                "after a deletion comes the rest",
                "configmaps?watch=1&timeoutSeconds=6&resourceVersion={D}",
                "ADDED default/a@AGAIN(k=1) | END",
            ),
            watches(
                "after the last write comes nothing",
                "configmaps?watch=1&timeoutSeconds=6&resourceVersion={AGAIN}",
                "END",
            ),
        ],
        then: &[],
    },
    Group {
        about: "the end of a watch",
        writes: &["START = create configmap here/a", "SEEN = list configmaps"],
        cases: &[
            watches(
                "a watch ends cleanly when its time is over",
                "here/configmaps?watch=1&timeoutSeconds=6",
                "ADDED here/a | END",
            )
            .also(&["resourceVersion=0"]),
            watches(
                "one that had nothing to say ends as cleanly",
                "here/configmaps?watch=1&timeoutSeconds=6&labelSelector=none",
                "END",
            ),
            watches(
                "a bookmark comes before the end, at the position of the type",
                "here/configmaps?watch=1&resourceVersion={START}&timeoutSeconds=4&allowWatchBookmarks=true",
                "BOOKMARK@FOREIGN | END",
            )
            .differs(
                Who::Model,
                "it sends one a minute, and a server may leave this one out",
                Expect::Events("END"),
            ),
            watches(
                "and only to those who asked",
                "here/configmaps?watch=1&resourceVersion={START}&timeoutSeconds=4",
                "END",
            ),
        ],
        then: &["FOREIGN = create configmap there/b"],
    },
    Group {
        about: "labels that change",
        writes: &["L = list configmaps"],
        cases: &[
            watches(
                "leaving a selector is a deletion with the old content and the new position, entering it an addition",
                "configmaps?watch=1&resourceVersion={L}&timeoutSeconds=5&labelSelector=app=x",
                "ADDED default/p@P1(app=x,k=1) | DELETED default/p@P2(app=x,k=1) | ADDED default/p@P4(app=x,k=4) | \
                DELETED default/p@P5(app=x,k=4) | END",
            ),
            watches(
                "one write is a deletion for one watcher and an addition for the other",
                "configmaps?watch=1&resourceVersion={L}&timeoutSeconds=5&labelSelector=app=y",
                "ADDED default/p@P2(app=y,k=2) | MODIFIED default/p@P3(app=y,k=3) | DELETED default/p@P4(app=y,\
                k=3) | END",
            ),
            watches(
                "who selects before and after sees a modification",
                "configmaps?watch=1&resourceVersion={L}&timeoutSeconds=5&labelSelector=app in (x,y)&\
                fieldSelector=metadata.name=p",
                "ADDED default/p@P1 | MODIFIED default/p@P2 | MODIFIED default/p@P3 | MODIFIED default/p@P4 | \
                DELETED default/p@P5 | END",
            ),
            watches(
                "who selects neither sees nothing",
                "configmaps?watch=1&resourceVersion={L}&timeoutSeconds=5&labelSelector=!app",
                "END",
            ),
        ],
        then: &[
            "P1 = create configmap default/p app=x k=1",
            "P2 = update configmap default/p app=y k=2",
            "P3 = update configmap default/p app=y k=3",
            "P4 = update configmap default/p app=x k=4",
            "P5 = delete configmap default/p",
        ],
    },
    Group {
        about: "pods that move",
        writes: &["L = list pods"],
        cases: &[
            watches(
                "a pod that leaves its node is gone there, with the content of before",
                "pods?watch=1&resourceVersion={L}&timeoutSeconds=5&fieldSelector=spec.nodeName=host",
                "ADDED default/a@A1(node=host) | DELETED default/a@A2(node=host) | ADDED default/a@A3(node=host) | \
                END",
            ),
            watches(
                "a pod that comes to a node is new there",
                "pods?watch=1&resourceVersion={L}&timeoutSeconds=5&fieldSelector=spec.nodeName=other",
                "ADDED default/b@B3(step=3,node=other) | MODIFIED default/b@B4(step=4,node=other) | DELETED \
                default/b@B5(step=4,node=other) | ADDED default/c@C1 | END",
            ),
            watches(
                "pods without a node come and go as well",
                "pods?watch=1&resourceVersion={L}&timeoutSeconds=5&fieldSelector=spec.nodeName!=host,\
                spec.nodeName!=other",
                "ADDED default/a@A2 | DELETED default/a@A3 | ADDED default/b@B1 | MODIFIED default/b@B2 | DELETED \
                default/b@B3 | ADDED default/b@B5 | MODIFIED default/b@B6 | END",
            ),
        ],
        then: &[
            "A1 = create pod default/a node=host",
            "A2 = update pod default/a",
            "A3 = update pod default/a node=host",
            "B1 = create pod default/b step=1",
            "B2 = update pod default/b step=2",
            "B3 = update pod default/b step=3 node=other",
            "B4 = update pod default/b step=4 node=other",
            "B5 = update pod default/b step=5",
            "B6 = update pod default/b step=6",
            "C1 = create pod default/c node=other",
        ],
    },
    Group {
        about: "watches of namespaces with a common prefix",
        writes: &["L = list configmaps"],
        cases: &[
            watches(
                "a namespace is watched alone",
                "foo/configmaps?watch=1&resourceVersion={L}&timeoutSeconds=5",
                "ADDED foo/a@W2 | MODIFIED foo/a@W4 | DELETED foo/a@W6 | ADDED foo/last@W7 | END",
            ),
            watches(
                "one with a dash is watched alone",
                "foo-bar/configmaps?watch=1&resourceVersion={L}&timeoutSeconds=5",
                "ADDED foo-bar/a@W1 | ADDED foo-bar/b@W5 | END",
            ),
            watches(
                "a longer one is watched alone",
                "foobar/configmaps?watch=1&resourceVersion={L}&timeoutSeconds=5",
                "ADDED foobar/a@W3 | END",
            ),
            watches(
                "a namespace can be selected as a field",
                "configmaps?watch=1&resourceVersion={L}&timeoutSeconds=5&fieldSelector=metadata.namespace=foo",
                "ADDED foo/a@W2 | MODIFIED foo/a@W4 | DELETED foo/a@W6 | ADDED foo/last@W7 | END",
            ),
            watches(
                "two namespaces have nothing in common",
                "foo/configmaps?watch=1&resourceVersion={L}&timeoutSeconds=5&fieldSelector=metadata.namespace=foo-bar",
                "END",
            ),
            watches(
                "a name is watched in every namespace",
                "configmaps?watch=1&resourceVersion={L}&timeoutSeconds=5&fieldSelector=metadata.name=a",
                "ADDED foo-bar/a@W1 | ADDED foo/a@W2 | ADDED foobar/a@W3 | MODIFIED foo/a@W4 | DELETED foo/a@W6 | END",
            ),
        ],
        then: &[
            "W1 = create configmap foo-bar/a",
            "W2 = create configmap foo/a",
            "W3 = create configmap foobar/a",
            "W4 = update configmap foo/a k=new",
            "W5 = create configmap foo-bar/b",
            "W6 = delete configmap foo/a",
            "W7 = create configmap foo/last",
        ],
    },
];
