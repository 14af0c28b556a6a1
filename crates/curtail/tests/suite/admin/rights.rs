//! ACLs, quotas and users.

use std::collections::BTreeMap;

use curtail::{
    ErrorCode,
    admin::{
        Acl, AclFilter, AclOperation, AclPatternFilter, AclResource, Mode, QuotaChange,
        QuotaEntity, QuotaFilter, QuotaMatch, ScramChange, ScramMechanism,
    },
};

use super::{Backend, admin, code, only, until};

pub(super) async fn access_is_ruled(backend: &Backend) {
    let admin = admin(backend);
    let read = Acl::allow("User:alice", AclOperation::Read, AclResource::Topic, "ledger");
    let write = Acl::allow("User:bob", AclOperation::Write, AclResource::Topic, "led")
        .prefixed()
        .from_host("127.0.0.1");
    let deny = Acl::allow("User:*", AclOperation::Delete, AclResource::Group, "billing").denied();
    let bad = Acl::allow("nobody", AclOperation::Read, AclResource::Topic, "ledger");
    let all = [read.clone(), write.clone(), bad, deny.clone()];
    let created = admin.create_acls(&all).await.unwrap();
    let results: Vec<bool> = created.iter().map(|(_, result)| result.is_ok()).collect();
    assert_eq!(results, [true, true, false, true], "{created:?}");
    assert_eq!(code(&created[2].1), ErrorCode::INVALID_REQUEST);

    let mut expected = vec![read.clone(), write.clone(), deny.clone()];
    expected.sort();
    let everything = AclFilter::default();
    let ask = async || admin.describe_acls(&everything).await.unwrap();
    until(ask, |acls| *acls == expected).await;
    let about_ledger = AclFilter {
        resource: Some(AclResource::Topic),
        name: Some("ledger".into()),
        pattern: AclPatternFilter::Match,
        ..AclFilter::default()
    };
    let mut expected = vec![read.clone(), write];
    expected.sort();
    assert_eq!(admin.describe_acls(&about_ledger).await.unwrap(), expected);
    let of_alice = AclFilter { principal: Some("User:alice".into()), ..AclFilter::default() };
    assert_eq!(admin.describe_acls(&of_alice).await.unwrap(), [read]);

    let deleted = admin.delete_acls(&[about_ledger, AclFilter::from(&deny)]).await.unwrap();
    let counts: Vec<usize> = deleted.iter().map(|(_, acls)| acls.as_ref().unwrap().len()).collect();
    assert_eq!(counts, [2, 1], "{deleted:?}");
    until(ask, Vec::is_empty).await;
}

pub(super) async fn quotas_are_set(backend: &Backend) {
    let admin = admin(backend);
    let entity = |kind: &str, name: Option<&str>| {
        QuotaEntity::from([(kind.to_owned(), name.map(str::to_owned))])
    };
    let (alice, others) = (entity("user", Some("alice")), entity("user", None));
    let rate = |value| QuotaChange::Set("producer_byte_rate".into(), value);
    let changes = [
        (alice.clone(), vec![rate(1000.0), QuotaChange::Set("request_percentage".into(), 50.0)]),
        (others.clone(), vec![rate(500.0)]),
        (entity("user", Some("bob")), vec![QuotaChange::Set("no_such_rate".into(), 1.0)]),
    ];
    let altered = admin.alter_client_quotas(&changes[..1], Mode::Validate).await.unwrap();
    only(altered).unwrap();
    assert!(admin.describe_client_quotas(&QuotaFilter::all()).await.unwrap().is_empty());
    let altered = admin.alter_client_quotas(&changes, Mode::Apply).await.unwrap();
    assert!(altered[0].1.is_ok() && altered[1].1.is_ok(), "{altered:?}");
    assert_eq!(code(&altered[2].1), ErrorCode::INVALID_REQUEST);

    let ask = async || admin.describe_client_quotas(&QuotaFilter::all()).await.unwrap();
    let found = until(ask, |found| found.len() == 2).await;
    assert_eq!(found[&alice]["producer_byte_rate"], 1000.0);
    assert_eq!(found[&alice]["request_percentage"], 50.0);
    assert_eq!(found[&others]["producer_byte_rate"], 500.0);
    let only_default = QuotaFilter::only([("user".to_owned(), QuotaMatch::Default)]);
    let found = admin.describe_client_quotas(&only_default).await.unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), [&others]);

    let remove = |keys: &[&str]| -> Vec<QuotaChange> {
        keys.iter().map(|key| QuotaChange::Remove((*key).to_owned())).collect()
    };
    let changes = [
        (alice, remove(&["producer_byte_rate", "request_percentage"])),
        (others, remove(&["producer_byte_rate"])),
    ];
    for (_, result) in admin.alter_client_quotas(&changes, Mode::Apply).await.unwrap() {
        result.unwrap();
    }
    until(ask, BTreeMap::is_empty).await;
}

pub(super) async fn users_have_passwords(backend: &Backend) {
    let admin = admin(backend);
    let changes = [
        ScramChange::upsert("alice", ScramMechanism::Sha256, "secret"),
        ScramChange::upsert("bob", ScramMechanism::Sha256, "secret").iterations(1),
        ScramChange::delete("carol", ScramMechanism::Sha256),
    ];
    let altered = admin.alter_user_scram_credentials(&changes).await.unwrap();
    let users: Vec<&str> = altered.iter().map(|(user, _)| user.as_str()).collect();
    assert_eq!(users, ["alice", "bob", "carol"]);
    assert!(altered[0].1.is_ok(), "{altered:?}");
    assert_eq!(code(&altered[1].1), ErrorCode::UNACCEPTABLE_CREDENTIAL);
    assert_eq!(code(&altered[2].1), ErrorCode::RESOURCE_NOT_FOUND);

    let alter = async |change| {
        only(admin.alter_user_scram_credentials(&[change]).await.unwrap()).unwrap();
    };
    alter(ScramChange::upsert("alice", ScramMechanism::Sha512, "secret").iterations(8192)).await;
    let ask = async || {
        let described = admin.describe_user_scram_credentials(None).await.unwrap().into_iter();
        let known = described.flat_map(|(user, known)| {
            known.unwrap().into_iter().map(move |c| (user.clone(), c.mechanism, c.iterations))
        });
        known.collect::<Vec<_>>()
    };
    let found = until(ask, |found| found.len() == 2).await;
    // The cluster returns them in any order.
    for (mechanism, count) in [(ScramMechanism::Sha256, 4096), (ScramMechanism::Sha512, 8192)] {
        assert!(found.contains(&("alice".to_owned(), mechanism, count)), "{found:?}");
    }
    let bob = admin.describe_user_scram_credentials(Some(&["bob"])).await.unwrap();
    assert_eq!(code(&only(bob)), ErrorCode::RESOURCE_NOT_FOUND);
    alter(ScramChange::delete("alice", ScramMechanism::Sha256)).await;
    alter(ScramChange::delete("alice", ScramMechanism::Sha512)).await;
    until(ask, Vec::is_empty).await;
}
