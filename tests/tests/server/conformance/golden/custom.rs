//! Recorded session: resources of a CustomResourceDefinition.

pub(super) const SESSION: &str = r#"
== before there is a definition there is nothing
> GET /apis/cr.bar.com/v1/namespaces/default/foos
< 404
< content-type: text/plain; charset=utf-8
<| 404 page not found
<|

== a definition
> POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions
> {"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"foos.cr.bar.com"},"spec":{"group":"cr.bar.com","scope":"Namespaced","names":{"plural":"foos","singular":"foo","kind":"Foo","listKind":"FooList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},"subresources":{"status":{}}}]}}
< 201
< {"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"foos.cr.bar.com","…":0},"…":0}

== a resource of it
> POST /apis/cr.bar.com/v1/namespaces/default/foos
> {"apiVersion":"cr.bar.com/v1","kind":"Foo","metadata":{"name":"f1"},"spec":{"a":1}}
< 201
< {"apiVersion":"cr.bar.com/v1","kind":"Foo","metadata":{"creationTimestamp":"$time","generation":1,"name":"f1","namespace":"default","resourceVersion":"$F","uid":"$uid"},"spec":{"a":1}}

== CR list: items carry kind and apiVersion
> GET /apis/cr.bar.com/v1/namespaces/default/foos
< 200
< {"apiVersion":"cr.bar.com/v1","kind":"FooList","metadata":{"resourceVersion":"{F}","…":0},"items":[{"apiVersion":"cr.bar.com/v1","kind":"Foo","metadata":{"creationTimestamp":"$time","generation":1,"name":"f1","namespace":"default","resourceVersion":"{F}","uid":"$uid"},"spec":{"a":1}}]}

== CR list rv0
> GET /apis/cr.bar.com/v1/namespaces/default/foos?limit=1&resourceVersion=0
< 200
< {"apiVersion":"cr.bar.com/v1","kind":"FooList","…":0,"items":[{"…":0}]}

== CR table: name and age
> GET /apis/cr.bar.com/v1/namespaces/default/foos
> accept: application/json;as=Table;v=v1;g=meta.k8s.io
< 200
< {"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{F}"},"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"…","priority":0},{"name":"Age","type":"date","format":"","description":"…","priority":0}],"rows":[{"cells":["f1","…s"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"f1","namespace":"default","uid":"$uid","resourceVersion":"{F}","generation":1,"creationTimestamp":"$time"}}}]}

== CR PUT norv: a custom resource is updated at a position
> PUT /apis/cr.bar.com/v1/namespaces/default/foos/f1
> {"apiVersion":"cr.bar.com/v1","kind":"Foo","metadata":{"name":"f1"},"spec":{"a":2}}
< 422
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"foos.cr.bar.com \"f1\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update","reason":"Invalid","details":{"name":"f1","group":"cr.bar.com","kind":"foos","causes":[{"reason":"FieldValueInvalid","message":"Invalid value: 0: must be specified for an update","field":"metadata.resourceVersion"}]},"code":422}

== CR PUT spec+status: status is not written here
> PUT /apis/cr.bar.com/v1/namespaces/default/foos/f1
> {"apiVersion":"cr.bar.com/v1","kind":"Foo","metadata":{"name":"f1","resourceVersion":"{F}"},"spec":{"a":2},"status":{"x":1}}
< 200
< {"apiVersion":"cr.bar.com/v1","kind":"Foo","metadata":{"creationTimestamp":"$time","generation":2,"name":"f1","namespace":"default","resourceVersion":"$F2","uid":"$uid"},"spec":{"a":2}}

== but there, where the rest is not
> PUT /apis/cr.bar.com/v1/namespaces/default/foos/f1/status
> {"apiVersion":"cr.bar.com/v1","kind":"Foo","metadata":{"name":"f1","resourceVersion":"{F2}"},"spec":{"a":9},"status":{"x":1}}
< 200
< {"apiVersion":"cr.bar.com/v1","kind":"Foo","metadata":{"…":0,"generation":2,"resourceVersion":"$F3"},"spec":{"a":2},"status":{"x":1}}

== CR SMP: nothing is known of its lists
> PATCH /apis/cr.bar.com/v1/namespaces/default/foos/f1
> content-type: application/strategic-merge-patch+json
> {"spec":{"a":3}}
< 415
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml","reason":"UnsupportedMediaType","code":415}

== CR watchlist
> WATCH /apis/cr.bar.com/v1/namespaces/default/foos?watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=8
< 200
< {"type":"ADDED","object":{"apiVersion":"cr.bar.com/v1","kind":"Foo","metadata":{"name":"f1","…":0,"resourceVersion":"{F3}"},"spec":{"a":2},"status":{"x":1}}}
< {"type":"BOOKMARK","object":{"apiVersion":"cr.bar.com/v1","kind":"Foo","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"{F3}"}}}
< {"type":"BOOKMARK","object":{"apiVersion":"cr.bar.com/v1","kind":"Foo","metadata":{"resourceVersion":"{F3}"}}}
< END

== CR 404
> GET /apis/cr.bar.com/v1/namespaces/default/foos/nope
< 404
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"foos.cr.bar.com \"nope\" not found","reason":"NotFound","details":{"name":"nope","group":"cr.bar.com","kind":"foos"},"code":404}

== CR unknown plural: plain text, unlike under a built-in group
> GET /apis/cr.bar.com/v1/bars
< 404
< content-type: text/plain; charset=utf-8
< x-content-type-options: nosniff
<| 404 page not found
<|

== a field that the definition does not name cannot be selected
> GET /apis/cr.bar.com/v1/foos?fieldSelector=spec.a=1
< 400
< {"…":0,"message":"field label not supported: spec.a","reason":"BadRequest","code":400}
"#;
