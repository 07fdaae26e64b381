//! Builder of informers that share a copy: equal declarations have one watch and one store.
//!
//! INVARIANT: a user never gets a state that its own declaration would not have read.

use std::{any::TypeId, borrow::Cow, fmt, path::PathBuf, sync::Arc, time::Duration};

use informer_core::ListSemantic;
use kube::core::PartialObjectMeta;
use serde::{Serialize, de::DeserializeOwned};

use super::{Informer, InformerBuilder, keeping::Keep};
use crate::{
    cluster::Cluster,
    config::Config,
    declaration::{
        Declaration, DeclaredType, declaration_setters, namespace_setter, namespaces_setter, storage_setters,
    },
    error::ConfigError,
    index::Index,
    object::Object,
    representation::Representation,
    shared::{
        CopyFeed, CopyOrigin, CopyQuestion, CopyTable, CopyUse, Decoders, DerivedCopy, NamedTransform, SharedCopy,
        StoredForm,
    },
};

/// Declaration of an informer that shares its copy with equal declarations of the same [`Cluster`].
///
/// client-go's counterpart is a `SharedInformerFactory`, controller-runtime's its cache. Here the registry is part of
/// the cluster, and each component declares what it needs:
///
/// ```no_run
/// # use std::time::Duration;
/// # use informer::Cluster;
/// # use k8s_openapi::api::core::v1::Pod;
/// # async fn doc(cluster: Cluster) -> Result<(), Box<dyn std::error::Error>> {
/// let scheduler = cluster.shared::<Pod>().start()?;             // one watch
/// let metrics = cluster.shared::<Pod>().start()?;               // the same copy: no request
/// cluster.ready_all(Duration::from_secs(30)).await?;
/// let agent = cluster.shared::<Pod>().namespace("kube-system").start()?;   // filtered out of it: no request
/// println!("{}", agent.explain());
/// # Ok(())
/// # }
/// ```
///
/// [`start`](Self::start) returns an ordinary [`Informer`] that uses the copy. The copy starts with its first user. It
/// stops a [grace period](crate::ClusterBuilder::shared_grace) after its last user was dropped or
/// [shut down](Informer::shutdown), which ends that use only; a user that comes in time takes the running copy over.
///
/// # Equal declarations
///
/// Two declarations are equal if they store the same: type, namespaces, selectors, dropped paths,
/// [`object_bytes_max`](Config::object_bytes_max), [`linger`](Self::linger), the names of their
/// [transforms](Self::transform), and stored form. The type to which a user decodes does not matter, except for
/// [`Representation::Typed`] and [`project`](Self::project): users of `Pod` and of `DynamicObject` share one copy.
/// All other settings, such as timeouts, pages or the checkpoint, are those of the first user.
///
/// # Narrower declarations
///
/// A copy that runs, is ready and follows its type by a watch also answers narrower declarations: of fewer namespaces,
/// of more label requirements, or of more terms on the fields `metadata.name`, `metadata.namespace` and, for pods that
/// are not stored [`Typed`](Representation::Typed), `spec.nodeName`. They send no request.
/// [`explain`](Informer::explain) then ends with `filtered here` and the filter;
/// [`from_wider(false)`](Self::from_wider) turns it off. A copy that is not ready yet is not used, because its user may
/// lack permissions that the narrower declaration does not need: start the widest first, and wait for it.
///
/// Cost of a filtered copy: one scan of the wider one at the start, a comparison for each change, and about 30 bytes
/// for each of its objects, which are shared. A [`subscribe_all`](Informer::subscribe_all) on it may begin with an
/// [`Event::Reset`](crate::Event::Reset).
///
/// # Several namespaces
///
/// [`namespaces`](Self::namespaces) is one watch for each namespace, each of which is shared too, and one store over
/// them.
///
/// # Freshness
///
/// A running copy cannot promise more than [`ListSemantic::Any`], the default. A declaration with another
/// [`list_semantic`](Self::list_semantic) shares nothing: it gets a watch of its own.
///
/// # Not shared
///
/// [Indexes](Self::index) are each user's own, over the shared objects.
#[must_use = "nothing happens before start"]
pub struct SharedBuilder<K> {
    declared: Declaration,
    transforms: Vec<NamedTransform>,
    form: StoredForm,
    from_wider: bool,
    /// True if no other declaration may use the copy.
    is_own: bool,
    /// Indexes over the copy, for this user only.
    indexing: Keep<K>,
    feeding: FeedingDeclaration<K>,
}

