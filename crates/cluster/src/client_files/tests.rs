use super::*;

fn security(users: &[&str], mechanisms: &[Mechanism]) -> Security {
    Security {
        users: users.iter().map(|text| User::parse(text).expect("a user")).collect(),
        mechanisms: mechanisms.to_vec(),
        ..Security::default()
    }
}

#[test]
fn a_user_logs_in_with_its_best_mechanism_that_is_offered() {
    let users = ["a:1", "b:2:PLAIN", "c:3:SCRAM-SHA-512", "c:4:SCRAM-SHA-256", "b:5:PLAIN"];
    let found = |mechanisms: &[Mechanism]| {
        let security = security(&users, mechanisms);
        let name = |(user, mechanism): (&User, Mechanism)| {
            format!("{}:{}:{mechanism}", user.name(), user.password())
        };
        logins(&security).into_iter().map(name).collect::<Vec<_>>()
    };
    let all = ["a:1:SCRAM-SHA-512", "b:5:PLAIN", "c:3:SCRAM-SHA-512"];
    assert_eq!(found(&Mechanism::PASSWORDS), all);
    let some = [Mechanism::Plain, Mechanism::ScramSha256];
    assert_eq!(found(&some), ["a:1:SCRAM-SHA-256", "b:5:PLAIN", "c:4:SCRAM-SHA-256"]);
    assert_eq!(found(&[Mechanism::OAuthBearer]), [""; 0]);
}

#[test]
fn names_of_users_become_names_of_files() {
    let mut taken = BTreeSet::new();
    for (user, expected) in [
        ("alice", "client-alice.properties"),
        ("../etc/x", "client-.._etc_x.properties"),
        (".._etc_x", "client-.._etc_x-2.properties"),
        ("a@b.c", "client-a@b.c.properties"),
    ] {
        assert_eq!(file_name(Some(user), None, &mut taken), expected);
    }
}

#[test]
fn special_characters_of_passwords_are_escaped_twice() {
    let user = User::new("al\"ice", "p\\w \u{e9}\u{1f600};");
    let lines = login(&user, Mechanism::Plain);
    let text: String = lines.iter().map(|(name, value)| property(name, value)).collect();
    let expected = concat!(
        "sasl.mechanism=PLAIN\n",
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required ",
        r#"username="al\\"ice" password="p\\\\w \u00e9\ud83d\ude00;";"#,
        "\n"
    );
    assert_eq!(text, expected);
}
