//! The part of each user in what all users share, besides seats: memory of request bodies, open watches, requests that are
//! passed on, unread HTTP/2 responses, and the owner of held pages and exact states.
//!
//! INVARIANT: a user alone gets most of everything, but never all: whatever it does, others get their part at once.
//! Members of `system:masters` have no limits.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use access_rules::user::{MASTERS, User};
use parking_lot::Mutex;

use crate::{
    budget::Room,
    limits::{
        HTTP2_STREAMS_SHORT, HTTP2_UNREAD_BYTES_MAX, HTTP2_UNREAD_STREAMS_MANY, UPSTREAM_REQUESTS_MAX, WATCHES_MAX,
    },
};

/// A user may hold this many times as much as is free, and so four fifths of everything if it is alone. Of two users that
/// want as much as they get, each has four ninths.
const FREE_FACTOR: usize = 4;

/// Names of users without requests that may stay in the table. Memory: some 100 bytes each.
const UNUSED_MAX: usize = 1_024;

/// The parts of all users with requests or watches.
pub struct UserShares {
    /// Watches of all limited users.
    watches_max: usize,
    users: Mutex<UserTable>,
    /// Places of all limited users.
    taken: TakenPlaces,
    /// Unread bytes of all users.
    unread: AtomicUsize,
    /// Number of unread streams of all connections.
    streams: AtomicUsize,
}

/// The requests that take a place while they last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// Watches of this server's own.
    Watch,
    /// Requests that are passed to the upstream.
    Forwarded,
}

/// Number of taken places of each kind.
#[derive(Default)]
struct TakenPlaces {
    watches: AtomicUsize,
    forwarded: AtomicUsize,
}

impl TakenPlaces {
    const fn of(&self, kind: PlaceKind) -> &AtomicUsize {
        match kind {
            PlaceKind::Watch => &self.watches,
            PlaceKind::Forwarded => &self.forwarded,
        }
    }
}

#[derive(Default)]
struct UserTable {
    /// With their owners.
    by_name: HashMap<String, (u64, Weak<UserShare>)>,
    /// Number of names above which unused ones are removed.
    room: usize,
}

/// The part of one user. Shared by its requests and watches.
pub struct UserShare {
    /// Hash of its name.
    pub owner: u64,
    /// Its memory for request bodies.
    pub room: Room,
    taken: TakenPlaces,
    unread: AtomicUsize,
}

/// One place of a user. Dropped with the watch, or with the answer to the request.
pub struct UserPlace {
    shares: Arc<UserShares>,
    share: Arc<UserShare>,
    kind: PlaceKind,
}

impl Default for UserShares {
    fn default() -> Self {
        Self::with_watches_max(WATCHES_MAX)
    }
}

impl UserShares {
    /// Parts of so many watches, and of the other bounds.
    pub fn with_watches_max(watches_max: usize) -> Self {
        let (users, taken, unread, streams) = Default::default();
        Self { watches_max, users, taken, unread, streams }
    }

    /// Places of a kind for all users.
    const fn max(&self, kind: PlaceKind) -> usize {
        match kind {
            PlaceKind::Watch => self.watches_max,
            PlaceKind::Forwarded => UPSTREAM_REQUESTS_MAX,
        }
    }

    /// Returns the part of `user`; `None` if it has no limits. Cost: one look-up.
    pub fn of(&self, user: &User) -> Option<Arc<UserShare>> {
        if user.is_in(MASTERS) {
            return None;
        }
        let UserTable { by_name, room } = &mut *self.users.lock();
        if let Some(share) = by_name.get(&user.name).and_then(|(_, share)| share.upgrade()) {
            return Some(share);
        }
        if by_name.len() > *room {
            by_name.retain(|_, (_, share)| share.strong_count() > 0);
            *room = 2 * by_name.len() + UNUSED_MAX;
        }
        let share = Arc::new(UserShare {
            owner: owner_of(&user.name),
            room: Room::of_user(),
            taken: TakenPlaces::default(),
            unread: AtomicUsize::new(0),
        });
        by_name.insert(user.name.clone(), (share.owner, Arc::downgrade(&share)));
        Some(share)
    }

    /// Returns the names of those `owners` ([`UserShare::owner`]) that sent requests recently. Cost: visits each user.
    pub fn names_of(&self, owners: &HashSet<u64>) -> HashMap<u64, String> {
        let users = self.users.lock();
        let named = users.by_name.iter().filter(|(_, (owner, _))| owners.contains(owner));
        named.map(|(name, (owner, _))| (*owner, name.clone())).collect()
    }

    /// Places that are taken.
    #[cfg(any(test, feature = "testing"))]
    pub fn taken(&self) -> usize {
        [&self.taken.watches, &self.taken.forwarded].map(|taken| taken.load(Ordering::Relaxed)).iter().sum()
    }

