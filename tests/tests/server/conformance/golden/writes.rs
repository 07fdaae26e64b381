//! Recorded sessions: create, update, patch and delete.

pub(super) const CREATING: &str = r#"
== CREATE
> POST /api/v1/namespaces/default/configmaps
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w1"},"data":{"k":"v"}}
< 201
< {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"w1","namespace":"default","uid":"$uid","resourceVersion":"$W","creationTimestamp":"$time"},"data":{"k":"v"}}

== CREATE dup
> POST /api/v1/namespaces/default/configmaps
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w1"},"data":{"k":"v"}}
< 409
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"w1\" already exists","reason":"AlreadyExists","details":{"name":"w1","kind":"configmaps"},"code":409}

== NONAME
> POST /api/v1/namespaces/default/configmaps
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{}}
< 422
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required","reason":"Invalid","details":{"kind":"ConfigMap","causes":[{"reason":"FieldValueRequired","message":"Required value: name or generateName is required","field":"metadata.name"}]},"code":422}

== CREATE rv: an error that nobody mapped
> POST /api/v1/namespaces/default/configmaps
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w2","resourceVersion":"1"}}
< 500
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"resourceVersion should not be set on objects to be created","code":500}

== CREATE ns mismatch
> POST /api/v1/namespaces/default/configmaps
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w2","namespace":"other"}}
< 400
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the namespace of the provided object does not match the namespace sent on the request","reason":"BadRequest","code":400}

== CREATE kind
> POST /api/v1/namespaces/default/configmaps
> {"apiVersion":"v1","kind":"Secret","metadata":{"name":"w2"}}
< 400
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion","reason":"BadRequest","code":400}

== CREATE badjson
~ messages about bodies that cannot be read
> POST /api/v1/namespaces/default/configmaps
> {bad
< 400
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: invalid character 'b' looking for beginning of object key string","reason":"BadRequest","code":400}

== CREATE no ns
~ namespaces
> POST /api/v1/namespaces/nonexist/configmaps
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w2"}}
< 201
< {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"w2","namespace":"nonexist","…":0}}

== CREATE dry: everything but a position
> POST /api/v1/namespaces/default/configmaps?dryRun=All
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dry"}}
< 201
< {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"dry","namespace":"default","uid":"$uid","creationTimestamp":"$time"}}

== and nothing stored
> GET /api/v1/namespaces/default/configmaps/dry
< 404
< {"…":0,"reason":"NotFound"}

== a dry run of something else
> POST /api/v1/namespaces/default/configmaps?dryRun=x
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dry"}}
< 422
< {"…":0,"message":"CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\"","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"CreateOptions","causes":["…"]}}

== STRICT: unknown fields are refused on request
> POST /api/v1/namespaces/default/configmaps?fieldValidation=Strict
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"st"},"foo":"bar"}
< 400
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"foo\"","reason":"BadRequest","code":400}

== WARN: and warned about without one
> POST /api/v1/namespaces/default/configmaps
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"st"},"foo":"bar"}
< 201
< warning: 299 - "unknown field \"foo\""
< {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"st","namespace":"default","uid":"$uid","resourceVersion":"$rv","creationTimestamp":"$time"},"…":0}

== IGNORE: or not even that
> POST /api/v1/namespaces/default/configmaps?fieldValidation=Ignore
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"ig"},"foo":"bar"}
< 201
< warning: no
< {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"ig","…":0},"…":0}
"#;

pub(super) const CHANGING: &str = r#"
== an object of the session
> POST /api/v1/namespaces/default/configmaps
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w1"},"data":{"k":"v"}}
< 201
< {"…":0,"metadata":{"…":0,"resourceVersion":"$W"}}

== PUT stale
> PUT /api/v1/namespaces/default/configmaps/w1
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w1","resourceVersion":"1"},"data":{"k":"new"}}
< 409
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Operation cannot be fulfilled on configmaps \"w1\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"w1","kind":"configmaps"},"code":409}

== NOOP PUT: no change, no position
> PUT /api/v1/namespaces/default/configmaps/w1
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w1","resourceVersion":"{W}"},"data":{"k":"v"}}
< 200
< {"…":0,"metadata":{"…":0,"resourceVersion":"{W}"}}

