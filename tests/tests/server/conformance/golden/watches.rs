//! Recorded session: WATCH, with the lines of a stream, its headers and its end.

pub(super) const SESSION: &str = r#"
== the position before the first write
> GET /api/v1/configmaps
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"$L"},"items":[]}

== a ConfigMap of the session
> POST /api/v1/namespaces/default/configmaps
> {"metadata":{"name":"a","labels":{"app":"x"}},"data":{"k":"v"}}
< 201
< {"…":0,"metadata":{"…":0,"resourceVersion":"$A"}}

== another one
> POST /api/v1/namespaces/default/configmaps
> {"metadata":{"name":"b","labels":{"app":"x"}},"data":{"k":"v"}}
< 201
< {"…":0,"metadata":{"…":0,"resourceVersion":"$B"}}

== a write of another type
> POST /api/v1/namespaces/other/secrets
> {"metadata":{"name":"c"}}
< 201
< {"…":0,"metadata":{"…":0,"resourceVersion":"$C"}}

== before resourceVersion=0: a consistent list, so that the cache has all of it
> GET /api/v1/namespaces/default/configmaps
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{C}"},"items":[{"…":0},{"…":0}]}

== LEGACY unset no-bm: the state, and no mark
> WATCH /api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=8
< 200
< {"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"$uid","resourceVersion":"{A}","creationTimestamp":"$time","labels":{"app":"x"}},"data":{"k":"v"}}}
< {"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b","namespace":"default","uid":"$uid","resourceVersion":"{B}","creationTimestamp":"$time","labels":{"app":"x"}},"data":{"k":"v"}}}
< END

== LEGACY rv0 bm: who takes bookmarks is told the end of the state without asking
> WATCH /api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=1&resourceVersion=0&timeoutSeconds=8
< 200
< {"type":"ADDED","object":{"kind":"ConfigMap","…":0}}
< {"type":"ADDED","object":{"kind":"ConfigMap","…":0}}
< {"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"$rv","annotations":{"k8s.io/initial-events-end":"true"}}}}
< {"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"{C}"}}}
< END

== SIE unset: the mark has the position of the whole storage
> WATCH /api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=8
< 200
< {"type":"ADDED","object":{"kind":"ConfigMap","…":0}}
< {"type":"ADDED","object":{"kind":"ConfigMap","…":0}}
< {"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"{C}","annotations":{"k8s.io/initial-events-end":"true"}}}}
< {"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"{C}"}}}
< END

== SIE empty ns: the end of nothing
> WATCH /api/v1/namespaces/empty/configmaps?watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=8
< 200
< {"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"{C}","annotations":{"k8s.io/initial-events-end":"true"}}}}
< {"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"{C}"}}}
< END

== SIE single: one name
> WATCH /api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=8&fieldSelector=metadata.name=a
< 200
< {"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","…":0},"data":{"k":"v"}}}
< {"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"{C}","annotations":{"k8s.io/initial-events-end":"true"}}}}
< {"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"{C}"}}}
< END

== SIE=false unset: nothing but what follows
> WATCH /api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=8
< 200
< {"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"{C}"}}}
< END

== OLD rv1: what happened since
> WATCH /api/v1/namespaces/default/configmaps?watch=1&resourceVersion={L}&timeoutSeconds=8
< 200
< {"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","…":0},"data":{"k":"v"}}}
< {"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b","…":0},"data":{"k":"v"}}}
< END

== FUTURE plain: a position ahead is refused
~ watches from a position ahead of the server
> WATCH /api/v1/namespaces/default/configmaps?watch=1&resourceVersion={C+9000}&timeoutSeconds=8
< 200
< {"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"unknown resource version: {C+9000}, current: {C}","reason":"Expired","code":410}}
< END

== TOO OLD watch: an error in the stream
> WATCH /api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=8&resourceVersion={L-1}
< 200
< {"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: {L-1} ({L})","reason":"Expired","code":410}}
< END

== SIE pom: metadata alone
> WATCH /api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=8
> accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io
< 200
< {"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"default","uid":"$uid","resourceVersion":"{A}","creationTimestamp":"$time","labels":{"app":"x"}}}}
< {"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"b","…":0}}}
< {"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{C}","annotations":{"k8s.io/initial-events-end":"true"}}}}
< {"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{C}"}}}
< END

== SIE table none: columns once, rows without objects, a mark that has one all the same
> WATCH /api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=8&includeObject=None
> accept: application/json;as=Table;v=v1;g=meta.k8s.io
< 200
< {"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{A}"},"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"…","priority":0},{"name":"Data","type":"string","format":"","description":"…","priority":0},{"name":"Age","type":"string","format":"","description":"…","priority":0}],"rows":[{"cells":["a",1,"…s"],"object":null}]}}
< {"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{B}"},"columnDefinitions":null,"rows":[{"cells":["b",1,"…s"],"object":null}]}}
< {"type":"BOOKMARK","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{C}"},"columnDefinitions":null,"rows":[{"cells":["",0,"<unknown>"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{C}","annotations":{"k8s.io/initial-events-end":"true"}}}}]}}
< {"type":"BOOKMARK","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{C}"},"columnDefinitions":null,"rows":[{"cells":["",0,"<unknown>"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{C}"}}}]}}
< END

== SIE pods: the end of pods, whose empty object a Go server fills with zero values
> WATCH /api/v1/pods?watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=8
< 200
< {"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"{C}","annotations":{"k8s.io/initial-events-end":"true"}},"…":0}}
< {"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"{C}"},"…":0}}
< END

== pretty watch: lines stay lines
> WATCH /api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=8&pretty=1&resourceVersion=0
> user-agent: curl/8
< 200
< {"type":"ADDED","object":{"kind":"ConfigMap","…":0}}
< {"type":"ADDED","object":{"kind":"ConfigMap","…":0}}
< END

== gzip watch: a stream without a mark behind the state is not compressed
> WATCH /api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=8&resourceVersion=0
> accept-encoding: gzip
< 200
< content-encoding: no
< {"type":"ADDED","object":{"kind":"ConfigMap","…":0}}
< {"type":"ADDED","object":{"kind":"ConfigMap","…":0}}
< END

== /watch/ path legacy: the state, and no mark even for those who take bookmarks
> WATCH /api/v1/watch/namespaces/default/configmaps?timeoutSeconds=8&allowWatchBookmarks=1
< 200
< {"type":"ADDED","object":{"kind":"ConfigMap","…":0}}
< {"type":"ADDED","object":{"kind":"ConfigMap","…":0}}
< {"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"{C}"}}}
< END

== /watch/ path sie: such a path takes the options of a list
> GET /api/v1/watch/namespaces/default/configmaps?sendInitialEvents=true&timeoutSeconds=1
< 422
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: sendInitialEvents is forbidden for list","field":"sendInitialEvents"}]},"code":422}

== a /watch/ path of one object is a watch of that name
> WATCH /api/v1/watch/namespaces/default/configmaps/b?timeoutSeconds=8
< 200
< {"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b","…":0},"…":0}}
< END

== a /watch/ path of one object and the name of another
> GET /api/v1/watch/namespaces/default/configmaps/b?timeoutSeconds=1&fieldSelector=metadata.name=a
< 400
< {"…":0,"kind":"Status","message":"fieldSelector metadata.name doesn't match requested name","reason":"BadRequest","code":400}

== yaml does not stream
> GET /api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1
> accept: application/yaml
< 406
< content-type: application/yaml
<| …
<| reason: NotAcceptable…
"#;
