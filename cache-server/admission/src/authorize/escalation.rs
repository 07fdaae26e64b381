//! Roles and bindings that a caller may write: those whose rights the caller has itself.
//!
//! Source: Kubernetes `pkg/registry/rbac/{escalation_check.go,*/policybased}`.

use std::sync::Arc;

use access_rules::{
    rbac::{
        COMBINATIONS_MAX, GROUP, GrantRefusal, RbacKind, RbacObject, RoleReference, RoleRule, check_held,
        full_authority,
    },
    request_info::{RequestInfo, ResourceAttributes},
    review::SubjectRules,
    user::{MASTERS, User},
};
use informer_serving::status::{CauseExt as _, Status, StatusCause, StatusExt as _};
use serde::Deserialize as _;

use super::Authorizer;
use crate::{
    cacher::Caches,
    registry::{Live, Object},
};

/// A role or binding that is about to be stored.
pub struct GrantWrite<'a> {
    pub kind: RbacKind,
    /// Empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// Name in the path; empty for a create.
    pub name: &'a str,
    /// The stored object; `None` for a create.
    pub old: Option<&'a Object>,
    pub new: &'a Object,
}

impl Authorizer {
    /// Returns `Ok` if the user may grant what the object grants: it has these rights itself, or the right to `escalate` a
    /// role or to `bind` it.
    ///
    /// # Errors
    /// 403 if it may not; 404 if a binding names a role that does not exist; 422 if its rights have more combinations than
    /// [`COMBINATIONS_MAX`].
    pub async fn check_grant(
        &self,
        user: &User,
        write: &GrantWrite<'_>,
        (caches, registry): (&Arc<Caches>, &Live),
    ) -> Result<(), Status> {
        if user.is_in(MASTERS) || write.keeps_rights() {
            return Ok(());
        }
        let read = |object: &Object| RbacObject::deserialize(object).map_err(|_| unreadable(write));
        let new = read(write.new)?;
        self.followed.catch_up(caches, registry).await;
        if write.kind.is_binding() {
            return self.check_binding(user, write, &new).await;
        }
        if self.decide(user, &write.act("escalate", write.kind, write.name)).await?.is_allowed() {
            return Ok(());
        }
        let held = self.roles_of(user, write.namespace).await?;
        let errors = held.evaluation_error.clone();
        let held = SubjectRules::into_rules(held);
        write.check_held(user, (&held, &errors), new.rules())?;
        let collects = new.is_aggregated() || write.old.map(read).transpose()?.is_some_and(|old| old.is_aggregated());
        if collects && check_held(user, &held, &errors, &full_authority()).is_err() {
            return Err(write.refused("must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    async fn check_binding(&self, user: &User, write: &GrantWrite<'_>, new: &RbacObject) -> Result<(), Status> {
        let RoleReference { kind, name, .. } = new.role_ref();
        let role = RbacKind::named(kind).filter(|kind| !kind.is_binding());
        if let Some(role) = role
            && self.decide(user, &write.act("bind", role, name)).await?.is_allowed()
        {
            return Ok(());
        }
        let held = self.roles_of(user, write.namespace).await?;
        let granted = self.followed.rbac.read().rules_of(kind, write.namespace, name).map(<[RoleRule]>::to_vec);
        let granted = granted.map_err(|problem| match role {
            // kube-apiserver names the resource of the request.
            Some(_) => Status::not_found(GROUP, write.kind.resource(), name),
            None => Status::internal(&problem),
        })?;
        let errors = held.evaluation_error.clone();
        write.check_held(user, (&held.into_rules(), &errors), &granted)
    }
}

impl GrantWrite<'_> {
    /// True for an update that changes only what a deletion and its finalizers change.
    fn keeps_rights(&self) -> bool {
        let Some(old) = self.old else { return false };
        let rights = |object: &Object| {
            let mut object = object.clone();
            if let Some(metadata) = object.get_mut("metadata").and_then(|metadata| metadata.as_object_mut()) {
                for member in ["finalizers", "ownerReferences", "managedFields", "resourceVersion"] {
                    metadata.remove(member);
                }
            }
            object
        };
        rights(old) == rights(self.new)
    }

    /// The attributes of a right over roles.
    fn act(&self, verb: &'static str, kind: RbacKind, name: &str) -> RequestInfo {
        let resource = ResourceAttributes {
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: kind.resource().to_owned(),
            namespace: self.namespace.to_owned(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        };
        RequestInfo { verb: verb.into(), path: String::new(), resource: Some(resource) }
    }

    fn check_held(&self, user: &User, (held, errors): (&[RoleRule], &str), granted: &[RoleRule]) -> Result<(), Status> {
        check_held(user, held, errors, granted).map_err(|refusal| match refusal {
            GrantRefusal::Unheld(reason) => self.refused(&reason),
            GrantRefusal::TooManyCombinations => {
                let field = if self.kind.is_binding() { "roleRef" } else { "rules" };
                let why = format!(
                    "must have at most {COMBINATIONS_MAX} combinations of verbs, groups, resources and names, unless a \
                     rule of the caller covers each of them"
                );
                Status::invalid(GROUP, self.kind.name(), self.name(), vec![StatusCause::forbidden(field, &why)])
            }
        })
    }

    fn refused(&self, reason: &str) -> Status {
        Status::forbidden(GROUP, self.kind.resource(), self.name(), reason)
    }

    fn name(&self) -> &str {
        let name = self.new.get("metadata").and_then(|metadata| metadata.get("name")?.as_str());
        name.unwrap_or_default()
    }
}

fn unreadable(write: &GrantWrite<'_>) -> Status {
    write.refused("the object cannot be read")
}
