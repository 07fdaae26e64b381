//! The part of each user in what all users share, besides seats: memory of request bodies, open watches, requests that are
//! passed on, and the owner of held pages and exact states; the part of each address in the connections.
//!
//! INVARIANT: a user alone gets most of everything, but never all: whatever it does, others get their part at once.
//! Members of `system:masters` have no limits.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use access_rules::user::{MASTERS, User};
use parking_lot::Mutex;

use crate::{
    budget::Room,
    limits::{UPSTREAM_REQUESTS_MAX, WATCHES_MAX},
};

/// A user may hold this many times as much as is free, and so four fifths of everything if it is alone. Of two users that
/// want as much as they get, each has four ninths.
const FREE_FACTOR: usize = 4;

/// Names of users without requests that may stay in the table. Memory: some 100 bytes each.
const UNUSED_MAX: usize = 1_024;

/// The parts of all users with requests or watches.
#[derive(Default)]
pub(crate) struct UserShares {
    users: Mutex<UserTable>,
    /// Places of all limited users.
    taken: TakenPlaces,
}

/// The requests that take a place while they last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceKind {
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

impl PlaceKind {
    /// Places of this kind for all users.
    const fn max(self) -> usize {
        match self {
            Self::Watch => WATCHES_MAX,
            Self::Forwarded => UPSTREAM_REQUESTS_MAX,
        }
    }
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
    by_name: HashMap<String, Weak<UserShare>>,
    /// Number of names above which unused ones are removed.
    room: usize,
}

/// The part of one user. Shared by its requests and watches.
pub(crate) struct UserShare {
    /// Hash of its name.
    pub(crate) owner: u64,
    /// Its memory for request bodies.
    pub(crate) room: Room,
    taken: TakenPlaces,
}

/// One place of a user. Dropped with the watch, or with the answer to the request.
pub(crate) struct UserPlace {
    shares: Arc<UserShares>,
    share: Arc<UserShare>,
    kind: PlaceKind,
}

impl UserShares {
    /// Returns the part of `user`; `None` if it has no limits. Cost: one look-up.
    pub(crate) fn of(&self, user: &User) -> Option<Arc<UserShare>> {
        if user.is_in(MASTERS) {
            return None;
        }
        let UserTable { by_name, room } = &mut *self.users.lock();
        if let Some(share) = by_name.get(&user.name).and_then(Weak::upgrade) {
            return Some(share);
        }
        if by_name.len() > *room {
            by_name.retain(|_, share| share.strong_count() > 0);
            *room = 2 * by_name.len() + UNUSED_MAX;
        }
        let mut hasher = DefaultHasher::new();
        user.name.hash(&mut hasher);
        let share =
            Arc::new(UserShare { owner: hasher.finish(), room: Room::of_user(), taken: TakenPlaces::default() });
        by_name.insert(user.name.clone(), Arc::downgrade(&share));
        Some(share)
    }

    /// Takes a place; `None` if the user has its part of them.
    pub(crate) fn take(self: &Arc<Self>, share: &Arc<UserShare>, kind: PlaceKind) -> Option<UserPlace> {
        let all = self.taken.of(kind).fetch_add(1, Ordering::Relaxed);
        let own = share.taken.of(kind).fetch_add(1, Ordering::Relaxed);
        let place = UserPlace { shares: Arc::clone(self), share: Arc::clone(share), kind };
        may_take(own, kind.max().saturating_sub(all)).then_some(place)
    }
}

/// Connections of each address. Those of this machine are not counted.
#[derive(Default)]
pub(crate) struct AddressShares {
    connections: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection of an address. Dropped with the connection.
pub(crate) struct AddressPlace {
    shares: Arc<AddressShares>,
    /// `None` for connections that are not counted.
    address: Option<IpAddr>,
}

impl AddressShares {
    /// Takes a place for a connection while `free` slots are free; `None` if the address has its part.
    pub(crate) fn enter(self: &Arc<Self>, peer: Option<SocketAddr>, free: usize) -> Option<AddressPlace> {
        let address = peer.map(|peer| network(peer.ip())).filter(|address| !address.is_loopback());
        if let Some(address) = address {
            let own = &mut *self.connections.lock();
            let own = own.entry(address).or_default();
            if !may_take(*own, free) {
                return None;
            }
            *own += 1;
        }
        Some(AddressPlace { shares: Arc::clone(self), address })
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        if let Entry::Occupied(mut own) = self.shares.connections.lock().entry(address) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// Returns the address, or of IPv6 its network of 64 bits: one client has all addresses of it.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address @ (IpAddr::V4(_) | IpAddr::V6(_)) => address,
    }
}

/// Returns true if a user who holds `own` may take one of `free`.
const fn may_take(own: usize, free: usize) -> bool {
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
        let shares = Arc::new(UserShares::default());
        let (greedy, modest) = (shares.of(&user("a")).unwrap(), shares.of(&user("b")).unwrap());
        for kind in [PlaceKind::Watch, PlaceKind::Forwarded] {
            let taken: Vec<_> = std::iter::from_fn(|| shares.take(&greedy, kind)).collect();
            assert_eq!(taken.len(), (kind.max() * 4).div_ceil(5));
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
    fn one_address_leaves_connections_to_others() {
        let shares = Arc::<AddressShares>::default();
        let slots = 100;
        let mut open = Vec::new();
        let enter =
            |open: &[AddressPlace], address: &str| shares.enter(Some(address.parse().unwrap()), slots - open.len());
        while let Some(place) = enter(&open, "192.0.2.1:80") {
            open.push(place);
        }
        assert_eq!(open.len(), 80);
        assert!(enter(&open, "192.0.2.2:80").is_some());
        assert!(enter(&open, "[::ffff:192.0.2.1]:80").is_none(), "the same address");
        assert!(enter(&open, "127.0.0.1:80").is_some() && shares.enter(None, 0).is_some());
        open.clear();
        assert!(shares.connections.lock().is_empty());
        while let Some(place) = enter(&open, &format!("[2001:db8::{:x}]:80", open.len() + 1)) {
            open.push(place);
        }
        assert_eq!(open.len(), 80, "one network");
        assert!(enter(&open, "[2001:db8:0:1::1]:80").is_some());
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
        let kept = shares.of(&user("kept")).unwrap();
        for number in 0..10 * UNUSED_MAX {
            drop(shares.of(&user(&number.to_string())));
        }
        assert!(shares.users.lock().by_name.len() <= UNUSED_MAX + 2);
        assert!(Arc::ptr_eq(&kept, &shares.of(&user("kept")).unwrap()));
    }
}
