use super::Progress;

#[test]
fn all_that_one_poll_gives_out_has_caught_up_with_the_poll_before() {
    let mut progress = Progress::default();
    assert_eq!([5, 5, 9, 9, 12].map(|at| progress.poll(at)), [0, 0, 5, 5, 9]);
}
