use super::{Rate, Runs, basis};

#[test]
fn runs_are_counted_on_when_further_settings_are_tried() {
    let mut runs = Runs { planned: 7, ..Runs::default() };
    assert_eq!(runs.next(0), "run 1 of 7");
    let first: Vec<String> = (1..=6).rev().map(|left| runs.next(left)).collect();
    assert_eq!((&*first[0], &*first[5]), ("run 2 of 7", "run 7 of 7"));
    let then: Vec<String> = (1..=21).rev().map(|left| runs.next(left)).collect();
    assert_eq!((&*then[0], &*then[20]), ("run 8 of 28", "run 28 of 28"));
}

#[test]
fn throughputs_have_the_unit_of_the_requested_one() {
    let rate = Rate::unit_of(500.0 * 1024.0);
    assert_eq!(rate.text(500.0 * 1024.0), "500.00 KB/s");
    assert_eq!(rate.number(499.5 * 1024.0), "499.50");
    assert_eq!(Rate::unit_of(16.0).text(16.0), "16.00 B/s");
    assert_eq!(Rate::unit_of(9e7).text(90.0 * 1024.0 * 1024.0), "90.00 MB/s");
}

#[test]
fn a_percentile_of_few_records_is_warned_of() {
    let more = "For a reliable one use a longer --duration or a higher --throughput.";
    for (records, expected) in [
        (1, format!("WARNING: 1 record measured, too few for a 99th percentile. {more}")),
        (99, format!("WARNING: 99 records measured, too few for a 99th percentile. {more}")),
        (
            199,
            format!(
                "WARNING: 199 records measured: the 99th percentile rests on the slowest one. {more}"
            ),
        ),
        (
            999,
            format!(
                "WARNING: 999 records measured: the 99th percentile rests on the slowest 9. {more}"
            ),
        ),
        (1000, "1000 records measured: the 99th percentile rests on the slowest 10.".to_owned()),
    ] {
        assert_eq!(basis(records), expected);
    }
}
