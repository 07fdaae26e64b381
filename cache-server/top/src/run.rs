//! The command: one frame of text, or a screen that is drawn until a key or a signal ends it.
//!
//! INVARIANT: the terminal is restored before [`TopSettings::watch`] returns or unwinds.

use std::{io, pin::pin, thread, time::Duration};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event},
};
use tokio::{sync::mpsc, time::sleep};

use crate::{
    client::{TopClient, TopServer, TopSettingsError},
    draw::draw,
    frame::ReadingHistory,
    reading::{PartResult, ServerReading},
    screen::{KeyOutcome, ScreenState},
};

/// Settings of the command.
#[derive(Clone, Debug)]
pub struct TopSettings {
    /// The server.
    pub server: TopServer,
    /// Time between two readings.
    pub interval: Duration,
}

/// Failure of the command: one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopError {
    /// Unusable settings.
    #[error(transparent)]
    Settings(#[from] TopSettingsError),
    /// The server cannot be read.
    #[error("cannot read {url}: {reason}")]
    Server {
        /// The server's address.
        url: String,
        /// The transport's error.
        reason: String,
    },
    /// The terminal cannot be used.
    #[error("cannot draw: {0}")]
    Terminal(#[from] io::Error),
}

/// Time between two checks whether the command ended, for the thread that reads keys.
const KEY_WAIT: Duration = Duration::from_millis(200);

/// Events of the keyboard that wait for their turn.
const KEYS_MAX: usize = 64;

impl TopSettings {
    /// Returns one frame as plain text.
    ///
    /// # Errors
    /// [`TopError`].
    pub async fn once(self) -> Result<String, TopError> {
        let url = self.server.url.to_string();
        let client = TopClient::new(self.server)?;
        let mut history = ReadingHistory::default();
        history.add(client.read().await.map_err(|reason| TopError::Server { url: url.clone(), reason })?);
        Ok(history.frame(&url, None).text())
    }

    /// Draws frames on the terminal until a key or `stop` ends it.
    ///
    /// # Errors
    /// [`TopError`]. A server that cannot be reached is none: the screen says so, and it is tried again.
    pub async fn watch(self, stop: impl Future<Output = ()>) -> Result<(), TopError> {
        let client = TopClient::new(self.server.clone())?;
        // Before `try_init`, which can fail halfway.
        let _restored = RestoredTerminal;
        // Also restores the terminal before a panic is printed.
        let terminal = ratatui::try_init()?;
        self.run(&client, terminal, stop).await
    }

    async fn run(
        &self,
        client: &TopClient,
        mut terminal: DefaultTerminal,
        stop: impl Future<Output = ()>,
    ) -> Result<(), TopError> {
        let url = self.server.url.to_string();
        let mut stop = pin!(stop);
        let mut keys = keys();
        let (mut history, mut state) = (ReadingHistory::default(), ScreenState::default());
        let mut frame = history.frame(&url, Some("connecting"));
        let mut reading = Box::pin(reading_after(client, Duration::ZERO));
        loop {
            terminal.draw(|target| draw(target, &frame, &mut state))?;
            tokio::select! {
                () = &mut stop => return Ok(()),
                event = keys.recv() => match event {
                    Some(Ok(Event::Key(key))) => {
                        if state.press(key, &frame) == KeyOutcome::Quit {
                            return Ok(());
                        }
                    }
                    Some(Err(error)) => return Err(error.into()),
                    // Drawn again, in the size of the terminal.
                    Some(Ok(_)) => {}
                    None => return Ok(()),
                },
                result = &mut reading => {
                    frame = match result {
                        Ok(result) => {
                            history.add(result);
                            history.frame(&url, None)
                        }
                        Err(reason) => history.frame(&url, Some(&format!("{reason}; connecting again"))),
                    };
                    reading = Box::pin(reading_after(client, self.interval));
                }
            }
        }
    }
}

async fn reading_after(client: &TopClient, pause: Duration) -> PartResult<ServerReading> {
    sleep(pause).await;
    client.read().await
}

/// Restores the terminal when it is dropped.
struct RestoredTerminal;

impl Drop for RestoredTerminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Starts a thread that reads the keyboard, until the receiver is dropped. tokio has no terminal, and a blocked task
/// would stop a worker.
fn keys() -> mpsc::Receiver<io::Result<Event>> {
    let (sender, receiver) = mpsc::channel(KEYS_MAX);
    thread::spawn(move || {
        while !sender.is_closed() {
            let event = match event::poll(KEY_WAIT) {
                Ok(true) => event::read(),
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            let is_over = event.is_err();
            if sender.blocking_send(event).is_err() || is_over {
                return;
            }
        }
    });
    receiver
}