== PUT norv: the last write wins
> PUT /api/v1/namespaces/default/configmaps/w1
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w1"},"data":{"k":"v"}}
< 200
< {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"w1","namespace":"default","uid":"$uid","resourceVersion":"{W}","creationTimestamp":"$time"},"data":{"k":"v"}}

== PUT name mismatch
> PUT /api/v1/namespaces/default/configmaps/w9
> {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w1"},"data":{"k":"v"}}
< 400
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the name of the object (w1) does not match the name on the URL (w9)","reason":"BadRequest","code":400}

== PATCH ct: a content type that no patch has
> PATCH /api/v1/namespaces/default/configmaps/w1
> content-type: application/json
> {"data":{"k":"2"}}
< 415
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"415: Unsupported Media Type","reason":"UnsupportedMediaType","details":{},"code":415}

== PATCH jsonpatch test fail
~ messages of JSON patches that do not apply
> PATCH /api/v1/namespaces/default/configmaps/w1
> content-type: application/json-patch+json
> [{"op":"test","path":"/data/k","value":"other"}]
< 422
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server rejected our request due to an error in our request: JSON patch operation 0 (test \"/data/k\"): the value is another","reason":"Invalid","details":{},"code":422}

== PATCH stale rv
> PATCH /api/v1/namespaces/default/configmaps/w1
> content-type: application/merge-patch+json
> {"metadata":{"resourceVersion":"1"},"data":{"k":"2"}}
< 409
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Operation cannot be fulfilled on configmaps \"w1\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"w1","kind":"configmaps"},"code":409}

== APPLY nofm: who applies says who it is
> PATCH /api/v1/namespaces/default/configmaps/ap
> content-type: application/apply-patch+yaml
>| apiVersion: v1
>| kind: ConfigMap
>| metadata: {name: ap}
>| data: {k: "1"}
< 422
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"PatchOptions","causes":[{"reason":"FieldValueRequired","message":"Required value: is required for apply patch","field":"fieldManager"}]},"code":422}

== APPLY create: what is not there is created
> PATCH /api/v1/namespaces/default/configmaps/ap?fieldManager=m1
> content-type: application/apply-patch+yaml
>| apiVersion: v1
>| kind: ConfigMap
>| metadata: {name: ap}
>| data: {k: "1"}
< 201
< {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"ap","namespace":"default","uid":"$uid","resourceVersion":"$AP","creationTimestamp":"$time","managedFields":[{"manager":"m1","operation":"Apply","apiVersion":"v1","time":"$time","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{}}}}]},"data":{"k":"1"}}

== applied again it is the same
> PATCH /api/v1/namespaces/default/configmaps/ap?fieldManager=m1
> content-type: application/apply-patch+yaml
>| apiVersion: v1
>| kind: ConfigMap
>| metadata: {name: ap}
>| data: {k: "1"}
< 200
< {"…":0,"metadata":{"…":0,"resourceVersion":"{AP}"},"data":{"k":"1"}}
"#;

pub(super) const DELETING: &str = r#"
== an object of the session
> POST /api/v1/namespaces/default/configmaps
> {"metadata":{"name":"w1"},"data":{"k":"v"}}
< 201
< {"…":0,"metadata":{"…":0,"resourceVersion":"$W"}}

== DEL uid
> DELETE /api/v1/namespaces/default/configmaps/w1
> {"preconditions":{"uid":"11111111-1111-1111-1111-111111111111"}}
< 409
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Operation cannot be fulfilled on ConfigMap \"w1\": the UID in the precondition (11111111-1111-1111-1111-111111111111) does not match the UID in record (…). The object might have been deleted and then recreated","reason":"Conflict","details":{"name":"w1","kind":"ConfigMap"},"code":409}

== DEL rv
> DELETE /api/v1/namespaces/default/configmaps/w1
> {"preconditions":{"resourceVersion":"1"}}
< 409
< {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Operation cannot be fulfilled on ConfigMap \"w1\": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({W}). The object might have been modified","reason":"Conflict","details":{"name":"w1","kind":"ConfigMap"},"code":409}

== an object with a finalizer
> POST /api/v1/namespaces/default/configmaps
> {"metadata":{"name":"fin","finalizers":["kubernetes.io/x"]}}
< 201
< {"…":0,"metadata":{"…":0,"finalizers":["kubernetes.io/x"],"resourceVersion":"$F"}}

== DEL fin: it is marked
> DELETE /api/v1/namespaces/default/configmaps/fin
< 200
< {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"fin","namespace":"default","uid":"$uid","resourceVersion":"$M","creationTimestamp":"$time","deletionTimestamp":"$time","deletionGracePeriodSeconds":0,"finalizers":["kubernetes.io/x"]}}

== DEL fin again: once
> DELETE /api/v1/namespaces/default/configmaps/fin
< 200
< {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"fin","…":0,"resourceVersion":"{M}"}}

