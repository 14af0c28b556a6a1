use super::*;

#[test]
fn a_partition_at_rest_is_small() {
    assert!(size_of::<Partition>() <= 120, "{}", size_of::<Partition>());
}

#[test]
fn partition_rests_once_every_batch_has_its_outcome() {
    let awake = Awake::default();
    let partition = Partition::new("t".into(), 0, None);
    let result = partition.state.lock().new_result(&partition, &awake);
    partition.rest();
    assert_eq!(awake.0.load(Ordering::Relaxed), 1, "there is no outcome yet");
    result.resolve(Err(Error::Closed));
    partition.rest();
    assert_eq!(awake.0.load(Ordering::Relaxed), 0);
}

#[test]
fn an_error_is_kept_until_a_batch_was_written_after_it() {
    let awake = Awake::default();
    let partition = Partition::new("t".into(), 0, None);
    let mut state = partition.state.lock();
    state.set_last_error(Some(Error::Closed));
    assert!(state.last_error().is_none(), "an abandoned batch does not wake it");
    state.wake(&awake);
    state.set_last_error(Some(Error::Closed));
    assert!(matches!(state.last_error(), Some(Error::Closed)));
    state.set_last_error(None);
    assert!(state.last_error().is_none());
}

#[test]
fn newest_sent_batch_outlives_the_rest_and_never_goes_back() {
    let partition = Partition::new("t".into(), 0, None);
    let ms = Duration::from_millis;
    assert!(!partition.state.lock().has_sent_newer(ms(0)), "nothing was sent");
    partition.state.lock().sends(ms(10));
    partition.state.lock().sends(ms(7));
    partition.rest();
    assert!(partition.state.lock().has_sent_newer(ms(9)));
    assert!(!partition.state.lock().has_sent_newer(ms(10)), "it is the newest itself");
}
