use super::{expand, partitions};

#[test]
fn ranges_stand_for_every_number_in_them() {
    for (text, names) in [
        ("foo", &["foo"][..]),
        ("foo[1-3]", &["foo1", "foo2", "foo3"]),
        ("foo[9-11]x", &["foo9x", "foo10x", "foo11x"]),
        ("foo[1-2]:[0-1]", &["foo1:0", "foo1:1", "foo2:0", "foo2:1"]),
        ("foo[2-2]", &["foo2"]),
        ("[1-1][1-1]", &["11"]),
        ("foo[a-b]", &["foo[a-b]"]),
        ("foo[1-2", &["foo[1-2"]),
        ("a[b][1-2]", &["a[b]1", "a[b]2"]),
    ] {
        assert_eq!(expand(text).unwrap(), names, "{text}");
    }
    for (text, word) in
        [("foo[3-1]", "ends before"), ("t[0-100000]", "100000"), ("t[0-999][0-999]", "100000")]
    {
        let error = expand(text).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(text), "{error}");
    }
}

#[test]
fn partitions_follow_a_colon() {
    let read = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        partitions(&texts).map_err(|error| error.to_string())
    };
    let all = read(&["foo[1-2]", "bar:2", "bar:[0-1]", "bar:1", "baz"]).unwrap();
    let shown: Vec<_> =
        all.iter().map(|(name, numbers)| (name.as_str(), numbers.clone())).collect();
    assert_eq!(
        shown,
        [("bar", vec![0, 1, 2]), ("baz", vec![]), ("foo1", vec![]), ("foo2", vec![])]
    );
    for (text, word) in
        [("foo:x", "'x' is not a partition"), ("foo:1:2", "not a partition"), (":1", "no topic")]
    {
        let error = read(&[text]).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}
