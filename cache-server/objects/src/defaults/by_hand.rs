//! Defaults that depend on other members, by the name of the type in Go that they complete.

mod cluster;
mod pod_resources;
mod pods;
mod services;
mod workloads;

use super::{DefaultsWalk, Object, WalkResult};

/// Completes an object.
pub(super) type ByHand = fn(&mut DefaultsWalk<'_>, &mut Object) -> WalkResult;

const BY_TYPE: &[(&str, ByHand)] = &[
    ("apps.DaemonSetUpdateStrategy", workloads::daemon_set_strategy),
    ("apps.DeploymentStrategy", workloads::deployment_strategy),
    ("apps.StatefulSetUpdateStrategy", workloads::stateful_set_strategy),
    ("autoscaling.HorizontalPodAutoscalerBehavior", workloads::autoscaler_behavior),
    ("batch.Job", workloads::job),
    ("core.Container", pods::pull_policy),
    ("core.EphemeralContainer", pods::pull_policy),
    ("core.ImageVolumeSource", pods::image_volume),
    ("core.LimitRangeItem", cluster::limits),
    ("core.Namespace", cluster::namespace),
    ("core.NodeStatus", cluster::node_status),
    ("core.PersistentVolume", cluster::persistent_volume),
    ("core.Pod", pods::pod),
    ("core.ReplicationController", workloads::replication_controller),
    ("core.Service", services::service),
    ("core.ServicePort", services::port),
    ("core.ServiceSpec", services::spec),
    ("core.Volume", pods::volume),
    ("networking.NetworkPolicySpec", services::network_policy),
    ("rbac.Subject", cluster::subject),
    ("resource.DeviceSubRequest", cluster::device_request),
    ("resource.DeviceTaint", cluster::device_taint),
    ("resource.ExactDeviceRequest", cluster::device_request),
    ("resource.NodeAllocatableResourceMapping", cluster::resource_mapping),
];

/// Number of types that are completed.
#[cfg(test)]
pub(super) const COUNT: usize = BY_TYPE.len();

/// Returns what completes a type.
pub(super) fn find(name: &str) -> Option<ByHand> {
    BY_TYPE.iter().find(|(ty, _)| *ty == name).map(|(_, complete)| *complete)
}
