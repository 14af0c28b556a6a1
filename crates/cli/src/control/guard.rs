//! Which requests are answered: a page in a browser must not kill brokers.
//!
//! A page of any site can send requests to loopback. A browser names the page's site in `Origin` with
//! every request that changes something, so such requests are refused. A site whose name resolves to
//! loopback (DNS rebinding) is of the same origin as the endpoint, but its name is in `Host`:
//! only addresses and `localhost` are accepted there. Probes and Prometheus reach an endpoint beyond
//! loopback by the name of its container or service, so those read under any name.

use std::net::{IpAddr, SocketAddr};

use hyper::{
    HeaderMap,
    header::{HOST, HeaderName, HeaderValue, ORIGIN},
};

/// Set by browsers only.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns why a request is refused. `listening` is the address of the endpoint, `reads` whether the
/// request only reads health, readiness or metrics.
pub(super) fn refusal(
    headers: &HeaderMap,
    listening: SocketAddr,
    reads: bool,
) -> Option<&'static str> {
    if headers.contains_key(ORIGIN) {
        return Some("requests with an Origin are refused: they come from a page in a browser");
    }
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    if site.is_some_and(|site| site != b"none" && site != b"same-origin") {
        return Some("requests of other sites are refused");
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    match is_known(host, listening) || (reads && !listening.ip().is_loopback()) {
        true => None,
        false => Some("the Host must be the address of this endpoint, or localhost"),
    }
}

/// Whether a `Host` is an address that the endpoint may have.
fn is_known(host: &str, listening: SocketAddr) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    // Beyond loopback the machine may have many addresses; an address has no name to rebind.
    let known = |address: IpAddr| address.is_loopback() || !listening.ip().is_loopback();
    name.parse().is_ok_and(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_in_browsers_and_rebound_names_are_refused() {
        let loopback = "127.0.0.1:8080".parse().unwrap();
        let everywhere = "0.0.0.0:8080".parse().unwrap();
        for (host, here, beyond) in [
            ("127.0.0.1:8080", true, true),
            ("127.0.0.1", true, true),
            ("localhost:8080", true, true),
            ("LOCALHOST", true, true),
            ("[::1]:8080", true, true),
            ("192.168.1.7:8080", false, true),
            ("evil.example:8080", false, false),
            ("localhost.evil.example", false, false),
            ("127.0.0.1.evil.example", false, false),
            ("", false, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_str(host).unwrap());
            for (listening, answered) in [(loopback, here), (everywhere, beyond)] {
                let refused = refusal(&headers, listening, false);
                assert_eq!(refused.is_none(), answered, "{host} {listening}");
            }
            assert_eq!(refusal(&headers, loopback, true).is_none(), here, "{host}");
            assert_eq!(refusal(&headers, everywhere, true), None, "{host}");
            headers.insert(ORIGIN, HeaderValue::from_static("http://127.0.0.1:8080"));
            assert!(refusal(&headers, loopback, false).is_some(), "{host}");
            assert!(refusal(&headers, everywhere, true).is_some(), "{host}");
        }
        assert!(refusal(&HeaderMap::new(), loopback, false).is_some(), "without a host");
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("localhost"));
        headers.insert(FETCH_SITE, HeaderValue::from_static("cross-site"));
        assert!(refusal(&headers, loopback, false).is_some());
    }
}
