//! The serving certificate of the program `kube-apiserver`: given by flags, found in its folder, or made there.
//!
//! Source: apiserver `pkg/server/options/serving.go`, `MaybeDefaultWithSelfSignedCerts`.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::flags::ProgramFlags;
use crate::config::TlsFiles;

/// Names of the API server inside a cluster, and on this machine.
const NAMES: [&str; 5] =
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];

/// Returns the certificate that the flags name. Without such flags, that of the folder `--cert-dir`, which gets a
/// self-signed one if it has none.
///
/// # Errors
/// One line.
pub(super) fn files(flags: &ProgramFlags, address: IpAddr) -> Result<TlsFiles, String> {
    if let (Some(cert), Some(key)) = (flags.last("tls-cert-file"), flags.last("tls-private-key-file")) {
        return Ok(TlsFiles { cert: cert.into(), key: key.into() });
    }
    let folder = PathBuf::from(flags.last("cert-dir").unwrap_or("/var/run/kubernetes"));
    let files = TlsFiles { cert: folder.join("apiserver.crt"), key: folder.join("apiserver.key") };
    if !files.cert.exists() && !files.key.exists() {
        make(&folder, &files, address).map_err(|error| format!("no certificate in {}: {error}", folder.display()))?;
    }
    Ok(files)
}

fn make(folder: &Path, files: &TlsFiles, address: IpAddr) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let names: Vec<String> =
        NAMES.iter().map(ToString::to_string).chain([address.to_string(), "127.0.0.1".to_owned()]).collect();
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    // The key comes first, so that a program that waits for the certificate finds both.
    let mut key = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&files.key)?;
    key.write_all(made.signing_key.serialize_pem().as_bytes())?;
    fs::write(&files.cert, made.cert.pem())
}
