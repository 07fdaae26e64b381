//! Recorded session: pods, with defaulted fields and deletion.

pub(super) const SESSION: &str = r#"
== POD create: a pod counts its generations
> POST /api/v1/namespaces/default/pods
> {"apiVersion":"v1","kind":"Pod","metadata":{"name":"p1"},"spec":{"containers":[{"name":"c","image":"i"}]}}
< 201
< {"kind":"Pod","apiVersion":"v1","metadata":{"name":"p1","namespace":"default","uid":"$uid","resourceVersion":"$P1","generation":1,"creationTimestamp":"$time"},"spec":{"containers":[{"name":"c","image":"i","…":0}],"…":0},"…":0}

== one on a node
> POST /api/v1/namespaces/default/pods
> {"apiVersion":"v1","kind":"Pod","metadata":{"name":"p2"},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}]}}
< 201
< {"…":0,"metadata":{"…":0,"name":"p2","resourceVersion":"$P2"}}

== POD field: the pods of a node
> GET /api/v1/namespaces/default/pods?fieldSelector=spec.nodeName=n1
< 200
< {"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"{P2}"},"items":[{"metadata":{"name":"p2","namespace":"default","…":0},"…":0}]}

== POD del unscheduled: a pod without a node goes at once, in two writes
> DELETE /api/v1/namespaces/default/pods/p1
< 200
< {"kind":"Pod","apiVersion":"v1","metadata":{"name":"p1","namespace":"default","uid":"$uid","resourceVersion":"{P2+2}","generation":2,"creationTimestamp":"$time","deletionTimestamp":"$time","deletionGracePeriodSeconds":0},"…":0}

== it is gone
> GET /api/v1/namespaces/default/pods/p1
< 404
< {"…":0,"reason":"NotFound"}

== POD del scheduled: a pod on a node is told to go, and has thirty seconds
> DELETE /api/v1/namespaces/default/pods/p2
< 200
< {"kind":"Pod","apiVersion":"v1","metadata":{"name":"p2","namespace":"default","uid":"$uid","resourceVersion":"$D","generation":2,"creationTimestamp":"$time","deletionTimestamp":"$time","deletionGracePeriodSeconds":30},"…":0}

== POD del again: nobody has to end it, so it is gone
~ pods on delete
> DELETE /api/v1/namespaces/default/pods/p2
< 404
< {"…":0,"reason":"NotFound"}

== another one on the node
> POST /api/v1/namespaces/default/pods
> {"apiVersion":"v1","kind":"Pod","metadata":{"name":"p3"},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}]}}
< 201
< {"…":0,"metadata":{"…":0,"name":"p3","resourceVersion":"$P3"}}

== without grace it goes
> DELETE /api/v1/namespaces/default/pods/p3
> {"gracePeriodSeconds":0}
< 200
< {"kind":"Pod","apiVersion":"v1","metadata":{"name":"p3","…":0,"resourceVersion":"{P3+2}","deletionGracePeriodSeconds":0},"…":0}

== what a watcher saw: the mark before each removal
> WATCH /api/v1/namespaces/default/pods?watch=1&timeoutSeconds=8&resourceVersion={P2}
< 200
< {"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p1","…":0,"deletionTimestamp":"$time","deletionGracePeriodSeconds":0},"…":0}}
< {"type":"DELETED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p1","…":0,"resourceVersion":"{P2+2}","deletionTimestamp":"$time","deletionGracePeriodSeconds":0},"…":0}}
< {"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p2","…":0,"resourceVersion":"{D}","deletionTimestamp":"$time","deletionGracePeriodSeconds":30},"…":0}}
< {"type":"DELETED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p2","…":0,"resourceVersion":"{D+1}","deletionTimestamp":"$time","deletionGracePeriodSeconds":30},"…":0}}
< {"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p3","…":0},"…":0}}
< {"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p3","…":0,"deletionTimestamp":"$time","deletionGracePeriodSeconds":0},"…":0}}
< {"type":"DELETED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p3","…":0,"deletionTimestamp":"$time","deletionGracePeriodSeconds":0},"…":0}}
< END
"#;
