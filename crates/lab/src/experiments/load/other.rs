//! A load that another client sends.

use std::{collections::BTreeMap, thread, time::Instant};

use curtail::ProducerConfig;

use super::{Acknowledged, Fate, Keys, Load, Observation, Senders, Sent};
use crate::{
    cpu::CpuTime,
    peers::{
        Driver,
        driver::{Measured, Order, Until},
        fates::Told,
    },
    perf::{Error, Result},
};

impl Load {
    /// As [`Load::run_by`], sent by a driver. Its client uses its own defaults for settings that the load leaves
    /// out.
    ///
    /// With `brokers_here`, the CPU time of the brokers in this process counts too, as it does for Curtail.
    ///
    /// # Errors
    /// [`Error::Lacking`] if the client lacks a setting, or cannot send as these senders do; a driver that fails;
    /// errors of the script.
    pub(in crate::experiments) fn sent_by<T: Send>(
        self,
        driver: &Driver,
        senders: Senders,
        brokers_here: bool,
        script: impl FnOnce(Instant) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        let order = self.order(driver, &senders)?;
        self.sent_as(&order, driver, senders, brokers_here, script)
    }

    /// Sent by a driver whose own consumer reads the load: a record's acknowledgement time is when it was
    /// read. `warmup` records are sent first and not reported.
    ///
    /// # Errors
    /// As [`Load::sent_by`].
    pub(in crate::experiments) fn sent_and_read_by(
        self,
        driver: &Driver,
        brokers_here: bool,
        warmup: u64,
    ) -> Result<Sent> {
        let senders = Senders::default();
        let order = Order { until: Until::Read, warmup, ..self.order(driver, &senders)? };
        let (sent, ()) = self.sent_as(&order, driver, senders, brokers_here, |_| Ok(()))?;
        Ok(sent)
    }

    fn sent_as<T: Send>(
        self,
        order: &Order,
        driver: &Driver,
        senders: Senders,
        brokers_here: bool,
        script: impl FnOnce(Instant) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        let (sending, start) = driver.load(order)?.go()?;
        let before = CpuTime::now();
        let (measured, scripted) = thread::scope(|scope| {
            let script = scope.spawn(move || script(start));
            let measured = sending.finish();
            let here = CpuTime::now() - before;
            let scripted = script.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (measured.map(|measured| (measured, here)), scripted)
        });
        let (measured, here) = measured?;
        let mut sent = self.collect_told(start, measured, senders);
        if brokers_here {
            sent.cpu = sent.cpu + here;
        }
        Ok((sent, scripted?))
    }

    fn order(&self, driver: &Driver, senders: &Senders) -> Result<Order> {
        let Some(senders) = senders.in_turn() else {
            return Err(Error::Lacking("its driver cannot send as this experiment does".into()));
        };
        let properties = given(&self.config);
        if let Some(reason) = driver.peer().lacks(&properties) {
            return Err(Error::Lacking(reason));
        }
        Ok(Order {
            bootstrap: self.config.get_bootstrap_servers().join(","),
            topic: self.topic.clone(),
            records: self.records,
            warmup: self.warm_up_records(),
            rate: self.rate,
            size: self.size,
            keys: match self.keys {
                Keys::None => None,
                Keys::Cycle(count) => Some(count),
            },
            senders,
            until: Until::Acknowledged,
            seed: self.seed,
            properties,
        })
    }

    fn collect_told(self, start: Instant, measured: Measured, senders: Senders) -> Sent {
        let Measured { fates, cpu, first_error } = measured;
        let fates = fates.into_iter().map(fate).collect();
        let observation = Observation::default();
        // The driver reports a record's partition but not its broker.
        let brokers = BTreeMap::new();
        let requests = 0;
        Sent { start, fates, first_error, observation, load: self, requests, senders, cpu, brokers }
    }
}

fn fate(Told { sent, acknowledged }: Told) -> Fate {
    let acknowledged = acknowledged.map(|place| Acknowledged {
        partition: place.partition,
        offset: place.offset,
        written: None,
        at: place.at,
    });
    Fate { sent, acknowledged }
}

