//! Objects compressed by a dictionary that was trained on the first of them.
//!
//! INVARIANT: a pack is made by this process and never changed, so it unpacks to the bytes it was made of. INVARIANT: a
//! dictionary lives as long as the last pack made with it.
//!
//! Objects of one type are much alike, and each is too short for a compressor to learn that from it. So the first
//! objects are kept as they come and remembered as a sample, a dictionary is made of the sample, and what has not been
//! shown to anybody yet is packed by it. When objects become different from the sample and the packs clearly longer,
//! the next objects are a new sample.

use std::{cell::RefCell, sync::Arc};

use informer_core::store::{Body, Packed, Represent, Value};
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict};

/// A sample's objects, at most. A dictionary of a fourth of them packs a tenth worse.
const SAMPLE_OBJECTS_MAX: usize = 512;

/// A sample's objects before a dictionary is made of changes that trickle in, when initial state had too few.
const SAMPLE_OBJECTS_MIN: usize = 32;

/// A sample, in bytes. Memory: as much while it is gathered, and some four times as much for tens of milliseconds.
const SAMPLE_BYTES_MAX: usize = 2 << 20;

/// What a sample takes of one object, in bytes: one large object does not make a sample.
const SAMPLE_OBJECT_BYTES_MAX: usize = 32 << 10;

/// What an object has to have to be part of a sample, in bytes. There is nothing to learn from less, and zstd divides
/// by zero where three quarters of a sample together are shorter than this.
const SAMPLE_OBJECT_BYTES_MIN: usize = 8;

/// A dictionary, in bytes. Memory: some six times as much while objects are packed by it, twice as much afterwards.
const DICTIONARY_BYTES: usize = 32 << 10;

/// zstd's own default. Lower ones save a fifth of the time and cost a twentieth of the memory, higher ones take thrice
/// the time for a fortieth.
const LEVEL: i32 = 3;

/// Objects over which a ratio is taken.
const WINDOW_OBJECTS: usize = 256;

/// A dictionary no longer pays when packs are longer by this than at its start.
const WORSE: f64 = 1.25;

/// Objects packed by the first dictionary, at least, before there is a second. Doubled by each: whoever sends noise is
/// not worth ever more trainings, and the dictionaries in use are as few as the doublings of the objects seen.
const PATIENCE_OBJECTS: usize = 4 * SAMPLE_OBJECTS_MAX;

/// What stays allocated between two objects, in bytes. One large object must not pin its size for ever.
const SCRATCH_KEEP_BYTES: usize = 64 << 10;

/// Keeps JSON as packs.
pub(crate) struct Packer {
    dictionary: Option<Trained>,
    // Being gathered, for the first dictionary or for the next.
    sample: Option<Sample>,
    // Whether initial state was complete: nothing waits unseen to be packed any more.
    complete: bool,
    learned: bool,
    patience: usize,
    scratch: Vec<u8>,
}

/// A dictionary in use, and how well it does.
struct Trained {
    encoder: CDict<'static>,
    decoder: Arc<Dictionary>,
    // Objects of its own sample: they say nothing about it, and are the first to be packed.
    own: usize,
    packed: usize,
    window: Window,
    // The ratio of the first window.
    at_start: Option<f64>,
}

#[derive(Default)]
struct Window {
    objects: usize,
    json_bytes: usize,
    packed_bytes: usize,
}

#[derive(Default)]
struct Sample {
    bytes: Vec<u8>,
    sizes: Vec<usize>,
}