/// Declares the informer that feeds a new copy.
type FeedingDeclaration<K> = Arc<dyn Fn(Declaration) -> InformerBuilder<K> + Send + Sync>;

impl<K> SharedBuilder<K> {
    pub(crate) fn new(cluster: Cluster, of: DeclaredType) -> Self
    where
        K: 'static,
    {
        Self {
            declared: Declaration::new(cluster, of, Config::default()),
            transforms: Vec::new(),
            form: StoredForm::default(),
            from_wider: true,
            is_own: false,
            indexing: Keep::default(),
            feeding: Arc::new(InformerBuilder::declared),
        }
    }

    /// Declares one copy over several namespaces, for one handle only; `part` declares the informer of each.
    pub(crate) fn merged(
        declared: Declaration,
        indexing: Keep<K>,
        part: impl Fn(Declaration) -> InformerBuilder<K> + Send + Sync + 'static,
    ) -> Self {
        let form = StoredForm { linger: indexing.keeping.linger, ..StoredForm::default() };
        let feeding = Arc::new(part);
        Self { declared, transforms: Vec::new(), form, from_wider: false, is_own: true, indexing, feeding }
    }

    declaration_setters! {
        drop_path: "Cuts a dotted path, such as `metadata.annotations`, out of every object before it is stored.",
        config: "Changes any setting: `.config(|config| config.idle_timeout = Duration::from_secs(60))`. Settings that \
            do not change what is stored are those of the first user of a copy.",
    }

    storage_setters! {}

    namespace_setter! {}

    namespaces_setter! {
        "Requests: a watch for each namespace, unless a wider copy runs; reading all namespaces is one watch, and cheaper \
        for the server than many."
    }

