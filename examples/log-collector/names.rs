//! Parses names below `/var/log/pods`: `<namespace>_<pod>_<uid>/<container>/<restarts>.log`.
//!
//! A rotated file has the time appended to its name, as in `0.log.20261120-160000`; the kubelet compresses all but the
//! newest of them to `….gz`, through `….tmp`. Compressed files are copies of files that were read before, so they are
//! ignored.

/// A pod, from the name of its log directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodRef {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The uid of the pod, or the hash of its manifest for a static pod.
    pub(crate) uid: String,
}

impl PodRef {
    /// Parses the name of a directory. No part can contain an underscore.
    pub(crate) fn parse(directory: &str) -> Option<Self> {
        let mut parts = directory.split('_').map(str::to_owned);
        let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
        let is_whole = parts.next().is_none() && ![&namespace, &name, &uid].iter().any(|part| part.is_empty());
        is_whole.then_some(Self { namespace, name, uid })
    }

    /// Key of the pod in an informer's store.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A container's log file. Ordered like its lines were written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogName {
    /// Number of restarts of the container before this file.
    pub(crate) restarts: u32,
    pub(crate) age: Age,
}

/// Age of a file; rotated files are older than the current one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Age {
    /// Time of the rotation as in the name; sorts as text.
    Rotated(String),
    Current,
}

impl LogName {
    /// Parses the name of a file; `None` if it is not a log or is a compressed copy.
    pub(crate) fn parse(file: &str) -> Option<Self> {
        let (restarts, rest) = file.split_once(".log")?;
        let age = match rest.strip_prefix('.') {
            None if rest.is_empty() => Age::Current,
            Some(time) if is_rotation_time(time) => Age::Rotated(time.to_owned()),
            None | Some(_) => return None,
        };
        let is_number = restarts.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self { restarts: restarts.parse().ok().filter(|_| is_number)?, age })
    }
}

/// Returns true for the form `20261120-160000`.
fn is_rotation_time(text: &str) -> bool {
    let is_form = |(at, byte): (usize, u8)| if at == 8 { byte == b'-' } else { byte.is_ascii_digit() };
    text.len() == 15 && text.bytes().enumerate().all(is_form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_names_its_pod() {
        let pod = PodRef::parse("kube-system_coredns-5d78c9869d-abcde_0b3f-11").unwrap();
        assert_eq!((pod.key().as_str(), pod.uid.as_str()), ("kube-system/coredns-5d78c9869d-abcde", "0b3f-11"));
        for other in ["", "a", "a_b", "a_b_", "_b_c", "a__c", "a_b_c_d"] {
            assert_eq!(PodRef::parse(other), None, "{other}");
        }
    }

    #[test]
    fn files_sort_as_they_were_written() {
        let names =
            ["0.log.20261120-155959", "0.log.20261120-160000", "0.log", "1.log.20261120-155959", "1.log", "10.log"];
        let parsed: Vec<LogName> = names.iter().map(|name| LogName::parse(name).unwrap()).collect();
        assert!(parsed.is_sorted());
        assert_eq!(parsed[5].restarts, 10);
    }

    #[test]
    fn copies_and_other_files_are_no_logs() {
        for other in [
            "0.log.20261120-160000.gz",
            "0.log.20261120-160000.tmp",
            "0.log.1",
            "0.txt",
            ".log",
            "x.log",
            "+1.log",
            "0.logs",
        ] {
            assert_eq!(LogName::parse(other), None, "{other}");
        }
    }
}
