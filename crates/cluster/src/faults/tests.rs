#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{cell::RefCell, time::Duration};

use curtail_net::Entropy;
use curtail_wire::{ApiKey, ErrorCode};
use proptest::prelude::*;

use super::{
    rules::{Rule, Rules},
    text::{parse_api, parse_code, parse_duration},
    *,
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn request(broker: i32, api: ApiKey, client_id: &str) -> Request<'_> {
    Request { broker, api, client_id }
}

fn rules(faults: impl IntoIterator<Item = Fault>) -> Rules {
    let rule = |(fault, n): (Fault, u64)| Rule::new(format!("f{n}"), n, fault);
    Rules(faults.into_iter().zip(0..).map(rule).collect())
}

#[test]
fn a_fault_concerns_the_requests_that_match_every_field() {
    let produce = Requests::of(ApiKey::PRODUCE);
    let cases = [
        (Requests::all(), request(1, ApiKey::FETCH, "app"), true),
        (Requests::all(), request(1, ApiKey::FETCH, ""), true),
        (Requests::all(), request(1, ApiKey::FETCH, FETCHER_ID), false),
        (Requests::all().from(Sender::All), request(1, ApiKey::FETCH, FETCHER_ID), true),
        (Requests::all().from(Sender::Brokers), request(1, ApiKey::FETCH, BROKER_ID), true),
        (Requests::all().from(Sender::Brokers), request(1, ApiKey::FETCH, "app"), false),
        (produce.clone(), request(1, ApiKey::PRODUCE, "app"), true),
        (produce.clone(), request(1, ApiKey::FETCH, "app"), false),
        (produce.clone().to_broker(2), request(2, ApiKey::PRODUCE, "app"), true),
        (produce.clone().to_broker(2), request(1, ApiKey::PRODUCE, "app"), false),
        (produce.clone().by_client("app"), request(1, ApiKey::PRODUCE, "app"), true),
        (produce.clone().by_client("app"), request(1, ApiKey::PRODUCE, "app-2"), false),
        (produce.clone().by_client("app*"), request(1, ApiKey::PRODUCE, "app-2"), true),
        (produce.clone().by_client("app*"), request(1, ApiKey::PRODUCE, "other"), false),
        (produce.clone().at_rate(0.0), request(1, ApiKey::PRODUCE, "app"), false),
        (produce.clone().at_rate(1.0), request(1, ApiKey::PRODUCE, "app"), true),
        (produce.times(0), request(1, ApiKey::PRODUCE, "app"), false),
    ];
    for (of, request, concerns) in cases {
        let mut rules = rules([Fault::delay(of.clone(), Time::Fixed(ms(7)))]);
        let expected = if concerns { ms(7) } else { Duration::ZERO };
        let fate = rules.fate(&request, &[]);
        assert_eq!(fate, Fate { delay: expected, then: Then::Write }, "{of:?} {request:?}");
        assert_eq!(rules.0[0].describe().hits, u64::from(concerns), "{of:?} {request:?}");
    }
}

#[test]
fn an_error_names_its_topic_and_partition() {
    let any = Fault::error(Requests::of(ApiKey::PRODUCE), ErrorCode::NOT_LEADER_OR_FOLLOWER);
    let of_topic = Fault::error(
        Requests::of(ApiKey::PRODUCE).on_topic("t"),
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
    );
    let of_partition = Fault::error(
        Requests::of(ApiKey::PRODUCE).on_partition("t", 1),
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
    );
    let items = [
        Item::Request,
        Item::Topic("t"),
        Item::Topic("u"),
        Item::Partition("t", 1),
        Item::Partition("t", 2),
        Item::Partition("u", 1),
    ];
    for (fault, refused) in [
        (any, [true, true, true, true, true, true]),
        (of_topic, [false, true, false, true, true, false]),
        (of_partition, [false, false, false, true, false, false]),
    ] {
        let mut rules = rules([fault.clone()]);
        let asked = request(1, ApiKey::PRODUCE, "app");
        let told = items.map(|item| rules.error(&asked, item).is_some());
        assert_eq!(told, refused, "{fault:?}");
    }
}

