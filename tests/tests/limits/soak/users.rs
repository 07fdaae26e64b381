//! The users of a soak, whose tokens are replaced again and again.
//!
//! INVARIANT: the token file always has the tokens that clients send now, and those before until the next replacement:
//! a server reads its own token again within a minute. Then the server ends watches that were opened with them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use tests::http::Client;
use tokio::time::sleep;

use super::PATIENCE;

/// Number of users, and the path that shows that a server knows a token.
const USERS: usize = 20;
const PROBE: &str = "/api/v1/namespaces/none/configmaps?resourceVersion=0";

pub(crate) struct Users {
    /// The servers' token file.
    file: PathBuf,
    /// File with the token of the server in front.
    own: PathBuf,
    /// Number of replacements.
    generation: AtomicUsize,
}

fn token_of(user: usize, generation: usize) -> String {
    format!("token-{user}-{generation}")
}

impl Users {
    /// Writes the first tokens.
    pub(crate) fn write(file: PathBuf, own: PathBuf) -> Self {
        let users = Self { file, own, generation: 0.into() };
        users.write_tokens(0);
        users
    }

    /// Writes the tokens of a generation, of the one before and of the next.
    fn write_tokens(&self, generation: usize) {
        let line = |user, generation| format!("{},user-{user},{user},\"team\"\n", token_of(user, generation));
        let valid = generation.saturating_sub(1)..=generation + 1;
        let lines = valid.flat_map(|generation| (0..USERS).map(move |user| line(user, generation)));
        replace(&self.file, &lines.collect::<String>());
        replace(&self.own, &token_of(0, generation));
    }

    /// Token of a user that is valid now.
    pub(crate) fn token_of(&self, user: usize) -> String {
        token_of(user % USERS, self.generation.load(Ordering::SeqCst))
    }

    /// Replaces all tokens: the next ones are known already, and those before the last ones become invalid.
    pub(crate) async fn renew(&self, servers: &[Client]) {
        let next = self.generation.load(Ordering::SeqCst) + 1;
        self.generation.store(next, Ordering::SeqCst);
        self.write_tokens(next);
        let begun = Instant::now();
        // The tokens after these are in the file as well: a server that takes one has read it.
        for server in servers {
            let client = server.with_token(&token_of(1, next + 1));
            while !client.try_get(PROBE).await.is_ok_and(|answer| answer.code == 200) {
                assert!(begun.elapsed() < PATIENCE, "a server does not know the new tokens");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Replaces a file at once, as tools that write secrets do.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).expect("a file");
    fs::rename(beside, path).expect("a file");
}
