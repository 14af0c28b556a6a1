use super::*;

fn given(settings: &[(&str, &str)]) -> Given {
    settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn settings_are_refused_with_kafkas_codes() {
    let table: [(&str, &str, Option<ErrorCode>); 14] = [
        ("metrics", "", None),
        ("metrics", "*", None),
        ("metrics", "org.apache.kafka.producer., org.apache.kafka.consumer.", None),
        ("interval.ms", "100", None),
        ("interval.ms", "3600000", None),
        ("interval.ms", "99", Some(ErrorCode::INVALID_REQUEST)),
        ("interval.ms", "3600001", Some(ErrorCode::INVALID_REQUEST)),
        ("interval.ms", "soon", Some(ErrorCode::INVALID_CONFIG)),
        ("match", "client_id=a.*,client_software_version=1\\.2", None),
        ("match", "client_id", Some(ErrorCode::INVALID_CONFIG)),
        ("match", "client_id=", Some(ErrorCode::INVALID_CONFIG)),
        ("match", "colour=red", Some(ErrorCode::INVALID_CONFIG)),
        ("match", "client_id=(", Some(ErrorCode::INVALID_CONFIG)),
        ("retention.ms", "1", Some(ErrorCode::INVALID_REQUEST)),
    ];
    for (name, value, expected) in table {
        let refused = check(&given(&[(name, value)])).err().map(|(code, _)| code);
        assert_eq!(refused, expected, "{name}={value}");
    }
}

#[test]
fn all_expressions_match_attributes_as_a_whole() {
    let attributes = BTreeMap::from([
        ("client_id", "billing-7".to_owned()),
        ("client_source_port", "4711".to_owned()),
    ]);
    for (patterns, expected) in [
        ("", true),
        ("client_id=billing-7", true),
        ("client_id=billing.*", true),
        ("client_id=billing", false),
        ("client_id=a|billing-7", true),
        ("client_id=.*,client_source_port=47..", true),
        ("client_id=.*,client_source_port=48..", false),
        // The client has not named its software.
        ("client_software_name=.*", false),
    ] {
        let subscription = Subscription::new(&given(&[("match", patterns)])).unwrap();
        assert_eq!(subscription.is_for(&attributes), expected, "{patterns}");
    }
}
