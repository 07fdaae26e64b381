//! The range of addresses of a cluster's Services.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// A range of addresses of one family that has at least one for a Service, such as `10.0.0.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRange {
    is_v4: bool,
    /// The address of the range itself, which no Service gets.
    base: u128,
    /// Bits of the prefix.
    bits: u32,
}

/// Fewest bits of the prefix of an IPv6 range, so that addresses have numbers of 64 bits.
const PREFIX_V6_MIN: u32 = 64;

impl ServiceRange {
    /// The range of a kube-apiserver whose flags name none.
    pub const DEFAULT: Self = Self { is_v4: true, base: 10 << 24, bits: 24 };

    /// Returns the family, as Services name it.
    #[must_use]
    pub const fn family(&self) -> &'static str {
        if self.is_v4 { "IPv4" } else { "IPv6" }
    }

    /// Returns the number of addresses that Services get: all but the first one, and but the last one of IPv4, its broadcast
    /// address.
    #[must_use]
    pub const fn count(&self) -> u64 {
        if self.is_v4 { (1 << (32 - self.bits)) - 2 } else { u64::MAX >> (self.bits - PREFIX_V6_MIN) }
    }

    /// Returns an address by its number. Number 0 is the range's own address; Services get the numbers from 1 to the count.
    #[must_use]
    pub fn at(&self, number: u64) -> IpAddr {
        let address = self.base | u128::from(number);
        match u32::try_from(address) {
            Ok(address) if self.is_v4 => Ipv4Addr::from(address).into(),
            _ => Ipv6Addr::from(address).into(),
        }
    }

    /// Returns the number of an address; `None` if it is outside.
    #[must_use]
    pub fn number_of(&self, address: IpAddr) -> Option<u64> {
        let distance = bits_of(address).checked_sub(self.base).filter(|_| address.is_ipv4() == self.is_v4)?;
        let last = self.count() + u64::from(self.is_v4);
        u64::try_from(distance).ok().filter(|number| *number <= last)
    }
}

impl FromStr for ServiceRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(base, bits)| Some((base.parse().ok()?, bits.parse().ok()?)));
        let (base, bits): (IpAddr, u32) = parts.ok_or_else(|| format!("{text} is no range of addresses"))?;
        let (is_v4, fewest, most) = if base.is_ipv4() { (true, 1, 30) } else { (false, PREFIX_V6_MIN, 127) };
        if !(fewest..=most).contains(&bits) {
            return Err(format!("{text} has no prefix of {fewest} to {most} bits"));
        }
        let hosts = (1_u128 << (if is_v4 { 32 } else { 128 } - bits)) - 1;
        Ok(Self { is_v4, base: bits_of(base) & !hosts, bits })
    }
}

impl fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.at(0), self.bits)
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a range has the addresses that kube-apiserver gives from it. Method: the default, the smallest and the largest of
    /// each family, written with another address of the range.
    #[test]
    fn addresses_of_a_range_have_numbers() {
        for (text, normal, count, last) in [
            ("10.0.0.0/24", "10.0.0.0/24", 254, "10.0.0.254"),
            ("10.9.8.7/30", "10.9.8.4/30", 2, "10.9.8.6"),
            ("10.0.0.0/1", "0.0.0.0/1", (1 << 31) - 2, "127.255.255.254"),
            ("fd00::7/112", "fd00::/112", 65_535, "fd00::ffff"),
            ("fd00::/127", "fd00::/127", 1, "fd00::1"),
            ("fd00::/64", "fd00::/64", u64::MAX, "fd00::ffff:ffff:ffff:ffff"),
        ] {
            let range: ServiceRange = text.parse().expect(text);
            assert_eq!((range.to_string().as_str(), range.count()), (normal, count), "{text}");
            assert_eq!(range.at(count).to_string(), last, "{text}");
            for number in [0, 1, count] {
                assert_eq!(range.number_of(range.at(number)), Some(number), "{text}");
            }
        }
        assert_eq!("10.0.0.0/24".parse(), Ok(ServiceRange::DEFAULT));
        let other = |address: &str| ServiceRange::DEFAULT.number_of(address.parse().expect("an address"));
        assert_eq!((other("9.255.255.255"), other("10.0.1.0"), other("::a00:1")), (None, None, None));
        assert_eq!(other("10.0.0.255"), Some(255), "the broadcast address is in the range, and no Service gets it");
    }

    #[test]
    fn what_has_no_addresses_for_services_is_no_range() {
        for text in ["", "10.0.0.0", "10.0.0.0/31", "10.0.0.0/0", "fd00::/63", "fd00::/128", "a/24", "10.0.0.0/x"] {
            assert!(text.parse::<ServiceRange>().is_err(), "{text}");
        }
    }
}