    /// Sets the form in which objects are stored. Default [`Representation::Json`].
    pub fn store(mut self, representation: Representation) -> Self
    where
        K: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        self.form.representation = representation;
        self.form.decoded_to = matches!(representation, Representation::Typed).then(TypeId::of::<K>);
        let feeding = self.feeding;
        self.feeding = Arc::new(move |declared| feeding(declared).store(representation));
        self
    }

    /// Changes each object before it is stored; see [`InformerBuilder::transform`]. May be called several times; changes
    /// apply in order.
    ///
    /// Functions do not compare, so `name` stands for this one: declarations share a copy if their transforms have
    /// equal names and types `K` in equal order. The copy uses the functions of its first user. Give each function of
    /// the program a name of its own, such as `without-env`.
    ///
    /// A narrower declaration with transforms is answered from a copy with the same ones if it differs in namespaces or
    /// by `metadata.name` only: the transforms may have changed the labels and fields by which the server selects.
    pub fn transform(mut self, name: impl Into<String>, change: impl Fn(&mut K) + Send + Sync + 'static) -> Self
    where
        K: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
    {
        self.transforms.push(NamedTransform { name: name.into(), of: TypeId::of::<K>() });
        let (feeding, change) = (self.feeding, Arc::new(change));
        self.feeding = Arc::new(move |declared| {
            let change = Arc::clone(&change);
            feeding(declared).transform(move |object| change(object))
        });
        self
    }

    /// Decodes the same objects as `T`, such as a struct of the few fields a program reads; see
    /// [`InformerBuilder::project`]. Declarations share a copy if they project to the same type. Transforms declared
    /// before still see a `K`; indexes declared before are discarded.
    pub fn project<T>(self) -> SharedBuilder<T>
    where
        T: DeserializeOwned + Serialize + Clone + Send + Sync + 'static,
        K: 'static,
    {
        let representation = Representation::Typed;
        let feeding = self.feeding;
        SharedBuilder {
            declared: self.declared,
            transforms: self.transforms,
            form: StoredForm { representation, decoded_to: Some(TypeId::of::<T>()), ..self.form },
            from_wider: self.from_wider,
            is_own: self.is_own,
            indexing: Keep::default(),
            feeding: Arc::new(move |declared| feeding(declared).project::<T>()),
        }
    }

    /// Reads only metadata; see [`InformerBuilder::metadata_only`]. Discards transforms, indexes and the stored form
    /// declared before.
    pub fn metadata_only(mut self) -> SharedBuilder<PartialObjectMeta<K>>
    where
        K: 'static,
    {
        self.declared.metadata_only = true;
        SharedBuilder {
            declared: self.declared,
            transforms: Vec::new(),
            form: StoredForm { is_metadata: true, linger: self.form.linger, ..StoredForm::default() },
            from_wider: self.from_wider,
            is_own: self.is_own,
            indexing: Keep::default(),
            feeding: Arc::new(|declared| InformerBuilder::<K>::declared(declared).metadata_only()),
        }
    }

    /// Indexes objects by one value that `value` returns for each; see [`InformerBuilder::index`].
    ///
    /// Indexes are this user's own, over objects that it shares: equal declarations share the watch and the objects
    /// whatever indexes they have. `value` runs in a task of this user when an object arrives, so
    /// [`ready`](Informer::ready) waits for it, and sees the object in its stored form; of a
    /// [`Packed`](Representation) one it unpacks the fields it reads.
    ///
    /// Memory: for each object about 30 bytes, and for each value its bytes and about 120 more.
    pub fn index<F>(&mut self, value: F) -> Index<K>
    where
        F: Fn(&Object<K>) -> Option<Cow<'_, str>> + Send + 'static,
        K: Send + Sync + 'static,
    {
        self.indexing.index(value)
    }

    /// Like [`index`](Self::index), for any number of values per object; see [`InformerBuilder::index_each`].
    pub fn index_each<F, V>(&mut self, values: F) -> Index<K>
    where
        F: Fn(&Object<K>) -> V + Send + 'static,
        V: IntoIterator<Item: AsRef<str>>,
        K: Send + Sync + 'static,
    {
        self.indexing.index_each(values)
    }

    /// Keeps the last state of deleted objects readable for `time`; see [`InformerBuilder::linger`]. Then no wider copy
    /// answers; several namespaces, and indexes, are an error at [`start`](Self::start).
    pub const fn linger(mut self, time: Duration) -> Self {
        self.form.linger = Some(time);
        self
    }

    /// Sets whether a wider copy may answer. Default true. False reads what is declared by a watch of its own, for
    /// example because the wider copy may be stopped sooner, or its state is too far behind on a busy type.
    pub const fn from_wider(mut self, allowed: bool) -> Self {
        self.from_wider = allowed;
        self
    }

    /// Uses the copy of an equal declaration, else a wider copy, else starts a new one on the current tokio runtime.
    /// Returns at once.
    ///
    /// # Errors
    /// The first wrong setting. Failures at the server are not returned here but by [`Informer::ready`].
    pub fn start(mut self) -> Result<Informer<K>, ConfigError>
    where
        K: Send + Sync + 'static,
    {
        self.declared.check()?;
        let indexes = std::mem::take(&mut self.indexing.keeping.indexes);
        let is_derived = self.declared.namespaces.len() > 1 || !indexes.is_empty();
        if is_derived && self.form.linger.is_some() {
            return Err(ConfigError::LingerDerived);
        }
        let question = self.question();
        let copies = Arc::clone(self.declared.cluster.copies());
        let used = if self.is_shared() {
            self.find(question, &mut copies.lock())
        } else {
            self.open(question, &mut CopyTable::new())
        }?;
        if indexes.is_empty() {
            return Ok(Informer::using(used));
        }
        let (question, base) = (used.copy.question.clone(), Arc::clone(&used.copy));
        let (derived, source, progress) = DerivedCopy::new(vec![used], Box::new(|_| true), indexes);
        // Its decoder belongs to the index handles. Functions do not compare, so it is no other user's.
        let copy = SharedCopy::new(question, CopyOrigin::Indexed(base), source, progress, self.decoders());
        Ok(Informer::using(self.keep(
            copy,
            Duration::ZERO,
            CopyFeed::Derived(Box::new(derived)),
            &mut CopyTable::new(),
        )))
    }
}

