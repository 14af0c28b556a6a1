//! One run: a cluster, producers and faults on virtual hosts, and its history.

mod announced;
mod chaos;
mod commits;
mod compaction;
mod copies;
mod disks;
mod gaps;
mod host;
mod members;
mod mortal;
mod reader;
mod topics;
mod transactions;
mod unclean;
mod wanderer;
mod workload;

use std::{
    collections::BTreeMap,
    error::Error,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use curtail_cluster::{
    ClusterConfig, ClusterHandle, Listeners, ReplicaSelector, SecurityProtocol, Storage,
    disk::{Disk, MemDisk},
};
use curtail_net::Entropy;
use parking_lot::Mutex;
use tokio::{runtime::Builder, sync::watch, task::JoinSet, time::timeout};

use crate::{
    checker::{Violation, check},
    disk::FaultyDisk,
    group_log,
    history::{Compacted, GroupHistory, History, Outcome},
    net::{self, Fabric},
    plan::{BROKERS, COMPACTED, Host, Plan, RACKS, Scenario, TRANSACTION_LOG_PARTITIONS},
    readback,
    trace::{self, Keep, LogToTrace, Trace},
};
use announced::Announced;
pub(crate) use announced::Observed;
use chaos::Casualties;
use host::{Standstill, Switch};
pub(crate) use topics::Place;

/// Why a host ended the run.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The topic of every run.
pub(crate) const TOPIC: &str = "simulated";
const PORT: u16 = 9092;
/// Virtual time after which a run counts as hanging.
const LIMIT: Duration = Duration::from_secs(60);
/// Real time without progress of virtual time after which a run counts as hanging.
const REAL_LIMIT: Duration = Duration::from_secs(60);

/// Result of a run.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The scenario, if one was requested.
    pub scenario: Option<Scenario>,
    /// Every broken promise.
    pub violations: Vec<Violation>,
    /// Hash of the trace: equal for runs of the same plan.
    pub hash: u64,
    /// Virtual time the run took.
    pub elapsed: Duration,
    /// Numbers of records by outcome.
    pub counts: Counts,
    /// The end of the trace, or all of it.
    pub trace: Vec<String>,
    /// History of the clients.
    pub history: History,
}

/// How the records of a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records sent.
    pub sent: usize,
    /// Records acknowledged.
    pub acknowledged: usize,
    /// Failed, and certainly not written.
    pub not_written: usize,
    /// Failed, and perhaps written.
    pub maybe_written: usize,
}

impl Report {
    /// The trace without its log lines, which are no events and not part of the hash. They also depend on other tests
    /// in the process, because `tracing` caches the interest in each log statement.
    pub fn events(&self) -> impl Iterator<Item = &String> {
        const LEVELS: [&str; 5] = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];
        self.trace.iter().filter(|line| {
            let origin = line.split_whitespace().nth(1);
            origin.is_none_or(|origin| !LEVELS.contains(&origin))
        })
    }

    /// The violations, the seed and how to see the run again.
    pub fn describe(&self) -> String {
        let scenario = self.scenario.map(|scenario| format!(" --scenario {scenario}"));
        let asked = format!("{}{}", self.seed, scenario.unwrap_or_default());
        let mut text = format!("seed {asked}: {} violations\n", self.violations.len());
        for violation in self.violations.iter().take(20) {
            text += &format!("  {violation}\n");
        }
        text + &format!("replay: cargo run -p curtail-sim -- --seed {asked} --trace")
    }
}

/// State that the hosts of a run share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) plan: Arc<Plan>,
    pub(crate) fabric: Fabric,
    pub(crate) cluster: ClusterHandle,
    pub(crate) switches: Arc<[Switch]>,
    pub(crate) disks: Arc<[MemDisk]>,
    /// The same disks as the brokers have them.
    pub(crate) machines: Arc<[FaultyDisk]>,
    pub(crate) controller_disk: MemDisk,
    /// The same disk as the controller has it.
    pub(crate) controller_machine: FaultyDisk,
    pub(crate) standstill: Arc<Standstill>,
    pub(crate) casualties: Arc<Mutex<Casualties>>,
    pub(crate) history: Arc<Mutex<History>>,
    /// What the run is waiting for, for the report of a hang.
    pub(crate) waiting_for: Arc<Mutex<String>>,
    pub(crate) stage: Arc<Observed<Stage>>,
    /// End offsets of the partitions, once they are final.
    pub(crate) ends: Arc<Announced<Vec<i64>>>,
    /// Per partition, how far the members of the group have come.
    pub(crate) given: Arc<Observed<BTreeMap<i32, i64>>>,
    /// Places of applications that copy whose last application has ended.
    pub(crate) finished: watch::Sender<usize>,
    pub(crate) entropy: Entropy,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Brokers start; the topic is created.
    Starting,
    /// Producers send, faults happen.
    Running,
    /// Every fault is undone.
    Healed,
    /// Every record has its outcome, and everything has been read back.
    Done,
}

