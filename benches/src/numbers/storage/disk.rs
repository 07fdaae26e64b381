//! The disk under the storages: what one sync for each batch allows.

use std::{
    fs::File,
    io::Write as _,
    process::Command,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    Failure,
    writes::{DATA_BYTES, WRITERS},
};
use crate::numbers::processes;

/// Rate of synced batches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct DiskSpeed {
    /// Type of the file system.
    pub(super) file_system: String,
    /// Writes a second if each batch has one write of each client, and one fdatasync.
    pub(super) writes_per_second: f64,
}

impl DiskSpeed {
    /// Appends batches to a file in the folder of the run, and syncs each.
    ///
    /// # Errors
    /// [`Failure::Server`] if the folder is in memory.
    pub(super) fn measure(time: Duration) -> Result<Self, Failure> {
        let folder = processes::folder()?;
        let output = Command::new("stat").args(["-f", "-c", "%T"]).arg(folder.path()).output()?;
        let file_system = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if file_system == "tmpfs" {
            let text = format!("{} is in memory: set TMPDIR to a folder on a disk", folder.path().display());
            return Err(Failure::Server(text));
        }
        let mut file = File::create(folder.path().join("batches"))?;
        let batch = vec![b'x'; WRITERS * DATA_BYTES];
        let (begun, mut batches) = (Instant::now(), 0_u32);
        while begun.elapsed() < time {
            file.write_all(&batch)?;
            file.sync_data()?;
            batches += 1;
        }
        let writers = u32::try_from(WRITERS).unwrap_or(u32::MAX);
        let writes_per_second = f64::from(batches) * f64::from(writers) / begun.elapsed().as_secs_f64();
        Ok(Self { file_system, writes_per_second })
    }
}
