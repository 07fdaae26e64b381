//! Pages of which a program writes the part between two marks, and people the rest.

use std::{fs, path::Path};

use crate::numbers::Failure;

/// Marks around the part that the program writes.
pub(crate) const BEGIN: &str = "<!-- Written by the program, up to the next mark. -->\n";
pub(crate) const END: &str = "<!-- End of the written part. -->\n";

/// Replaces the written part of a page.
///
/// # Errors
/// The page cannot be read or written, or lacks a mark.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let page = fs::read_to_string(path)?;
    let lacks = || Failure::Page(format!("{} lacks a mark", path.display()));
    let (before, rest) = page.split_once(BEGIN).ok_or_else(lacks)?;
    let (_, after) = rest.split_once(END).ok_or_else(lacks)?;
    Ok(fs::write(path, format!("{before}{BEGIN}\n{text}\n{END}{after}"))?)
}
