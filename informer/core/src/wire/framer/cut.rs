//! Follows the keys of an object along the paths to cut.
//!
//! INVARIANT: the levels are the objects entered that a path leads into; the first is the object itself.

/// The paths, and the position of each in the objects entered so far.
#[derive(Debug)]
pub(super) struct CutPaths {
    paths: Vec<Box<[u8]>>,
    // By level, the paths that lead through it: (path, offset of its remaining part).
    open: Vec<(usize, usize)>,
    // Start of each level in `open`.
    levels: Vec<usize>,
}

/// Decision about the member of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutVerdict {
    /// Keep it, and do not inspect its value.
    Keep,
    /// Keep it; a path leads into its value. This enters a level, to be left when the value ends.
    Enter,
    /// Remove it.
    Cut,
}

impl CutPaths {
    pub(super) fn new(paths: Vec<String>) -> Self {
        let paths = paths.into_iter().filter(|path| !path.is_empty()).map(|path| path.into_bytes().into()).collect();
        Self { paths, open: Vec::new(), levels: Vec::new() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Starts an object; the paths apply only if `is_cut`.
    pub(super) fn begin(&mut self, is_cut: bool) {
        self.open.clear();
        if is_cut {
            self.open.extend((0..self.paths.len()).map(|path| (path, 0)));
        }
        self.levels.clear();
        self.levels.push(0);
    }

    /// Number of levels entered; at least 1 inside an object.
    pub(super) const fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Decides about a key of the innermost level.
    pub(super) fn key(&mut self, key: &[u8]) -> CutVerdict {
        let (first, last) = (self.levels.last().copied().unwrap_or_default(), self.open.len());
        for at in first..last {
            let (path, offset) = self.open[at];
            let rest = &self.paths[path][offset..];
            match rest.strip_prefix(key) {
                Some([]) => {
                    // Drop the paths that this key has opened: its member is cut.
                    self.open.truncate(last);
                    return CutVerdict::Cut;
                }
                Some([b'.', ..]) => self.open.push((path, offset + key.len() + 1)),
                Some(_) | None => {}
            }
        }
        if self.open.len() == last {
            return CutVerdict::Keep;
        }
        self.levels.push(last);
        CutVerdict::Enter
    }

    /// Leaves the innermost level, whose value has ended.
    pub(super) fn leave(&mut self) {
        if let Some(first) = self.levels.pop() {
            self.open.truncate(first);
        }
    }
}