    /// Takes a place; `None` if the user has its part of them.
    pub fn take(self: &Arc<Self>, share: &Arc<UserShare>, kind: PlaceKind) -> Option<UserPlace> {
        let all = self.taken.of(kind).fetch_add(1, Ordering::Relaxed);
        let own = share.taken.of(kind).fetch_add(1, Ordering::Relaxed);
        let place = UserPlace { shares: Arc::clone(self), share: Arc::clone(share), kind };
        may_take(own, self.max(kind).saturating_sub(all)).then_some(place)
    }
}

fn owner_of(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// A connection whose callers have not proved who they are. Requests carry it as an extension.
pub trait ProofWatcher: Send + Sync {
    /// Notes that the caller of a request has proved who it is.
    fn note_proved(&self);
}

/// The caller of a request over HTTP/2, for the bytes of its response that its client does not read.
#[derive(Clone)]
pub struct StreamOwner {
    shares: Arc<UserShares>,
    caller: StreamCaller,
}

/// The caller of a request, as far as its share is concerned.
#[derive(Clone)]
pub enum StreamCaller {
    /// It did not prove who it is, or was refused as anonymous: it may hold nothing, and its connection ends.
    Refused,
    /// It is not known.
    Unknown,
    /// It has no limits but those of all.
    Unlimited,
    /// It has its part.
    Limited(Arc<UserShare>),
    /// It has its part, with all others that did not say who they are.
    Anonymous(Arc<UserShare>),
}

/// Bytes of a response that wait for its client. Dropped when it has read them.
pub struct UnreadBytes {
    owner: StreamOwner,
    bytes: usize,
}

/// The unread streams of one HTTP/2 connection, as part of those of all. Clones share them.
#[derive(Clone)]
pub struct UnreadStreams(Arc<ConnectionUnread>);

struct ConnectionUnread {
    shares: Arc<UserShares>,
    count: AtomicUsize,
}

/// One unread stream: from its request until the client accepts bytes of the response, and whenever it leaves bytes unread.
pub struct UnreadStream(UnreadStreams);

impl UnreadStreams {
    /// The streams of a connection to the server of `owner`.
    pub fn new(owner: &StreamOwner) -> Self {
        Self(Arc::new(ConnectionUnread { shares: Arc::clone(&owner.shares), count: AtomicUsize::new(0) }))
    }

    /// Counts one stream. Cost: two additions.
    pub fn add(&self) -> UnreadStream {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        self.0.shares.streams.fetch_add(1, Ordering::Relaxed);
        UnreadStream(self.clone())
    }

    /// True while all connections have more than [`HTTP2_UNREAD_STREAMS_MANY`].
    pub fn are_many(&self) -> bool {
        self.0.shares.streams.load(Ordering::Relaxed) > HTTP2_UNREAD_STREAMS_MANY
    }

    /// True if the connection may have no further request meanwhile.
    pub fn is_crowded(&self) -> bool {
        self.0.count.load(Ordering::Relaxed) >= HTTP2_STREAMS_SHORT && self.are_many()
    }
}

impl UnreadStream {
    /// Returns the connection's streams.
    pub const fn streams(&self) -> &UnreadStreams {
        &self.0
    }
}

impl Drop for UnreadStream {
    fn drop(&mut self) {
        self.0.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.0.shares.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl StreamOwner {
    /// The owner of a response to `caller`, as one of the users of `shares`.
    #[must_use]
    pub const fn new(shares: Arc<UserShares>, caller: StreamCaller) -> Self {
        Self { shares, caller }
    }

    /// True if the connection of the request ends with it.
    pub const fn ends_connection(&self) -> bool {
        matches!(self.caller, StreamCaller::Refused)
    }

    /// True if the caller proved who it is.
    pub const fn is_proved(&self) -> bool {
        matches!(self.caller, StreamCaller::Unlimited | StreamCaller::Limited(_))
    }

    /// True once half of [`HTTP2_UNREAD_BYTES_MAX`] is in use.
    pub fn is_short(&self) -> bool {
        self.shares.unread.load(Ordering::Relaxed) > HTTP2_UNREAD_BYTES_MAX / 2
    }

    /// Lets `bytes` wait for the client; `None` if the caller has its part. One user may have as much as is free: half of
    /// everything if it is alone.
    pub fn hold_unread(&self, bytes: usize) -> Option<UnreadBytes> {
        let own = match &self.caller {
            StreamCaller::Refused | StreamCaller::Unknown => return None,
            StreamCaller::Unlimited => 0,
            StreamCaller::Limited(share) | StreamCaller::Anonymous(share) => {
                share.unread.fetch_add(bytes, Ordering::Relaxed)
            }
        };
        let all = self.shares.unread.fetch_add(bytes, Ordering::Relaxed);
        let held = UnreadBytes { owner: self.clone(), bytes };
        (own + bytes <= HTTP2_UNREAD_BYTES_MAX.saturating_sub(all)).then_some(held)
    }
}

impl Drop for UnreadBytes {
    fn drop(&mut self) {
        self.owner.shares.unread.fetch_sub(self.bytes, Ordering::Relaxed);
        if let StreamCaller::Limited(share) | StreamCaller::Anonymous(share) = &self.owner.caller {
            share.unread.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// Returns true if a user who holds `own` may take one of `free`.
pub const fn may_take(own: usize, free: usize) -> bool {
    own < free.saturating_mul(FREE_FACTOR)
}

impl Drop for UserPlace {
    fn drop(&mut self) {
        self.share.taken.of(self.kind).fetch_sub(1, Ordering::Relaxed);
        self.shares.taken.of(self.kind).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> User {
        User::authenticated(name, [])
    }

    #[test]
    fn one_user_alone_leaves_places_to_others() {
        let shares = Arc::new(UserShares::with_watches_max(1_000));
        let (greedy, modest) = (shares.of(&user("a")).unwrap(), shares.of(&user("b")).unwrap());
        for kind in [PlaceKind::Watch, PlaceKind::Forwarded] {
            let taken: Vec<_> = std::iter::from_fn(|| shares.take(&greedy, kind)).collect();
            assert_eq!(taken.len(), (shares.max(kind) * 4).div_ceil(5));
            let others: Vec<_> = std::iter::from_fn(|| shares.take(&modest, kind)).take(100).collect();
            assert_eq!(others.len(), 100, "another user gets places at once");
            assert!(shares.take(&greedy, kind).is_none());
            drop(taken);
            assert!(shares.take(&greedy, kind).is_some());
            drop(others);
            assert_eq!(shares.taken.of(kind).load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn one_user_leaves_room_for_the_unread_bytes_of_others() {
        let shares = Arc::new(UserShares::default());
        let owner = |caller| StreamOwner::new(Arc::clone(&shares), caller);
        let [greedy, modest] = ["a", "b"].map(|name| owner(StreamCaller::Limited(shares.of(&user(name)).unwrap())));
        let (masters, piece) = (owner(StreamCaller::Unlimited), HTTP2_UNREAD_BYTES_MAX / 64);
        let fill = |owner: &StreamOwner| std::iter::from_fn(|| owner.hold_unread(piece)).collect::<Vec<_>>();
        let held = fill(&greedy);
        assert_eq!(held.len(), 32);
        assert!(modest.hold_unread(piece).is_some() && !modest.is_short());
        assert!(
            [StreamCaller::Refused, StreamCaller::Unknown]
                .map(|one| owner(one).hold_unread(1))
                .iter()
                .all(Option::is_none)
        );
        assert_eq!(fill(&modest).len(), 16);
        assert_eq!(fill(&masters).len(), 32, "masters are bounded by what is free");
        drop(held);
        assert_eq!(shares.unread.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn connections_with_unread_streams_are_crowded_while_there_are_many_of_all() {
        let owner = StreamOwner::new(Arc::default(), StreamCaller::Unknown);
        let (few, many) = (UnreadStreams::new(&owner), UnreadStreams::new(&owner));
        let held: Vec<_> = (0..=HTTP2_UNREAD_STREAMS_MANY - HTTP2_STREAMS_SHORT).map(|_| many.add()).collect();
        assert!(!many.is_crowded());
        let own: Vec<_> = std::iter::repeat_with(|| few.add()).take(HTTP2_STREAMS_SHORT - 1).collect();
        assert!(!many.is_crowded() && !few.is_crowded());
        let last = few.add();
        assert!(many.is_crowded() && few.is_crowded() && !UnreadStreams::new(&owner).is_crowded());
        drop((held, own, last));
        assert!(!many.is_crowded() && owner.shares.streams.load(Ordering::Relaxed) == 0);
    }

    #[test]
    fn users_share_their_part_between_requests_and_masters_have_none() {
        let shares = UserShares::default();
        let share = shares.of(&user("a")).unwrap();
        assert!(Arc::ptr_eq(&share, &shares.of(&user("a")).unwrap()));
        assert!(!Arc::ptr_eq(&share, &shares.of(&user("b")).unwrap()));
        assert!(shares.of(&User::unsecured()).is_none());
    }

    #[test]
    fn names_of_users_without_requests_do_not_pile_up() {
        let shares = UserShares::default();
        let retained = shares.of(&user("kept")).unwrap();
        for number in 0..10 * UNUSED_MAX {
            drop(shares.of(&user(&number.to_string())));
        }
        assert!(shares.users.lock().by_name.len() <= UNUSED_MAX + 2);
        assert!(Arc::ptr_eq(&retained, &shares.of(&user("kept")).unwrap()));
    }
}
