//! POST, PUT, PATCH and DELETE over HTTP, by the rules of cache-server (`api-rules`): this file reads and stores.
//!
//! INVARIANT: a write holds the history from its read to its end, so none is retried.

use std::sync::Arc;

use api_rules::{
    limits::OBJECT_BYTES_MAX,
    object::{
        Object, WriteRequest, WriteTarget,
        apply::AppliedConfiguration,
        create::{self, instead_of_update},
        deletion,
        draft::{bounded_draft, ordered},
        metadata::{self, Birth, Part},
        options::{DeleteOptions, Options, PatchOptions},
        patch::{Patch, PatchType},
        update::{ChangedObject, RequestedChange, SentObject, UpdatePlan, plan, read_sent, requested},
    },
    registry::{CLEANUP, ResourceType},
};
use http::Method;
use informer_serving::{
    options::ListOptions,
    status::{Status, StatusExt as _},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    Body, FakeApiServer,
    form::FakeForm,
    history::{CREATED, History, StoredObject},
    read, rules,
    types::{FakeType, PathTarget},
};

/// Longest beginning of a generated name, as in kube-apiserver.
const GENERATED_BASE_BYTES_MAX: usize = 58;

/// One write, as sent.
pub(super) struct FakeWrite<'a> {
    pub(super) server: &'a FakeApiServer,
    pub(super) target: &'a PathTarget,
    pub(super) method: &'a Method,
    pub(super) content_type: Option<&'a str>,
    pub(super) query: &'a [(String, String)],
    pub(super) body: &'a [u8],
}

/// The status code of an answer, and its JSON.
type FakeAnswer = (u16, Vec<u8>);

impl FakeWrite<'_> {
    /// Carries out the write of one object.
    pub(super) fn one(&self) -> Result<FakeAnswer, Status> {
        self.on_history(|mut store, request| match *self.method {
            Method::POST => store.create(request),
            Method::PUT => store.update(request),
            Method::PATCH => store.patch(request),
            Method::DELETE if request.subresource.is_none() => {
                store.delete(&request.target()?, &DeleteOptions::read(request)?)
            }
            _ => Err(Status::generic_method_not_allowed()),
        })
    }

    /// Deletes the objects that a LIST with the same query returns, and answers with that LIST.
    pub(super) async fn collection(&self, options: &ListOptions, form: FakeForm) -> Result<(u16, Body), Status> {
        let deletion = self.on_history(|store, request| {
            let is_everywhere = store.ty.namespaced && request.namespace.is_none();
            if is_everywhere || !store.ty.verbs.contains(&"deletecollection") {
                return Err(Status::generic_method_not_allowed());
            }
            DeleteOptions::read(request)
        })?;
        let listed = read::select(self.server, self.target, options).await?;
        self.on_history(|mut store, _| {
            for item in &listed.items {
                let ty = Arc::clone(&store.ty);
                let place = WriteTarget { ty: &ty, namespace: &item.namespace, name: &item.name, part: Part::Main };
                let uid = item.field("metadata.uid");
                // Others may have deleted it since, and may have created another one.
                if store.current(&place).is_ok_and(|now| now.field("metadata.uid") == uid) {
                    store.delete(&place, &deletion)?;
                }
            }
            Ok(())
        })?;
        Ok((200, listed.into_body(&self.target.ty, form)))
    }

    /// Locks the history for a step of the write.
    fn on_history<T>(
        &self,
        step: impl FnOnce(RuledStore<'_>, &WriteRequest<'_>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        self.server.write(|history| {
            let ty = rules::of(history, self.target);
            let request = WriteRequest {
                ty: &ty,
                namespace: self.target.namespace.as_deref(),
                name: self.target.name.as_deref(),
                subresource: self.target.subresource.as_deref(),
                query: self.query,
                content_type: self.content_type,
                body: self.body,
            };
            let store = RuledStore { history, served: &self.target.ty, ty: Arc::clone(&ty), now: self.server.now() };
            step(store, &request)
        })
    }
}

