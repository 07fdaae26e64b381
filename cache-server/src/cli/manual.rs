//! Documents for the shell, rendered from the definition of the flags: completions and manual pages.

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Arguments, FAILED, fail};

/// Name of the program, and of its first manual page.
const PROGRAM: &str = "cache-server";

/// Print the completions of a shell: `source <(cache-server completions bash)`.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell.
    shell: Shell,
}

/// Print the manual page, or write all of them.
#[derive(Debug, Args)]
pub(super) struct Manual {
    /// Folder to write a page for the program and for each command to, such as `/usr/local/share/man/man1`. Created if it is
    /// missing. Left out: the program's page is printed.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

pub(super) fn completions(options: &Completions) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Arguments::command(), PROGRAM, &mut script);
    print(&script)
}

pub(super) fn manual(options: &Manual) -> ExitCode {
    let program = Arguments::command();
    if let Some(folder) = &options.dir {
        let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(program, folder));
        return match written {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(FAILED, &format!("cannot write to {}: {error}", folder.display())),
        };
    }
    let mut page = Vec::new();
    match clap_mangen::Man::new(program).render(&mut page) {
        Ok(()) => print(&page),
        Err(error) => fail(FAILED, &format!("cannot render the page: {error}")),
    }
}

/// A reader that has seen enough, such as `head`, is no failure.
fn print(document: &[u8]) -> ExitCode {
    match io::stdout().write_all(document) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => fail(FAILED, &format!("cannot print: {error}")),
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}
