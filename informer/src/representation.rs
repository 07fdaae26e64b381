//! The form in which a store keeps its objects.

/// Form in which a store keeps its objects. In every form, reading names, versions and labels costs nothing.
///
/// Live memory of an informer of 7,130 pods that are 21.7 MiB of JSON, and CPU time for one pod of 3 KB, on the
/// project's benchmark machine:
///
/// | | memory | receive and store one | [`Object::decode`](crate::Object::decode) |
/// | --- | ---: | ---: | ---: |
/// | `Json` | 23.8 MiB, 1.1 x the JSON | 10 us | tens of us, shared while in use |
/// | `Typed` | 121 MiB, 5.6 x | 43 us | 0 |
/// | `Packed` | 6.2 MiB, 0.29 x | 24 us | like `Json`, plus a few us to unpack |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Representation {
    /// JSON as received, trimmed.
    #[default]
    Json,
    /// Decoded, without its JSON. Fields the type does not know are lost; reading
    /// [`Object::json`](crate::Object::json) or [`Object::field`](crate::Object::field) serializes the object. An
    /// object that does not decode is kept as JSON, and counted in [`Stats::undecodable`](crate::Stats::undecodable).
    Typed,
    /// JSON compressed with a dictionary. The dictionary is trained once on the first objects received, at most 512, in
    /// about 100 ms, and again when objects have changed so much that they pack a fourth longer. Reading
    /// [`Object::json`](crate::Object::json) or [`Object::field`](crate::Object::field) unpacks the object each time.
    #[cfg(feature = "packed")]
    Packed,
}
