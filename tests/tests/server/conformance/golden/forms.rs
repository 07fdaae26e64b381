//! Recorded session: tables, metadata only, indented and compressed responses.

pub(super) const SESSION: &str = r#"
== a ConfigMap of the session
> POST /api/v1/namespaces/default/configmaps
> {"metadata":{"name":"a","labels":{"app":"x"}},"data":{"k":"v"}}
< 201
< {"…":0,"metadata":{"…":0,"resourceVersion":"$A"}}

== one without data
> POST /api/v1/namespaces/default/configmaps
> {"metadata":{"generateName":"gn-"}}
< 201
< {"…":0,"metadata":{"name":"gn-…","generateName":"gn-","…":0,"resourceVersion":"$G"}}

== 406 list: nobody reads HTML here
> GET /api/v1/namespaces/default/configmaps
> accept: text/html
< 406
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch","reason":"NotAcceptable","details":{},"code":406}

== 406 object: the path of one object has no streams
> GET /api/v1/namespaces/default/configmaps/a
> accept: text/html
< 406
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf","reason":"NotAcceptable","details":{},"code":406}

== stream=foo list
> GET /api/v1/namespaces/default/configmaps
> accept: application/json;stream=foo
< 406
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"only the following media types are accepted: application/json, application/yaml…","reason":"NotAcceptable","code":406}

== TABLE: the columns of the type, and metadata with each row
> GET /api/v1/namespaces/default/configmaps
> accept: application/json;as=Table;v=v1;g=meta.k8s.io
< 200
< {"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{G}"},"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"…","priority":0},{"name":"Data","type":"string","format":"","description":"…","priority":0},{"name":"Age","type":"string","format":"","description":"…","priority":0}],"rows":[{"cells":["a",1,"…s"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"default","uid":"$uid","resourceVersion":"{A}","creationTimestamp":"$time","labels":{"app":"x"}}}},{"cells":["gn-…",0,"…s"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"gn-…","generateName":"gn-","…":0}}}]}

== a table of nothing
> GET /api/v1/namespaces/empty/configmaps
> accept: application/json;as=Table;v=v1;g=meta.k8s.io
< 200
< {"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{G}"},"columnDefinitions":[{"…":0},{"…":0},{"…":0}],"rows":[]}

== TABLE bad include: what a row carries must be a known word
> GET /api/v1/namespaces/default/configmaps?includeObject=X
> accept: application/json;as=Table;v=v1;g=meta.k8s.io
< 400
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unable to convert to Table as requested: includeObject: Invalid value: \"X\": must be 'Metadata', 'Object', 'None', or empty","reason":"BadRequest","code":400}

== TABLE v9 fallback: an unknown version is passed over
> GET /api/v1/namespaces/default/configmaps
> accept: application/json;as=Table;v=v9;g=meta.k8s.io,application/json
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{G}"},"items":[{"…":0},{"…":0}]}

== TABLE v9: and alone it is refused
> GET /api/v1/namespaces/default/configmaps
> accept: application/json;as=Table;v=v9;g=meta.k8s.io
< 406
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"only the following media types are accepted: application/json, application/yaml…","reason":"NotAcceptable","code":406}

== POML: metadata of each
> GET /api/v1/namespaces/default/configmaps
> accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io
< 200
< {"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{G}"},"items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"default","uid":"$uid","resourceVersion":"{A}","creationTimestamp":"$time","labels":{"app":"x"}}},{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"gn-…","generateName":"gn-","…":0}}]}

== POML empty: metadata of nothing is null
> GET /api/v1/namespaces/empty/configmaps
> accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io
< 200
< {"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{G}"},"items":null}

== a page of metadata has a token and what remains
> GET /api/v1/namespaces/default/configmaps?limit=1
> accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io
< 200
< {"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"{G}","continue":"token({G}/a$)","remainingItemCount":1},"items":[{"…":0}]}

== the metadata of one object is not that of a list
> GET /api/v1/namespaces/default/configmaps
> accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io
< 406
< {"…":0,"kind":"Status","message":"you requested PartialObjectMetadata, but the requested object is a list…","reason":"NotAcceptable","code":406}

== the metadata of a list is not that of one object
> GET /api/v1/namespaces/default/configmaps/a
> accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io
< 406
< {"…":0,"kind":"Status","message":"you requested PartialObjectMetadataList, but the requested object is not a list…","reason":"NotAcceptable","code":406}

== PRETTY accept: indented by two, without a newline at the end
> GET /api/v1/namespaces/empty/configmaps
> accept: application/json;pretty=1
< 200
<| {
<|   "kind": "ConfigMapList",
<|   "apiVersion": "v1",
<|   "metadata": {
<|     "resourceVersion": "…"
<|   },
<|   "items": []
<| }

== PRETTY curl: as curl asks
> GET /api/v1/namespaces/default/configmaps/a
> user-agent: curl/8
< 200
<| {
<|   "kind": "ConfigMap",
<|   "apiVersion": "v1",…
<|     "k": "v"…
<| }

== PRETTY curl pretty=0: unless it says no
> GET /api/v1/namespaces/empty/configmaps?pretty=0
> user-agent: curl/8
< 200
<| {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"…"},"items":[]}
<|

== nogzip: a short body is not compressed
> GET /api/v1/namespaces/default/configmaps
> accept-encoding: gzip
< 200
< content-encoding: no
< {"kind":"ConfigMapList","…":0}
"#;