/// What packs are read with.
struct Dictionary(DDict<'static>);

/// One object. Memory: its bytes and 48 more.
struct Pack {
    bytes: Box<[u8]>,
    dictionary: Arc<Dictionary>,
    json_bytes: u32,
}

thread_local! {
    // A context of each kind for each thread, not for each informer or object: one takes 100 KB and more.
    static PACKING: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static UNPACKING: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

impl Packer {
    pub(crate) fn new() -> Self {
        Self {
            dictionary: None,
            sample: Some(Sample::default()),
            complete: false,
            learned: false,
            patience: PATIENCE_OBJECTS,
            scratch: Vec::new(),
        }
    }

    /// Adds to the sample, if there is one, and makes a dictionary when it is large enough.
    fn learn(&mut self, json: &[u8]) {
        let Some(sample) = &mut self.sample else { return };
        let wanted = if self.complete && self.dictionary.is_none() { SAMPLE_OBJECTS_MIN } else { SAMPLE_OBJECTS_MAX };
        sample.add(json);
        if sample.sizes.len() >= wanted || sample.bytes.len() >= SAMPLE_BYTES_MAX {
            self.train();
        }
    }

    fn train(&mut self) {
        let Some(sample) = self.sample.take_if(|sample| !sample.sizes.is_empty()) else { return };
        if let Some(trained) = sample.train() {
            self.dictionary = Some(trained);
            self.learned = true;
        }
    }

    fn pack(&mut self, json: &[u8]) -> Option<Pack> {
        let trained = self.dictionary.as_mut()?;
        let json_bytes = u32::try_from(json.len()).ok()?;
        self.scratch.clear();
        self.scratch.reserve(zstd::zstd_safe::compress_bound(json.len()));
        PACKING.with_borrow_mut(|context| {
            let context = context.get_or_insert_with(CCtx::create);
            context.compress_using_cdict(&mut self.scratch, json, &trained.encoder).ok()
        })?;
        trained.note(json.len(), self.scratch.len());
        if self.sample.is_none() && trained.is_worse() && trained.packed >= self.patience {
            self.patience *= 2;
            self.sample = Some(Sample::default());
        }
        let bytes = (self.scratch.len() < json.len()).then(|| Box::from(&*self.scratch));
        if self.scratch.capacity() > SCRATCH_KEEP_BYTES {
            self.scratch = Vec::new();
        }
        Some(Pack { bytes: bytes?, dictionary: Arc::clone(&trained.decoder), json_bytes })
    }
}

impl Represent for Packer {
    fn keep(&mut self, json: &[u8], _value: Option<Arc<dyn Value>>) -> Body {
        self.learn(json);
        match self.pack(json) {
            Some(pack) => Body::Packed(Box::new(pack)),
            None => Body::Json(json.into()),
        }
    }

    fn learned(&mut self, complete: bool) -> bool {
        if complete && self.dictionary.is_none() {
            self.train();
            self.sample.get_or_insert_default();
        }
        self.complete |= complete;
        std::mem::take(&mut self.learned)
    }
}

impl Sample {
    fn add(&mut self, json: &[u8]) {
        let part = &json[..json.len().min(SAMPLE_OBJECT_BYTES_MAX)];
        if part.len() >= SAMPLE_OBJECT_BYTES_MIN {
            self.bytes.extend_from_slice(part);
            self.sizes.push(part.len());
        }
    }

    fn train(&self) -> Option<Trained> {
        // Too few or too small objects to train on are a dictionary as they are: what they have in common is in them.
        let dictionary = zstd::dict::from_continuous(&self.bytes, &self.sizes, DICTIONARY_BYTES)
            .unwrap_or_else(|_| self.bytes[self.bytes.len().saturating_sub(DICTIONARY_BYTES)..].to_vec());
        Some(Trained {
            encoder: CDict::try_create(&dictionary, LEVEL)?,
            decoder: Arc::new(Dictionary(DDict::try_create(&dictionary)?)),
            own: self.sizes.len(),
            packed: 0,
            window: Window::default(),
            at_start: None,
        })
    }
}

impl Trained {
    fn note(&mut self, json_bytes: usize, packed_bytes: usize) {
        self.packed += 1;
        if self.packed <= self.own {
            return;
        }
        if self.window.objects == WINDOW_OBJECTS {
            self.window = Window::default();
        }
        self.window.objects += 1;
        self.window.json_bytes += json_bytes;
        self.window.packed_bytes += packed_bytes;
        if self.window.objects == WINDOW_OBJECTS && self.at_start.is_none() {
            self.at_start = Some(self.window.ratio());
        }
    }

    /// Whether the window just completed has clearly longer packs than the first.
    fn is_worse(&self) -> bool {
        let is_complete = self.window.objects == WINDOW_OBJECTS;
        is_complete && self.at_start.is_some_and(|at_start| self.window.ratio() > at_start * WORSE)
    }
}

impl Window {
    fn ratio(&self) -> f64 {
        self.packed_bytes as f64 / self.json_bytes as f64
    }
}

impl Packed for Pack {
    fn unpack(&self) -> Vec<u8> {
        // Room for the JSON and no byte more: nothing that is in the pack makes it write further.
        let mut json = Vec::with_capacity(self.json_bytes());
        UNPACKING.with_borrow_mut(|context| {
            let context = context.get_or_insert_with(DCtx::create);
            context
                .decompress_using_ddict(&mut json, &self.bytes, &self.dictionary.0)
                .expect("a pack of our own making")
        });
        json
    }

    fn json_bytes(&self) -> usize {
        self.json_bytes as usize
    }

    fn packed_bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests;
