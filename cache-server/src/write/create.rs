//! Creates objects with given or generated names.
//!
//! Source: apiserver `registry/rest/create.go`.

use std::sync::Arc;

use access_rules::request_info::{RequestInfo, ResourceAttributes};
use api_rules::{
    object::{
        Object, WriteRequest, WriteTarget,
        body::read_valid,
        create,
        draft::bounded_draft,
        metadata::{self, Birth},
        options::{FieldValidation, Options},
    },
    registry::ResourceType,
};
use http::StatusCode;
use informer_serving::status::{CauseExt as _, CauseReason, Status, StatusCause, StatusExt as _};

use super::{
    answer::{AnswerDocument, WriteAnswer},
    commit, grants, nodes, owners, plugins, schemas, signing, webhooks,
};
use crate::{
    app::{AllocationTurn, LocalApp},
    clock, ids, status,
    storage::{Expect, Txn, WriteError},
    upstream::own_requests::QuestionOrigin,
};

/// Number of generated names that may be taken before the create fails.
const NAMES_MAX: usize = 8;

/// `POST …/{plural}`.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn create(app: &LocalApp<'_>, request: &WriteRequest<'_>) -> Result<WriteAnswer, Status> {
    let (ty, mut warnings) = (request.ty, Vec::new());
    let (mut sent, options) = create::read(&app.registry.now(), request, &mut warnings)?;
    refuse_ending(app, ty, &sent)?;
    nodes::check_create(app, ty, &sent).await?;
    owners::record_new(app, ty, &mut sent, options, &mut warnings)?;
    plugins::complete_new(app, ty, &mut sent).await?;
    webhooks::mutate_new(app, ty, &mut sent, options, &mut warnings).await?;
    let base = metadata::text(&sent, "generateName").to_owned();
    let generates = metadata::text(&sent, "name").is_empty() && !base.is_empty();
    let mut names_left = if generates { NAMES_MAX } else { 1 };
    let mut turn = app.network.turn(&app.caches, ty, options.dry_run).await?;
    loop {
        // The last attempt moves the object: with a chosen name there is only one, so large objects are not cloned.
        let mut object = if names_left > 1 { sent.clone() } else { std::mem::take(&mut sent) };
        let (uid, name) = (ids::uuid().to_string(), ids::generated_name(&base));
        let birth = Birth { uid: &uid, now: &clock::now(), generated_name: &name };
        // As in kube-apiserver, a dry run accepts a resourceVersion, and answers with it.
        let version = metadata::metadata_mut(&mut object);
        let version = if options.dry_run { version.remove("resourceVersion") } else { None };
        metadata::prepare_create(ty, &mut object, birth)?;
        metadata::metadata_mut(&mut object).extend(version.map(|version| ("resourceVersion".to_owned(), version)));
        signing::record_creator(app, ty, &mut object);
        signing::check_subject(ty, &object)?;
        turn.as_ref().map_or(Ok(()), |turn| turn.create(ty, &mut object))?;
        // A recorded object is complete, but for what defaults of built-in types make of its name.
        let is_complete = app.manager.is_some() && ty.custom.is_some();
        let validation = (!is_complete).then_some(options.validation);
        schemas::enforce(app, ty, &mut object, validation, &mut warnings)?;
        grants::check(app, ty, "", None, &object).await?;
        plugins::check(app, ty, metadata::Part::Main, &object, None).await?;
        turn = admit(app, ty, &mut object, options, turn).await?;
        plugins::charge(app, ty, metadata::Part::Main, &object, None, options).await?;
        names_left -= 1;
        match store(app, ty, &object, Expect::Absent, options).await? {
            Some(answer) => return Ok(WriteAnswer { warnings, ..answer }),
            None if names_left > 0 => {}
            // kube-apiserver adds that text for chosen names too if `generateName` is set.
            None => return Err(taken(app, request, &object, !base.is_empty()).await),
        }
    }
}

