//! Starts an informer on a copy that equal declarations share: one watch and one store.
//!
//! INVARIANT: a user never gets a state that its own declaration would not have read.

use std::{mem, sync::Arc, time::Duration};

use informer_core::ListSemantic;

use super::{Informer, InformerBuilder};
use crate::{
    error::ConfigError,
    selection::Selection,
    shared::{CopyFeed, CopyOrigin, CopyQuestion, CopyTable, CopyUse, Decoders, DerivedCopy, SharedCopy},
};

impl<K> InformerBuilder<K> {
    /// Sets whether a wider copy may answer a [shared](Self::start_shared) declaration. Default true. False reads what
    /// is declared by a watch of its own, for example because the wider copy may be stopped sooner, or its state is too
    /// far behind on a busy type.
    pub const fn from_wider(mut self, allowed: bool) -> Self {
        self.from_wider = allowed;
        self
    }

    /// Starts the informer on the copy of an equal declaration of the same [`Cluster`](crate::Cluster), else on a wider
    /// copy, else with a new copy, which later declarations may share. Returns at once, and must be called inside a
    /// tokio runtime.
    ///
    /// client-go's counterpart is a `SharedInformerFactory`, controller-runtime's its cache. Here the registry is part
    /// of the cluster, and each component declares what it needs:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use informer::Cluster;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # async fn doc(cluster: Cluster) -> Result<(), Box<dyn std::error::Error>> {
    /// let scheduler = cluster.informer::<Pod>().start_shared()?;    // one watch
    /// let metrics = cluster.informer::<Pod>().start_shared()?;      // the same copy: no request
    /// cluster.ready_all(Duration::from_secs(30)).await?;
    /// // Filtered out of the copy: no request.
    /// let agent = cluster.informer::<Pod>().namespace("kube-system").start_shared()?;
    /// println!("{}", agent.explain());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The result is an ordinary [`Informer`] that uses the copy. The copy starts with its first user. It stops a
    /// [grace period](crate::ClusterBuilder::shared_grace) after its last user was dropped or ended by
    /// [`shutdown`](Informer::shutdown), which ends that use only. A user that comes in time takes the running copy
    /// over.
    ///
    /// # Equal declarations
    ///
    /// Two declarations are equal if they store the same: type, namespaces, selectors, dropped paths,
    /// [`object_bytes_max`](Self::object_bytes_max), [`linger`](Self::linger), [transforms](Self::transform), and
    /// stored form. The type to which a user decodes does not matter, except for
    /// [`Representation::Typed`](crate::Representation::Typed) and [`project`](Self::project): users of `Pod` and of
    /// `DynamicObject` share one copy. All other settings, such as timeouts, pages or the checkpoint, are those of the
    /// first user: a later one that changed them to something else gets an
    /// [error](ConfigError::SharedSetting), and so do [`delays`](Self::delays). [Indexes](Self::index) are each user's
    /// own.
    ///
    /// # Narrower declarations
    ///
    /// A copy that runs, is ready and follows its type by a watch also answers narrower declarations: of fewer
    /// namespaces, of more label requirements, or of more terms on the fields `metadata.name`, `metadata.namespace`
    /// and, for pods that are not stored [`Typed`](crate::Representation::Typed), `spec.nodeName`. With transforms,
    /// which may have changed labels and fields, only of fewer namespaces or of more terms on `metadata.name`. They
    /// send no request. [`explain`](Informer::explain) then ends with `filtered here` and the filter;
    /// [`from_wider(false)`](Self::from_wider) turns it off. A copy that is not ready yet is not used, because its user
    /// may lack permissions that the narrower declaration does not need: start the widest first, and wait for it.
    ///
    /// Cost of a filtered copy: one scan of the wider one at the start, a comparison for each change, and about 30
    /// bytes for each of its objects, which are shared. A [`subscribe_all`](Informer::subscribe_all) on it may begin
    /// with an [`Event::Reset`](crate::Event::Reset).
    ///
    /// # Several namespaces
    ///
    /// [`namespaces`](Self::namespaces) is one watch for each namespace, each of which is shared too, and one store
    /// over them.
    ///
    /// # Freshness
    ///
    /// A running copy cannot promise more than [`ListSemantic::Any`], the default. A declaration with another
    /// [`list_semantic`](Self::list_semantic) shares nothing: it gets a watch of its own.
    ///
    /// # Errors
    /// The first wrong setting. Failures at the server are not returned here but by [`Informer::ready`].
    pub fn start_shared(self) -> Result<Informer<K>, ConfigError>
    where
        K: Send + Sync + 'static,
    {
        let is_any = matches!(self.declared.config.list_semantic, ListSemantic::Any);
        let is_comparable = self.keep.transforms.iter().all(|transform| transform.identity.is_some());
        self.start_copy(is_any && is_comparable)
    }
}