impl<K: Send + Sync + 'static> SharedBuilder<K> {
    /// True unless the declaration promises more than a running copy can, or wants one of its own.
    const fn is_shared(&self) -> bool {
        !self.is_own && matches!(self.declared.config.list_semantic, ListSemantic::Any)
    }

    /// All settings that decide what the copy holds.
    fn question(&self) -> CopyQuestion {
        CopyQuestion {
            group_version_path: self.declared.of.group_version_path.clone(),
            plural: self.declared.of.plural.clone(),
            namespaces: self.declared.namespaces.clone(),
            labels: self.declared.labels.clone(),
            fields: self.declared.fields.clone(),
            drop_paths: self.declared.config.drop_paths.iter().cloned().collect(),
            object_bytes_max: self.declared.config.object_bytes_max,
            transforms: self.transforms.clone(),
            form: self.form,
        }
    }

    /// The caches of a copy with the one that belongs to this declaration's index handles.
    fn decoders(&self) -> Decoders {
        Decoders::of(Arc::clone(&self.indexing.decoded))
    }

    /// Returns a use of a copy that answers `question`, running or new.
    fn find(&self, question: CopyQuestion, table: &mut CopyTable) -> Result<CopyUse, ConfigError> {
        let equal = table.get(&question).filter(|copy| copy.is_running());
        // A watch of its own takes the place of a filtered copy, which its users keep.
        if let Some(equal) = equal.filter(|copy| self.from_wider || !copy.is_filtered()) {
            return Ok(CopyUse::new(equal));
        }
        let wider = table.values().filter(|copy| self.from_wider && !matches!(copy.origin, CopyOrigin::Wider));
        let wider = wider.filter(|copy| copy.is_watching());
        let answers = wider.filter_map(|copy| Some((copy, question.filter_of(&copy.question)?)));
        // The smallest: its scan is the shortest.
        let smallest = answers.min_by_key(|(copy, _)| copy.source.now.borrow().objects.len());
        let Some((wider, filter)) = smallest else { return self.open(question, table) };
        let decoders = wider.decoders.clone();
        let (derived, source, progress) = DerivedCopy::new(vec![CopyUse::new(wider)], filter, Vec::new());
        let copy = SharedCopy::new(question, CopyOrigin::Wider, source, progress, decoders);
        // The wider copy has a grace period of its own, and filtering it again costs no request.
        Ok(self.keep(copy, Duration::ZERO, CopyFeed::Derived(Box::new(derived)), table))
    }

    /// Starts a copy of what `question` asks, and adds it to the table.
    fn open(&self, question: CopyQuestion, table: &mut CopyTable) -> Result<CopyUse, ConfigError> {
        let is_shared = self.is_shared();
        if question.namespaces.len() > 1 {
            let part = |namespace: &String| {
                let part = question.within(namespace);
                if is_shared { self.find(part, table) } else { self.open(part, table) }
            };
            let parts = question.namespaces.iter().map(part).collect::<Result<Vec<_>, _>>()?;
            let has_filtered = parts.iter().any(|part| part.copy.is_filtered());
            let origin = CopyOrigin::Namespaces { count: parts.len(), has_filtered };
            let (derived, source, progress) = DerivedCopy::new(parts, Box::new(|_| true), Vec::new());
            let decoders = if self.is_own { self.decoders() } else { Decoders::default() };
            let copy = SharedCopy::new(question, origin, source, progress, decoders);
            return Ok(self.keep(copy, Duration::ZERO, CopyFeed::Derived(Box::new(derived)), table));
        }
        let mut feeding = (self.feeding)(self.declared.within(question.namespaces.first()));
        if let Some(time) = self.form.linger {
            feeding = feeding.linger(time);
        }
        let fed = feeding.start()?.into_feeding();
        let progress = fed.running.life().progress_receiver();
        let copy = SharedCopy::new(question, CopyOrigin::Watch, fed.source, progress, Decoders::of(fed.decoded));
        // Another user of a copy that is not shared cannot come.
        let grace = if is_shared { self.declared.cluster.shared_grace() } else { Duration::ZERO };
        Ok(self.keep(copy, grace, CopyFeed::Watch { _running: fed.running }, table))
    }

    /// Adds a copy to the table, and starts the task that ends it when it is not used any more.
    fn keep(&self, copy: SharedCopy, grace: Duration, feed: CopyFeed, table: &mut CopyTable) -> CopyUse {
        let copy = Arc::new(copy);
        let first = CopyUse::new(&copy);
        table.insert(copy.question.clone(), Arc::clone(&copy));
        let copies = Arc::clone(self.declared.cluster.copies());
        if let CopyFeed::Derived(_) = feed {
            copies.add_derived(&copy);
        }
        tokio::spawn(copies.keep(copy, grace, feed));
        first
    }
}

impl Cluster {
    /// Declares an informer that shares its copy with equal declarations, of a type known at compile time. Sends no
    /// request before [`start`](SharedBuilder::start).
    pub fn shared<K>(&self) -> SharedBuilder<K>
    where
        K: kube::Resource<DynamicType = ()> + 'static,
        K::Scope: 'static,
    {
        SharedBuilder::new(self.clone(), DeclaredType::of::<K>())
    }

    /// Like [`shared`](Self::shared), of a type known at run time.
    pub fn shared_for<K: 'static>(&self, resource: &kube::core::ApiResource) -> SharedBuilder<K> {
        SharedBuilder::new(self.clone(), DeclaredType::from(resource))
    }
}

impl<K> fmt::Debug for SharedBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuilder")
            .field("declared", &self.declared)
            .field("form", &self.form)
            .field("from_wider", &self.from_wider)
            .finish_non_exhaustive()
    }
}