#[test]
fn the_newest_fault_of_a_kind_applies() {
    let produce = || Requests::of(ApiKey::PRODUCE);
    let mut rules = rules([
        Fault::delay(Requests::all(), Time::Fixed(ms(1))),
        Fault::silence(produce().times(1)),
        Fault::delay(produce().times(1), Time::Fixed(ms(2))),
        Fault::Disconnect(Disconnect {
            requests: produce().times(1),
            when: When::Response,
            after_bytes: 9,
        }),
    ]);
    let asked = request(1, ApiKey::PRODUCE, "app");
    let fates = [(); 3].map(|()| rules.fate(&asked, &[]));
    assert_eq!(
        fates,
        [
            Fate { delay: ms(2), then: Then::Close(9) },
            Fate { delay: ms(1), then: Then::Silence },
            Fate { delay: ms(1), then: Then::Write },
        ]
    );
    assert!(!rules.closes(&asked), "both close at the response");
}

#[test]
fn brokers_keep_their_versions_when_clients_are_offered_old_ones() {
    let old: KafkaRelease = "2.8".parse().unwrap();
    let mut version = KafkaVersion { release: old, broker: Some(1), client_id: Some("a*".into()) };
    let offered = |version: &KafkaVersion, broker, client: &str| {
        rules([Fault::KafkaVersion(version.clone())]).release(&request(
            broker,
            ApiKey::FETCH,
            client,
        ))
    };
    assert_eq!(offered(&version, 1, "app"), Some(old));
    assert_eq!(offered(&version, 2, "app"), None);
    assert_eq!(offered(&version, 1, "other"), None);
    (version.broker, version.client_id) = (None, None);
    assert_eq!(offered(&version, 2, "other"), Some(old));
    assert_eq!(offered(&version, 2, FETCHER_ID), None);
}

fn times() -> impl Strategy<Value = Time> {
    let length = || (0_u64..10_000_000).prop_map(Duration::from_micros);
    prop_oneof![
        length().prop_map(Time::Fixed),
        (length(), length()).prop_map(|(a, b)| Time::Uniform(a.min(b), a.max(b))),
        length().prop_map(Time::Exponential),
    ]
}

proptest! {
    /// The choices of a fault are those of its seed, whatever else happens.
    #[test]
    fn choices_depend_on_the_seed_and_on_matching_requests_only(
        seed: u64,
        rate in 0.0..=1.0,
        time in times(),
        others in proptest::collection::vec(0_usize..4, 1..40),
    ) {
        let fault = Fault::delay(Requests::of(ApiKey::PRODUCE).at_rate(rate), time);
        let asked = request(1, ApiKey::PRODUCE, "app");
        let mut alone = Rules(vec![Rule::new("f".into(), seed, fault.clone())]);
        let mut among = Rules(vec![
            Rule::new("g".into(), seed ^ 1, Fault::silence(Requests::of(ApiKey::FETCH).at_rate(0.5))),
            Rule::new("f".into(), seed, fault),
        ]);
        for others in others {
            for _ in 0..others {
                among.fate(&request(1, ApiKey::FETCH, "app"), &[]);
                among.fate(&request(1, ApiKey::PRODUCE, BROKER_ID), &[]);
                among.closes(&asked);
                among.error(&asked, Item::Partition("t", 0));
            }
            prop_assert_eq!(alone.fate(&asked, &[]), among.fate(&asked, &[]));
        }
    }

    #[test]
    fn a_fault_affects_as_many_requests_as_it_may(
        times in 0_u64..20,
        requests in 0_u64..40,
        seed: u64,
        rate in 0.0..=1.0,
    ) {
        let code = ErrorCode::NOT_COORDINATOR;
        let of = Requests::of(ApiKey::HEARTBEAT).times(times);
        let refused = |of: Requests| {
            let mut rules = Rules(vec![Rule::new("f".into(), seed, Fault::error(of, code))]);
            let asked = request(1, ApiKey::HEARTBEAT, "app");
            let refused =
                (0..requests).filter(|_| rules.error(&asked, Item::Request) == Some(code)).count();
            let spent = !rules.0[0].concerns_requests();
            (refused as u64, rules.0[0].describe().hits, spent)
        };
        let most = times.min(requests);
        prop_assert_eq!(refused(of.clone()), (most, most, most == times));
        let (some, hits, _) = refused(of.at_rate(rate));
        prop_assert!(some <= most && hits == some);
    }

    #[test]
    fn a_uniform_time_is_within_its_bounds(a in 0_u64..1_000_000, b in 0_u64..1_000_000, seed: u64) {
        let (from, to) = (Duration::from_micros(a.min(b)), Duration::from_micros(a.max(b)));
        let fault = Fault::delay(Requests::all(), Time::Uniform(from, to));
        let mut rules = Rules(vec![Rule::new("f".into(), seed, fault)]);
        for _ in 0..20 {
            let delay = rules.fate(&request(1, ApiKey::FETCH, "app"), &[]).delay;
            prop_assert!((from..=to).contains(&delay));
        }
    }

    #[test]
    fn a_time_as_text_is_the_same_time(time in times()) {
        prop_assert_eq!(time.to_string().parse(), Ok(time));
    }

    /// No text makes the parser panic, and what it accepts can be written.
    #[test]
    fn any_text_is_read_or_refused(text in "[a-z(]{0,12}[0-9.]{0,24}[a-z, ]{0,3}[0-9.]{0,12}[a-z)]{0,4}") {
        if let Ok(time) = text.parse::<Time>() {
            prop_assert!(time.to_string().parse::<Time>().is_ok());
        }
    }
}

