//! `cache-server storage`: checks, compacts, exports and imports the folder of `serve --data-dir`, and imports into etcd.
//!
//! INVARIANT: an output file appears under its name only when it is whole, and replaces another one only on request. INVARIANT: files to import are read to their
//! ends before the store is opened.

use std::{
    fs,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::{Args, Subcommand};

#[cfg(feature = "etcd")]
use super::etcd::EtcdFlags;
use super::{BAD_INPUT, FAILED, fail, log};
use crate::{
    app::App,
    config::Config,
    storage::{
        Store,
        backup::{self, ExportError, ExportFormat},
        durable::{DataFolderError, DurableStorage, upkeep},
        folder,
    },
    stored::ExistingObjects,
    workload::manifests::{self, ManifestCount},
};
#[cfg(feature = "etcd")]
use crate::{
    config::EtcdConfig,
    storage::etcd::{EtcdAccess, EtcdStorage},
};

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
    /// Write all objects to a file or to stdout. The folder stays as it is.
    Export(Export),
    /// Write the objects of files into a folder, which is created if it is missing, or into etcd.
    #[command(
        override_usage = "cache-server storage import [OPTIONS] FOLDER FILE…\n       cache-server storage import [OPTIONS] --etcd-endpoints URL,… FILE…"
    )]
    Import(Import),
}

#[derive(Debug, Args)]
struct DataFolder {
    /// The folder of serve --data-dir.
    #[arg(env = "CACHE_SERVER_DATA_DIR", value_name = "FOLDER")]
    folder: PathBuf,
}

#[derive(Debug, Args)]
struct Export {
    #[command(flatten)]
    source: DataFolder,

    /// Form of the objects. manifests: JSON documents for serve --load and kubectl apply, without resourceVersion and
    /// managedFields. snapshot: exactly as they are stored, for storage import.
    #[arg(long, env = "CACHE_SERVER_FORMAT", value_name = "FORMAT", value_enum, default_value = "manifests")]
    format: ExportFormat,

    /// File to write, with mode 0600; it appears when the export is whole. -: stdout.
    #[arg(long, env = "CACHE_SERVER_OUTPUT", value_name = "FILE", default_value = "-")]
    output: PathBuf,

    /// Replace the file if it exists. Left out: an existing file is an error.
    #[arg(long, env = "CACHE_SERVER_FORCE")]
    force: bool,
}

#[derive(Debug, Args)]
struct Import {
    /// The folder of serve --data-dir, unless --etcd-endpoints is given; then snapshots, or manifests (YAML or JSON, files
    /// or folders), but not both. Required.
    #[arg(env = "CACHE_SERVER_FILES", value_name = "PATH", required = true, num_args = 1..)]
    paths: Vec<PathBuf>,

    /// Replace objects that exist. Left out: if any object exists, none is written.
    #[arg(long, env = "CACHE_SERVER_OVERWRITE")]
    overwrite: bool,

    #[cfg(feature = "etcd")]
    #[command(flatten)]
    etcd: EtcdFlags,
}

/// A store to import into.
enum ImportTarget<'a> {
    Folder(&'a Path),
    #[cfg(feature = "etcd")]
    Etcd(EtcdConfig),
}

impl Import {
    /// Returns the store, and the files.
    fn target(&self) -> Result<(ImportTarget<'_>, &[PathBuf]), CommandError> {
        #[cfg(feature = "etcd")]
        if let Some(etcd) = self.etcd.config() {
            return Ok((ImportTarget::Etcd(etcd), &self.paths));
        }
        match self.paths.split_first() {
            Some((folder, files)) if !files.is_empty() => Ok((ImportTarget::Folder(folder), files)),
            _ => Err(CommandError(BAD_INPUT, "give the folder, then at least one file".to_owned())),
        }
    }
}

impl ImportTarget<'_> {
    async fn open(&self) -> Result<Arc<dyn Store>, CommandError> {
        match self {
            Self::Folder(folder) => {
                let folder = folder.to_path_buf();
                let opened = tokio::task::spawn_blocking(move || DurableStorage::open(&folder, None)).await;
                Ok(Arc::new(opened.expect("opening catches panics")?))
            }
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => {
                let store = EtcdStorage::open(etcd).await.map_err(coded(FAILED))?;
                match store.access() {
                    EtcdAccess::Owner | EtcdAccess::Guest => Ok(Arc::new(store)),
                    EtcdAccess::ReadOnly => Err(CommandError(
                        FAILED,
                        "its objects are another program's: see --etcd-allow-writes".to_owned(),
                    )),
                }
            }
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Folder(folder) => folder.display().to_string(),
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => etcd.endpoints.join(","),
        }
    }
}

/// Reason why a command failed: the exit code, and one line.
struct CommandError(u8, String);

impl From<DataFolderError> for CommandError {
    fn from(error: DataFolderError) -> Self {
        Self(FAILED, error.to_string())
    }
}

/// Returns the function that makes an error with `code`.
fn coded<E: ToString>(code: u8) -> impl Fn(E) -> CommandError {
    move |error| CommandError(code, error.to_string())
}

