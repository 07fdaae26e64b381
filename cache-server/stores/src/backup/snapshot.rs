//! The format of snapshots: lines of JSON.
//!
//! The first line is `{"snapshot":"cache-server","format":1,…}`. Each further line is one object,
//! `{"type":"pods","normal":true,"object":{…}}`. The last line has the number of objects, and the CRC-32 (IEEE) of all
//! bytes before it.
//!
//! INVARIANT: no bytes cause a panic, and no line uses more memory than [`LINE_BYTES_MAX`].

use std::{
    borrow::Cow,
    io::{self, BufRead, Read as _, Write},
};

use crc32fast::Hasher;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Version of the format.
const FORMAT: u32 = 1;

/// Value of the member `snapshot`.
const PROGRAM: &str = "cache-server";

/// Bytes of a line: an object, and the names around it.
const LINE_BYTES_MAX: usize = informer_core::limits::OBJECT_BYTES_MAX + (4 << 10);

/// Reason why bytes are no snapshot.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("not a snapshot of cache-server")]
    Foreign,
    #[error("the snapshot has format {0}, and this version reads {FORMAT}: use the newer cache-server")]
    Newer(u32),
    #[error("the snapshot is damaged at line {line} ({text})")]
    Damaged {
        /// Counted from one.
        line: u64,
        text: &'static str,
    },
}

/// The first line. Members beside the first two are for people.
#[derive(Serialize, Deserialize)]
struct SnapshotHeader<'a> {
    snapshot: Cow<'a, str>,
    format: u32,
    #[serde(default)]
    history: Option<u64>,
    #[serde(default, rename = "resourceVersion")]
    resource_version: u64,
}

/// One object.
#[derive(Serialize)]
pub(super) struct SnapshotObject<'a> {
    /// Id of its type.
    #[serde(rename = "type")]
    pub(super) ty: Cow<'a, str>,
    /// See `Entry::is_normal`.
    pub(super) normal: bool,
    /// The object with kind and apiVersion.
    pub(super) object: &'a RawValue,
}

/// The last line.
#[derive(Serialize)]
struct SnapshotFooter {
    objects: u64,
    crc32: u32,
}

/// A line behind the first one: the members of both kinds.
#[derive(Deserialize)]
struct SnapshotLine<'a> {
    #[serde(borrow, rename = "type")]
    ty: Option<Cow<'a, str>>,
    #[serde(default)]
    normal: bool,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    objects: Option<u64>,
    crc32: Option<u32>,
}

/// Writes a snapshot.
pub(super) struct SnapshotWriter<W> {
    out: W,
    hash: Hasher,
    objects: u64,
}

impl<W: Write> SnapshotWriter<W> {
    /// Writes the first line.
    pub(super) fn begin(out: W, history: Option<u64>, resource_version: u64) -> io::Result<Self> {
        let mut this = Self { out, hash: Hasher::new(), objects: 0 };
        this.line(&SnapshotHeader { snapshot: PROGRAM.into(), format: FORMAT, history, resource_version })?;
        Ok(this)
    }

    /// Writes an object.
    pub(super) fn object(&mut self, ty: &str, normal: bool, object: &[u8]) -> io::Result<()> {
        let object = serde_json::from_slice(object)?;
        self.objects += 1;
        self.line(&SnapshotObject { ty: ty.into(), normal, object })
    }

    /// Writes the last line.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let footer = SnapshotFooter { objects: self.objects, crc32: self.hash.clone().finalize() };
        self.line(&footer)?;
        self.out.flush()
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.hash.update(&line);
        self.out.write_all(&line)
    }
}

/// Reads a snapshot.
pub(super) struct SnapshotReader<R> {
    source: R,
    line: Vec<u8>,
    number: u64,
    hash: Hasher,
    objects: u64,
}

impl<R: BufRead> SnapshotReader<R> {
    /// Reads the first line.
    pub(super) fn open(source: R) -> Result<Self, SnapshotError> {
        let mut this = Self { source, line: Vec::new(), number: 0, hash: Hasher::new(), objects: 0 };
        // Another file may have no line end at all.
        this.read_line().map_err(|error| match error {
            SnapshotError::Damaged { .. } => SnapshotError::Foreign,
            error @ (SnapshotError::Io(_) | SnapshotError::Foreign | SnapshotError::Newer(_)) => error,
        })?;
        let header: SnapshotHeader<'_> = serde_json::from_slice(&this.line).map_err(|_| SnapshotError::Foreign)?;
        if header.snapshot != PROGRAM {
            return Err(SnapshotError::Foreign);
        }
        if header.format != FORMAT {
            return Err(SnapshotError::Newer(header.format));
        }
        this.hash.update(&this.line);
        Ok(this)
    }

    /// Reads the next object; `None` after the last one of a snapshot that is whole.
    pub(super) fn next(&mut self) -> Result<Option<SnapshotObject<'_>>, SnapshotError> {
        self.read_line()?;
        let line = self.number;
        let damaged = |text| SnapshotError::Damaged { line, text };
        let read: SnapshotLine<'_> = serde_json::from_slice(&self.line).map_err(|_| damaged("it is no object"))?;
        if let (Some(ty), Some(object)) = (read.ty, read.object) {
            self.hash.update(&self.line);
            self.objects += 1;
            return Ok(Some(SnapshotObject { ty, normal: read.normal, object }));
        }
        if (read.objects, read.crc32) != (Some(self.objects), Some(self.hash.clone().finalize())) {
            return Err(damaged("the checksum differs"));
        }
        if !self.source.fill_buf()?.is_empty() {
            return Err(damaged("more follows the last line"));
        }
        Ok(None)
    }

    /// Number of the line that was read last, from one.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    fn read_line(&mut self) -> Result<(), SnapshotError> {
        self.line.clear();
        self.number += 1;
        let damaged = |text| SnapshotError::Damaged { line: self.number, text };
        let bytes = (&mut self.source).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut self.line)?;
        match self.line.last() {
            Some(b'\n') => Ok(()),
            _ if bytes == LINE_BYTES_MAX => Err(damaged("the line is too long")),
            _ => Err(damaged("the end is missing")),
        }
    }
}

/// Returns true if the first bytes name a snapshot, whatever follows.
pub(super) fn is_begun(mut source: impl BufRead) -> io::Result<bool> {
    Ok(source.fill_buf()?.starts_with(br#"{"snapshot":"#))
}
