use super::*;

#[test]
fn catch_up_lasts_from_the_known_high_watermark_to_the_previous_poll() {
    let start = Instant::now();
    let ms = Duration::from_millis;
    let mut lags = Lags::default();
    // Two of ten records, at once ten more, and then the rest in two polls.
    lags.look(0, 0..2, Some(10), start);
    lags.look(0, 2..4, Some(20), start + ms(100));
    lags.look(0, 4..10, Some(20), start + ms(300));
    assert_eq!(lags.catch_up.count(), 10);
    // The first four did not wait: the poll after their high watermark became known returned them.
    assert_eq!(lags.catch_up.quantile(0.4), Duration::ZERO);
    let close = |seen: Duration, to: Duration| seen >= to && seen < to + to / 500;
    assert!(close(lags.catch_up.max(), ms(100)), "{:?}", lags.catch_up.max());
    lags.look(0, 10..20, Some(20), start + ms(400));
    // Known since 100 ms, and read up to there at 300 ms.
    assert!(close(lags.catch_up.max(), ms(200)), "{:?}", lags.catch_up.max());
    assert_eq!(lags.looks.count(), 3);
    // Another partition has a separate history.
    lags.look(1, 0..1, Some(1), start + ms(400));
    assert_eq!((lags.looks.count(), lags.catch_up.count()), (3, 21));
}
