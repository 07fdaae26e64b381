//! Stores objects compressed with a dictionary trained on the first of them.
//!
//! INVARIANT: a pack is made by this process and never changed, so it always unpacks to its original bytes. INVARIANT:
//! a dictionary lives as long as the last pack made with it.
//!
//! Objects of one type are much alike, but each is too short for a compressor to learn that. So the first objects are
//! stored as JSON and collected as a sample, a dictionary is trained on the sample, and objects not yet published are
//! packed with it. When objects differ so much from the sample that packs get clearly longer, the next objects form a
//! new sample.

use std::{cell::RefCell, sync::Arc};

use informer_core::store::{Body, PackedJson, Represent, Value};
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict};

/// Maximum objects of a sample. A dictionary of a fourth of them packs a tenth worse.
const SAMPLE_OBJECTS_MAX: usize = 512;

/// Objects of a sample that start the training on live changes, if initial state had too few.
const SAMPLE_OBJECTS_MIN: usize = 32;

/// Maximum bytes of a sample. Memory: this much while it is gathered, and about four times as much for tens of
/// milliseconds.
const SAMPLE_BYTES_MAX: usize = 2 << 20;

/// Maximum bytes a sample takes of one object, so that one large object does not fill the sample.
const SAMPLE_OBJECT_BYTES_MAX: usize = 32 << 10;

/// Minimum bytes of an object in a sample. Less has no structure to learn, and zstd divides by zero if three quarters
/// of a sample together are shorter than this.
const SAMPLE_OBJECT_BYTES_MIN: usize = 8;

/// Size of a dictionary, in bytes. Memory: about six times as much while it packs, twice as much afterwards.
const DICTIONARY_BYTES: usize = 32 << 10;

/// zstd's default. Lower levels save a fifth of the time for a twentieth more memory; higher ones take three times as
/// long for a fortieth less.
const LEVEL: i32 = 3;

/// Objects per compression-ratio measurement.
const WINDOW_OBJECTS: usize = 256;

/// A dictionary is replaced when packs are this many times as long as at its start.
const WORSE: f64 = 1.25;

/// Minimum objects packed with the first dictionary before a second is trained. Each retraining doubles it:
/// incompressible input must not cause endless trainings, and the number of live dictionaries stays logarithmic in the
/// objects seen.
const PATIENCE_OBJECTS: usize = 4 * SAMPLE_OBJECTS_MAX;

/// Bytes kept allocated between two objects, so that one large object does not pin its size.
const SCRATCH_KEEP_BYTES: usize = 64 << 10;

/// Stores JSON as packs.
pub(crate) struct Packer {
    dictionary: Option<TrainedDictionary>,
    // The sample being gathered, for the first dictionary or the next one.
    sample: Option<Sample>,
    // True once initial state was complete: no unpublished objects wait to be packed.
    complete: bool,
    learned: bool,
    patience: usize,
    scratch: Vec<u8>,
}

/// A dictionary in use, with its measured ratios.
struct TrainedDictionary {
    encoder: CDict<'static>,
    decoder: Arc<Dictionary>,
    // Objects of its own sample, which are packed first and not measured.
    own: usize,
    packed: usize,
    window: RatioWindow,
    // Ratio of the first window.
    at_start: Option<f64>,
}

#[derive(Default)]
struct RatioWindow {
    objects: usize,
    json_bytes: usize,
    packed_bytes: usize,
}

#[derive(Default)]
struct Sample {
    bytes: Vec<u8>,
    sizes: Vec<usize>,
}

/// The decoding dictionary.
struct Dictionary(DDict<'static>);

/// One packed object. Memory: its bytes and 48 more.
struct Pack {
    bytes: Box<[u8]>,
    dictionary: Arc<Dictionary>,
    json_bytes: u32,
}

thread_local! {
    // One context of each kind per thread, not per informer or object: a context takes 100 KB and more.
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

    /// Adds an object to the sample, if one is being gathered, and trains a dictionary once the sample is full.
    fn learn(&mut self, json: &[u8]) {
        let Some(sample) = &mut self.sample else { return };
        let needed = if self.complete && self.dictionary.is_none() { SAMPLE_OBJECTS_MIN } else { SAMPLE_OBJECTS_MAX };
        sample.add(json);
        if sample.sizes.len() >= needed || sample.bytes.len() >= SAMPLE_BYTES_MAX {
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

    fn train(&self) -> Option<TrainedDictionary> {
        // Too few or too small objects cannot be trained on; their raw bytes serve as the dictionary.
        let dictionary = zstd::dict::from_continuous(&self.bytes, &self.sizes, DICTIONARY_BYTES)
            .unwrap_or_else(|_| self.bytes[self.bytes.len().saturating_sub(DICTIONARY_BYTES)..].to_vec());
        Some(TrainedDictionary {
            encoder: CDict::try_create(&dictionary, LEVEL)?,
            decoder: Arc::new(Dictionary(DDict::try_create(&dictionary)?)),
            own: self.sizes.len(),
            packed: 0,
            window: RatioWindow::default(),
            at_start: None,
        })
    }
}

impl TrainedDictionary {
    fn note(&mut self, json_bytes: usize, packed_bytes: usize) {
        self.packed += 1;
        if self.packed <= self.own {
            return;
        }
        if self.window.objects == WINDOW_OBJECTS {
            self.window = RatioWindow::default();
        }
        self.window.objects += 1;
        self.window.json_bytes += json_bytes;
        self.window.packed_bytes += packed_bytes;
        if self.window.objects == WINDOW_OBJECTS && self.at_start.is_none() {
            self.at_start = Some(self.window.ratio());
        }
    }

    /// Returns true if the window just completed has clearly longer packs than the first one.
    fn is_worse(&self) -> bool {
        let is_complete = self.window.objects == WINDOW_OBJECTS;
        is_complete && self.at_start.is_some_and(|at_start| self.window.ratio() > at_start * WORSE)
    }
}

impl RatioWindow {
    fn ratio(&self) -> f64 {
        self.packed_bytes as f64 / self.json_bytes as f64
    }
}

impl PackedJson for Pack {
    fn unpack(&self) -> Vec<u8> {
        // Exactly the size of the JSON: a corrupt pack cannot write beyond it.
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
