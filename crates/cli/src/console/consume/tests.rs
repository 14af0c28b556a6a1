use super::Start;

#[test]
fn starts_are_those_of_kcat() {
    for (text, expected) in [
        ("beginning", Start::Beginning),
        ("end", Start::End),
        ("0", Start::At(0)),
        ("17", Start::At(17)),
        ("-5", Start::BeforeEnd(5)),
        ("s@1700000000000", Start::Time(1_700_000_000_000)),
    ] {
        assert_eq!(Start::parse(text), Ok(expected));
    }
    for text in ["", "middle", "--5", "1.5", "s@", "s@-1", "99999999999999999999"] {
        assert!(Start::parse(text).is_err(), "{text}");
    }
}
