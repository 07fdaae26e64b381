//! Admission webhooks and policies, which decide about writes where this server acts as a cluster. Webhooks that may
//! change an object are called in order, before it is checked. Before it is stored, policies decide, then the other
//! webhooks, which are called at once.
//!
//! Not implemented, on purpose: webhooks and policies about reviews, about what this server deletes itself (such as the
//! objects in a namespace) and loads at its start, and their annotations in the audit log.
//!
//! INVARIANT: every write passes its webhooks with the object that is stored, and with the stored one that this
//! replaces. After a conflict it passes them again.
//!
//! Source: apiserver `pkg/admission/plugin/webhook/{generic,mutating,validating}`.

mod policies;

use std::sync::Arc;

use access_rules::user::User;
use api_rules::{
    limits::{UNREAD_BYTES_MAX, WARNINGS_MAX},
    object::{
        Object, WriteRequest, WriteTarget,
        body::Encoding,
        metadata::{self, Part},
        options::{DeleteOptions, FieldValidation, Options},
        scale, validation,
        weight::{Size, Weight},
    },
    registry::ResourceType,
};
use futures::future::join_all;
use http::Method;
use informer_serving::{
    go::quote,
    status::{Status, StatusExt as _},
};
use object_rules::{
    limits::WEBHOOKS_AT_ONCE,
    webhooks::{
        AdmissionOperation, AdmissionRequest, MatchedWrites, ObjectKind, WebhookKind,
        answer::{self, AllowedWrite, CallFailure, WebhookFailure},
    },
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{SCALE, commit, plugins, schemas};
use crate::{
    app::LocalApp,
    budget::{ReservedBudget, WaitingMemory, WorkTurn},
    ids,
    limits::REQUEST_BODY_BYTES_MAX,
    status,
    webhooks::{
        ConnectedWebhook, RequestAdmission, StoredConfigurations, WebhookAnswer, are_configurations, converting,
    },
};

/// Reads who decides about a request, and takes the budget of its `body`; `None` without webhooks for its type, be they of
/// admission or of conversion, unless it may wait for something else.
///
/// # Errors
/// The Status of configurations that cannot be read.
pub(super) async fn begin(
    app: &LocalApp<'_>,
    method: &Method,
    request: &WriteRequest<'_>,
    body: &mut ReservedBudget,
) -> Result<Option<RequestAdmission>, Status> {
    if !app.config.acts_as_cluster || *method == Method::GET {
        return Ok(None);
    }
    let configurations = StoredConfigurations {
        caches: &app.caches,
        store: &**app.store,
        registry: &app.registry.now(),
        is_shared: app.shares_store(),
    };
    let webhooks = app.webhooks.now(configurations).await?.filter(|webhooks| webhooks.concern(request.ty));
    // The write of a version that another webhook converts waits, too, and so may the create of a pod.
    let may_wait = || request.ty.converter.is_some() || *method == Method::POST && plugins::may_wait(app, request.ty);
    let webhooks = webhooks.or_else(|| may_wait().then(Arc::default));
    let Some(webhooks) = webhooks else { return Ok(None) };
    let user = app.caller.map_or_else(|| json!(User::unsecured()), |caller| json!(caller));
    let options = sent_options(request, *method == Method::DELETE);
    let turn = Arc::new(WorkTurn::new(request.body.len(), std::mem::take(body)));
    Ok(Some(RequestAdmission { webhooks, options, user, warnings: Mutex::default(), turn }))
}

/// Lets writes of requests see the configurations that a manifest brings.
pub(super) fn expect(app: &LocalApp<'_>, ty: &Arc<ResourceType>) {
    if app.config.acts_as_cluster && are_configurations(ty) {
        app.caches.start(ty);
    }
}

/// Returns the options of a request, from the body of a deletion or from the query.
fn sent_options(request: &WriteRequest<'_>, deletes: bool) -> Object {
    if deletes && !request.body.is_empty() {
        // Longer ones are decoded in their turn only: no client sends them.
        if request.body.len() > UNREAD_BYTES_MAX {
            return Object::new();
        }
        let body = Encoding::of(request.ty, request.content_type).ok().map(|encoding| encoding.decode(request.body));
        return match body {
            Some(Ok(Value::Object(options))) => options,
            _ => Object::new(),
        };
    }
    let mut options = Object::new();
    for (name, value) in request.query.iter().filter(|(_, value)| !value.is_empty()) {
        let value = match &**name {
            "dryRun" => json!([value]),
            "fieldManager" | "fieldValidation" | "propagationPolicy" => json!(value),
            "gracePeriodSeconds" => value.parse().map_or(Value::Null, |seconds: i64| json!(seconds)),
            "orphanDependents" => json!(value != "0" && !value.eq_ignore_ascii_case("false")),
            _ => continue,
        };
        options.insert(name.clone(), value);
    }
    options
}

/// Returns the warnings of the webhooks that were called.
pub(super) fn warnings(app: &LocalApp<'_>) -> Vec<String> {
    app.admission.map(|admission| std::mem::take(&mut *admission.warnings.lock())).unwrap_or_default()
}

/// Returns the turn of a write that webhooks may decide about.
pub(super) fn turn<'a>(app: &LocalApp<'a>) -> Option<&'a Arc<WorkTurn>> {
    app.admission.map(|admission| &admission.turn)
}

