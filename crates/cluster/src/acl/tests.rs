use super::*;

fn acl(line: &str) -> Acl {
    let words: Vec<&str> = line.split(' ').collect();
    let [permission, principal, host, operation, resource_type, name] = words[..] else {
        panic!("{line}")
    };
    let (pattern, name) = match name.strip_suffix("..") {
        Some(prefix) => (Pattern::Prefixed, prefix),
        None => (Pattern::Literal, name),
    };
    Acl {
        resource_type: match resource_type {
            "topic" => ResourceType::Topic,
            "group" => ResourceType::Group,
            _ => ResourceType::Cluster,
        },
        resource_name: name.to_owned(),
        pattern,
        principal: principal.to_owned(),
        host: host.to_owned(),
        operation: match operation {
            "read" => Operation::Read,
            "write" => Operation::Write,
            "describe" => Operation::Describe,
            "alterconfigs" => Operation::AlterConfigs,
            _ => Operation::All,
        },
        permission: if permission == "deny" { Permission::Deny } else { Permission::Allow },
    }
}

struct Rules(OrdSet<Acl>, Security);

fn rules(lines: &[&str]) -> Rules {
    let security = Security { authorizer: Authorizer::Standard, ..Security::default() };
    Rules(lines.iter().map(|line| acl(line)).collect(), security)
}

impl Rules {
    fn access<T>(&self, user: &str, host: &str, ask: impl FnOnce(&Access<'_>) -> T) -> T {
        let principal = Principal::User(user.to_owned());
        ask(&Access { rules: &self.0, security: &self.1, principal: &principal, host })
    }

    fn may(&self, user: &str, operation: Operation, topic: &str) -> bool {
        self.access(user, "127.0.0.1", |access| access.may(operation, &Resource::Topic(topic)))
    }
}

#[test]
fn an_operation_without_an_allow_is_denied() {
    let rules = rules(&["allow User:alice * read topic t"]);
    assert!(rules.may("alice", Operation::Read, "t"));
    // An allow for Read implies Describe.
    assert!(rules.may("alice", Operation::Describe, "t"));
    for (user, operation, topic) in [
        ("alice", Operation::Write, "t"),
        ("alice", Operation::Read, "tt"),
        ("alice", Operation::DescribeConfigs, "t"),
        ("bob", Operation::Read, "t"),
    ] {
        assert!(!rules.may(user, operation, topic), "{user} {operation:?} {topic}");
    }
    let group = Resource::Group("t");
    assert!(!rules.access("alice", "127.0.0.1", |access| access.may(Operation::Read, &group)));
}

#[test]
fn a_deny_overrides_every_allow() {
    let rules = rules(&[
        "allow User:* * all topic *",
        "deny User:alice * write topic secret..",
        "deny User:bob 10.0.0.1 read topic t",
        "deny User:carol * describe topic t",
    ]);
    assert!(rules.may("alice", Operation::Write, "t"));
    assert!(!rules.may("alice", Operation::Write, "secret-1"));
    // A deny implies no other operation.
    assert!(rules.may("alice", Operation::Describe, "secret-1"));
    assert!(rules.may("carol", Operation::Read, "t"));
    assert!(!rules.may("carol", Operation::Describe, "t"));
    assert!(rules.may("bob", Operation::Read, "t"));
    let topic = Resource::Topic("t");
    assert!(!rules.access("bob", "10.0.0.1", |access| access.may(Operation::Read, &topic)));
}

#[test]
fn a_resource_without_acls_is_open_only_if_configured() {
    let mut rules = rules(&["allow User:alice * read topic t"]);
    assert!(!rules.may("bob", Operation::Read, "other"));
    rules.1.allow_everyone_if_no_acl = true;
    assert!(rules.may("bob", Operation::Read, "other"));
    assert!(!rules.may("bob", Operation::Read, "t"));
    rules.1.super_users = vec!["User:bob".into()];
    assert!(rules.may("bob", Operation::Read, "t"));
    rules.1 = Security::default();
    assert!(rules.may("carol", Operation::Read, "t"));
}

#[test]
fn may_with_any_is_true_if_one_possible_resource_is_allowed() {
    let may = |lines: &[&str]| {
        rules(lines).access("alice", "127.0.0.1", |access| {
            access.may_with_any(Operation::Write, ResourceType::Topic)
        })
    };
    assert!(!may(&[]));
    assert!(may(&["allow User:alice * write topic t"]));
    assert!(!may(&["allow User:alice * read topic t"]));
    assert!(!may(&["allow User:alice * write group t"]));
    assert!(!may(&["allow User:alice * write topic t", "deny User:* * all topic *"]));
    assert!(!may(&["allow User:alice * write topic t-1", "deny User:* * write topic t.."]));
    assert!(may(&["allow User:alice * write topic *", "deny User:* * write topic t.."]));
    assert!(may(&["allow User:alice * write topic t..", "deny User:* * write topic t"]));
}

#[test]
fn filters_select_the_matching_acls() {
    let all = [
        "allow User:a * read topic t",
        "deny User:b * write topic t..",
        "allow User:a * all group *",
    ];
    let chosen = |filter: Fields<'_>| {
        let filter = Filter::new(&filter).unwrap();
        all.iter().filter(|line| filter.fits(&acl(line))).copied().collect::<Vec<_>>()
    };
    let any = || Fields {
        resource_type: 1,
        resource_name: None,
        pattern: 1,
        principal: None,
        host: None,
        operation: 1,
        permission: 1,
    };
    assert_eq!(chosen(any()), all);
    assert_eq!(chosen(Fields { resource_type: 2, ..any() }), all[..2]);
    assert_eq!(chosen(Fields { resource_name: Some("t"), ..any() }), all[..2]);
    assert_eq!(chosen(Fields { resource_name: Some("t"), pattern: 3, ..any() }), all[..1]);
    assert_eq!(chosen(Fields { resource_name: Some("tt"), pattern: 2, ..any() }), all[1..]);
    assert_eq!(chosen(Fields { principal: Some("User:b"), ..any() }), all[1..2]);
    assert_eq!(chosen(Fields { permission: 2, ..any() }), all[1..2]);
    assert_eq!(chosen(Fields { operation: 3, ..any() }), all[..1]);
    assert_eq!(chosen(Fields { host: Some("h"), ..any() }), [""; 0]);
    assert_eq!(Filter::new(&Fields { operation: 99, ..any() }), None);
}
