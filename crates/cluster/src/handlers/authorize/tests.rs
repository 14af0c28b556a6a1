use std::net::{IpAddr, Ipv4Addr};

use curtail_net::Env;
use curtail_wire::{api::ApiKey, header::RequestHeader};

use super::*;
use crate::{
    Cluster, ClusterConfig, SecurityProtocol,
    admission::Principal,
    handlers::served::{Rights, SERVED},
    telemetry::Origin,
};

#[tokio::test]
async fn a_request_without_a_permission_check_is_refused() {
    // Without an authorizer every refusal comes from the table.
    let config = ClusterConfig { brokers: 1, ..ClusterConfig::default() };
    let cluster = Cluster::start(config, Env::real()).await.unwrap();
    let broker = cluster.running(1).unwrap();
    let principal = Principal::anonymous();
    let listener = SecurityProtocol::Plaintext.into();
    let local = Origin::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1, 1);
    for served in SERVED {
        let Rights::Asked(rights) = &served.rights else { continue };
        let header =
            RequestHeader { api: served.api, version: 0, correlation_id: 1, client_id: None };
        let fresh = || Call::new(&broker, &header, &local, &listener, &principal, 0);
        assert!(fresh().may_answer(&served.rights).is_err(), "{}", served.api);
        let call = fresh();
        call.concerns(1);
        assert!(call.may_answer(&served.rights).is_err(), "{}", served.api);
        call.concerns(0);
        assert_eq!(call.may_answer(&served.rights), Ok(()));
        for (operation, of) in *rights {
            let call = fresh();
            assert!(call.may_with_any(*operation, *of), "{} {operation:?} {of:?}", served.api);
            assert_eq!(call.may_answer(&served.rights), Ok(()));
        }
        assert!(!fresh().may_with_any(Operation::CreateTokens, ResourceType::User));
    }
    let header =
        RequestHeader { api: ApiKey::FETCH, version: 12, correlation_id: 1, client_id: None };
    let call = Call::new(&broker, &header, &local, &listener, &principal, 0);
    assert_eq!(call.require(Operation::Read, Resource::Topic("t")), Ok(()));
    let refused = call.require(Operation::Delete, Resource::Topic("t"));
    assert_eq!(refused, Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    cluster.shutdown().await;
}
