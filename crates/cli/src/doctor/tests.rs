use super::*;

#[test]
fn runs_are_counted_on_when_further_settings_are_tried() {
    let mut runs = Runs { planned: 7, ..Runs::default() };
    assert_eq!(runs.next(0), "run 1 of 7");
    let first: Vec<String> = (1..=6).rev().map(|left| runs.next(left)).collect();
    assert_eq!((&*first[0], &*first[5]), ("run 2 of 7", "run 7 of 7"));
    let then: Vec<String> = (1..=21).rev().map(|left| runs.next(left)).collect();
    assert_eq!((&*then[0], &*then[20]), ("run 8 of 28", "run 28 of 28"));
}
