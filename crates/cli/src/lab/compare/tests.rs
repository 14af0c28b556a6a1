use curtail_lab::experiments::{Environment, compare::Ratio};

use super::*;

fn report(command: &str) -> Report {
    Report {
        experiment: "acks".into(),
        source: String::new(),
        cluster: "sim".into(),
        scale: 1.0,
        seed: 1,
        command: command.into(),
        environment: Environment::default(),
        models: Vec::new(),
        arms: Vec::new(),
        published: Vec::new(),
        conditions: Vec::new(),
    }
}

#[test]
fn the_command_again_is_that_of_the_report_with_rounds_and_a_file() {
    for (command, expected) in [
        (
            "curtail lab run acks --rounds 1 --arm all --json a.json",
            "curtail lab run acks --arm all --rounds 5 --json FILE",
        ),
        (
            r"curtail lab run '--json=a b'\''s c' acks --rounds=2",
            "curtail lab run acks --rounds 5 --json FILE",
        ),
        (
            "curtail lab run --json 'my runs/a b.json' acks",
            "curtail lab run acks --rounds 5 --json FILE",
        ),
        (
            "curtail lab run acks --html 'my page' --json a.json",
            "curtail lab run acks --rounds 5 --json FILE",
        ),
        ("", "curtail lab run acks --cluster sim --rounds 5 --json FILE"),
    ] {
        assert_eq!(again(&report(command)), expected);
    }
}

#[test]
fn without_a_judged_difference_the_next_command_is_named() {
    let rows = |verdict| {
        let ratios = vec![Ratio { metric: Metric::P50, ratio: Some(1.0), verdict }];
        [Row { arm: "a".into(), client: "curtail".into(), ratios }]
    };
    assert_eq!(
        chance(&rows(Verdict::Single), "X"),
        "each arm ran once, so no difference can be judged; run: X"
    );
    assert_eq!(
        chance(&rows(Verdict::Noise), "X"),
        "no difference exceeds the noise; for a clearer result run: X"
    );
    let apart = chance(&rows(Verdict::Apart(0.1)), "X");
    assert_eq!(apart, "equal arms differ like this by chance in up to 10.0% of such comparisons");
}
