package main

import (
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/event"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
)

// strategies has those of each kind, by kind and group.
var strategies = map[string]strategy{
	"Pod":                                   pod.Strategy,
	"Service":                               service.Strategy,
	"ConfigMap":                             configmap.Strategy,
	"Secret":                                secret.Strategy,
	"Namespace":                             namespace.Strategy,
	"ServiceAccount":                        serviceaccount.Strategy,
	"PersistentVolumeClaim":                 persistentvolumeclaim.Strategy,
	"PersistentVolume":                      persistentvolume.Strategy,
	"Node":                                  node.Strategy,
	"ResourceQuota":                         resourcequota.Strategy,
	"LimitRange":                            limitrange.Strategy,
	"Endpoints":                             endpoint.Strategy,
	"Event":                                 event.Strategy,
	"PodTemplate":                           podtemplate.Strategy,
	"ReplicationController":                 replicationcontroller.Strategy,
	"Deployment.apps":                       deployment.Strategy,
	"ReplicaSet.apps":                       replicaset.Strategy,
	"StatefulSet.apps":                      statefulset.Strategy,
	"DaemonSet.apps":                        daemonset.Strategy,
	"ControllerRevision.apps":               controllerrevision.Strategy,
	"Job.batch":                             job.Strategy,
	"CronJob.batch":                         cronjob.Strategy,
	"HorizontalPodAutoscaler.autoscaling":   horizontalpodautoscaler.Strategy,
	"Ingress.networking.k8s.io":             ingress.Strategy,
	"NetworkPolicy.networking.k8s.io":       networkpolicy.Strategy,
	"IngressClass.networking.k8s.io":        ingressclass.Strategy,
	"PodDisruptionBudget.policy":            poddisruptionbudget.Strategy,
	"Role.rbac.authorization.k8s.io":        role.Strategy,
	"ClusterRole.rbac.authorization.k8s.io": clusterrole.Strategy,
	"RoleBinding.rbac.authorization.k8s.io": rolebinding.Strategy,
	"ClusterRoleBinding.rbac.authorization.k8s.io": clusterrolebinding.Strategy,
	"Lease.coordination.k8s.io":                    lease.Strategy,
	"PriorityClass.scheduling.k8s.io":              priorityclass.Strategy,
	"StorageClass.storage.k8s.io":                  storageclass.Strategy,
	"EndpointSlice.discovery.k8s.io":               endpointslice.Strategy,
}
