//! `cache-server storage`: checks and compacts the folder of `serve --data-dir`.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};

use super::{FAILED, fail};
use crate::storage::durable::{DataFolderError, upkeep};

/// Commands for a folder that no server uses.
#[derive(Debug, Args)]
pub(super) struct Storage {
    #[command(subcommand)]
    command: StorageCommand,
}

#[derive(Debug, Subcommand)]
enum StorageCommand {
    /// Read all of the file, check it, and print what it has.
    Check(DataFolder),
    /// Make the file as small as its content.
    Compact(DataFolder),
}

#[derive(Debug, Args)]
struct DataFolder {
    /// The folder of serve --data-dir.
    #[arg(env = "CACHE_SERVER_DATA_DIR", value_name = "FOLDER")]
    folder: PathBuf,
}

/// Runs the command; prints one line.
pub(super) fn run(storage: &Storage) -> ExitCode {
    let said = match &storage.command {
        StorageCommand::Check(DataFolder { folder }) => check(folder),
        StorageCommand::Compact(DataFolder { folder }) => compact(folder),
    };
    match said {
        Ok(line) => {
            let _ = writeln!(io::stdout(), "{line}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(FAILED, &error.to_string()),
    }
}

fn check(folder: &Path) -> Result<String, DataFolderError> {
    let found = upkeep::check(folder)?;
    Ok(format!(
        "ok: {} objects, {} changes from resourceVersion {} to {}, {} bytes",
        found.objects, found.changes, found.base, found.revision, found.bytes
    ))
}

fn compact(folder: &Path) -> Result<String, DataFolderError> {
    let bytes = upkeep::compact(folder)?;
    Ok(format!("{} bytes, before {}", bytes.after, bytes.before))
}
