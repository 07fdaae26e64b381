//! Policies on the way of a write: finds their parameters, and asks them one after another.
//!
//! INVARIANT: parameters are as stored when the write asks: they are read from caches that are fresh. At most
//! [`POLICY_PARAMETERS_MAX`] of one binding decide about a write, and one of them is in memory at a time.
//!
//! Source: apiserver `pkg/admission/plugin/policy/{generic,validating}`.

use std::sync::Arc;

use api_rules::{
    object::{WriteTarget, metadata::Part},
    registry::ResourceType,
};
use informer_serving::status::Status;
use object_rules::{
    limits::POLICY_PARAMETERS_MAX,
    policies::{AdmissionPolicy, ParameterChoice, ParameterKind, ParameterReference, PolicyBinding, PolicyInput},
    webhooks::AdmissionRequest,
};
use serde_json::Value;
use tokio::task::yield_now;

use super::{AdmissionRound, commit};

/// A policy and a binding that match a write, and what their expressions read.
#[derive(Clone, Copy)]
struct PolicyQuestion<'a> {
    policy: &'a AdmissionPolicy,
    binding: &'a PolicyBinding,
    request: &'a AdmissionRequest<'a>,
    input: &'a PolicyInput,
}

impl PolicyQuestion<'_> {
    /// Decides about a write whose parameters cannot be found.
    fn misconfigured(&self, why: &str) -> Result<(), Status> {
        self.policy.misconfigured(Some(self.binding), self.request, why)
    }
}

impl AdmissionRound<'_> {
    /// Lets policies decide about a write.
    ///
    /// # Errors
    /// The Status of the first one that denies it.
    pub(super) async fn pass_policies(&self, request: &AdmissionRequest<'_>) -> Result<(), Status> {
        let mut last: Option<(&ResourceType, PolicyInput)> = None;
        for bound in self.admission.webhooks.policies(self.ty) {
            let policy = &bound.policy;
            let target = match self.matched(&policy.writes, request).await {
                Ok(Some(target)) => target,
                Ok(None) => continue,
                Err(status) => {
                    policy.misconfigured(None, request, &status.message)?;
                    continue;
                }
            };
            let ty = match policy.parameters.as_ref().map(|kind| self.parameter_type(kind)).transpose() {
                Ok(ty) => ty,
                Err(why) => {
                    policy.misconfigured(None, request, &why)?;
                    continue;
                }
            };
            for binding in &bound.bindings {
                if !self.is_bound(policy, binding, request).await? {
                    continue;
                }
                let input = match last.take() {
                    Some((known, input)) if std::ptr::eq(known, target) => input,
                    _ => self.policy_input(request, target).await?,
                };
                let (_, input) = last.insert((target, input));
                let question = PolicyQuestion { policy, binding, request, input };
                self.ask_policy(question, ty.as_ref()).await?;
            }
        }
        Ok(())
    }

    fn parameter_type(&self, kind: &ParameterKind) -> Result<Arc<ResourceType>, String> {
        let ParameterKind { api_version, kind } = kind;
        let found = self.app.registry.now().by_kind(api_version, kind);
        let slash = if api_version.contains('/') { "" } else { "/" };
        found.ok_or_else(|| {
            format!("failed to find resource referenced by paramKind: '{slash}{api_version}, Kind={kind}'")
        })
    }

    async fn policy_input(&self, request: &AdmissionRequest<'_>, target: &ResourceType) -> Result<PolicyInput, Status> {
        let is_in_one = !request.namespace.is_empty() && !self.ty.holds_objects;
        let namespace = if is_in_one { Some(self.namespace(request).await?) } else { None };
        let shown = self.shown(request, target).await?;
        let request = shown.as_ref().map_or(*request, |shown| shown.request(request));
        Ok(PolicyInput::new(&request, target, namespace))
    }

    /// True if the binding is about the write too.
    async fn is_bound(
        &self,
        policy: &AdmissionPolicy,
        binding: &PolicyBinding,
        request: &AdmissionRequest<'_>,
    ) -> Result<bool, Status> {
        let Some(writes) = &binding.writes else { return Ok(true) };
        match self.matched(writes, request).await {
            Ok(target) => Ok(target.is_some()),
            Err(status) => policy.misconfigured(Some(binding), request, &status.message).map(|()| false),
        }
    }

    /// Asks a policy, once for each parameter. `ty` is the type of these.
    async fn ask_policy(&self, question: PolicyQuestion<'_>, ty: Option<&Arc<ResourceType>>) -> Result<(), Status> {
        let (Some(ty), Some(reference)) = (ty, &question.binding.parameters) else {
            return self.ask_once(question, &Value::Null).await;
        };
        let namespace = match reference.namespace(ty, question.request.namespace) {
            Ok(namespace) => namespace,
            Err(why) => return question.misconfigured(why),
        };
        let names = match self.parameters(reference, ty, namespace).await {
            Ok(names) => names,
            Err(why) => return question.misconfigured(&why),
        };
        let mut is_evaluated = false;
        for name in &names {
            let place = WriteTarget { ty, namespace, name, part: Part::Main };
            match commit::read(self.app, &place).await {
                Ok(found) => self.ask_once(question, &Value::Object(found.object)).await?,
                Err(status) if status.code == 404 => continue,
                Err(status) => return question.misconfigured(&status.message),
            }
            is_evaluated = true;
        }
        match reference.check_none() {
            Err(why) if !is_evaluated => question.misconfigured(why),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns the names of parameters, or the reason why they cannot be found.
    async fn parameters(
        &self,
        reference: &ParameterReference,
        ty: &Arc<ResourceType>,
        namespace: &str,
    ) -> Result<Vec<String>, String> {
        let selector = match &reference.choice {
            ParameterChoice::Name(name) => return Ok(vec![name.clone()]),
            ParameterChoice::Selector(selector) => selector,
            ParameterChoice::Unreadable => return Err("one of name or selector must be provided".to_owned()),
        };
        let reader = self.app.caches.fresh(ty).await.map_err(|error| Status::from(error).message)?;
        let objects = reader.snapshot().objects;
        let start = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let all = objects.from(&start).take_while(|entry| entry.namespace() == namespace);
        let selected = all.filter(|entry| selector.selects_labels(|key| entry.label(key)));
        let names: Vec<_> = selected.take(POLICY_PARAMETERS_MAX + 1).map(|entry| entry.name().to_owned()).collect();
        if names.len() > POLICY_PARAMETERS_MAX {
            return Err(format!("more than {POLICY_PARAMETERS_MAX} params are selected"));
        }
        Ok(names)
    }

    /// Asks a policy about one parameter, and lets other requests have their turn.
    async fn ask_once(&self, question: PolicyQuestion<'_>, parameter: &Value) -> Result<(), Status> {
        let PolicyQuestion { policy, binding, request, input } = question;
        let mut warnings = Vec::new();
        let decide = || policy.decide(binding, request, input, parameter, &mut warnings);
        let decided = self.app.work.evaluate(decide).await;
        self.warn(&warnings);
        yield_now().await;
        decided
    }
}
