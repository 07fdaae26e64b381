//! Flags in the syntax of kube-apiserver and etcd, with names that are not known in advance.

use std::ffi::OsString;

/// Names without dashes and their values, in order. A flag may be repeated.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProgramFlags(Vec<(String, String)>);

impl ProgramFlags {
    /// Reads `--name=value`, `--name value` and `--name`.
    ///
    /// # Errors
    /// One line for a word that belongs to no flag, or is no text.
    pub(super) fn parse(arguments: &[OsString]) -> Result<Self, String> {
        let mut flags: Vec<(String, String)> = Vec::new();
        // True if the next word may be the value of the last flag.
        let mut is_open = false;
        for argument in arguments {
            let text = argument.to_str().ok_or_else(|| format!("{} is no text", argument.display()))?;
            match (text.strip_prefix('-'), flags.last_mut()) {
                (Some(rest), _) => {
                    let flag = rest.strip_prefix('-').unwrap_or(rest);
                    let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
                    is_open = !flag.contains('=');
                    flags.push((name.to_owned(), value.to_owned()));
                }
                (None, Some((_, value))) if is_open => {
                    text.clone_into(value);
                    is_open = false;
                }
                (None, _) => return Err(format!("{text} belongs to no flag")),
            }
        }
        Ok(Self(flags))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| given == name)
    }

    /// The last value of a flag; `None` if there is none, or an empty one.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// The last value of a flag, as Go reads booleans; `default` if there is none, or an empty one.
    ///
    /// # Errors
    /// One line for another word.
    pub(super) fn boolean(&self, name: &str, default: bool) -> Result<bool, String> {
        match self.last(name) {
            None => Ok(default),
            Some("1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(true),
            Some("0" | "f" | "F" | "false" | "False" | "FALSE") => Ok(false),
            Some(other) => Err(format!("--{name}={other} is neither true nor false")),
        }
    }

    /// All values of a flag, each split at commas.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let values = self.0.iter().filter(move |(given, _)| given == name).flat_map(|(_, value)| value.split(','));
        values.filter(|value| !value.is_empty())
    }

    /// The names of all flags but `known`.
    pub(super) fn others(&self, known: &[&str]) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str()).filter(|name| !known.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<ProgramFlags, String> {
        ProgramFlags::parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_read_in_each_form() {
        let flags = parse(&["--a=1", "--b", "2", "--c", "-v=4", "--a=3,4", "--d=e=f", "--empty="]).unwrap();
        assert_eq!((flags.last("a"), flags.last("b"), flags.last("c")), (Some("3,4"), Some("2"), None));
        assert_eq!((flags.last("v"), flags.last("d"), flags.last("empty")), (Some("4"), Some("e=f"), None));
        assert_eq!(flags.all("a").collect::<Vec<_>>(), ["1", "3", "4"]);
        assert!(flags.has("c") && flags.has("empty") && !flags.has("e"));
        assert_eq!(flags.others(&["a", "b", "v"]).collect::<Vec<_>>(), ["c", "d", "empty"]);
        for words in [&["a"][..], &["--a=1", "b"], &["--a", "b", "c"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