/// Completes an object to create, and lets webhooks change it.
///
/// # Errors
/// The Status of a webhook; 400 for another namespace; and those of [`schemas::complete`].
pub(super) async fn mutate_new(
    app: &LocalApp<'_>,
    ty: &Arc<ResourceType>,
    object: &mut Object,
    options: Options,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let Some(admission) = app.admission else { return Ok(()) };
    schemas::complete(app, ty, object, options.validation, warnings)?;
    let namespace = metadata::text(object, "namespace").to_owned();
    let round = AdmissionRound::of_new(app, admission, ty, object, options);
    Box::pin(round.mutate(object, None)).await?;
    metadata::match_namespace(ty, &namespace, object)
}

/// Asks webhooks whether a new object may be stored.
///
/// # Errors
/// The Status of a webhook.
pub(super) async fn check_new(
    app: &LocalApp<'_>,
    ty: &Arc<ResourceType>,
    object: &Object,
    options: Options,
) -> Result<(), Status> {
    let Some(admission) = app.admission else { return Ok(()) };
    Box::pin(AdmissionRound::of_new(app, admission, ty, object, options).validate(Some(object), None)).await
}

/// Lets webhooks change an object, or its Scale, before it replaces the stored one.
///
/// # Errors
/// The Status of a webhook; 400 for another name or namespace; and those of [`schemas::complete`].
pub(super) async fn mutate_update(
    app: &LocalApp<'_>,
    change: AdmittedChange<'_>,
    object: &mut Object,
    old: &Object,
) -> Result<(), Status> {
    let place = change.place;
    let Some(admission) = app.admission else { return Ok(()) };
    Box::pin(AdmissionRound::of_change(app, admission, change).mutate(object, Some(old))).await?;
    metadata::match_namespace(place.ty, place.namespace, object)?;
    place.match_name(object)
}

/// Asks webhooks whether an object, or its Scale, may replace the stored one.
///
/// # Errors
/// The Status of a webhook.
pub(super) async fn check_update(
    app: &LocalApp<'_>,
    change: AdmittedChange<'_>,
    object: &Object,
    old: &Object,
) -> Result<(), Status> {
    let Some(admission) = app.admission else { return Ok(()) };
    Box::pin(AdmissionRound::of_change(app, admission, change).validate(Some(object), Some(old))).await
}