/// Creates an object from a manifest like a POST, but keeps uid, creationTimestamp, generation and status of a dump of a
/// running cluster. Its resourceVersion is dropped. With `overwrites`, it replaces an object of that name, whose uid,
/// creationTimestamp and status it keeps where it has none. Drops unknown fields, and returns the complaints about them.
///
/// # Errors
/// The Status that a client would get.
pub(crate) async fn create_from_manifest(
    app: &LocalApp<'_>,
    ty: &Arc<ResourceType>,
    namespace: Option<&str>,
    body: &[u8],
    overwrites: bool,
) -> Result<Vec<String>, Status> {
    webhooks::expect(app, ty);
    let request = WriteRequest { ty, namespace, name: None, subresource: None, query: &[], content_type: None, body };
    let mut complaints = Vec::new();
    let mut object = read_valid(&app.registry.now(), ty, None, body, FieldValidation::Warn, &mut complaints)?;
    metadata::match_namespace(ty, namespace.unwrap_or_default(), &mut object)?;
    let generated = ids::generated_name(metadata::text(&object, "generateName"));
    metadata::metadata_mut(&mut object).remove("resourceVersion");
    let replaced = if overwrites { stored(app, ty, &object).await? } else { None };
    if let Some((_, replaced)) = &replaced {
        inherit(ty, replaced, &mut object);
    }
    let status = object.get("status").cloned();
    let generation = metadata::metadata_mut(&mut object).get("generation").cloned();
    let (uid, now) = (ids::uuid().to_string(), clock::now());
    let or = |present: &str, given: &str| if present.is_empty() { given.to_owned() } else { present.to_owned() };
    let uid = or(metadata::text(&object, "uid"), &uid);
    let now = or(metadata::text(&object, "creationTimestamp"), &now);
    metadata::prepare_create(ty, &mut object, Birth { uid: &uid, now: &now, generated_name: &generated })?;
    object.extend(status.map(|status| ("status".to_owned(), status)));
    // The address in a dump stays, whatever the range is.
    let has_address =
        object.get("spec").and_then(|spec| spec["clusterIP"].as_str()).is_some_and(|address| !address.is_empty());
    let turn = app.network.turn(&app.caches, ty, false).await?.filter(|_| !has_address);
    turn.as_ref().map_or(Ok(()), |turn| turn.create(ty, &mut object))?;
    schemas::enforce(app, ty, &mut object, Some(FieldValidation::Warn), &mut complaints)?;
    metadata::metadata_mut(&mut object).extend(generation.map(|generation| ("generation".to_owned(), generation)));
    let expect = replaced.map_or(Expect::Absent, |(at, _)| Expect::At(at));
    match store(app, ty, &object, expect, Options::default()).await? {
        Some(_) => Ok(complaints),
        None => Err(taken(app, &request, &object, false).await),
    }
}

/// Returns the stored object with the name of `object`, and its resourceVersion.
async fn stored(app: &LocalApp<'_>, ty: &Arc<ResourceType>, object: &Object) -> Result<Option<(u64, Object)>, Status> {
    let key = ty.key(metadata::text(object, "namespace"), metadata::text(object, "name"));
    let Some(entry) = app.caches.fresh(ty).await?.get(&key) else { return Ok(None) };
    let read = serde_json::from_slice(entry.object_text());
    Ok(Some((entry.resource_version(), read.map_err(|_| Status::internal("the stored object cannot be read"))?)))
}

/// Copies into `object` the members of the replaced one that its manifest may leave out.
fn inherit(ty: &ResourceType, replaced: &Object, object: &mut Object) {
    let generation = replaced["metadata"]["generation"].as_i64().filter(|_| ty.tracks_generation);
    let metadata = metadata::metadata_mut(object);
    for member in ["uid", "creationTimestamp"] {
        metadata.entry(member).or_insert_with(|| metadata::text(replaced, member).into());
    }
    if let Some(generation) = generation {
        metadata.entry("generation").or_insert_with(|| generation.saturating_add(1).into());
    }
    if let Some(status) = replaced.get("status") {
        object.entry("status").or_insert_with(|| status.clone());
    }
}