impl FakeApiServer {
    /// Time of writes, in whole seconds: [`CREATED`], plus what passed since by tokio's clock.
    fn now(&self) -> Timestamp {
        let created: Timestamp = CREATED.parse().expect("a time of our own writing");
        let passed = i64::try_from(self.world.began.elapsed().as_secs()).unwrap_or(i64::MAX);
        created.checked_add(SignedDuration::from_secs(passed)).unwrap_or(Timestamp::MAX)
    }
}

/// The objects of one type, and their rules.
struct RuledStore<'a> {
    history: &'a mut History,
    served: &'a FakeType,
    ty: Arc<ResourceType>,
    now: Timestamp,
}

impl RuledStore<'_> {
    fn create(&mut self, request: &WriteRequest<'_>) -> Result<FakeAnswer, Status> {
        let (mut sent, options) = create::read(&rules::BUILTIN, request, &mut Vec::new())?;
        let base = metadata::text(&sent, "generateName");
        let base = base.get(..GENERATED_BASE_BYTES_MAX).unwrap_or(base).to_owned();
        let namespace = request.namespace.unwrap_or_default();
        let name = loop {
            let name = format!("{base}{:05x}", fastrand::u32(..1 << 20));
            if self.history.get(self.served, &self.ty.key(namespace, &name)).is_none() {
                break name;
            }
        };
        let (uid, now) = (self.history.new_uid(), self.now.to_string());
        metadata::prepare_create(&self.ty, &mut sent, Birth { uid: &uid, now: &now, generated_name: &name })?;
        self.add(sent, options)
    }

    fn update(&mut self, request: &WriteRequest<'_>) -> Result<FakeAnswer, Status> {
        let place = request.target()?;
        let options = Options::read("UpdateOptions", request.query)?;
        let sent = read_sent(&rules::BUILTIN, request, &place, options, &mut Vec::new())?;
        match self.current(&place) {
            Ok(_) => self.change(
                &place,
                &RequestedChange::Replace(SentObject::new(sent, &|| Err(place.modified()))),
                options,
            ),
            Err(_) => self.add_named(instead_of_update(&place, sent)?, options),
        }
    }

    fn patch(&mut self, request: &WriteRequest<'_>) -> Result<FakeAnswer, Status> {
        let place = request.target()?;
        let patch_type = PatchType::of(&self.ty, request.content_type)?;
        let requested = PatchOptions::read(request.query, patch_type == PatchType::Apply)?;
        let options = requested.options;
        let creates = patch_type == PatchType::Apply && place.part == Part::Main;
        // As in kube-apiserver, 404 takes precedence over errors in the patch.
        let current = self.current(&place);
        if !creates {
            current.clone()?;
        }
        if patch_type != PatchType::Apply {
            let patch = Patch::read(patch_type, request.body, options.validation)?;
            return self.change(&place, &RequestedChange::Patch(patch), options);
        }
        let applied = AppliedConfiguration::read(&place, request.body, requested, &mut Vec::new())?;
        match current {
            Ok(_) => self.change(&place, &RequestedChange::Apply(applied), options),
            Err(_) => self.add_named(applied.first(&place, &self.now.to_string())?, options),
        }
    }

    /// Changes an object that exists.
    fn change(
        &mut self,
        place: &WriteTarget<'_>,
        change: &RequestedChange<'_>,
        options: Options,
    ) -> Result<FakeAnswer, Status> {
        let current = self.current(place)?;
        let (stored, now) = (object(&current), self.now.to_string());
        let whole = ChangedObject { object: &stored, sealed: None };
        let sent = requested(place, whole, change, options, &now, &mut Vec::new())?;
        let (json, goes) = match plan(place, whole, change, sent)? {
            UpdatePlan::Keep => (text(&current), false),
            UpdatePlan::Put(next) => {
                let goes = self.ends_with_its_finalizers(&next) && metadata::is_terminating(&next);
                (self.store(next, options.dry_run)?, goes)
            }
            UpdatePlan::Delete(last) => (ordered(&self.ty, last), true),
        };
        if goes && !options.dry_run {
            self.history.remove(self.served, &place.key());
        }
        Ok((200, json))
    }

    /// Returns true for a namespace or definition without finalizers of clients: once deleted, it ends, as nothing
    /// deletes the objects in it.
    fn ends_with_its_finalizers(&self, object: &Object) -> bool {
        let finalizers = metadata::finalizers(object);
        (self.ty.holds_objects && finalizers.is_empty())
            || (self.ty.defines_types && finalizers.iter().all(|finalizer| *finalizer == CLEANUP))
    }

    /// Creates the object that an update or apply did not find.
    fn add_named(&mut self, mut object: Object, options: Options) -> Result<FakeAnswer, Status> {
        let (uid, now) = (self.history.new_uid(), self.now.to_string());
        create::prepare_named(&self.ty, &mut object, Birth { uid: &uid, now: &now, generated_name: "" })?;
        self.add(object, options)
    }

    fn add(&mut self, new: Object, options: Options) -> Result<FakeAnswer, Status> {
        let (namespace, name) = (metadata::text(&new, "namespace"), metadata::text(&new, "name"));
        if let Some(taken) = self.history.get(self.served, &self.ty.key(namespace, name)) {
            let generates = !metadata::text(&new, "generateName").is_empty();
            return Err(create::taken(&self.ty, name, generates, Some(&object(taken))));
        }
        Ok((201, self.store(new, options.dry_run)?))
    }

    /// Stores an object and returns its JSON; a dry run only returns it.
    fn store(&mut self, object: Object, dry_run: bool) -> Result<Vec<u8>, Status> {
        bounded_draft(&self.ty, &object, OBJECT_BYTES_MAX)?;
        if dry_run {
            return Ok(ordered(&self.ty, object));
        }
        Ok(text(&self.history.store(self.served, Value::Object(object))))
    }

    fn delete(&mut self, place: &WriteTarget<'_>, options: &DeleteOptions) -> Result<FakeAnswer, Status> {
        let ResourceType { group, plural, kind, .. } = &**place.ty;
        if deletion::is_protected(place.ty, place.name) {
            return Err(Status::forbidden(group, plural, place.name, "this namespace may not be deleted"));
        }
        let current = self.current(place)?;
        let stored = object(&current);
        if let Some(why) = deletion::mismatch(&stored, options) {
            return Err(Status::conflict(group, kind, place.name, &why));
        }
        let plan = deletion::plan(place.ty, &stored, options, self.now);
        let mut version = None;
        let marked = match &plan.mark {
            Some(mark) => self.store(mark.clone(), options.dry_run)?,
            None => text(&current),
        };
        let last = plan.mark.unwrap_or(stored);
        if (plan.goes || self.ends_with_its_finalizers(&last)) && !options.dry_run {
            self.history.remove(self.served, &place.key());
            version = Some(self.history.position());
        }
        let json = if plan.at_once { deletion::answer(place, last, version) } else { marked };
        let waits = !plan.at_once && options.orphan_dependents == Some(false);
        Ok((if waits { 202 } else { 200 }, json))
    }

    fn current(&self, place: &WriteTarget<'_>) -> Result<Arc<StoredObject>, Status> {
        self.history.get(self.served, &place.key()).cloned().ok_or_else(|| place.not_found())
    }
}

fn object(stored: &StoredObject) -> Object {
    serde_json::from_slice(&stored.json).expect("an object of our own writing")
}

/// Returns the object as an answer sends it.
fn text(stored: &StoredObject) -> Vec<u8> {
    [&*stored.json, b"\n"].concat()
}
