use super::*;

#[test]
fn a_command_is_quoted_as_a_shell_needs_it() {
    let words = ["/usr/bin/curtail", "lab", "run", "e2e", "--json", "my file", "it's", ""];
    let said = command(words.into_iter().map(str::to_owned));
    assert_eq!(said, r"curtail lab run e2e --json 'my file' 'it'\''s' ''");
}

#[test]
fn options_are_left_out_with_their_values() {
    let words = "curtail lab run e2e --json a.json --html=b.html --scale 0.5 --hdr --omb --why";
    let kept: Vec<_> = without(words.split(' ').map(str::to_owned), &OUTPUTS).collect();
    // The value of --hdr is a file called --omb.
    assert_eq!(kept.join(" "), "curtail lab run e2e --scale 0.5 --why");
    let last = without(["lab", "--json"].map(str::to_owned), &OUTPUTS);
    assert_eq!(last.collect::<Vec<_>>(), ["lab"]);
}

#[test]
fn values_of_client_properties_are_hidden() {
    for (given, expected) in [
        ("-X a.b=hush=x --why", "-X a.b=[hidden] --why"),
        ("-Xa=hush -X=b=hush", "-Xa=[hidden] -X=b=[hidden]"),
        ("--property a=hush --property=b=hush", "--property a=[hidden] --property=b=[hidden]"),
        ("--command-property=a=hush", "--command-property=a=[hidden]"),
        ("--cluster-property a=1 --scale=0.5", "--cluster-property a=1 --scale=0.5"),
        ("-X", "-X"),
    ] {
        let kept: Vec<_> = hidden(given.split(' ').map(str::to_owned)).collect();
        assert_eq!(kept.join(" "), expected);
    }
}

#[test]
fn the_words_of_a_command_are_its_arguments() {
    let arguments = [
        "curtail",
        "",
        "a  b",
        "it's",
        "'",
        r"\",
        r"a\'b ",
        "\"x\"",
        "--json=a 'b",
        "new\nline",
        "\u{e9}",
    ];
    let said = command(arguments.into_iter().map(str::to_owned));
    assert_eq!(words(&said), arguments, "{said}");
    assert_eq!(words(""), [""; 0]);
    assert_eq!(words(" a  b "), ["a", "b"]);
}

#[test]
fn the_error_of_an_invalid_report_names_the_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let failed = |text: &str| {
        std::fs::write(file.path(), text).unwrap();
        match read(file.path()) {
            Err(Failure::Message(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    let line = failed("\nx\n");
    assert!(line.contains(", line 2: not in the format of `curtail lab run --json`"), "{line}");
    assert!(failed("{}").contains("missing field"), "no report");
    assert!(failed(" \n").ends_with("contains no experiment"), "nothing");
}
