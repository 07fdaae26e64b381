//! A folder for `KUBEBUILDER_ASSETS`: this program under the names by which controller-runtime's envtest starts a control
//! plane.
//!
//! INVARIANT: a flag of kube-apiserver or etcd that has no effect here is accepted, and never a reason not to start.

mod apiserver;
mod certificate;
mod etcd;
mod flags;

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Write as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{self, ExitCode},
};

use clap::Args;
use tokio::runtime::Runtime;

use self::flags::ProgramFlags;
use super::{FAILED, fail, fail_input};

#[derive(Debug, Args)]
pub(super) struct Assets {
    /// The folder, created if it is missing. Required.
    #[arg(long, env = "CACHE_SERVER_ASSETS_DIR", value_name = "FOLDER", required = true)]
    dir: PathBuf,

    /// The kubectl that the folder names. Left out: the first one of PATH, or none.
    #[arg(long, env = "CACHE_SERVER_ASSETS_KUBECTL", value_name = "FILE")]
    kubectl: Option<PathBuf>,
}

/// A program that this one acts as when it is started by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// Serves the API, with its objects in memory.
    KubeApiserver,
    /// Reports that it is healthy, and stores nothing.
    Etcd,
}

const PROGRAMS: [Program; 2] = [Program::KubeApiserver, Program::Etcd];

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::KubeApiserver => "kube-apiserver",
            Self::Etcd => "etcd",
        }
    }

    /// Returns the program with the name by which this process was started.
    pub(super) fn started_as(arguments: &[OsString]) -> Option<Self> {
        let name = Path::new(arguments.first()?).file_name()?;
        PROGRAMS.into_iter().find(|program| name == program.name())
    }

    /// Runs the program with its own flags until a signal ends it. envtest searches its help for the flags that it may use.
    pub(super) fn run(self, arguments: &[OsString], runtime: &Runtime) -> ExitCode {
        let flags = match ProgramFlags::parse(arguments.get(1..).unwrap_or_default()) {
            Ok(flags) => flags,
            Err(problem) => return fail_input(&problem),
        };
        let (used, ignored) = match self {
            Self::KubeApiserver => (apiserver::USED, apiserver::IGNORED),
            Self::Etcd => (etcd::USED, etcd::IGNORED),
        };
        if flags.has("help") || flags.has("h") {
            let lines: String = used.iter().chain(ignored).map(|name| format!("      --{name}\n")).collect();
            let _ = write!(io::stdout(), "{} of cache-server.\n\nFlags:\n{lines}", self.name());
            return ExitCode::SUCCESS;
        }
        let unknown: Vec<String> = flags.others(&[used, ignored].concat()).map(|name| format!("--{name}")).collect();
        if !unknown.is_empty() {
            let _ = writeln!(io::stderr(), "{}: without effect here: {}", self.name(), unknown.join(" "));
        }
        match self {
            Self::KubeApiserver => apiserver::run(&flags, runtime),
            Self::Etcd => etcd::run(&flags, runtime),
        }
    }
}

/// Writes the folder, and prints its absolute path for `KUBEBUILDER_ASSETS`.
pub(super) fn run(options: &Assets) -> ExitCode {
    let written = write_folder(options);
    match written {
        Ok(folder) => {
            let _ = writeln!(io::stdout(), "{}", folder.display());
            ExitCode::SUCCESS
        }
        Err(error) => fail(FAILED, &format!("cannot write to {}: {error}", options.dir.display())),
    }
}

fn write_folder(options: &Assets) -> io::Result<PathBuf> {
    fs::create_dir_all(&options.dir)?;
    let folder = fs::canonicalize(&options.dir)?;
    let this = env::current_exe()?;
    for program in PROGRAMS {
        link(&this, &folder.join(program.name()))?;
    }
    let kubectl = options.kubectl.clone().or_else(|| found_in_path("kubectl", &folder));
    if let Some(kubectl) = kubectl {
        link(&fs::canonicalize(kubectl)?, &folder.join("kubectl"))?;
    }
    Ok(folder)
}

/// Returns the first program of that name in PATH that is not in `folder` itself.
fn found_in_path(name: &str, folder: &Path) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    let mut files = env::split_paths(&folders).filter(|place| place != folder).map(|place| place.join(name));
    files.find(|file| file.is_file())
}

/// Links `place` to `program`, in one step: another process may do the same at the same time. Replaces only links.
fn link(program: &Path, place: &Path) -> io::Result<()> {
    if fs::symlink_metadata(place).is_ok_and(|found| !found.is_symlink()) {
        let name = place.file_name().unwrap_or_default().display();
        return Err(io::Error::other(format!("{name} is there, and no link of an earlier run")));
    }
    let fresh = place.with_extension(format!("{}.new", process::id()));
    symlink(program, &fresh)?;
    fs::rename(&fresh, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_is_that_of_its_file() {
        let started = |name: &str| Program::started_as(&[name.into(), "--help".into()]);
        assert_eq!(started("/a/b/kube-apiserver"), Some(Program::KubeApiserver));
        assert_eq!(started("etcd"), Some(Program::Etcd));
        assert_eq!((started("/etcd/cache-server"), Program::started_as(&[])), (None, None));
    }

    /// Goal: `assets` replaces its own links, and no program. Method: write a folder twice, then one with a file.
    #[test]
    fn a_folder_is_written_again_but_programs_in_it_stay() {
        let folder = tempfile::tempdir().unwrap();
        let kubectl = folder.path().join("a-kubectl");
        fs::write(&kubectl, "").unwrap();
        let options = |dir: &str| Assets { dir: folder.path().join(dir), kubectl: Some(kubectl.clone()) };
        for _ in 0..2 {
            let written = write_folder(&options("new")).unwrap();
            let links: Vec<PathBuf> = ["etcd", "kube-apiserver"].map(|name| written.join(name)).to_vec();
            assert!(links.iter().all(|link| fs::read_link(link).unwrap() == env::current_exe().unwrap()));
            assert_eq!(fs::read_link(written.join("kubectl")).unwrap(), fs::canonicalize(&kubectl).unwrap());
            assert_eq!(fs::read_dir(written).unwrap().count(), 3);
        }
        fs::create_dir(folder.path().join("old")).unwrap();
        fs::write(folder.path().join("old/etcd"), "a program").unwrap();
        let refused = write_folder(&options("old")).unwrap_err().to_string();
        assert!(refused.contains("etcd is there"), "{refused}");
        assert_eq!(fs::read_to_string(folder.path().join("old/etcd")).unwrap(), "a program");
    }
}