impl Shared {
    pub(crate) fn note(&self, what: impl Into<String>) {
        *self.waiting_for.lock() = what.into();
    }

    pub(crate) async fn reached(&self, stage: Stage) {
        self.stage.wait_for(|now| *now >= stage).await;
    }

    /// Whether the run is so far.
    pub(crate) fn has_reached(&self, stage: Stage) -> bool {
        self.stage.look(|now| *now >= stage)
    }

    pub(crate) fn switch(&self, broker: i32) -> &Switch {
        &self.switches[broker as usize - 1]
    }

    pub(crate) fn machine(&self, broker: i32) -> &FaultyDisk {
        &self.machines[broker as usize - 1]
    }
}

/// Runs a plan on a separate thread, and abandons it if its virtual time stops.
pub fn run(plan: &Plan, keep: Keep) -> Report {
    let (done, report) = mpsc::channel();
    let trace = Trace::new(keep);
    let ticks = Arc::new(AtomicU64::new(0));
    let worker = {
        let (plan, trace, ticks) = (plan.clone(), trace.clone(), ticks.clone());
        thread::spawn(move || {
            #[cfg(feature = "plants")]
            curtail::plant::choose(plan.client_plant);
            let log = LogToTrace(trace.clone());
            let report = match keep {
                Keep::All => {
                    tracing::subscriber::with_default(log, || run_here(&plan, &trace, &ticks))
                }
                Keep::Tail => run_here(&plan, &trace, &ticks),
            };
            let _ = done.send(report);
        })
    };
    let failed = |violation| Report {
        seed: plan.seed,
        scenario: plan.scenario,
        violations: vec![violation],
        hash: trace.hash(),
        elapsed: Duration::ZERO,
        counts: Counts::default(),
        trace: trace.lines(),
        history: History::default(),
    };
    let mut seen = 0;
    let ended = loop {
        // On a busy machine a run may take long; it hangs only if its virtual time stands still.
        let ended = report.recv_timeout(REAL_LIMIT);
        let before = std::mem::replace(&mut seen, ticks.load(Ordering::Relaxed));
        if !matches!(ended, Err(mpsc::RecvTimeoutError::Timeout)) || before == seen {
            break ended;
        }
    };
    match ended {
        Ok(report) => report,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            let outstanding =
                format!("virtual time stands still; {REAL_LIMIT:?} of real time passed");
            failed(Violation::Hang { outstanding })
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let panic = worker.join().err();
            let text = panic.as_ref().and_then(|panic| {
                panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
            });
            let error = format!("panicked: {}", text.unwrap_or_default());
            failed(Violation::Broken { error })
        }
    }
}

fn run_here(plan: &Plan, trace: &Trace, ticks: &Arc<AtomicU64>) -> Report {
    let disks: Vec<MemDisk> = (0..BROKERS).map(|_| MemDisk::new()).collect();
    let stop = |broken| conclude(plan, trace, History::default(), Some(broken), Duration::ZERO);
    let shared = match prepare(plan, trace, &disks) {
        Ok(shared) => shared,
        Err(broken) => return stop(broken),
    };
    // The thread parks when nothing is left to do at the current virtual time, which advances then.
    let ticks = Arc::clone(ticks);
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .on_thread_park(move || {
            ticks.fetch_add(1, Ordering::Relaxed);
        })
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return stop(Violation::Broken { error: error.to_string() }),
    };
    let (outcome, elapsed) = runtime.block_on(async {
        let _running = trace::begin();
        let outcome = timeout(LIMIT, play(&shared, &disks)).await;
        (outcome, trace::now())
    });
    shared.fabric.end();
    drop(runtime);
    let mut history = std::mem::take(&mut *shared.history.lock());
    history.disconnects = shared.fabric.disconnects();
    history.stale = shared.fabric.stale();
    let places = shared.places();
    let mut broken = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(error)) => {
            Some(Violation::Broken { error: curtail_wire::Report::new(&*error).to_string() })
        }
        Err(_) => Some(Violation::Hang { outstanding: outstanding(&shared, &history) }),
    };
    if broken.is_none()
        && let Err(error) = read_disks(&places, &disks, &mut history)
    {
        broken = Some(Violation::Broken { error });
    }
    conclude(plan, trace, history, broken, elapsed)
}

