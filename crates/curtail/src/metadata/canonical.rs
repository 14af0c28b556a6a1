//! Canonical names of `bootstrap.servers` (`client.dns.lookup`, KIP-235).

use std::{io, net::SocketAddr};

use curtail_net::Net;
use tokio::time::timeout;

use super::Shared;
use crate::config::DnsLookup;

/// The names to dial for a candidate. With `resolve_canonical_bootstrap_servers_only`, the canonical names of a bootstrap
/// server's addresses replace the server: TLS then verifies those names. Brokers that the cluster has named stay, and so
/// does a server whose names are not found within `socket.connection.setup.timeout.ms`.
pub(super) async fn names(shared: &Shared, host: String, port: u16) -> Vec<String> {
    let is_known = || {
        let known = shared.snapshot.load_full();
        known.nodes().any(|node| node.host == host && node.port == port)
    };
    if shared.common.dns_lookup == DnsLookup::UseAllDnsIps || is_known() {
        return vec![host];
    }
    let limit = shared.common.connection_setup_timeout;
    let found = timeout(limit, names_of(&*shared.env.net, &host, port)).await.unwrap_or_default();
    if found.is_empty() { vec![host] } else { found }
}

/// The canonical names of a host's addresses, without those for which no name server responds.
async fn names_of(net: &dyn Net, host: &str, port: u16) -> Vec<String> {
    let mut names = Vec::new();
    for address in net.resolve(host, port).await.unwrap_or_default() {
        if let Ok(name) = name_of(net, address).await
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

/// The canonical name of an address. As in Java, the address itself if it has no name, or if the name does not lead back
/// to the address: the owner of the reverse zone must not choose the name that TLS verifies.
async fn name_of(net: &dyn Net, address: SocketAddr) -> io::Result<String> {
    let ip = address.ip();
    if let Some(name) = net.canonical_name(ip).await?
        && let Ok(back) = net.resolve(&name, address.port()).await
        && back.iter().any(|address| address.ip() == ip)
    {
        return Ok(name);
    }
    Ok(ip.to_string())
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        io,
        net::{IpAddr, SocketAddr},
    };

    use curtail_net::{BoxFuture, Listener, Socket, SocketOptions};

    use super::*;

    /// A name service: addresses by name, and names by address.
    #[derive(Default)]
    struct Names {
        forward: BTreeMap<&'static str, Vec<IpAddr>>,
        reverse: BTreeMap<IpAddr, &'static str>,
        /// Addresses for which no server responds.
        silent: Vec<IpAddr>,
    }

    impl Net for Names {
        fn resolve<'a>(
            &'a self,
            host: &'a str,
            port: u16,
        ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
            Box::pin(async move {
                let found = self.forward.get(host).ok_or(io::ErrorKind::NotFound)?;
                Ok(found.iter().map(|ip| (*ip, port).into()).collect())
            })
        }

        fn canonical_name(&self, address: IpAddr) -> BoxFuture<'_, io::Result<Option<String>>> {
            Box::pin(async move {
                if self.silent.contains(&address) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Ok(self.reverse.get(&address).map(|name| (*name).to_owned()))
            })
        }

        fn connect(
            &self,
            _: SocketAddr,
            _: SocketOptions,
        ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }

        fn listen(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }
    }

    #[tokio::test]
    async fn a_bootstrap_server_has_the_names_of_its_addresses_that_lead_back_to_them() {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let names = Names {
            forward: BTreeMap::from([
                ("kafka", vec![ip(1), ip(2), ip(3), ip(4), ip(5)]),
                ("b1.example", vec![ip(1), ip(5)]),
                ("b3.example", vec![ip(9)]),
            ]),
            reverse: BTreeMap::from([
                (ip(1), "b1.example"),
                // The name leads elsewhere.
                (ip(3), "b3.example"),
                // The name has no address.
                (ip(4), "b4.example"),
                (ip(5), "b1.example"),
            ]),
            silent: Vec::new(),
        };
        let found = names_of(&names, "kafka", 9092).await;
        assert_eq!(found, ["b1.example", "10.0.0.2", "10.0.0.3", "10.0.0.4"]);
        assert!(names_of(&names, "nowhere", 9092).await.is_empty());
    }

    /// A name server that does not respond is no reason to dial a bare address, which fails the verification of TLS.
    #[tokio::test]
    async fn an_address_whose_name_is_unknown_for_now_is_left_out() {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let names = Names {
            forward: BTreeMap::from([("kafka", vec![ip(1), ip(2)]), ("b2.example", vec![ip(2)])]),
            reverse: BTreeMap::from([(ip(2), "b2.example")]),
            silent: vec![ip(1)],
        };
        assert_eq!(names_of(&names, "kafka", 9092).await, ["b2.example"]);
    }
}
