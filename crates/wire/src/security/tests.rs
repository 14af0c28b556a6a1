use super::*;

#[test]
fn names_resolve_to_their_protocol_or_mechanism() {
    for protocol in SecurityProtocol::ALL {
        let lower = protocol.name().to_lowercase();
        assert_eq!(SecurityProtocol::by_name(&lower), Some(protocol));
        assert_eq!(protocol.has_sasl(), lower.starts_with("sasl"));
        assert_eq!(protocol.has_tls(), lower.ends_with("ssl"));
    }
    for mechanism in Mechanism::ALL {
        assert_eq!(Mechanism::by_name(mechanism.name()), Some(mechanism));
        let by_password = mechanism != Mechanism::OAuthBearer;
        assert_eq!(Mechanism::PASSWORDS.contains(&mechanism), by_password);
    }
    assert_eq!(SecurityProtocol::by_name("TLS"), None);
    assert_eq!(Mechanism::by_name("plain"), None);
    assert_eq!(Mechanism::by_name(Mechanism::AwsMskIam.name()), None);
}