fn prepare(plan: &Plan, trace: &Trace, disks: &[MemDisk]) -> Result<Shared, Violation> {
    let entropy = Entropy::from_seed(plan.seed ^ 0x5eed);
    let fabric = Fabric::new(trace.clone(), entropy.fork(), plan.short_writes, plan.latency);
    let mut addrs = Vec::new();
    let mut envs = Vec::new();
    for broker in 1..=BROKERS {
        let name = Host::Broker(broker).name();
        addrs.push(SocketAddr::new(fabric.host(&name), PORT));
        envs.push(net::env(&fabric, &name, entropy.fork()));
    }
    let in_memory = disks.into();
    let machines: Vec<FaultyDisk> =
        disks.iter().map(|disk| FaultyDisk::new(disk.clone())).collect();
    let disks: Vec<Arc<dyn Disk>> =
        machines.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    let controller_disk = MemDisk::new();
    let controller_machine = FaultyDisk::new(controller_disk.clone());
    let storage = match plan.scenario {
        Some(Scenario::Controller | Scenario::StuckSyncs) => {
            Storage::Machines { brokers: disks, controller: Arc::new(controller_machine.clone()) }
        }
        _ => Storage::Disks(disks),
    };
    let mut config = ClusterConfig {
        brokers: BROKERS as u32,
        listeners: Listeners::each(SecurityProtocol::Plaintext, addrs),
        storage,
        min_insync_replicas: 2,
        auto_create_topics: plan.more_topics.iter().any(|topic| topic.partitions.is_none()),
        num_partitions: 3,
        default_replication_factor: BROKERS as i16,
        message_max_bytes: plan.message_max_bytes,
        log_segment_bytes: plan.segment_bytes,
        log_flush_interval_messages: if plan.flush_each { 1 } else { i64::MAX },
        log_tail_cache_bytes: plan.tail_cache_bytes,
        replica_lag_time_max: Duration::from_millis(1500),
        replica_fetch_wait_max: Duration::from_millis(300),
        replica_fetch_backoff: Duration::from_millis(100),
        broker_session_timeout: Duration::from_millis(1500),
        broker_heartbeat_interval: Duration::from_millis(300),
        transaction_version: plan.transaction_version,
        transaction_log_partitions: TRANSACTION_LOG_PARTITIONS,
        transaction_log_min_isr: 2,
        group_min_session_timeout: Duration::from_millis(100),
        offsets_topic_partitions: 1,
        plant: plan.plant,
        ..ClusterConfig::default()
    };
    if plan.scenario == Some(Scenario::Racks) {
        config.racks = RACKS.map(str::to_owned).into();
        config.replica_selector = ReplicaSelector::RackAware;
    }
    // The checker reads the coordinators' records, all of them.
    config.log_cleaner_backoff = Duration::from_secs(3600);
    if let Some(compaction) = plan.compaction {
        config.log_cleaner_backoff = compaction.backoff;
    }
    if plan.scenario == Some(Scenario::Retention) {
        config.log_retention_check_interval = Duration::from_millis(200);
    }
    if let Some(ids) = &plan.ids {
        config.producer_id_expiration = ids.expiration;
        config.log_retention_check_interval = Duration::from_millis(500);
        config.first_producer_epoch = ids.first_epoch;
    }
    let group = plan.group.as_ref().map(|_| GroupHistory::default());
    let compacted = plan.compaction.map(|compaction| Compacted {
        transactional: compaction.transactional,
        keeps_tombstones: compaction.delete_retention > LIMIT,
        ..Compacted::default()
    });
    let history = History { group, compacted, ..History::default() };
    let cluster = ClusterHandle::new(config, envs).map_err(|error| Violation::Broken {
        error: curtail_wire::Report::new(&error).to_string(),
    })?;
    Ok(Shared {
        plan: Arc::new(plan.clone()),
        fabric,
        cluster,
        switches: (0..BROKERS).map(|_| Switch::default()).collect(),
        disks: in_memory,
        machines: machines.into(),
        controller_disk,
        controller_machine,
        standstill: Arc::default(),
        casualties: Arc::default(),
        history: Arc::new(Mutex::new(history)),
        waiting_for: Arc::default(),
        stage: Arc::new(Observed::new(Stage::Starting)),
        ends: Arc::default(),
        given: Arc::default(),
        finished: watch::Sender::default(),
        entropy,
    })
}

