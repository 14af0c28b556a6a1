use super::*;

const MS: u64 = 1_000_000;

fn windows() -> Windows {
    let ms = Duration::from_millis;
    Windows { warmup: ms(10), quiet: ms(20), fault: ms(30), rest: ms(5), rounds: 2 }
}

#[test]
fn every_time_has_its_part() {
    let windows = windows();
    assert_eq!(windows.whole(), Duration::from_millis(120));
    let part = |ms: u64| windows.part(ms * MS);
    for quiet in [10, 29, 65, 84] {
        assert_eq!(part(quiet), Part::Quiet, "{quiet}");
    }
    for fault in [30, 59, 85, 114] {
        assert_eq!(part(fault), Part::Fault, "{fault}");
    }
    for rest in [0, 9, 60, 64, 115, 119, 120, 130, 1_000] {
        assert_eq!(part(rest), Part::Rest, "{rest}");
    }
}

#[test]
fn the_rest_of_a_part_ends_with_the_part() {
    let left = |ms: u64| windows().left(ms * MS).map(|left| left.as_millis());
    for (at, expected) in [(0, 10), (10, 20), (29, 1), (30, 30), (60, 5), (64, 1), (65, 20)] {
        assert_eq!(left(at), Some(expected), "{at}");
    }
    assert_eq!((left(119), left(120)), (Some(1), None));
}

#[test]
fn the_fault_is_active_in_its_part_only() {
    let windows = windows();
    let start = Instant::now();
    let (mut come, mut gone) = (Vec::new(), Vec::new());
    let ran = windows.run(
        start,
        || {
            come.push(start.elapsed());
            Ok(())
        },
        || {
            gone.push(start.elapsed());
            Ok(())
        },
    );
    assert!(ran.is_ok() && start.elapsed() >= windows.whole());
    let at = |ms| Duration::from_millis(ms);
    assert!(come.len() == 2 && come[0] >= at(30) && come[1] >= at(85), "{come:?}");
    assert!(gone.len() == 2 && gone[0] >= at(60) && gone[1] >= at(115), "{gone:?}");
}
