//! Signals that end a program.

/// Waits for SIGTERM, which the kubelet and systemd send before they kill, or for SIGINT (Ctrl+C). Outside Unix, for
/// Ctrl+C alone.
///
/// Listens from its first poll on. From then on these signals do not end the process any more: the program must. Waits
/// forever if the system does not allow handlers, which is logged.
///
/// # Panics
/// If the tokio runtime has no I/O driver (`enable_all`).
pub async fn shutdown_signal() {
    if let Err(error) = received().await {
        tracing::error!(%error, "signal handler not installed");
        std::future::pending::<()>().await;
    }
}

#[cfg(unix)]
async fn received() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tracing::info!(signal = name, "shutdown signal received");
    Ok(())
}

#[cfg(not(unix))]
async fn received() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
