//! Memory of the server's sockets, from the output of `ss`, which queries the kernel by netlink.

use std::{io, process::Command};

use serde::Serialize;

/// Connected sockets of a local port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sockets {
    /// Number of sockets.
    pub count: u64,
    /// Kernel memory of written data that is not acknowledged: `w`.
    pub unsent_bytes: u64,
    /// Kernel memory of received data that is not read: `r`.
    pub unread_bytes: u64,
}

/// Runs `ss` once.
///
/// # Errors
/// `ss` is missing or fails.
pub(super) fn look(port: u16) -> io::Result<Sockets> {
    let output = Command::new("ss").args(["-tmnH", "state", "connected"]).arg(format!("sport = :{port}")).output()?;
    if !output.status.success() {
        return Err(io::Error::other("ss fails"));
    }
    Ok(read(&String::from_utf8_lossy(&output.stdout)))
}

fn read(text: &str) -> Sockets {
    let mut all = Sockets::default();
    for memory in text.split("skmem:(").skip(1).filter_map(|rest| rest.split(')').next()) {
        all.count += 1;
        for field in memory.split(',') {
            // A prefix alone is ambiguous, since `rb` begins with `r`; the remainder must be digits.
            let number = |name| field.strip_prefix(name).and_then(|digits: &str| digits.parse::<u64>().ok());
            all.unsent_bytes += number('w').unwrap_or_default();
            all.unread_bytes += number('r').unwrap_or_default();
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_sockets_is_summed() {
        let text = "ESTAB 0 0 127.0.0.1:8001 127.0.0.1:40000\n\t skmem:(r1,rb131072,t0,tb2626560,f3328,w768,o0,bl0,d0)\n\
                    ESTAB 0 9 127.0.0.1:8001 127.0.0.1:40001 skmem:(r2,rb1,t9,tb1,f0,w10000,o0,bl0,d0)\n";
        assert_eq!(read(text), Sockets { count: 2, unsent_bytes: 10_768, unread_bytes: 3 });
        assert_eq!(read(""), Sockets::default());
    }
}