/// Runs the command; prints one line, unless an export goes to stdout.
pub(super) async fn run(storage: &Storage) -> ExitCode {
    log::install(&log::filter_default(), log::LogFormat::Text);
    let done = match &storage.command {
        StorageCommand::Check(DataFolder { folder }) => check(folder).map(Some),
        StorageCommand::Compact(DataFolder { folder }) => compact(folder).map(Some),
        StorageCommand::Export(settings) => export(settings).await,
        StorageCommand::Import(settings) => import(settings).await.map(Some),
    };
    match done {
        Ok(line) => {
            if let Some(line) = line {
                let _ = writeln!(io::stdout(), "{line}");
            }
            ExitCode::SUCCESS
        }
        Err(CommandError(code, line)) => fail(code, &line),
    }
}

fn check(folder: &Path) -> Result<String, CommandError> {
    let found = upkeep::check(folder)?;
    Ok(format!(
        "ok: {} objects, {} changes from resourceVersion {} to {}, {} bytes",
        found.objects, found.changes, found.base, found.revision, found.bytes
    ))
}

fn compact(folder: &Path) -> Result<String, CommandError> {
    let bytes = upkeep::compact(folder)?;
    Ok(format!("{} bytes, before {}", bytes.after, bytes.before))
}

/// Exports a folder; returns the line to print.
async fn export(settings: &Export) -> Result<Option<String>, CommandError> {
    let to_stdout = settings.output == Path::new("-");
    if !to_stdout {
        check_output(&settings.output, settings.force)?;
    }
    let store = DurableStorage::read(&settings.source.folder)?;
    if to_stdout {
        let mut out = BufWriter::new(io::stdout());
        write_whole(&store, settings.format, &mut out).await?;
        return Ok(None);
    }
    let at = |error: io::Error| CommandError(FAILED, format!("{}: {error}", settings.output.display()));
    let beside = with_suffix(&settings.output, ".new");
    let file = folder::private().create(true).truncate(true).open(&beside).map_err(at)?;
    let mut out = BufWriter::new(&file);
    let written = write_whole(&store, settings.format, &mut out).await;
    drop(out);
    let moved = written.and_then(|objects| {
        file.sync_all().and_then(|()| fs::rename(&beside, &settings.output)).map_err(at)?;
        Ok(objects)
    });
    if moved.is_err() {
        // The error that counts is the one before.
        let _ = fs::remove_file(&beside);
    }
    moved.map(|objects| Some(format!("exported {objects} objects to {}", settings.output.display())))
}

/// Refuses to replace a file, unless that is wanted, and anything else that exists.
fn check_output(path: &Path, may_replace: bool) -> Result<(), CommandError> {
    let problem = match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => "it exists and is no file",
        Ok(_) if !may_replace => "it exists already; --force replaces it",
        Ok(_) | Err(_) => return Ok(()),
    };
    Err(CommandError(BAD_INPUT, format!("{}: {problem}", path.display())))
}

/// Writes all objects. A folder with objects that cannot be read is an error, because the output lacks them.
async fn write_whole(
    store: &DurableStorage,
    format: ExportFormat,
    out: &mut (dyn io::Write + Send),
) -> Result<u64, CommandError> {
    let objects = backup::write_all(store, format, out).await.map_err(|error: ExportError| coded(FAILED)(error))?;
    match store.unreadable() {
        0 => Ok(objects),
        lost => Err(CommandError(FAILED, format!("{lost} stored versions cannot be read: restore a backup"))),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Imports files; returns the line to print.
async fn import(settings: &Import) -> Result<String, CommandError> {
    let (target, files) = settings.target()?;
    let existing = if settings.overwrite { ExistingObjects::Overwrite } else { ExistingObjects::Refuse };
    let mut snapshots = 0;
    for file in files {
        let is_folder = file.is_dir();
        snapshots += usize::from(!is_folder && backup::is_snapshot(file).map_err(coded(BAD_INPUT))?);
    }
    let objects = if snapshots == files.len() {
        backup::verify(files).map_err(coded(BAD_INPUT))?;
        let store = target.open().await?;
        backup::into_store(&*store, files, existing).await.map_err(|error| import_error(&error))?
    } else if snapshots == 0 {
        manifests::verify(files).map_err(coded(BAD_INPUT))?;
        import_manifests(target.open().await?, files, existing).await?
    } else {
        return Err(CommandError(BAD_INPUT, "give snapshots or manifests, not both".to_owned()));
    };
    Ok(format!("imported {objects} objects into {}", target.name()))
}

fn import_error(error: &backup::ImportError) -> CommandError {
    let is_input = matches!(error, backup::ImportError::File(_));
    CommandError(if is_input { BAD_INPUT } else { FAILED }, error.to_string())
}

/// Creates the objects of manifests as a server does.
async fn import_manifests(
    store: Arc<dyn Store>,
    files: &[PathBuf],
    existing: ExistingObjects,
) -> Result<u64, CommandError> {
    let app = App::with_storage(Config::default(), store);
    app.definitions.settle().await;
    let ManifestCount { objects, existing: taken, first } =
        manifests::count(&app, files).await.map_err(coded(BAD_INPUT))?;
    if let Some(first) = first.filter(|_| existing == ExistingObjects::Refuse) {
        let error = backup::ImportError::Exist { count: taken as u64, first };
        return Err(import_error(&error));
    }
    let mut written = 0;
    let created = manifests::into_storage(&app, files, existing, &mut written).await;
    let failed = |error| CommandError(FAILED, format!("{written} of {objects} objects were written, then {error}"));
    created.map_err(failed)?;
    Ok(written as u64)
}
