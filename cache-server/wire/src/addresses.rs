//! The part of each address in the connections, and the signal to its idle ones that others need their slots.
//!
//! INVARIANT: an address alone gets most of the slots, but never all: whatever comes from it, others connect at once. Every
//! address counts, also those of this machine; only peers of the Unix socket do not.
//!
//! A connection beyond the part of its address is closed at once, and then the idle ones of the address end soon: clients
//! behind one address, such as that of a load balancer, share its part.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{budget::Crowd, shares::may_take};

/// Connections of each address.
#[derive(Default)]
pub struct AddressShares(Mutex<AddressTable>);

#[derive(Default)]
struct AddressTable {
    /// True while few slots are free.
    is_crowded: bool,
    by_address: HashMap<Option<IpAddr>, AddressConnections>,
}

/// The connections of one address.
#[derive(Default)]
struct AddressConnections {
    count: usize,
    crowd: Arc<Crowd>,
}

/// One connection of an address. Dropped with the connection.
pub struct AddressPlace {
    shares: Arc<AddressShares>,
    /// `None` for the Unix socket.
    address: Option<IpAddr>,
    crowd: Arc<Crowd>,
}

impl AddressShares {
    /// Takes a place for a connection while `free` slots are free, its own included; `None` if the address has its part.
    pub fn enter(self: &Arc<Self>, peer: Option<SocketAddr>, free: usize) -> Option<AddressPlace> {
        let address = peer.map(|peer| network(peer.ip()));
        let AddressTable { is_crowded, by_address } = &mut *self.0.lock();
        let own = by_address.entry(address).or_insert_with(|| {
            let crowd = Arc::new(Crowd::default());
            crowd.set(*is_crowded);
            AddressConnections { count: 0, crowd }
        });
        if address.is_some() && !may_take(own.count, free) {
            own.crowd.set(true);
            return None;
        }
        own.count += 1;
        Some(AddressPlace { shares: Arc::clone(self), address, crowd: Arc::clone(&own.crowd) })
    }

    /// Notes whether few slots are free for all addresses.
    pub fn note_crowded(&self, is_crowded: bool) {
        let table = &mut *self.0.lock();
        if std::mem::replace(&mut table.is_crowded, is_crowded) != is_crowded {
            table.by_address.values().for_each(|own| own.crowd.set(is_crowded));
        }
    }
}

impl AddressPlace {
    /// The signal to the idle connections of the address.
    pub const fn crowd(&self) -> &Arc<Crowd> {
        &self.crowd
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let AddressTable { is_crowded, by_address } = &mut *self.shares.0.lock();
        let Some(own) = by_address.get_mut(&self.address) else { return };
        own.count -= 1;
        // The next connection beyond the part of the address sets it again.
        own.crowd.set(*is_crowded);
        if own.count == 0 {
            by_address.remove(&self.address);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_connections_to_others() {
        let shares = Arc::<AddressShares>::default();
        let slots = 100;
        let mut open = Vec::new();
        let enter =
            |open: &[AddressPlace], address: &str| shares.enter(Some(address.parse().unwrap()), slots - open.len());
        for attacker in ["192.0.2.1:80", "127.0.0.1:80"] {
            while let Some(place) = enter(&open, attacker) {
                open.push(place);
            }
            assert_eq!(open.len(), 80, "{attacker}");
            assert!(open[0].crowd().is_set(), "its idle connections have to end");
            let other = enter(&open, "192.0.2.2:80").unwrap();
            assert!(!other.crowd().is_set(), "others stay");
            assert!(shares.enter(None, 0).is_some());
            open.pop();
            assert!(!open[0].crowd().is_set());
            open.clear();
        }
        assert!(shares.0.lock().by_address.is_empty());
        while let Some(place) = enter(&open, &format!("[2001:db8::{:x}]:80", open.len() + 1)) {
            open.push(place);
        }
        assert_eq!(open.len(), 80, "one network");
        assert!(enter(&open, "[2001:db8:0:1::1]:80").is_some());
        open.clear();
        let mapped = [enter(&open, "[::ffff:192.0.2.1]:80").unwrap(), enter(&open, "192.0.2.1:80").unwrap()];
        assert!(Arc::ptr_eq(mapped[0].crowd(), mapped[1].crowd()), "the same address");
        shares.note_crowded(true);
        assert!(mapped[0].crowd().is_set() && enter(&open, "192.0.2.3:80").unwrap().crowd().is_set());
        shares.note_crowded(false);
        assert!(!mapped[0].crowd().is_set());
    }
}
