//! Follows the keys of an object along the paths that are to be cut.
//!
//! INVARIANT: the levels are the objects entered that a path leads into; the first is the object itself.

/// The paths, and which of them lead through the objects entered so far.
#[derive(Debug)]
pub(super) struct Cuts {
    paths: Vec<Box<[u8]>>,
    // Behind each path's part that has been walked, by level: (path, offset of its rest).
    open: Vec<(usize, usize)>,
    // Where each level begins in `open`.
    levels: Vec<usize>,
}

/// What to do with the member of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Keep it and look no further into it.
    Keep,
    /// Keep it; a path leads into it. A level has been entered, to be left when the value ends.
    Enter,
    /// Leave it out.
    Cut,
}

impl Cuts {
    pub(super) fn new(paths: Vec<String>) -> Self {
        let paths = paths.into_iter().filter(|path| !path.is_empty()).map(|path| path.into_bytes().into()).collect();
        Self { paths, open: Vec::new(), levels: Vec::new() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// A new object begins, one that is cut or one that is kept whole.
    pub(super) fn begin(&mut self, is_cut: bool) {
        self.open.clear();
        if is_cut {
            self.open.extend((0..self.paths.len()).map(|path| (path, 0)));
        }
        self.levels.clear();
        self.levels.push(0);
    }

    /// Levels entered and not left; at least 1 inside an object.
    pub(super) const fn levels(&self) -> usize {
        self.levels.len()
    }

    /// A key of the innermost level.
    pub(super) fn key(&mut self, key: &[u8]) -> Verdict {
        let (first, last) = (self.levels.last().copied().unwrap_or_default(), self.open.len());
        for at in first..last {
            let (path, offset) = self.open[at];
            let rest = &self.paths[path][offset..];
            match rest.strip_prefix(key) {
                Some([]) => {
                    self.open.truncate(last);
                    return Verdict::Cut;
                }
                Some([b'.', ..]) => self.open.push((path, offset + key.len() + 1)),
                Some(_) | None => {}
            }
        }
        if self.open.len() == last {
            return Verdict::Keep;
        }
        self.levels.push(last);
        Verdict::Enter
    }

    /// The value entered last has ended.
    pub(super) fn leave(&mut self) {
        if let Some(first) = self.levels.pop() {
            self.open.truncate(first);
        }
    }
}