impl<K: Send + Sync + 'static> InformerBuilder<K> {
    /// Starts a handle on a copy. Without `is_shared`, on copies that no other declaration may use.
    pub(super) fn start_copy(mut self, is_shared: bool) -> Result<Informer<K>, ConfigError> {
        let selection = self.declared.check()?;
        if self.declared.delays.is_some() {
            return Err(ConfigError::DelaysShared);
        }
        let indexes = mem::take(&mut self.keep.indexes);
        let is_derived = selection.has_parts() || !indexes.is_empty();
        if is_derived && self.keep.form.linger.is_some() {
            return Err(ConfigError::LingerDerived);
        }
        let question = self.question(selection);
        let copies = Arc::clone(self.declared.cluster.copies());
        let used = if is_shared {
            self.find(question, &mut copies.lock())
        } else {
            self.open(question, false, &mut CopyTable::new())
        }?;
        if indexes.is_empty() {
            return Ok(Informer::using(used, self.declared.of.type_meta()));
        }
        let (question, base) = (used.copy.question.clone(), Arc::clone(&used.copy));
        let (derived, source, progress) = DerivedCopy::new(vec![used], Box::new(|_| true), indexes);
        // Its decoder belongs to the index handles. Indexes do not compare, so it is no other user's.
        let decoders = Decoders::of(Arc::clone(&self.keep.decoded));
        let settings = base.settings.clone();
        let copy = SharedCopy::new(question, CopyOrigin::Indexed(base), source, progress, decoders, settings);
        let feed = CopyFeed::Derived(Box::new(derived));
        let used = self.add(copy, Duration::ZERO, feed, &mut CopyTable::new());
        Ok(Informer::using(used, self.declared.of.type_meta()))
    }

    /// All settings that decide what the copy holds.
    fn question(&self, selection: Selection) -> CopyQuestion {
        CopyQuestion {
            group_version_path: self.declared.of.group_version_path.clone(),
            plural: self.declared.of.plural.clone(),
            selection,
            drop_paths: self.declared.config.drop_paths.iter().cloned().collect(),
            object_bytes_max: self.declared.config.object_bytes_max,
            transforms: self.keep.transforms.iter().map(|transform| transform.identity).collect(),
            form: self.keep.form,
        }
    }

    /// Returns the first setting that this declaration changed, and that `copy` does not have.
    fn refused_by(&self, copy: &SharedCopy) -> Option<&'static str> {
        self.declared.config.refused_by(&copy.settings, &self.declared.cluster.defaults().config)
    }

    /// Returns a use of a copy that answers `question`, running or new.
    fn find(&self, question: CopyQuestion, table: &mut CopyTable) -> Result<CopyUse, ConfigError> {
        if let Some(equal) = table.get(&question).filter(|copy| copy.is_running()) {
            match self.refused_by(equal) {
                None if self.from_wider || !equal.is_filtered() => return Ok(CopyUse::new(equal)),
                Some(name) if !equal.is_filtered() => return Err(ConfigError::SharedSetting(name)),
                // A watch of its own, or with other settings, takes the place of a filtered copy, which its users keep.
                None | Some(_) => {}
            }
        }
        let wider = table.values().filter(|copy| self.from_wider && !matches!(copy.origin, CopyOrigin::Wider));
        // Settings that the wider copy lacks need a watch with them.
        let wider = wider.filter(|copy| self.refused_by(copy).is_none());
        let wider = wider.filter(|copy| copy.is_watching());
        // Several watches are as far as the slowest, which may not be of this question. Each has a copy that answers it.
        let wider = wider.filter(|copy| question.selection.has_parts() || !copy.question.selection.has_parts());
        let answers = wider.filter_map(|copy| Some((copy, question.filter_of(&copy.question)?)));
        // The smallest: its scan is the shortest.
        let smallest = answers.min_by_key(|(copy, _)| copy.source.now.borrow().objects.len());
        let Some((wider, filter)) = smallest else { return self.open(question, true, table) };
        let (decoders, settings) = (wider.decoders.clone(), wider.settings.clone());
        let (derived, source, progress) = DerivedCopy::new(vec![CopyUse::new(wider)], filter, Vec::new());
        let copy = SharedCopy::new(question, CopyOrigin::Wider, source, progress, decoders, settings);
        // The wider copy has a grace period of its own, and filtering it again costs no request.
        Ok(self.add(copy, Duration::ZERO, CopyFeed::Derived(Box::new(derived)), table))
    }

    /// Starts a copy that answers `question`, and adds it to the table.
    fn open(&self, question: CopyQuestion, is_shared: bool, table: &mut CopyTable) -> Result<CopyUse, ConfigError> {
        if question.selection.has_parts() {
            return self.merge(question, is_shared, table);
        }
        // A copy that is not shared has one user, who reads the counts of all its parts.
        let decoded = if is_shared { Arc::default() } else { Arc::clone(&self.keep.decoded) };
        let setup = self.declared.setup(&question.selection, None);
        let fed = Informer::start(setup, self.keep.config(&decoded, Vec::new()), decoded).into_feeding();
        let progress = fed.running.life().progress_receiver();
        let (decoders, settings) = (Decoders::of(fed.decoded), self.declared.config.clone());
        let copy = SharedCopy::new(question, CopyOrigin::Watch, fed.source, progress, decoders, settings);
        // Another user of a copy that is not shared cannot come.
        let grace = if is_shared { self.declared.cluster.shared_grace() } else { Duration::ZERO };
        Ok(self.add(copy, grace, CopyFeed::Watch { _running: fed.running }, table))
    }

    /// Merges the copies of several namespaces, and adds the result to the table.
    fn merge(&self, question: CopyQuestion, is_shared: bool, table: &mut CopyTable) -> Result<CopyUse, ConfigError> {
        // Before any part starts: a refused declaration must send no request and leave no copy that others share.
        let running: Vec<_> = question.parts().filter_map(|part| table.get(&part)).collect();
        let mut running = running.into_iter().filter(|copy| copy.is_running() && !copy.is_filtered());
        if let Some(name) = running.find_map(|copy| self.refused_by(copy)) {
            return Err(ConfigError::SharedSetting(name));
        }
        let start = |part| if is_shared { self.find(part, table) } else { self.open(part, false, table) };
        let parts = question.parts().map(start).collect::<Result<Vec<_>, _>>()?;
        let has_filtered = parts.iter().any(|part| part.copy.is_filtered());
        let origin = CopyOrigin::Namespaces { count: parts.len(), has_filtered };
        let (derived, source, progress) = DerivedCopy::new(parts, Box::new(|_| true), Vec::new());
        let decoders = if is_shared { Decoders::default() } else { Decoders::of(Arc::clone(&self.keep.decoded)) };
        let copy = SharedCopy::new(question, origin, source, progress, decoders, self.declared.config.clone());
        Ok(self.add(copy, Duration::ZERO, CopyFeed::Derived(Box::new(derived)), table))
    }

    /// Adds a copy to the table, and starts the task that ends it when it is not used any more.
    fn add(&self, copy: SharedCopy, grace: Duration, feed: CopyFeed, table: &mut CopyTable) -> CopyUse {
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
