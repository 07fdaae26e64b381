//! Recorded session: discovery, health and unknown paths.

pub(super) const SESSION: &str = r#"
== unknown resource: a status, under a group that is served
> GET /api/v1/foos
< 404
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}

== unknown group: plain text
> GET /apis/none/v1
< 404
< content-type: text/plain; charset=utf-8
< x-content-type-options: nosniff
<| 404 page not found
<|

== unknown group res: plain text
> GET /apis/none/v1/foos
< 404
< content-type: text/plain; charset=utf-8
< x-content-type-options: nosniff
<| 404 page not found
<|

== PUT collection: a method that a path does not take
> PUT /api/v1/namespaces/default/configmaps
> {"metadata":{"name":"a"}}
< 405
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server does not allow this method on the requested resource","reason":"MethodNotAllowed","details":{},"code":405}

== API: without an apiVersion
> GET /api
< 200
< {"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"127.0.0.1:…"}]}

== GROUP
> GET /apis/apps
< 200
< {"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}

== APIS
> GET /apis
< 200
< {"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"…","versions":[{"groupVersion":"…/v1","version":"v1"},"…"],"preferredVersion":{"groupVersion":"…","version":"…"}},"…"]}

== the resources of the core group, without an apiVersion
> GET /api/v1
< 200
< {"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"…","singularName":"…","namespaced":"…","kind":"…","verbs":["…"],"…":0},"…"]}

== the resources of a named group
> GET /apis/apps/v1
< 200
< {"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"…","…":0},"…"]}

== AGG: everything in one document, which may be cached and has a tag
> GET /api
> accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList
< 200
< content-type: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList
< cache-control: public
< etag: "…"
< vary: Accept
< {"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"…","responseKind":{"group":"","version":"","kind":"…"},"scope":"…","singularResource":"…","verbs":["…"],"…":0},"…"],"freshness":"Current"}]}]}

== watch unsupported: a type that is no more than a question
~ `componentstatuses`, `pods/resize`
> GET /api/v1/componentstatuses?watch=1
< 404
< {"…":0,"message":"the server could not find the requested resource","reason":"NotFound","code":404}

== OAV2: the older document
> GET /openapi/v2
< 200
< content-type: application/json
< {"swagger":"2.0","…":0}

== HEALTH: alive
> GET /livez
< 200
< content-type: text/plain; charset=utf-8
< x-content-type-options: nosniff
<| ok

== HEALTH: ready
> GET /readyz
< 200
< content-type: text/plain; charset=utf-8
<| ok

== HEALTH: a line for each check
> GET /readyz?verbose
< 200
< content-type: text/plain; charset=utf-8
<| [+]ping ok
<| …readyz check passed
<|

== HEALTH: a check that there is none of is warned about
> GET /healthz?exclude=zzz&verbose
< 200
< content-type: text/plain; charset=utf-8
<| [+]ping ok
<| …healthz check passed
<|

== the version, for people
> GET /version
< 200
< {"major":"1","minor":"36","gitVersion":"v1.36…","…":0}

== OAV3: an index of documents, each with its hash
> GET /openapi/v3
< 200
< content-type: …
< {"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=…"},"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=…"},"…":0}}
"#;