#[test]
fn means_of_distributions_are_as_named() {
    for (time, mean) in [
        (Time::Exponential(ms(20)), ms(20)),
        (Time::Uniform(ms(10), ms(50)), ms(30)),
        (Time::Fixed(ms(5)), ms(5)),
    ] {
        let mut rules = rules([Fault::delay(Requests::all(), time)]);
        let asked = request(1, ApiKey::FETCH, "app");
        let total: Duration = (0..10_000).map(|_| rules.fate(&asked, &[]).delay).sum();
        let found = total / 10_000;
        // The seed is fixed; the standard error of the widest is 0.2 ms.
        assert!(found.abs_diff(mean) < ms(1), "{time}: {found:?}");
    }
    let mut rules = rules([Fault::silence(Requests::all().at_rate(0.25))]);
    let asked = request(1, ApiKey::FETCH, "app");
    let hits = (0..10_000).filter(|_| rules.fate(&asked, &[]).then == Then::Silence).count();
    assert!((2_400..=2_600).contains(&hits), "{hits}");
}

#[test]
fn a_delay_of_a_partition_concerns_the_requests_that_have_it() {
    let of = |requests: Requests| Fault::delay(requests, Time::Fixed(ms(7)));
    let produce = || Requests::of(ApiKey::PRODUCE);
    let asked = request(1, ApiKey::PRODUCE, "app");
    let parts = [Item::Partition("t", 0), Item::Partition("t", 1), Item::Partition("u", 5)];
    for (requests, late) in [
        (produce().on_partition("t", 1), true),
        (produce().on_partition("t", 2), false),
        (produce().on_partition("u", 1), false),
        (produce().on_topic("u"), true),
        (produce().on_topic("v"), false),
        (produce().on_topic("u").to_broker(2), false),
        (Requests::of(ApiKey::FETCH).on_topic("u"), false),
    ] {
        let mut rules = rules([of(requests.clone())]);
        let mut named = Vec::new();
        parts.iter().for_each(|part| rules.name(&asked, *part, &mut named));
        assert_eq!(rules.fate(&asked, &named).delay == ms(7), late, "{requests:?}");
        assert_eq!(rules.0[0].describe().hits, u64::from(late), "of one request");
        assert_eq!(rules.fate(&asked, &[]).delay, Duration::ZERO, "{requests:?}");
        let other = parts.iter().find_map(|part| rules.error(&asked, *part));
        assert_eq!(other, None);
    }
}

#[test]
fn a_slow_disk_takes_the_time_of_each_append() {
    let slow = |broker, time| Fault::SlowDisk(SlowDisk { broker, time });
    let between = Time::Uniform(ms(10), ms(20));
    let mut rules = rules([slow(1, Time::Fixed(ms(500))), slow(1, between), slow(2, between)]);
    for _ in 0..20 {
        let time = rules.disk_time(1);
        assert!((ms(10)..=ms(20)).contains(&time), "the newest applies: {time:?}");
    }
    assert_eq!(rules.disk_time(3), Duration::ZERO);
    let hits: Vec<_> = rules.0.iter().map(|rule| rule.describe().hits).collect();
    assert_eq!(hits, [0, 20, 0]);
}

