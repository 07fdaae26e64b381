//! `cache-server state`: the folder of `serve --upstream --state-dir`.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Subcommand};

use super::{FAILED, fail, fail_input};
use crate::cacher::drop_states;

/// Commands for a folder that no server uses.
#[derive(Debug, Args)]
pub(super) struct StateArgs {
    #[command(subcommand)]
    command: StateCommand,
}

#[derive(Debug, Subcommand)]
enum StateCommand {
    /// Remove saved states: the next server reads them from the API server. Its clients then read theirs here.
    Drop(DropStates),
}

#[derive(Debug, Args)]
struct DropStates {
    /// The folder of serve --state-dir. Required.
    #[arg(long, env = "CACHE_SERVER_STATE_DIR", value_name = "FOLDER", required = true)]
    state_dir: PathBuf,

    /// The type whose state is removed, such as pods or deployments.apps. Left out: those of all types.
    #[arg(long = "type", env = "CACHE_SERVER_TYPE", value_name = "TYPE")]
    ty: Option<String>,
}

/// Runs the command; prints one line.
pub(super) fn run(state: &StateArgs) -> ExitCode {
    let StateCommand::Drop(DropStates { state_dir, ty }) = &state.command;
    if !state_dir.is_dir() {
        return fail_input(&format!("{}: there is no such folder", state_dir.display()));
    }
    match drop_states(state_dir, ty.as_deref()) {
        Ok(number) => {
            let _ = writeln!(io::stdout(), "dropped {number} saved states");
            ExitCode::SUCCESS
        }
        Err(error) => fail(FAILED, &error.to_string()),
    }
}
