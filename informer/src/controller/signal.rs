//! Signals that end a program.

use futures::{
    FutureExt as _,
    future::{BoxFuture, select},
};

/// Resolves when a shutdown begins, with a future that resolves once the shutdown must not wait any longer.
pub(super) type Shutdown = BoxFuture<'static, BoxFuture<'static, ()>>;

/// Begins with the first of two shutdowns. After that, either can end the wait.
pub(super) fn either(one: Shutdown, other: Shutdown) -> Shutdown {
    let both = select(one, other).map(|first| {
        let (abort, rest) = first.factor_first();
        select(abort, rest.flatten()).map(drop).boxed()
    });
    both.boxed()
}

/// Waits for SIGTERM, which the kubelet and systemd send before they kill, or for SIGINT (Ctrl+C). Outside Unix, for
/// Ctrl+C alone.
///
/// Listens from its first poll on. From then on these signals do not end the process any more: the program must. Waits
/// forever if the system does not allow handlers, which is logged.
///
/// # Panics
/// If the tokio runtime has no I/O driver (`enable_all`).
pub async fn shutdown_signal() {
    drop(shutdown_on_signals().await);
}

/// Begins a shutdown at the first signal, and ends its wait at the second.
pub(super) async fn shutdown_on_signals() -> BoxFuture<'static, ()> {
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "signal handler not installed");
            return std::future::pending().await;
        }
    };
    let signal = signals.received().await;
    tracing::info!(signal, "shutdown signal received");
    let abort = async move {
        let signal = signals.received().await;
        tracing::warn!(signal, "second shutdown signal received");
    };
    abort.boxed()
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal, and returns its name.
    async fn received(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(windows)]
struct Signals(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn received(&mut self) -> &'static str {
        self.0.recv().await;
        "Ctrl+C"
    }
}