#[test]
fn times_have_units() {
    for (text, time) in [
        ("20ms", Duration::from_millis(20)),
        ("1.5s", Duration::from_millis(1500)),
        ("0us", Duration::ZERO),
        ("250us", Duration::from_micros(250)),
        ("0.001s", Duration::from_millis(1)),
    ] {
        assert_eq!(parse_duration(text), Ok(time), "{text}");
    }
    for text in [
        "",
        "20",
        "ms",
        "-1ms",
        "1h",
        "1.ms",
        ".5s",
        "1e3s",
        "99999999999s",
        "1 s",
        "1.0000000001s",
    ] {
        let error = parse_duration(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("'{text}' is ")), "{error}");
    }
    assert_eq!("uniform(10ms,50ms)".parse(), Ok(Time::Uniform(ms(10), ms(50))));
    for text in ["uniform(10ms)", "uniform(10ms, 50ms", "gauss(1ms)", "exponential()"] {
        assert!(text.parse::<Time>().is_err(), "{text}");
    }
}

#[test]
fn apis_and_codes_have_kafkas_names() {
    assert!(ApiKey::all().all(|api| parse_api(api.name()) == Ok(api)));
    assert!(parse_api("Unknown").is_err() && parse_api("produce").is_err());
    assert_eq!(parse_code("NOT_LEADER_OR_FOLLOWER"), Ok(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    assert_eq!(parse_code("-1"), Ok(ErrorCode::UNKNOWN_SERVER_ERROR));
    assert!(parse_code("UNKNOWN_CODE").is_err() && parse_code("9999").is_err());
}

/// Records what changes.
#[derive(Default)]
struct Log(RefCell<Vec<String>>);

impl Log {
    fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

impl Changes for Log {
    fn freeze(&self, broker: i32, frozen: bool) {
        self.0.borrow_mut().push(format!("freeze {broker} {frozen}"));
    }

    fn freeze_metadata(&self, broker: i32, frozen: bool) {
        self.0.borrow_mut().push(format!("metadata {broker} {frozen}"));
    }

    fn cut_off(&self, broker: i32, cut_off: bool) {
        self.0.borrow_mut().push(format!("cut off {broker} {cut_off}"));
    }

    fn fill_disk(&self, broker: i32, full: bool) {
        self.0.borrow_mut().push(format!("full disk {broker} {full}"));
    }

    fn delay_metadata(&self, broker: i32, delay: Option<Duration>) {
        self.0.borrow_mut().push(format!("delay {broker} {delay:?}"));
    }
}

fn freeze(broker: i32) -> Fault {
    Fault::Freeze(OnBroker { broker })
}

#[test]
fn a_broker_changes_with_its_first_fault_of_a_kind_and_its_last() {
    let (faults, log) = (Faults::new(Entropy::from_seed(1)), Log::default());
    let inject = |injection: Injection| faults.inject(injection, &[1, 2], &log);
    let lift = |name: &str| faults.lift(&log, |fault, _| fault == name);
    assert_eq!(inject(freeze(1).into()), Ok("freeze-1".into()));
    assert_eq!(log.take(), ["freeze 1 true"]);
    assert_eq!(inject(freeze(1).named("again")), Ok("again".into()));
    inject(Fault::delay(Requests::all(), Time::Fixed(ms(1))).into()).unwrap();
    assert_eq!(log.take(), [""; 0]);
    assert_eq!((lift("freeze-1"), lift("nothing")), (1, 0));
    assert_eq!(log.take(), [""; 0], "the other freeze holds");
    assert_eq!(lift("again"), 1);
    assert_eq!(log.take(), ["freeze 1 false"]);
    let delay = |ms_: u64| Fault::DelayMetadata(DelayMetadata { broker: 2, time: ms(ms_) });
    inject(delay(5).named("slow")).unwrap();
    inject(delay(9).named("slower")).unwrap();
    assert_eq!((lift("slower"), lift("slow")), (1, 1));
    assert_eq!(
        log.take(),
        ["delay 2 Some(5ms)", "delay 2 Some(9ms)", "delay 2 Some(5ms)", "delay 2 None"]
    );
    inject(Fault::FullDisk(OnBroker { broker: 2 }).named("full")).unwrap();
    assert_eq!(lift("full"), 1);
    assert_eq!(log.take(), ["full disk 2 true", "full disk 2 false"]);
    // The process has ended, and with it the freeze: nothing thaws.
    inject(freeze(1).into()).unwrap();
    log.take();
    faults.forget_freezes(1);
    assert_eq!(faults.lift(&log, |_, _| true), 1, "the delay of responses");
    assert_eq!(log.take(), [""; 0]);
}

#[test]
fn names_are_unique_and_short() {
    let (faults, log) = (Faults::new(Entropy::from_seed(1)), Log::default());
    let inject = |injection: Injection| faults.inject(injection, &[1], &log);
    assert_eq!(inject(freeze(1).named("freeze-1")), Ok("freeze-1".into()));
    assert_eq!(inject(freeze(1).into()), Ok("freeze-2".into()), "the first is taken");
    assert_eq!(inject(freeze(1).named("freeze-2")), Err(FaultError::NameTaken("freeze-2".into())));
    for name in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
        assert_eq!(inject(freeze(1).named(name)), Err(FaultError::BadName(name.into())));
    }
    assert_eq!(inject(freeze(2).into()), Err(FaultError::NoSuchBroker(2)));
    assert_eq!(faults.list().len(), 2);
}

#[test]
fn impossible_faults_are_refused_in_one_line() {
    let code = ErrorCode::NOT_COORDINATOR;
    let heartbeat = || Requests::of(ApiKey::HEARTBEAT);
    let cut = Fault::Cut(Cut { between: [1, 1] });
    let uniform = Fault::delay(Requests::all(), Time::Uniform(ms(2), ms(1)));
    let closed = Disconnect { when: When::Request, after_bytes: 1, ..Disconnect::default() };
    let late = |requests| Fault::delay(requests, Time::Fixed(ms(1)));
    let no_topic = Requests { partition: Some(0), ..Requests::of(ApiKey::PRODUCE) };
    let at_request = Disconnect {
        requests: Requests::of(ApiKey::PRODUCE).on_topic("t"),
        when: When::Request,
        after_bytes: 0,
    };
    for (fault, reason) in [
        (Fault::error(Requests::all(), code), "requests.api: an error needs an API"),
        (
            Fault::error(Requests::of(ApiKey::DESCRIBE_ACLS), code),
            "requests.api: errors of DescribeAcls cannot be injected, only of Produce, Fetch,",
        ),
        (Fault::error(heartbeat(), ErrorCode::NONE), "code: NONE is no error"),
        (
            Fault::error(heartbeat().on_topic("t"), code),
            "requests.topic: faults of Heartbeat are not by topic, only those of Produce, Fetch,",
        ),
        (late(Requests::all().on_topic("t")), "requests.api: a topic needs an API"),
        (Fault::Disconnect(at_request), "requests.topic: a connection that closes at the request"),
        (
            Fault::error(Requests::of(ApiKey::METADATA).on_partition("t", 0), code),
            "requests.partition: faults of Metadata are not by partition, only those of Produce,",
        ),
        (
            Fault::corrupt(Requests::of(ApiKey::PRODUCE)),
            "requests.api: this fault concerns Fetch, not Produce",
        ),
        (Fault::WrongLeader(WrongLeader::default()), "leader: nothing is wrong; give leader,"),
        (
            Fault::WrongLeader(WrongLeader {
                requests: Requests::of(ApiKey::METADATA),
                leader: Some(2),
                ..WrongLeader::default()
            }),
            "requests.api: this fault concerns Produce and Fetch, not Metadata",
        ),
        (late(no_topic), "requests.partition: its topic is needed"),
        (Fault::error(heartbeat().at_rate(1.1), code), "rate: 1.1 is not between 0 and 1"),
        (Fault::error(heartbeat().at_rate(f64::NAN), code), "rate: NaN is not between 0 and 1"),
        (cut, "between: two different brokers are needed"),
        (
            Fault::SlowDisk(SlowDisk { broker: 1, time: Time::Uniform(ms(2), ms(1)) }),
            "time: uniform(2ms, 1ms) is empty",
        ),
        (Fault::throttle(0), "bytes_per_second: 0 transfers nothing"),
        (uniform, "time: uniform(2ms, 1ms) is empty"),
        (Fault::Disconnect(closed), "after_bytes: a connection that closes at the request"),
    ] {
        let error = fault.check().unwrap_err().to_string();
        assert!(error.starts_with(reason), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn faults_of_one_api_need_not_name_it() {
    assert_eq!(Fault::corrupt(Requests::all().on_partition("t", 0)).check(), Ok(()));
    assert_eq!(Fault::corrupt(Requests::of(ApiKey::FETCH)).check(), Ok(()));
}

#[test]
fn json_has_one_form_and_refuses_unknown_fields() {
    for text in [
        r#"{"kind":"delay","requests":{"api":"Produce","client_id":"app*","times":3},"time":"20ms"}"#,
        r#"{"kind":"delay","requests":{"from":"all","rate":0.5},"time":"uniform(1ms, 5ms)"}"#,
        r#"{"kind":"error","requests":{"broker":1,"api":"Fetch","topic":"t","partition":0},"code":"OFFSET_OUT_OF_RANGE"}"#,
        r#"{"kind":"silence","requests":{}}"#,
        r#"{"kind":"disconnect","requests":{"api":"Fetch"},"when":"response","after_bytes":9}"#,
        r#"{"kind":"corrupt","requests":{"topic":"t","times":1}}"#,
        r#"{"kind":"wrong-leader","requests":{"api":"Produce"},"leader":9,"epoch_shift":-1,"address":"127.0.0.1:9"}"#,
        r#"{"kind":"wrong-leader","requests":{},"leader":9}"#,
        r#"{"kind":"throttle","direction":"both","bytes_per_second":1000}"#,
        r#"{"kind":"throttle","broker":1,"client_id":"app*","from":"all","direction":"in","bytes_per_second":1}"#,
        r#"{"kind":"kafka-version","release":"2.8"}"#,
        r#"{"kind":"freeze","broker":1}"#,
        r#"{"kind":"freeze-metadata","broker":1}"#,
        r#"{"kind":"delay-metadata","broker":1,"time":"2s"}"#,
        r#"{"kind":"slow-disk","broker":1,"time":"exponential(20ms)"}"#,
        r#"{"kind":"full-disk","broker":1}"#,
        r#"{"kind":"cut-off","broker":1}"#,
        r#"{"kind":"cut","between":[1,2]}"#,
        r#"{"kind":"cut-clients","direction":"both"}"#,
        r#"{"kind":"cut-clients","broker":1,"client_id":"app*","direction":"out"}"#,
    ] {
        let fault: Fault = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&fault).unwrap(), text);
        assert_eq!(serde_json::to_value(&fault).unwrap()["kind"], fault.kind());
        let more = text.replacen('{', r#"{"more":1,"#, 1);
        let error = serde_json::from_str::<Fault>(&more).unwrap_err().to_string();
        assert!(error.contains("unknown field `more`"), "{error}");
    }
    for (text, reason) in [
        (r#"{"kind":"delay","requests":{"api":"Prodce"},"time":"1ms"}"#, "'Prodce' is no API"),
        (r#"{"kind":"delay","time":"1"}"#, "'1' is no time"),
        (r#"{"kind":"wrong-leader","address":"kafka:9"}"#, "'kafka:9' is no address; use IP:PORT"),
        (r#"{"kind":"melt"}"#, "unknown variant `melt`"),
        (r#"{"kind":"delay","requests":{"topics":"t"},"time":"1ms"}"#, "unknown field `topics`"),
        (r#"{"kind":"kafka-version","release":"2.9"}"#, "'2.9' is no known Kafka release"),
    ] {
        let error = serde_json::from_str::<Fault>(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

/// The versions that are known from Kafka's announcements of features.
#[test]
fn releases_have_the_versions_that_kafka_published() {
    let newest = |release: &str, api| release.parse::<KafkaRelease>().unwrap().newest(api);
    for (release, api, version) in [
        ("0.11", ApiKey::PRODUCE, Some(3)),
        ("2.0", ApiKey::PRODUCE, Some(6)),
        ("2.1", ApiKey::PRODUCE, Some(7)),
        ("3.0", ApiKey::FETCH, Some(12)),
        ("3.1", ApiKey::FETCH, Some(13)),
        ("2.3", ApiKey::API_VERSIONS, Some(2)),
        ("2.4", ApiKey::API_VERSIONS, Some(3)),
        ("2.2", ApiKey::INCREMENTAL_ALTER_CONFIGS, None),
        ("2.3", ApiKey::INCREMENTAL_ALTER_CONFIGS, Some(0)),
        ("3.6", ApiKey::CONSUMER_GROUP_HEARTBEAT, None),
        ("4.0", ApiKey::PRODUCE, Some(12)),
        ("4.3", ApiKey::PRODUCE, Some(13)),
    ] {
        assert_eq!(newest(release, api), version, "{release} {api}");
    }
    let all: Vec<_> = KafkaRelease::all().collect();
    assert!(all.is_sorted() && all.iter().all(|r| r.to_string().parse() == Ok(*r)));
    for api in ApiKey::all() {
        let versions = all.iter().map(|release| release.newest(api));
        assert!(versions.is_sorted(), "no release takes versions of {api} away");
    }
}
