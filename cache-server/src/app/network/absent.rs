//! In place of the addresses of Services, in a build without the feature `assets`: Services have those that clients give them.

use std::{convert::Infallible, marker::PhantomData, sync::Arc};

use api_rules::{object::Object, registry::ResourceType};
use informer_serving::status::Status;

use crate::{cacher::Caches, config::Config};

pub(crate) struct ServiceNetwork;

pub(crate) struct AllocationTurn<'a>(Infallible, PhantomData<&'a ()>);

impl ServiceNetwork {
    pub(crate) const fn new(_: &Config) -> Self {
        Self
    }

    pub(crate) async fn turn(
        &self,
        _: &Caches,
        _: &Arc<ResourceType>,
        _: bool,
    ) -> Result<Option<AllocationTurn<'_>>, Status> {
        Ok(None)
    }
}

pub(crate) struct Reservation<'a>(PhantomData<&'a ()>);

impl<'a> AllocationTurn<'a> {
    pub(crate) fn reserve(self, _: &Object) -> Reservation<'a> {
        match self.0 {}
    }

    pub(crate) const fn take_back(&mut self, _: Reservation<'_>) {
        match self.0 {}
    }
}

impl AllocationTurn<'_> {
    pub(crate) const fn create(&self, _: &ResourceType, _: &mut Object) -> Result<(), Status> {
        match self.0 {}
    }

    pub(crate) const fn update(&self, _: &ResourceType, _: &Object, _: &mut Object) -> Result<(), Status> {
        match self.0 {}
    }
}

/// Callers drop a turn early, as they do where turns exist.
impl Drop for AllocationTurn<'_> {
    fn drop(&mut self) {
        match self.0 {}
    }
}
