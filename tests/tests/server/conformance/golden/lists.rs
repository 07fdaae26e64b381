//! Recorded session: LIST, with the state, the page and the shape of the response.

pub(super) const SESSION: &str = r#"
== a list before anything was written
> GET /api/v1/configmaps
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"$L"},"items":[]}

== a ConfigMap of the session
> POST /api/v1/namespaces/default/configmaps
> {"metadata":{"name":"a","labels":{"app":"x"}},"data":{"k":"v"}}
< 201
< {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"$uid","resourceVersion":"$A","creationTimestamp":"$time","labels":{"app":"x"}},"data":{"k":"v"}}

== another one
> POST /api/v1/namespaces/default/configmaps
> {"metadata":{"name":"b","labels":{"app":"x"}},"data":{"k":"v"}}
< 201
< {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b","namespace":"default","uid":"$uid","resourceVersion":"$B","creationTimestamp":"$time","labels":{"app":"x"}},"data":{"k":"v"}}

== one in another namespace
> POST /api/v1/namespaces/other/configmaps
> {"metadata":{"name":"c","labels":{"app":"x"}},"data":{"k":"v"}}
< 201
< {"…":0,"metadata":{"…":0,"namespace":"other","resourceVersion":"$C"}}

== one without labels and data
> POST /api/v1/namespaces/other/configmaps
> {"metadata":{"name":"d"}}
< 201
< {"…":0,"metadata":{"name":"d","namespace":"other","uid":"$uid","resourceVersion":"$D","creationTimestamp":"$time"}}

== LIST: items carry neither kind nor apiVersion
> GET /api/v1/namespaces/default/configmaps
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{D}"},"items":[{"metadata":{"name":"a","namespace":"default","uid":"$uid","resourceVersion":"{A}","creationTimestamp":"$time","labels":{"app":"x"}},"data":{"k":"v"}},{"metadata":{"name":"b","namespace":"default","uid":"$uid","resourceVersion":"{B}","creationTimestamp":"$time","labels":{"app":"x"}},"data":{"k":"v"}}]}

== a position with a zero in front is a position
> GET /api/v1/namespaces/default/configmaps?resourceVersion=05
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{D}"},"items":[{"…":0},{"…":0}]}

== PAGE1: a page of all namespaces ends with namespace and name
> GET /api/v1/configmaps?limit=1
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{D}","continue":"token({D}/default/a$)","remainingItemCount":3},"items":[{"metadata":{"name":"a","…":0},"data":{"k":"v"}}]}

== LIMIT RV0: zero ignores the limit
> GET /api/v1/namespaces/default/configmaps?limit=1&resourceVersion=0
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{D}"},"items":[{"…":0},{"…":0}]}

== LIMIT SEL: a selector hides how much remains
> GET /api/v1/namespaces/default/configmaps?limit=1&labelSelector=app=x
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{D}","continue":"token({D}/a$)"},"items":[{"metadata":{"name":"a","…":0},"…":0}]}

== NAME two: two names are none
> GET /api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=a,metadata.name=b
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{D}"},"items":[]}

== NS none: a namespace that is not there is empty
> GET /api/v1/namespaces/nonexist/configmaps
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{D}"},"items":[]}

== NOT OLDER LIMIT: a page not older than a position is of now
> GET /api/v1/namespaces/default/configmaps?limit=1&resourceVersion={D}&resourceVersionMatch=NotOlderThan
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{D}","continue":"token({D}/a$)","remainingItemCount":1},"items":[{"metadata":{"name":"a","…":0},"…":0}]}

== EXACT old: an exact list says the position it was asked for
> GET /api/v1/namespaces/default/configmaps?resourceVersion={A}&resourceVersionMatch=Exact
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{A}"},"items":[{"metadata":{"name":"a","namespace":"default","uid":"$uid","resourceVersion":"{A}","creationTimestamp":"$time","labels":{"app":"x"}},"data":{"k":"v"}}]}

== EXACT single: one name at an exact position
> GET /api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=a&resourceVersion={B}&resourceVersionMatch=Exact
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{B}"},"items":[{"metadata":{"name":"a","…":0},"…":0}]}

== EXACT 1: the state before the first list of the type
~ states older than the window: exact reads, expired tokens
> GET /api/v1/namespaces/default/configmaps?resourceVersion=1&resourceVersionMatch=Exact
< 410
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"The resourceVersion for the provided list is too old.","reason":"Expired","code":410}

== FUTURE: a position ahead is waited for
> GET /api/v1/namespaces/default/configmaps?resourceVersion={D+9000}&limit=1
< 504
< retry-after: 1
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: {D+9000}, current: {D}","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}

== FUTURE EXACT single: one object ahead
~ one object by name at a position ahead
> GET /api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=a&resourceVersion={D+9000}&resourceVersionMatch=Exact
< 504
< retry-after: 1
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: {D+9000}, current: {D}","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}

== CONT expired nolimit: an expired token comes back as one at the latest state
> GET /api/v1/namespaces/default/configmaps?continue=token({L-1}/a$)
< 410
< {"kind":"Status","apiVersion":"v1","metadata":{"continue":"token(-1/a$)"},"status":"Failure","message":"The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.","reason":"Expired","code":410}

== EXACT expired: an exact position that is gone offers no token
> GET /api/v1/namespaces/default/configmaps?resourceVersion={L-1}&resourceVersionMatch=Exact
< 410
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"The resourceVersion for the provided list is too old.","reason":"Expired","code":410}

== INCONSISTENT CONT: the token at the latest state reads the rest of now, and its pages are consistent again
> GET /api/v1/configmaps?limit=2&continue=token(-1/default/a$)
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{D}","continue":"token({D}/other/c$)","remainingItemCount":1},"items":[{"metadata":{"name":"b","…":0},"…":0},{"metadata":{"name":"c","…":0},"…":0}]}

== NOT OLDER old rv ok: not older than something that is gone is now
> GET /api/v1/namespaces/default/configmaps?resourceVersion={L-1}
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{D}"},"items":[{"…":0},{"…":0}]}

== GET 404
> GET /api/v1/namespaces/default/configmaps/nope
< 404
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"nope\" not found","reason":"NotFound","details":{"name":"nope","kind":"configmaps"},"code":404}

== GET 404 grp: a grouped type is named with its group
> GET /apis/apps/v1/namespaces/default/deployments/nope
< 404
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"nope\" not found","reason":"NotFound","details":{"name":"nope","group":"apps","kind":"deployments"},"code":404}

== TIMEOUT tiny: a request that has no time
> GET /api/v1/namespaces/default/configmaps?timeout=1ns
< 504
< content-type: text/plain; charset=utf-8
< {"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}

== a time that is no duration
> GET /api/v1/namespaces/default/configmaps?timeout=abc
< 400
< {"…":0,"kind":"Status","message":"invalid timeout specified in the request URL - time: invalid duration \"abc\"","reason":"BadRequest","code":400}

== a time that is long enough is not noticed
> GET /api/v1/namespaces/default/configmaps?timeout=32s
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{D}"},"items":[{"…":0},{"…":0}]}
"#;