/// Asks webhooks whether an object may be deleted. `is_listed` is true in a deletion of a collection.
///
/// # Errors
/// The Status of a webhook.
pub(super) async fn check_delete(
    app: &LocalApp<'_>,
    place: &WriteTarget<'_>,
    options: &DeleteOptions,
    old: &Object,
    is_listed: bool,
) -> Result<(), Status> {
    let Some(admission) = app.admission else { return Ok(()) };
    let name = if is_listed { "" } else { place.name };
    let round = AdmissionRound {
        operation: AdmissionOperation::Delete,
        is_dry: options.dry_run,
        ..AdmissionRound::new(app, admission, place.ty, place.namespace, name)
    };
    round.mutate_nothing(old).await?;
    round.validate(None, Some(old)).await
}

/// Lets webhooks change an order about an object, and decide about it. `sent` is the type of the order.
///
/// # Errors
/// The Status of a webhook; 400 for another namespace.
pub(super) async fn admit_order(
    app: &LocalApp<'_>,
    request: &WriteRequest<'_>,
    sent: &ResourceType,
    order: &mut Object,
    options: Options,
) -> Result<(), Status> {
    let Some(admission) = app.admission else { return Ok(()) };
    let name = request.name.map_or_else(|| metadata::text(order, "name").to_owned(), str::to_owned);
    let namespace = request.namespace.unwrap_or_default();
    let (group, version, kind) = (&*sent.group, &*sent.version, &*sent.kind);
    let round = AdmissionRound {
        subresource: request.subresource.unwrap_or_default(),
        kind: Some(ObjectKind { group, version, kind }),
        is_dry: options.dry_run,
        ..AdmissionRound::new(app, admission, request.ty, namespace, &name)
    };
    let admitted = async {
        round.mutate(order, None).await?;
        round.validate(Some(order), None).await
    };
    Box::pin(admitted).await?;
    metadata::match_namespace(request.ty, namespace, order)
}

/// A change of an object.
#[derive(Clone, Copy)]
pub(super) struct AdmittedChange<'a> {
    pub(super) place: &'a WriteTarget<'a>,
    /// True if its Scale is changed.
    pub(super) is_scale: bool,
    pub(super) options: Options,
}

/// The objects of a request at another version: the new one, then the stored one.
struct ConvertedObjects {
    converted: Vec<Object>,
    has_new: bool,
}

impl ConvertedObjects {
    fn request<'a>(&'a self, request: &AdmissionRequest<'a>) -> AdmissionRequest<'a> {
        let mut objects = self.converted.iter();
        let object = if self.has_new { objects.next() } else { None };
        AdmissionRequest { object, old: objects.next(), ..*request }
    }
}

/// One write on its way through the webhooks.
struct AdmissionRound<'a> {
    app: &'a LocalApp<'a>,
    admission: &'a RequestAdmission,
    operation: AdmissionOperation,
    ty: &'a Arc<ResourceType>,
    subresource: &'a str,
    kind: Option<ObjectKind<'a>>,
    namespace: String,
    name: String,
    is_dry: bool,
    /// All types that share the objects of the type.
    served: Vec<Arc<ResourceType>>,
    /// The namespace of the object, once a selector reads it.
    stored_namespace: OnceCell<Object>,
}

impl<'a> AdmissionRound<'a> {
    /// A create of an object.
    fn new(
        app: &'a LocalApp<'a>,
        admission: &'a RequestAdmission,
        ty: &'a Arc<ResourceType>,
        namespace: &str,
        name: &str,
    ) -> Self {
        let registry = app.registry.now();
        let served = registry.iter().filter(|other| other.id() == ty.id()).cloned().collect();
        Self {
            app,
            admission,
            operation: AdmissionOperation::Create,
            ty,
            subresource: "",
            kind: None,
            namespace: if ty.holds_objects { name } else { namespace }.to_owned(),
            name: name.to_owned(),
            is_dry: false,
            served,
            stored_namespace: OnceCell::new(),
        }
    }