/// Creates the object that an update or apply did not find; `None` if another client created it meanwhile. The caller needs
/// the right to create it too.
///
/// # Errors
/// The Status to answer with.
pub(super) async fn create_named(
    app: &LocalApp<'_>,
    ty: &Arc<ResourceType>,
    object: &Object,
    options: Options,
) -> Result<Option<WriteAnswer>, Status> {
    let mut object = object.clone();
    if let Some(audit) = app.audit {
        audit.note_whole(&object);
    }
    refuse_ending(app, ty, &object)?;
    nodes::check_create(app, ty, &object).await?;
    let (namespace, name) =
        (metadata::text(&object, "namespace").to_owned(), metadata::text(&object, "name").to_owned());
    plugins::complete_new(app, ty, &mut object).await?;
    webhooks::mutate_new(app, ty, &mut object, options, &mut Vec::new()).await?;
    WriteTarget { ty, namespace: &namespace, name: &name, part: metadata::Part::Main }.match_name(&object)?;
    let uid = ids::uuid().to_string();
    create::prepare_named(ty, &mut object, Birth { uid: &uid, now: &clock::now(), generated_name: "" })?;
    signing::record_creator(app, ty, &mut object);
    signing::check_subject(ty, &object)?;
    let turn = app.network.turn(&app.caches, ty, options.dry_run).await?;
    turn.as_ref().map_or(Ok(()), |turn| turn.create(ty, &mut object))?;
    schemas::enforce(app, ty, &mut object, Some(options.validation), &mut Vec::new())?;
    grants::check(app, ty, metadata::text(&object, "name"), None, &object).await?;
    check_right(app, ty, &object).await?;
    plugins::check(app, ty, metadata::Part::Main, &object, None).await?;
    let _turn = admit(app, ty, &mut object, options, turn).await?;
    plugins::charge(app, ty, metadata::Part::Main, &object, None, options).await?;
    store(app, ty, &object, Expect::Absent, options).await
}

/// Asks webhooks about a new object. Meanwhile other Services have their turns; the next one gives what this one reserved.
async fn admit<'a>(
    app: &'a LocalApp<'_>,
    ty: &Arc<ResourceType>,
    object: &mut Object,
    options: Options,
    given: Option<AllocationTurn<'a>>,
) -> Result<Option<AllocationTurn<'a>>, Status> {
    if app.admission.is_none() {
        return Ok(given);
    }
    let reserved = given.map(|turn| turn.reserve(object));
    webhooks::check_new(app, ty, object, options).await?;
    let mut turn = app.network.turn(&app.caches, ty, options.dry_run).await?;
    if let (Some(turn), Some(reserved)) = (&mut turn, reserved) {
        turn.take_back(reserved);
        // The address of a dry run is none that a client may choose.
        if !options.dry_run {
            turn.create(ty, object)?;
        }
    }
    Ok(turn)
}

/// Returns `Ok` if the caller may create the object. Its request asked for the right to change one.
///
/// # Errors
/// 403 if it may not; 429 while that cannot be decided.
async fn check_right(app: &LocalApp<'_>, ty: &ResourceType, object: &Object) -> Result<(), Status> {
    let Some(caller) = app.caller else { return Ok(()) };
    let resource = ResourceAttributes {
        group: ty.group.clone(),
        version: ty.version.clone(),
        resource: ty.plural.clone(),
        namespace: metadata::text(object, "namespace").to_owned(),
        name: metadata::text(object, "name").to_owned(),
        ..ResourceAttributes::default()
    };
    let info = RequestInfo { verb: "create".into(), path: String::new(), resource: Some(resource) };
    // Boxed, so that the futures of all other writes have no room for it.
    Box::pin(app.access.authorizer.authorize(caller, &info, QuestionOrigin::Request)).await
}