/// Settings that differ from Curtail's defaults, which are Kafka's where Kafka has the setting.
fn given(config: &ProducerConfig) -> Vec<(String, String)> {
    let defaults = ProducerConfig::default().properties();
    let told = config.properties().into_iter().zip(defaults);
    told.filter(|(given, default)| given != default && given.0 != "bootstrap.servers")
        .map(|((name, value), _)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::{Awaits, Placement, WarmUp},
        *,
    };
    use crate::{peers::Peer, phases::PhaseName};

    fn load(config: ProducerConfig) -> Load {
        Load {
            config,
            topic: "t".into(),
            records: 3,
            warmup: 1,
            rate: 1000.0,
            size: 10,
            keys: Keys::None,
            placement: Placement::Producer,
            seed: 1,
            warm_up: WarmUp::Connections,
            earlier: false,
            awaits: Awaits::default(),
        }
    }

    /// A driver that reports three records: acknowledged after 5 ms, not acknowledged, and acknowledged after
    /// 9 ms.
    fn driver() -> Driver {
        const TEXT: &str = r#"
            while [ $# -gt 0 ]; do
                case "$1" in --fates) fates="$2";; --json) json="$2";; esac
                shift
            done
            echo ready
            read go
            number() { printf "$(printf '\\%03o' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)))\0\0\0\0\0"; }
            {
                number 0; number 5000000; printf '\1\0\0\0'; number 7
                number 1000000; printf '\377\377\377\377\377\377\377\377'; printf '\0\0\0\0'; number 0
                number 2500000; number 9000000; printf '\2\0\0\0'; number 8
            } > "$fates"
            echo 'first error: too late' >&2
            echo '{"cpu_user_us":3000,"cpu_system_us":1000}' > "$json"
        "#;
        Driver::new(Peer::Librdkafka, ["sh", "-c", TEXT, "driver"].map(Into::into).into())
    }

    #[test]
    fn fates_of_another_client_are_measured_like_curtails() {
        let config = ProducerConfig::new("127.0.0.1:1").linger(Duration::ZERO);
        let script = |start: Instant| Ok(start.elapsed());
        let (sent, _) = load(config).sent_by(&driver(), Senders::default(), false, script).unwrap();
        let sample = sent.sample();
        assert_eq!((sample.records, sample.errors, sample.bytes), (1, 1, 10));
        assert_eq!(sample.first_error.as_deref(), Some("too late"));
        assert_eq!(sample.cpu.total(), Duration::from_millis(4));
        // Latency counts from the due time, not from the send.
        assert_eq!(sample.latency.max().as_millis(), 7);
        assert_eq!(sample.phases.get(PhaseName::Produce).count(), 0);
        assert_eq!(sent.longest_silence(0), 4_000_000);
        assert_eq!(sent.bytes_by_partition(), [(1, 10), (2, 10)].into());
    }

    #[test]
    fn a_setting_that_the_client_lacks_is_known_before_anything_is_sent() {
        let mut config = ProducerConfig::new("127.0.0.1:1");
        config.set("partitioner.availability.timeout.ms", "5").unwrap();
        let run = load(config).sent_by(&driver(), Senders::default(), false, |_| Ok(()));
        assert!(matches!(run, Err(Error::Lacking(text)) if text.contains("availability")));
    }

    #[test]
    fn a_driver_receives_producers_or_partitions_in_turn_and_nothing_else() {
        let of = |senders: Senders| senders.in_turn().map(|told| (told.producers, told.partitions));
        assert_eq!(of(Senders::default()), Some((1, Vec::new())));
        assert_eq!(of(Senders::producers(3)), Some((3, Vec::new())));
        assert_eq!(of(Senders::partitions([4, 2])), Some((1, vec![4, 2])));
        assert_eq!(of(Senders { end_with_script: true, ..Senders::default() }), None);
        let mut mixed = Senders::producers(2);
        mixed.slots[1].partition = Some(7);
        assert_eq!(of(mixed), None);
        let run = load(ProducerConfig::new("127.0.0.1:1"));
        let until_the_end = Senders { end_with_script: true, ..Senders::default() };
        let run = run.sent_by(&driver(), until_the_end, false, |_| Ok(()));
        assert!(matches!(run, Err(Error::Lacking(text)) if text.contains("cannot send")));
    }

    #[test]
    fn another_client_receives_only_the_settings_of_the_load() {
        let config = ProducerConfig::new("127.0.0.1:1").linger(Duration::ZERO);
        assert_eq!(given(&config), [("linger.ms".to_owned(), "0".to_owned())]);
    }
}