    /// The create of an object that has its name, or will get one.
    fn of_new(
        app: &'a LocalApp<'a>,
        admission: &'a RequestAdmission,
        ty: &'a Arc<ResourceType>,
        object: &Object,
        options: Options,
    ) -> Self {
        let (namespace, name) = (metadata::text(object, "namespace"), metadata::text(object, "name"));
        Self { is_dry: options.dry_run, ..Self::new(app, admission, ty, namespace, name) }
    }

    fn of_change(app: &'a LocalApp<'a>, admission: &'a RequestAdmission, change: AdmittedChange<'a>) -> Self {
        let AdmittedChange { place, is_scale, options } = change;
        let scale = ObjectKind { group: "autoscaling", version: "v1", kind: scale::KIND };
        Self {
            operation: AdmissionOperation::Update,
            subresource: if is_scale { SCALE } else { place.part.subresource() },
            kind: is_scale.then_some(scale),
            is_dry: options.dry_run,
            ..Self::new(app, admission, place.ty, place.namespace, place.name)
        }
    }

    fn webhooks(&self, kind: WebhookKind) -> &'a [Arc<ConnectedWebhook>] {
        self.admission.webhooks.of(kind, self.ty)
    }

    fn request<'b>(&'b self, object: Option<&'b Object>, old: Option<&'b Object>) -> AdmissionRequest<'b> {
        AdmissionRequest {
            operation: self.operation,
            ty: self.ty,
            subresource: self.subresource,
            kind: self.kind,
            namespace: &self.namespace,
            name: &self.name,
            object,
            old,
            options: &self.admission.options,
            is_dry: self.is_dry,
            user: &self.admission.user,
        }
    }

    /// Returns the type as which a webhook gets the objects; `None` if it is not called.
    async fn target<'b>(
        &'b self,
        to: &ConnectedWebhook,
        request: &AdmissionRequest<'b>,
    ) -> Result<Option<&'b ResourceType>, Status> {
        let Some(target) = self.matched(&to.webhook.writes, request).await? else { return Ok(None) };
        Ok(to.webhook.meets_conditions(request, target)?.then_some(target))
    }

    /// Returns the type as which who is about these writes gets the objects; `None` if this write is none of them.
    async fn matched<'b>(
        &'b self,
        writes: &MatchedWrites,
        request: &AdmissionRequest<'b>,
    ) -> Result<Option<&'b ResourceType>, Status> {
        let Some(target) = writes.target(request, &self.served) else { return Ok(None) };
        let namespace = if writes.reads_namespace(request) { Some(self.namespace(request).await?) } else { None };
        let is_selected = writes.select(request, namespace);
        let is_selected = is_selected.ok_or_else(|| Status::internal("a selector cannot be read"))?;
        Ok(is_selected.then_some(target))
    }

    /// Returns the namespace whose labels decide. That of a namespace is itself.
    async fn namespace<'b>(&'b self, request: &AdmissionRequest<'b>) -> Result<&'b Object, Status> {
        if let (true, Some(own)) = (self.ty.holds_objects, request.object.filter(|_| self.subresource.is_empty())) {
            return Ok(own);
        }
        let read = || async {
            let ty = self.app.registry.now().find("", "v1", "namespaces").ok_or_else(Status::generic_not_found)?;
            let place = WriteTarget { ty: &ty, namespace: "", name: &self.namespace, part: Part::Main };
            commit::read(self.app, &place).await.map(|current| current.object)
        };
        self.stored_namespace.get_or_try_init(read).await
    }

    /// Asks webhooks at once, and returns the answers of those that let the write pass.
    async fn ask(
        &self,
        request: &AdmissionRequest<'_>,
        called: &[(&ConnectedWebhook, &ResourceType)],
    ) -> Result<Vec<AllowedWrite>, Status> {
        let (work, mut allowed) = (&self.app.work, Vec::new());
        let mut weight = Weight::new(usize::MAX);
        let documents = [request.object, request.old, Some(request.options)];
        documents.into_iter().flatten().try_for_each(|object| weight.object(object))?;
        for called in called.chunks(WEBHOOKS_AT_ONCE) {
            let mut memory = WaitingMemory { documents: weight.bytes(), questions: 0, calls: 0 };
            let (mut questions, mut posts) = (Vec::new(), Vec::new());
            for (to, target) in called {
                let uid = ids::uuid().to_string();
                match question(to, request, target, &uid) {
                    Ok(question) => {
                        (memory.questions, memory.calls) = (memory.questions + question.len(), memory.calls + 1);
                        posts.push(to.client.post(question, to.webhook.answer_bytes_max(request), Some(work)));
                        questions.push((to, uid));
                    }
                    Err(failure) => drop(self.decided(to, Err(failure))?),
                }
            }
            // Without the permits of the write: webhooks may be slow, and write to this server before they answer.
            let size = |answers: &Vec<Result<WebhookAnswer, CallFailure>>| {
                let answers = answers.iter().flatten().map(|answer| answer::size(&answer.bytes));
                answers.fold(Size::Small(0), Size::and)
            };
            let answers = work.wait(&self.admission.turn, memory, join_all(posts), size).await?;
            for ((to, uid), answer) in questions.into_iter().zip(answers) {
                let read = answer.map_err(|CallFailure { cause, reason }| {
                    let reason = format!("failed to call webhook: {reason}");
                    WebhookFailure::Call(CallFailure { cause, reason })
                });
                let read = read.and_then(|answer| answer::read(&to.webhook, &uid, &answer.bytes));
                allowed.extend(self.decided(to, read)?);
            }
        }
        Ok(allowed)
    }

    fn warn(&self, texts: &[String]) {
        let warnings = &mut *self.admission.warnings.lock();
        let room = WARNINGS_MAX.saturating_sub(warnings.len());
        warnings.extend(texts.iter().take(room).cloned());
    }

    /// Returns the answer of a webhook; `None` if it failed and its failures are ignored.
    fn decided(
        &self,
        to: &ConnectedWebhook,
        answer: Result<AllowedWrite, WebhookFailure>,
    ) -> Result<Option<AllowedWrite>, Status> {
        match answer {
            Ok(allowed) => {
                self.warn(&allowed.warnings);
                Ok(Some(allowed))
            }
            Err(WebhookFailure::Call(failure)) if to.webhook.ignores_failures => {
                tracing::warn!(webhook = to.webhook.name, cause = %failure.cause, "webhook failure ignored");
                Ok(None)
            }
            Err(WebhookFailure::Call(failure)) => Err(answer::failed(&to.webhook, &failure.reason)),
            Err(WebhookFailure::Refused(status)) => Err(*status),
        }
    }

    /// Returns the objects of a request as a webhook gets them, if another webhook converts them to that version.
    async fn shown(
        &self,
        request: &AdmissionRequest<'_>,
        target: &ResourceType,
    ) -> Result<Option<ConvertedObjects>, Status> {
        if self.kind.is_some() {
            return Ok(None);
        }
        let objects: Vec<_> = request.object.into_iter().chain(request.old).cloned().collect();
        let converted = converting::convert(self.ty, target, &objects).await?;
        Ok(converted.map(|converted| ConvertedObjects { converted, has_new: request.object.is_some() }))
    }

    /// Lets webhooks change the object, one after another. Those that want it are called once more if later ones
    /// changed it.
    async fn mutate(&self, object: &mut Object, old: Option<&Object>) -> Result<(), Status> {
        let all = self.webhooks(WebhookKind::Mutating);
        let (mut called, mut is_called_again) = (Vec::new(), vec![false; all.len()]);
        for is_again in [false, true] {
            for (at, to) in all.iter().enumerate() {
                if is_again && !is_called_again[at] {
                    continue;
                }
                let Some(is_changed) = self.mutate_once(to, object, old).await? else { continue };
                if is_changed {
                    called.drain(..).for_each(|earlier: usize| is_called_again[earlier] = true);
                }
                called.extend(to.webhook.is_reinvoked.then_some(at));
            }
        }
        Ok(())
    }

    /// Returns true if the webhook changed the object; `None` if it was not called.
    async fn mutate_once(
        &self,
        to: &ConnectedWebhook,
        object: &mut Object,
        old: Option<&Object>,
    ) -> Result<Option<bool>, Status> {
        let request = self.request(Some(object), old);
        let Some(target) = self.target(to, &request).await? else { return Ok(None) };
        let shown = self.shown(&request, target).await?;
        let request = shown.as_ref().map_or(request, |shown| shown.request(&request));
        let allowed = self.ask(&request, &[(to, target)]).await?;
        let Some(patch) = allowed.into_iter().find_map(|allowed| allowed.patch) else { return Ok(Some(false)) };
        let mut changed = answer::mutated(&request, target, &patch)?;
        if shown.is_some() {
            changed.insert("apiVersion".to_owned(), target.api_version().into());
            let converted = converting::convert(target, self.ty, &[changed]).await?;
            changed = converted.and_then(|mut converted| converted.pop()).unwrap_or_default();
        }
        let text = serde_json::to_vec(&changed).map_err(|error| Status::internal(&error.to_string()))?;
        if text.len() > REQUEST_BODY_BYTES_MAX {
            return Err(status::body_too_large(REQUEST_BODY_BYTES_MAX));
        }
        drop(text);
        if self.kind.is_none() {
            if let Some(error) = validation::check(self.ty, &mut changed).mistyped {
                return Err(Status::internal(&error));
            }
            schemas::complete(self.app, self.ty, &mut changed, FieldValidation::Ignore, &mut Vec::new())?;
        }
        let is_changed = changed != *object;
        *object = changed;
        Ok(Some(is_changed))
    }

    /// Calls those that may change objects about a deletion, which has none to change.
    async fn mutate_nothing(&self, old: &Object) -> Result<(), Status> {
        let request = self.request(None, Some(old));
        for to in self.webhooks(WebhookKind::Mutating) {
            let Some(target) = self.target(to, &request).await? else { continue };
            let shown = self.shown(&request, target).await?;
            let request = shown.as_ref().map_or(request, |shown| shown.request(&request));
            if self.ask(&request, &[(to, target)]).await?.iter().any(|allowed| allowed.patch.is_some()) {
                let name = quote(&to.webhook.name);
                let why = "attempted to modify the object, which is not supported for this operation";
                return Err(Status::internal(&format!("admission webhook {name} {why}")));
            }
        }
        Ok(())
    }

    /// Asks policies, then webhooks, whether the write may go on.
    async fn validate(&self, object: Option<&Object>, old: Option<&Object>) -> Result<(), Status> {
        let request = &self.request(object, old);
        self.pass_policies(request).await?;
        let mut called = Vec::new();
        for to in self.webhooks(WebhookKind::Validating) {
            let Some(target) = self.target(to, request).await? else { continue };
            match self.shown(request, target).await? {
                None => called.push((&**to, target)),
                Some(shown) => drop(self.ask(&shown.request(request), &[(to, target)]).await?),
            }
        }
        self.ask(request, &called).await.map(drop)
    }
}

/// Writes the question for a webhook.
fn question(
    to: &ConnectedWebhook,
    request: &AdmissionRequest<'_>,
    target: &ResourceType,
    uid: &str,
) -> Result<Vec<u8>, WebhookFailure> {
    if request.is_dry && !to.webhook.allows_dry_run {
        return Err(WebhookFailure::Refused(Box::new(answer::no_dry_run(&to.webhook))));
    }
    request.review(&to.webhook, target, uid).ok_or_else(|| WebhookFailure::Call(CallFailure::no_version()))
}
