use clap::Parser;
use curtail::{ConsumerConfig, config::OffsetReset};

use super::{Arguments, Start, config};

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

#[derive(Parser)]
struct Consume {
    #[command(flatten)]
    arguments: Arguments,
}

/// The settings of `curtail consume` with these arguments and a file of properties.
fn with_file(text: &str, arguments: &[&str]) -> ConsumerConfig {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("client.properties");
    std::fs::write(&path, text).unwrap();
    let always = ["consume", "t", "--command-config", path.to_str().unwrap()];
    config(&Consume::parse_from(always.iter().chain(arguments)).arguments).unwrap()
}

#[test]
fn without_the_group_flag_nothing_is_committed() {
    for text in ["group.id=billing", "group.id=billing\nenable.auto.commit=true", ""] {
        let config = with_file(text, &[]);
        assert!(!config.get_enable_auto_commit(), "{text}");
    }
    let config = with_file("group.id=billing", &["--group", "g"]);
    assert_eq!((config.get_group_id(), config.get_enable_auto_commit()), (Some("g"), true));
}

#[test]
fn a_start_flag_overrides_the_reset_of_a_file_but_not_of_a_property() {
    let (earliest, latest, none) = (OffsetReset::Earliest, OffsetReset::Latest, OffsetReset::None);
    let by_name = ["-X", "auto.offset.reset=none"];
    for (text, flags, expected) in [
        ("", &[][..], earliest),
        ("auto.offset.reset=latest", &[], latest),
        ("auto.offset.reset=latest", &["--from-beginning"], earliest),
        ("auto.offset.reset=latest", &["--offset", "beginning"], earliest),
        ("auto.offset.reset=earliest", &["--offset", "end"], latest),
    ] {
        let arguments = [&["--group", "g"], flags].concat();
        assert_eq!(
            with_file(text, &arguments).get_auto_offset_reset(),
            expected,
            "{text} {flags:?}"
        );
        let both = [&arguments[..], &by_name].concat();
        assert_eq!(with_file(text, &both).get_auto_offset_reset(), none, "{text} {flags:?}");
    }
}
