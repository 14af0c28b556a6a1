//! The partition of a broker for keyless records, while some of its partitions have acknowledged no batch.
//!
//! A new leader acknowledges late. On Apache Kafka each replica flushes the partition's leader epochs to disk before
//! the first batch of an epoch, one partition after the other. A follower that fetched too early returns only after
//! `replica.fetch.backoff.ms`. Responses of a connection are in order, so every record after such a batch waits too.
//! Therefore one partition at a time is tried, with one record if others are proven, and all other records go to
//! those.

/// A partition's state under its current leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has acknowledged a batch.
    Proven,
    /// It has acknowledged no batch, and may be tried.
    Untried,
    /// It has acknowledged no batch, and its followers may not have reached the new leader yet.
    Settling,
}

/// The partition chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picked {
    /// The partition.
    pub partition: u32,
    /// Role of the choice for the partition.
    pub as_what: Role,
}

/// Role of a choice for its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The partition is proven, or under trial already.
    Home,
    /// A trial begins, with one record: other partitions are proven.
    Trial,
    /// A trial begins with all records: no partition is known to be proven.
    TrialForWant,
}

/// Partitions examined in the search for a proven one.
pub const LOOKS: usize = 64;

/// A broker's proven partition and its trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tests {
    /// A proven partition, for the case that the search finds none.
    pub home: Option<u32>,
    /// The partition under trial.
    pub trial: Option<u32>,
    /// Whether a trial with one record may begin: the records are yet to come.
    pub may_begin: bool,
}

/// Chooses the partition for keyless records: `partitions[nth]` if it is proven. Returns `None` without partitions.
pub fn pick(
    partitions: &[u32],
    nth: usize,
    tests: Tests,
    standing: impl Fn(u32) -> Standing,
) -> Option<Picked> {
    let (before, from) = partitions.split_at_checked(nth)?;
    let drawn = *from.first()?;
    let drawn_is = standing(drawn);
    if drawn_is == Standing::Proven {
        return Some(Picked { partition: drawn, as_what: Role::Home });
    }
    let mut others = from.iter().chain(before).skip(1).take(LOOKS).copied();
    let proven = others.find(|&other| standing(other) == Standing::Proven).or(tests.home);
    let may_begin = tests.may_begin && tests.trial.is_none();
    match proven {
        Some(_) if drawn_is == Standing::Untried && may_begin => {
            Some(Picked { partition: drawn, as_what: Role::Trial })
        }
        Some(proven) => Some(Picked { partition: proven, as_what: Role::Home }),
        None => Some(match tests.trial {
            Some(partition) => Picked { partition, as_what: Role::Home },
            None => Picked { partition: drawn, as_what: Role::TrialForWant },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITIONS: [u32; 4] = [3, 5, 7, 9];

    fn trial(trial: Option<u32>) -> Tests {
        Tests { home: None, trial, may_begin: true }
    }

    fn home(partition: u32) -> Option<Picked> {
        Some(Picked { partition, as_what: Role::Home })
    }

    #[test]
    fn a_proven_partition_takes_the_records_it_was_drawn_for() {
        for (nth, &partition) in PARTITIONS.iter().enumerate() {
            assert_eq!(
                pick(&PARTITIONS, nth, trial(Some(5)), |_| Standing::Proven),
                home(partition)
            );
        }
    }

    #[test]
    fn one_record_tries_a_partition_where_another_is_proven_one_partition_at_a_time() {
        let standing = |index| if index == 5 { Standing::Proven } else { Standing::Untried };
        let begun = Some(Picked { partition: 9, as_what: Role::Trial });
        assert_eq!(pick(&PARTITIONS, 3, trial(None), standing), begun);
        assert_eq!(pick(&PARTITIONS, 3, trial(Some(7)), standing), home(5));
    }

    #[test]
    fn records_that_wait_already_try_no_partition_where_another_is_proven() {
        let standing = |index| if index == 5 { Standing::Proven } else { Standing::Untried };
        assert_eq!(pick(&PARTITIONS, 3, Tests::default(), standing), home(5));
    }

    #[test]
    fn a_new_leader_is_left_alone_while_another_is_proven() {
        let standing = |index| if index == 5 { Standing::Proven } else { Standing::Settling };
        assert_eq!(pick(&PARTITIONS, 2, trial(None), standing), home(5));
    }

    #[test]
    fn without_a_proven_partition_all_records_go_to_the_one_under_trial() {
        for standing in [Standing::Untried, Standing::Settling] {
            let first = Some(Picked { partition: 7, as_what: Role::TrialForWant });
            assert_eq!(pick(&PARTITIONS, 2, trial(None), |_| standing), first);
            assert_eq!(pick(&PARTITIONS, 0, trial(Some(7)), |_| standing), home(7));
        }
    }

    #[test]
    fn a_large_topic_is_not_searched_to_its_end() {
        let all: Vec<u32> = (0..100_000).collect();
        let looks = std::cell::Cell::new(0);
        let standing = |_| {
            looks.set(looks.get() + 1);
            Standing::Untried
        };
        let tests = Tests { home: Some(5), ..Tests::default() };
        assert_eq!(pick(&all, 50_000, tests, standing), home(5), "a proven one that is known");
        assert_eq!(looks.get(), LOOKS + 1);
    }

    #[test]
    fn no_partition_is_picked_from_none() {
        assert_eq!(pick(&[], 0, trial(Some(1)), |_| Standing::Proven), None);
        assert_eq!(pick(&PARTITIONS, 4, trial(None), |_| Standing::Proven), None);
    }
}
