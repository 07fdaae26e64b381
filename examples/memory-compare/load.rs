//! The load process: all clients but the measured one, started by a line on stdin and kept open until stdin is closed.

use std::{
    io::{BufRead as _, Read as _},
    time::Instant,
};

use clap::Args;
use measured::Failure;
use serde::{Deserialize, Serialize};

use crate::{
    checksum::Checksum,
    fetch::{Fetch, Fetched},
    plan::Mode,
};

/// Arguments from the parent process.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    address: String,
    #[arg(long)]
    mode: Mode,
    #[arg(long)]
    clients: usize,
    #[arg(long)]
    slow_readers: usize,
    #[arg(long)]
    slow_rate: usize,
}

/// Results of the clients, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) checksums: Vec<Checksum>,
    pub(crate) errors: Vec<String>,
    /// Time until the last client has all objects.
    pub(crate) synced_ms: f64,
}

/// Runs all clients at once.
pub(crate) fn main(arguments: &Arguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;
    let start = Instant::now();
    let fetched = runtime.block_on(all(arguments));
    let synced = start.elapsed();
    let outcome = Outcome {
        checksums: fetched.iter().flatten().map(|fetched| fetched.checksum).collect(),
        errors: fetched.iter().filter_map(|fetched| fetched.as_ref().err().map(ToString::to_string)).collect(),
        synced_ms: synced.as_secs_f64() * 1e3,
    };
    println!("{}", serde_json::to_string(&outcome)?);
    // Watches stay open until the parent has measured the server.
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    drop(fetched);
    Ok(())
}

async fn all(arguments: &Arguments) -> Vec<Result<Fetched, Failure>> {
    let clients = (0..arguments.clients).map(|client| {
        let rate = (client < arguments.slow_readers).then_some(arguments.slow_rate);
        let fetch = Fetch { address: arguments.address.clone(), mode: arguments.mode, rate };
        async move { fetch.run().await }
    });
    futures::future::join_all(clients).await
}