== RM fin: whoever takes the last finalizer gets the object at its last position
> PATCH /api/v1/namespaces/default/configmaps/fin
> content-type: application/merge-patch+json
> {"metadata":{"finalizers":null}}
< 200
< {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"fin","namespace":"default","uid":"$uid","resourceVersion":"{M}","creationTimestamp":"$time","deletionTimestamp":"$time","deletionGracePeriodSeconds":0}}

== FINALIZER: watchers see the mark, and the last content with its finalizer at the position of the removal
> WATCH /api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=8&fieldSelector=metadata.name=fin&resourceVersion={F}
< 200
< {"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"fin","…":0,"resourceVersion":"{M}","deletionTimestamp":"$time","deletionGracePeriodSeconds":0,"finalizers":["kubernetes.io/x"]}}}
< {"type":"DELETED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"fin","…":0,"resourceVersion":"{M+1}","deletionTimestamp":"$time","finalizers":["kubernetes.io/x"]}}}
< END

== one of a collection
> POST /api/v1/namespaces/default/configmaps
> {"metadata":{"name":"b","labels":{"app":"x"}},"data":{"k":"v"}}
< 201
< {"…":0,"metadata":{"…":0,"resourceVersion":"$B"}}

== DELCOLL: the answer is the list as it was read
> DELETE /api/v1/namespaces/default/configmaps?labelSelector=app=x
< 200
< {"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"{B}"},"items":[{"metadata":{"name":"b","…":0,"resourceVersion":"{B}"},"data":{"k":"v"}}]}

== SELECTOR: labels that change are deletions with the old content at the new position, and additions
> POST /api/v1/namespaces/default/configmaps
> {"metadata":{"name":"a","labels":{"app":"x"}}}
< 201
< {"…":0,"metadata":{"…":0,"resourceVersion":"$A"}}

== it leaves
> PATCH /api/v1/namespaces/default/configmaps/a
> content-type: application/merge-patch+json
> {"metadata":{"labels":{"app":"y"}}}
< 200
< {"…":0,"metadata":{"…":0,"resourceVersion":"$A1"}}

== it comes back
> PATCH /api/v1/namespaces/default/configmaps/a
> content-type: application/merge-patch+json
> {"metadata":{"labels":{"app":"x"}}}
< 200
< {"…":0,"metadata":{"…":0,"resourceVersion":"$A2"}}

== it is deleted, and such a type answers with a status
> DELETE /api/v1/namespaces/default/configmaps/a
< 200
< {"kind":"Status","apiVersion":"v1","metadata":{"…":0},"status":"Success","details":{"name":"a","kind":"configmaps","uid":"$uid"}}

== what a watcher of the label saw
> WATCH /api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=8&labelSelector=app=x&resourceVersion={A}
< 200
< {"type":"DELETED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","…":0,"resourceVersion":"{A1}","labels":{"app":"x"}}}}
< {"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","…":0,"resourceVersion":"{A2}","labels":{"app":"x"}}}}
< {"type":"DELETED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","…":0,"resourceVersion":"{A2+1}","labels":{"app":"x"}}}}
< END

== a policy that is none
> DELETE /api/v1/namespaces/default/configmaps/w1
> {"propagationPolicy":"Sideways"}
< 422
< {"…":0,"message":"DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Sideways\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"","reason":"Invalid"}

== DEL fg: nobody collects dependents, so it does not wait for them
~ `propagationPolicy`, owners
> DELETE /api/v1/namespaces/default/configmaps/w1
> {"propagationPolicy":"Foreground"}
< 200
< {"kind":"Status","apiVersion":"v1","metadata":{"…":0},"status":"Success","details":{"name":"w1","kind":"configmaps","uid":"$uid"}}
"#;