/// Runs all hosts until those that have an end have ended.
async fn play(shared: &Shared, disks: &[MemDisk]) -> Result<(), Failure> {
    let (mut services, mut clients) = (JoinSet::new(), JoinSet::new());
    let fabric = shared.fabric.clone();
    services.spawn(async move {
        fabric.run().await;
        Ok(())
    });
    let (controller, standstill) = (shared.cluster.controller(), Arc::clone(&shared.standstill));
    services.spawn(async move {
        standstill.guard(controller.run()).await;
        Ok(())
    });
    for (broker, disk) in (1..=BROKERS).zip(disks) {
        services.spawn(host::run(shared.clone(), broker, disk.clone()));
    }
    clients.spawn(workload::run(shared.clone()));
    let places = shared.plan.group.as_ref().map_or(0, |group| group.slots.len());
    for slot in 1..=places as u32 {
        clients.spawn(members::run(shared.clone(), slot));
    }
    let copiers = shared.plan.copies.as_ref().map_or(0, |copies| copies.slots.len());
    for slot in 1..=copiers as u32 {
        clients.spawn(copies::run(shared.clone(), slot));
    }
    clients.spawn(chaos::run(shared.clone()));
    let ended = async {
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        Ok(())
    };
    tokio::select! {
        biased;
        Some(ended) = services.join_next() => ended?.and(Err("a service ended".into())),
        ended = ended => ended,
    }
}

/// Describes what a hanging run is waiting for.
fn outstanding(shared: &Shared, history: &History) -> String {
    let pending: Vec<String> = history
        .sent
        .iter()
        .filter(|sent| sent.outcome == Outcome::Pending)
        .map(|sent| sent.id.to_string())
        .collect();
    let first = pending.iter().take(10).cloned().collect::<Vec<_>>().join(", ");
    let partitions = shared.places().into_iter().map(|Place { name, partition, .. }| {
        let leader = shared.cluster.leader(name, partition);
        let isr = shared.cluster.isr(name, partition).unwrap_or_default();
        format!("{name}-{partition}: leader {leader:?} isr {isr:?}")
    });
    format!(
        "after {LIMIT:?} still {}; {} records without outcome ({first}); live brokers {:?}; partitions {:?}",
        shared.waiting_for.lock(),
        pending.len(),
        shared.cluster.live_brokers(),
        partitions.collect::<Vec<_>>(),
    )
}

fn read_disks(places: &[Place], disks: &[MemDisk], history: &mut History) -> Result<(), String> {
    for place in places {
        for (broker, disk) in (1..=BROKERS).zip(disks) {
            if let (COMPACTED, Some(compacted)) = (place.topic, &mut history.compacted) {
                let records = readback::records_on_disk(disk, broker, *place)?;
                compacted.replicas.entry(broker).or_default().extend(records);
                continue;
            }
            let mut log = readback::on_disk(disk, broker, place.name, place.partition)?;
            log.partition = place.number();
            history.replicas.push(log);
        }
    }
    if let Some(group) = &mut history.group {
        group.log = group_log::read(disks, members::GROUP, members::CLIENT)?;
    }
    Ok(())
}

fn conclude(
    plan: &Plan,
    trace: &Trace,
    history: History,
    broken: Option<Violation>,
    elapsed: Duration,
) -> Report {
    let mut counts = Counts { sent: history.sent.len(), ..Counts::default() };
    for sent in &history.sent {
        match sent.outcome {
            Outcome::Acknowledged { .. } => counts.acknowledged += 1,
            Outcome::NotWritten { .. } => counts.not_written += 1,
            Outcome::MaybeWritten { .. } => counts.maybe_written += 1,
            Outcome::Pending => {}
        }
    }
    // A run that broke off has read nothing back: its history proves nothing.
    let violations = match broken {
        Some(broken) => vec![broken],
        None => check(&history),
    };
    Report {
        seed: plan.seed,
        scenario: plan.scenario,
        violations,
        hash: trace.hash(),
        elapsed,
        counts,
        trace: trace.lines(),
        history,
    }
}
