//! One write as the router understood it, and the object that it is about.

use std::sync::Arc;

use informer_serving::status::{Status, StatusExt as _};
use watch_cache::Reader;

use super::{
    Object,
    metadata::{self, Part},
    weight::{self, Size},
};
use crate::registry::{ResourceType, Subresource};

/// One write, as routed.
#[derive(Debug, Clone, Copy)]
pub struct WriteRequest<'a> {
    /// The type of the path.
    pub ty: &'a Arc<ResourceType>,
    /// The namespace of the path.
    pub namespace: Option<&'a str>,
    /// The name of the path; `None` means the collection.
    pub name: Option<&'a str>,
    /// The subresource of the path.
    pub subresource: Option<&'a str>,
    /// The query, decoded.
    pub query: &'a [(String, String)],
    /// The Content-Type header.
    pub content_type: Option<&'a str>,
    /// The body, within the size limit.
    pub body: &'a [u8],
}

/// Location of an object, whether it exists or not.
#[derive(Debug, Clone, Copy)]
pub struct WriteTarget<'a> {
    /// Its type.
    pub ty: &'a Arc<ResourceType>,
    /// Empty for cluster-scoped types.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Which of its parts the write changes.
    pub part: Part,
}

impl<'a> WriteRequest<'a> {
    /// Estimates the work of the write. `reader` reads the type's cache.
    ///
    /// # Errors
    /// 413 for a body with too many values.
    pub fn size(&self, reader: Option<&Reader>) -> Result<Size, Status> {
        let key = || Some(self.ty.key(self.namespace.unwrap_or_default(), self.name?));
        let stored = reader.and_then(|reader| reader.get(&key()?));
        weight::size(self.content_type, self.body, stored.as_deref())
    }

    /// Returns the subresource of the request, if it has rules of its own.
    pub fn own_subresource(&self) -> Option<Subresource> {
        self.ty.subresource(self.subresource?)
    }

    /// Returns the location of the object to whose subresource the request sends another object.
    pub fn owner(&self) -> Result<WriteTarget<'a>, Status> {
        Self { subresource: None, ..*self }.target()
    }

    /// Returns the location of the object that the request names.
    pub fn target(&self) -> Result<WriteTarget<'a>, Status> {
        let part = match self.subresource {
            None => Part::Main,
            Some("status") if self.ty.has_status => Part::Status,
            Some(_) => {
                let part = self.own_subresource().and_then(Part::of);
                part.ok_or_else(Status::generic_not_found)?
            }
        };
        let Some(name) = self.name else { return Err(Status::generic_method_not_allowed()) };
        Ok(WriteTarget { ty: self.ty, namespace: self.namespace.unwrap_or_default(), name, part })
    }
}

impl WriteTarget<'_> {
    /// Returns its key in the cache.
    pub fn key(&self) -> String {
        self.ty.key(self.namespace, self.name)
    }

    /// Returns the 404 of the object.
    pub fn not_found(&self) -> Status {
        Status::not_found(&self.ty.group, &self.ty.plural, self.name)
    }

    /// Returns the 409 of an object that was modified since it was read.
    pub fn modified(&self) -> Status {
        Status::modified(&self.ty.group, &self.ty.plural, self.name)
    }

    /// Checks that the object's name equals the name in the path.
    pub fn match_name(&self, object: &Object) -> Result<(), Status> {
        let declared = metadata::text(object, "name");
        if declared.is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                self.name
            )));
        }
        if declared != self.name {
            return Err(Status::bad_request(format!(
                "the name of the object ({declared}) does not match the name on the URL ({})",
                self.name
            )));
        }
        Ok(())
    }
}
