//! The program with client-go, in `benches/rivals/client-go`.

use std::{path::PathBuf, process::Command};

use crate::{Failure, client::Kind, components::COMPONENTS};

/// Exit code of `prepare` if a toolchain or a module is missing.
const NOT_HERE: i32 = 3;

/// Builds the program and returns its path; `None`, with a line that names the reason, if Go is not there.
///
/// # Errors
/// The program does not compile.
pub(crate) fn built() -> Result<Option<PathBuf>, Failure> {
    let made = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/client-go/prepare")).output()?;
    let reason = String::from_utf8_lossy(&made.stderr);
    match made.status.code() {
        Some(0) => Ok(Some(PathBuf::from(String::from_utf8(made.stdout)?.trim_end()))),
        Some(NOT_HERE) => {
            println!("\nclient-go skipped: {}", reason.trim_end());
            Ok(None)
        }
        Some(_) | None => Err(format!("client-go/prepare failed: {reason}").into()),
    }
}

/// Arguments of the program besides the server; `None` for clients that are no program with client-go.
pub(crate) fn arguments(kind: Kind) -> Option<Vec<String>> {
    if kind == Kind::ClientGo {
        Some(Vec::new())
    } else if kind == Kind::ClientGoProtobuf {
        Some(vec!["--protobuf".to_owned()])
    } else if kind == Kind::ClientGoTrimmed {
        Some(vec!["--trimmed".to_owned()])
    } else if kind == Kind::ClientGoComponents {
        Some(vec!["--trimmed".to_owned(), format!("--handlers={COMPONENTS}")])
    } else {
        None
    }
}
