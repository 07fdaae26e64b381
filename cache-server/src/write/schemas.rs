//! Schemas of custom resources, which are enforced where this server acts as a cluster, and defaults and rules of the
//! built-in types, which are applied there. Elsewhere fields are kept as they were sent. Reads return objects as they
//! are stored; writes begin from the object as its present schema completes it. The patterns of definitions are checked
//! everywhere.

use api_rules::{
    object::{
        Object, WriteTarget,
        apply::Completion,
        body,
        metadata::{self, Part},
        options::FieldValidation,
        validation,
    },
    registry::ResourceType,
};
use informer_serving::status::Status;
use object_rules::{defaults, policies, strategies, structural, validation as rules, webhooks};

use crate::{
    app::App,
    clock,
    stored::current::{Current, DecodedExtent},
};

/// True if writes complete and check objects of the type. They are decoded whole then.
pub(super) fn concern(app: &App, _: &ResourceType) -> bool {
    app.config.acts_as_cluster
}

/// True if objects of the type must fit its schema.
fn is_enforced(app: &App, ty: &ResourceType) -> bool {
    app.config.acts_as_cluster && ty.custom.is_some()
}

/// Fills in defaults, and drops unknown fields of custom resources. Adds complaints about the fields to `warnings`.
///
/// # Errors
/// 400 for unknown fields, if they are to be refused; 413 for too large defaults.
pub(super) fn complete(
    app: &App,
    ty: &ResourceType,
    object: &mut Object,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    if !is_enforced(app, ty) {
        return if app.config.acts_as_cluster { defaults::fill(ty, object, &clock::now) } else { Ok(()) };
    }
    let unknown = structural::complete(ty, object)?;
    let complaints = unknown.iter().map(|path| validation::unknown_field(path)).collect();
    validation::report(validation, complaints, warnings)
        .map_err(|error| body::cannot_be_handled(ty, &ty.kind, &ty.version, &error))
}

/// Returns what completes objects of the type, if writes do. It ignores fields that are unknown, and leaves out
/// defaults that are too large.
pub(super) fn completion(app: &App, ty: &ResourceType) -> Option<Completion> {
    fn complete(ty: &ResourceType, object: &mut Object) {
        // An error leaves some of them out.
        let _ = if ty.custom.is_some() {
            structural::complete(ty, object).map(drop)
        } else {
            defaults::fill(ty, object, &clock::now)
        };
    }
    concern(app, ty).then_some(complete as Completion)
}

/// Completes a stored object, as kube-apiserver does after each read: its definition may have changed since. Changes
/// nothing if its defaults are too large, which is an error of [`complete`] only for writes of it.
pub(super) fn complete_stored(app: &App, ty: &ResourceType, current: &mut Current) {
    if !is_enforced(app, ty) {
        return;
    }
    let mut object = current.object.clone();
    if structural::complete_stored(ty, &mut object).is_ok() && object != current.object {
        (current.object, current.extent) = (object, DecodedExtent::Completed);
    }
}

/// Completes an object to create, unless it is complete (no `validation`), and checks its values and its patterns.
///
/// # Errors
/// As [`complete`]; 422 for values that the schema or the type does not allow, and for patterns that are no regular
/// expressions.
pub(super) fn enforce(
    app: &App,
    ty: &ResourceType,
    object: &mut Object,
    validation: Option<FieldValidation>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    check_definition(app, ty, object, None, warnings)?;
    if let Some(validation) = validation {
        complete(app, ty, object, validation, warnings)?;
    }
    if app.config.acts_as_cluster {
        strategies::prepare_create(ty, object, &clock::now);
    }
    check_values(app, ty, Part::Main, object, None)
}

/// Checks the values of an object that is complete.
fn check_values(
    app: &App,
    ty: &ResourceType,
    part: Part,
    object: &Object,
    stored: Option<&Object>,
) -> Result<(), Status> {
    if is_enforced(app, ty) {
        structural::check(ty, part, object, stored)?;
        return rules::check(ty, part, object, stored);
    }
    if !app.config.acts_as_cluster || !matches!(part, Part::Main | Part::Finalize) {
        return Ok(());
    }
    // It may lack defaults: an older version stored it, or a server that does not act as a cluster. They are no
    // changes.
    let completed = stored.map(|stored| {
        let mut stored = stored.clone();
        // An error leaves some of them out.
        let _ = defaults::fill(ty, &mut stored, &clock::now);
        stored
    });
    rules::check(ty, part, object, completed.as_ref())
}

/// Checks the patterns of a new or changed definition, or a configuration of webhooks or policies. Names rules of a
/// definition that this server does not enforce, in `warnings` and in the log.
///
/// # Errors
/// 422 for patterns that are no regular expressions, and for configurations that kube-apiserver refuses.
fn check_definition(
    app: &App,
    ty: &ResourceType,
    object: &Object,
    stored: Option<&Object>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    if app.config.acts_as_cluster {
        webhooks::check(ty, object, stored)?;
        policies::check(ty, object, stored)?;
        webhooks::conversion::check(ty, object, stored)?;
    }
    let is_unchanged = || stored.is_some_and(|stored| stored.get("spec") == object.get("spec"));
    if !ty.defines_types || is_unchanged() {
        return Ok(());
    }
    structural::check_patterns(ty, object)?;
    if app.config.acts_as_cluster {
        for rule in structural::unenforced_rules(object) {
            let definition = metadata::text(object, "name");
            tracing::warn!(definition, rule, "validation rule skipped");
            warnings.push(rule);
        }
    }
    Ok(())
}

/// Checks the values and patterns of the successor of `stored`. Adds to `warnings` what its schema lacks here.
///
/// # Errors
/// 422 for values that the schema or the type does not allow, and for new patterns that are no regular expressions.
pub(super) fn check_successor(
    app: &App,
    place: &WriteTarget<'_>,
    stored: &Object,
    next: &Object,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    check_definition(app, place.ty, next, Some(stored), warnings)?;
    check_values(app, place.ty, place.part, next, Some(stored))
}
