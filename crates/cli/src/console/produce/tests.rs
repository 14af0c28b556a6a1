use super::Splitter;

fn splitter(delimiter: &str, key: Option<&str>, null: bool) -> Splitter {
    Splitter {
        delimiter: delimiter.into(),
        key_delimiter: key.map(|k| k.as_bytes().to_vec()),
        optional_key: false,
        null,
    }
}

fn pieces(splitter: &Splitter, mut input: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut piece = Vec::new();
    while splitter.next(&mut input, &mut piece).unwrap() {
        all.push(piece.clone());
    }
    all
}

#[test]
fn input_is_cut_at_the_delimiter() {
    let lines = splitter("\n", None, false);
    assert_eq!(pieces(&lines, b"a\n\nb\r\nc"), [&b"a"[..], b"", b"b\r", b"c"]);
    assert_eq!(pieces(&lines, b""), [b""; 0]);
    assert_eq!(pieces(&splitter("--", None, false), b"a-b--c---d"), [&b"a-b"[..], b"c", b"-d"]);
    assert_eq!(pieces(&splitter("", None, false), b"all\nof it"), [b"all\nof it"]);
}

#[test]
fn keys_stand_before_the_first_delimiter() {
    let keyed = splitter("\n", Some("::"), false);
    assert_eq!(keyed.key_and_value(b"k::v::w"), Some((Some(&b"k"[..]), Some(&b"v::w"[..]))));
    assert_eq!(keyed.key_and_value(b"::"), Some((Some(&b""[..]), Some(&b""[..]))));
    assert_eq!(keyed.key_and_value(b"only"), None);
    let optional = Splitter { optional_key: true, ..keyed };
    assert_eq!(optional.key_and_value(b"only"), Some((None, Some(&b"only"[..]))));
    let null = splitter("\n", Some("::"), true);
    assert_eq!(null.key_and_value(b"k::"), Some((Some(&b"k"[..]), None)));
    assert_eq!(splitter("\n", None, true).key_and_value(b""), Some((None, None)));
}