/// Refuses to create an object of a terminating definition or in a terminating namespace.
///
/// # Source
/// `plugin/pkg/admission/namespace/lifecycle` of kubernetes/kubernetes; apiextensions-apiserver
/// `pkg/apiserver/customresource_handler.go`.
pub(super) fn refuse_ending(app: &LocalApp<'_>, ty: &ResourceType, object: &Object) -> Result<(), Status> {
    let name = match metadata::text(object, "name") {
        "" => metadata::text(object, "generateName"),
        name => name,
    };
    if ty.terminating {
        return Err(status::terminating(ty, name));
    }
    let namespace = metadata::text(object, "namespace");
    if !ty.namespaced || !app.namespaces.is_ending(namespace) {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(&ty.group, &ty.plural, name, &why);
    let text = format!("namespace {namespace} is being terminated");
    let cause = StatusCause::new(CauseReason::NamespaceTerminating, "metadata.namespace", &text);
    status.details.get_or_insert_default().causes.push(cause);
    Err(status)
}

/// Stores a new object; `None` if its name is taken, or if another writer changed the one that it replaces.
async fn store(
    app: &LocalApp<'_>,
    ty: &Arc<ResourceType>,
    object: &Object,
    expect: Expect,
    options: Options,
) -> Result<Option<WriteAnswer>, Status> {
    let put = bounded_draft(ty, object, app.config.object_bytes_max)?;
    let created = |document| Some(WriteAnswer { code: StatusCode::CREATED, document, warnings: Vec::new() });
    // A dry run has no transaction that would detect a taken name.
    if options.dry_run {
        let taken = app.caches.fresh(ty).await?.get(put.key()).is_some();
        return Ok(if taken { None } else { created(AnswerDocument::tried(ty, object, Some(&put))) });
    }
    let txn = Txn { ty: ty.clone(), key: put.key().to_owned(), expect, put: Some(put), cause: None };
    match app.store.write(txn).await {
        Ok(written) => Ok(created(AnswerDocument::Stored(written.entry))),
        Err(WriteError::Exists | WriteError::Conflict { .. }) => Ok(None),
        Err(error @ (WriteError::NotFound | WriteError::CauseChanged | WriteError::Source(_))) => Err(error.into()),
    }
}

/// Builds the error for a name that is taken.
async fn taken(app: &LocalApp<'_>, request: &WriteRequest<'_>, object: &Object, generated: bool) -> Status {
    let (ty, name) = (request.ty, metadata::text(object, "name"));
    let place = WriteTarget { ty, namespace: request.namespace.unwrap_or_default(), name, part: metadata::Part::Main };
    // If the object is gone again, or cannot be read, the plain error is sufficient.
    let existing = commit::read(app, &place).await.ok();
    create::taken(ty, name, generated, existing.as_ref().map(|current| &current.object))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Config;

    /// Goal: a dump of a cluster can be loaded. Method: compare the dump and the object in storage.
    #[tokio::test]
    async fn a_dump_keeps_identity_and_status() {
        let app = crate::app::App::new(Config::default());
        let ty = app.registry.now().find("", "v1", "pods").expect("pods");
        let dump = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns", "uid": "u1",
            "resourceVersion": "7", "creationTimestamp": "2020-01-01T00:00:00Z", "generation": 5},
            "status": {"phase": "Running"}});
        let create = async || {
            let body = dump.to_string();
            let local = app.local().expect("writes are local");
            create_from_manifest(&local, &ty, Some("ns"), body.as_bytes(), false).await
        };
        create().await.expect("is created");
        let entry = app.caches.fresh(&ty).await.expect("a reader").get("ns/a").expect("the pod");
        let mut stored: serde_json::Value = serde_json::from_slice(&entry.object()).expect("is JSON");
        assert_ne!(stored["metadata"]["resourceVersion"].take(), dump["metadata"]["resourceVersion"]);
        stored["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(stored, dump);
        let again = create().await.expect_err("exists");
        assert_eq!(again.message, "pods \"a\" already exists");
    }

    /// Goal: a loaded Service gets an address, unless it has one. Method: the values that stand for none, and one of another
    /// range.
    #[cfg(feature = "assets")]
    #[tokio::test]
    async fn a_loaded_service_has_an_address() {
        let app = crate::app::App::new(Config { acts_as_cluster: true, ..Config::default() });
        let ty = app.registry.now().find("", "v1", "services").expect("services");
        for (name, given, address) in
            [("a", json!(""), "10."), ("b", json!(null), "10."), ("c", json!("192.0.2.7"), "192.0.2.7")]
        {
            let spec = json!({"clusterIP": given, "ports": [{"port": 80}]});
            let manifest = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec});
            let local = app.local().expect("writes are local");
            create_from_manifest(&local, &ty, Some("ns"), manifest.to_string().as_bytes(), false)
                .await
                .expect("is created");
            let entry = app.caches.fresh(&ty).await.expect("a reader").get(&format!("ns/{name}")).expect("the Service");
            let stored: serde_json::Value = serde_json::from_slice(&entry.object()).expect("is JSON");
            let found = stored["spec"]["clusterIP"].as_str().unwrap_or_default();
            assert!(found.starts_with(address), "{given}: {stored}");
        }
    }

    #[tokio::test]
    async fn a_loaded_secret_has_data_and_a_type() {
        let app = crate::app::App::new(Config::default());
        let ty = app.registry.now().find("", "v1", "secrets").expect("secrets");
        let manifest =
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}, "stringData": {"k": "v"}});
        let body = manifest.to_string();
        create_from_manifest(&app.local().expect("writes are local"), &ty, Some("ns"), body.as_bytes(), false)
            .await
            .expect("is created");
        let entry = app.caches.fresh(&ty).await.expect("a reader").get("ns/a").expect("the secret");
        let stored: serde_json::Value = serde_json::from_slice(&entry.object()).expect("is JSON");
        let found = (&stored["data"], stored.get("stringData"), &stored["type"]);
        assert_eq!(found, (&json!({"k": "dg=="}), None, &json!("Opaque")));
    }
}
