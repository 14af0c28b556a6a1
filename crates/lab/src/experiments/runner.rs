//! Runs the arms of an experiment in turn, with each client.

#[cfg(test)]
mod tests;

use parking_lot::Mutex;

use super::{
    Arm, ArmReport, Arms, ClusterKind, Environment, Experiment, Modelled, Report, RoundReport,
    Sample, Setting, Turn, Variant,
    load::{Awaits, warm_brokers},
    report::{Machine, now_ms},
    testbed::versions,
};
use crate::{
    peers::{self, Client, Driver},
    perf::{Error, Result},
};

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The driver of another client is being built, unless it already exists.
    Building {
        /// The client.
        client: Client,
    },
    /// The cluster is being started.
    Starting,
    /// This arm does not run with this client, or no longer: a turn of another client has failed.
    Without {
        /// The arm.
        arm: &'a str,
        /// The client.
        client: Client,
        /// The reason.
        reason: &'a str,
    },
    /// Brokers that have just started, or whose topic is new, get unmeasured load until they get no faster.
    Rehearsing {
        /// Number of this rehearsal, from 1.
        run: u32,
        /// Largest number of rehearsals.
        at_most: u32,
    },
    /// A turn begins.
    Turn {
        /// The arm.
        arm: &'a str,
        /// The client.
        client: Client,
        /// Turns that have ended, of all arms.
        done: usize,
        /// Turns in total.
        of: usize,
    },
}

/// Callback for events, from any thread.
pub(super) type Told<'a> = &'a (dyn Fn(Event<'_>) + Sync + 'a);

/// An arm with a client.
struct Pair {
    arm: Arm,
    /// Name of the variant whose properties the arm has.
    variant: Option<String>,
    client: Client,
    /// All turns together, and each separately.
    sample: Option<Sample>,
    rounds: Vec<RoundReport>,
    /// Whether a run showed that the client cannot run this arm. The turns before it count.
    dropped: bool,
}

/// Runs an experiment: every arm with every client once per round.
///
/// The order of the pairs alternates (`pair_at`), so that changes of the machine during the run affect all pairs alike.
///
/// # Errors
/// An unknown arm, arms that none of the clients can run, a driver that cannot be built, a cluster that does
/// not start or does not suit the experiment, a run that could not be completed. Conditions that do not hold
/// are part of the report.
pub fn run(
    experiment: &dyn Experiment,
    setting: &Setting,
    progress: &mut (dyn FnMut(Event<'_>) + Send),
) -> Result<Report> {
    setting.check()?;
    let progress = Mutex::new(progress);
    let told: Told<'_> = &|event| (progress.lock())(event);
    let mut pairs = pairs(experiment, setting, told)?;
    if setting.cluster == ClusterKind::Sim {
        let models = simulate(experiment, setting, &mut pairs, told)?;
        let mut report = report(experiment, setting, pairs, Environment::default());
        report.models.extend(models);
        return Ok(report);
    }
    let clients: Vec<Client> =
        setting.clients.iter().copied().filter(|c| used(&pairs, *c)).collect();
    let drivers = peers::drivers(&clients, setting.peers.as_deref(), &mut |peer| {
        told(Event::Building { client: Client::Peer(peer) });
    })?;
    let machine = Machine::now();
    measure(experiment, setting, &mut pairs, &drivers, told)?;
    let environment = machine.until_now(&setting.cluster, versions(&setting.cluster));
    Ok(report(experiment, setting, pairs, environment))
}

/// Starts the cluster and runs all pairs in turn.
fn measure(
    experiment: &dyn Experiment,
    setting: &Setting,
    pairs: &mut [Pair],
    drivers: &[Driver],
    told: Told<'_>,
) -> Result<()> {
    told(Event::Starting);
    let testbed = experiment.start(setting)?;
    if setting.cluster == ClusterKind::Apache && !testbed.bootstrap().is_empty() {
        warm_brokers(&testbed, setting.seed, told)?;
    }
    let rounds = setting.rounds.unwrap_or_else(|| experiment.rounds(setting));
    let of = rounds as usize * pairs.len();
    for done in 0..of {
        let (round, place) = (done / pairs.len(), done % pairs.len());
        let at = pair_at(round, place, pairs.len());
        let Pair { arm, client, dropped, .. } = pairs[at];
        if dropped {
            continue;
        }
        told(Event::Turn { arm: &pairs[at].label(), client, done, of });
        let driver = drivers.iter().find(|driver| Client::Peer(driver.peer()) == client);
        let round = round as u32;
        let is_first = done == 0;
        let awaits = match client {
            Client::CurtailCompletions => Awaits::Completions,
            Client::Curtail | Client::Peer(_) => Awaits::EachDelivery,
        };
        let testbed = &testbed;
        let variant = pairs[at].variant.as_deref();
        let turn =
            Turn { testbed, arm: &arm, variant, round, is_first, setting, driver, awaits, told };
        let started = now_ms();
        let mut sample = experiment.turn(&turn);
        if let Ok(sample) = &mut sample {
            sample.exemplars.set_round(turn.round);
        }
        pairs[at].add(started, sample, told)?;
    }
    Ok(())
}

/// The pair that runs at this place of a round. Every second round runs in the reverse order of the one before it, so that
/// in both together each pair has the same average place. Each two rounds start with another pair.
fn pair_at(round: usize, place: usize, pairs: usize) -> usize {
    let place = if round.is_multiple_of(2) { place } else { pairs - 1 - place };
    (round / 2 + place) % pairs
}

/// Runs all pairs once in virtual time and returns the models used. Once is enough: a second run would be
/// identical.
fn simulate(
    experiment: &dyn Experiment,
    setting: &Setting,
    pairs: &mut [Pair],
    told: Told<'_>,
) -> Result<Vec<Modelled>> {
    if setting.reader || pairs.iter().any(|pair| pair.client != Client::Curtail) {
        let text = "--cluster sim runs only curtail: leave out --reader and other clients";
        return Err(Error::Options(text.into()));
    }
    let mut models = Vec::new();
    let of = pairs.len();
    for (done, pair) in pairs.iter_mut().enumerate() {
        let simulated = experiment.simulated(setting, &pair.arm)?;
        told(Event::Turn { arm: &pair.label(), client: pair.client, done, of });
        models = simulated.models();
        let sample = play(simulated, setting.seed);
        pair.add(VIRTUAL_START, sample, told)?;
    }
    Ok(models)
}

/// Start time of a turn in virtual time.
const VIRTUAL_START: u64 = 0;

#[cfg(feature = "sim")]
use super::virtual_time::play;

#[cfg(not(feature = "sim"))]
fn play(_: super::Simulated, _: u64) -> Result<Sample> {
    Err(Error::Options("built without --cluster sim; build with the feature `sim`".into()))
}

impl Pair {
    fn new(arm: Arm, variant: Option<&Variant>, client: Client) -> Self {
        let arm = variant.map_or(arm, |variant| arm.with(variant));
        let variant = variant.map(|variant| variant.name.clone());
        Self { arm, variant, client, sample: None, rounds: Vec::new(), dropped: false }
    }

    /// The arm's name in reports.
    fn label(&self) -> String {
        match &self.variant {
            None => self.arm.name.to_owned(),
            Some(variant) => format!("{}+{variant}", self.arm.name),
        }
    }

    /// Adds the result of a turn, or drops the pair if another client lacks a requirement or has failed. One client's
    /// failure must not cost the figures of the others.
    fn add(&mut self, started: u64, sample: Result<Sample>, told: Told<'_>) -> Result<()> {
        match sample {
            Ok(mut sample) => {
                self.rounds.push(RoundReport::new(started, &mut sample));
                match &mut self.sample {
                    Some(all) => all.join(sample),
                    none => *none = Some(sample),
                }
            }
            Err(error) if self.client.peer().is_some() && !matches!(error, Error::Interrupted) => {
                self.dropped = true;
                let (arm, client) = (&self.label(), self.client);
                told(Event::Without {
                    arm,
                    client,
                    reason: &curtail::error::Report::new(&error).to_string(),
                });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn used(pairs: &[Pair], client: Client) -> bool {
    pairs.iter().any(|pair| pair.client == client)
}

/// The chosen arms and their variants, each with the clients that can run it.
fn pairs(experiment: &dyn Experiment, setting: &Setting, told: Told<'_>) -> Result<Vec<Pair>> {
    let (mut pairs, mut none) = (Vec::new(), None);
    let variants = || [None].into_iter().chain(setting.variants.iter().map(Some));
    for arm in chosen(experiment, setting)? {
        let with_clients = |variant| setting.clients.iter().map(move |client| (variant, *client));
        for (variant, client) in variants().flat_map(with_clients) {
            let pair = Pair::new(arm, variant, client);
            match admitted(experiment, &pair.arm, client) {
                Ok(()) => pairs.push(pair),
                Err(reason) => {
                    told(Event::Without { arm: &pair.label(), client, reason: &reason });
                    none = Some(reason);
                }
            }
        }
    }
    match none {
        Some(reason) if pairs.is_empty() => {
            let name = experiment.name();
            Err(Error::Options(format!("no arm of {name} can be run with this client: {reason}")))
        }
        _ => Ok(pairs),
    }
}

/// Checks that the client can run the arm; the error is the reason.
fn admitted(experiment: &dyn Experiment, arm: &Arm, client: Client) -> Result<(), String> {
    if client == Client::CurtailCompletions && !experiment.awaits_deliveries(arm) {
        return Err("it does not differ from curtail here: no load awaits deliveries".into());
    }
    let Some(peer) = client.peer() else { return Ok(()) };
    experiment.admits(arm, peer)?;
    peer.lacks(arm.properties).map_or(Ok(()), Err)
}

fn report(
    experiment: &dyn Experiment,
    setting: &Setting,
    pairs: Vec<Pair>,
    environment: Environment,
) -> Report {
    let (mut ours, mut arms) = (Vec::new(), Vec::new());
    for pair in pairs {
        let label = pair.label();
        let Pair { arm, variant, client, sample: Some(sample), rounds, .. } = pair else {
            continue;
        };
        let mut report = ArmReport::new(&arm, client, &sample, rounds);
        report.name = label;
        // For other clients the brokers' share is added.
        report.cpu_includes_brokers = setting.cluster == ClusterKind::Embedded;
        arms.push(report);
        if client == Client::Curtail && variant.is_none() {
            ours.push((arm, sample));
        }
    }
    let mut models = setting.cluster.models();
    models.extend(experiment.models(setting));
    Report {
        experiment: experiment.name().to_owned(),
        source: experiment.source().to_owned(),
        cluster: setting.cluster.to_string(),
        scale: setting.scale,
        seed: setting.seed,
        command: String::new(),
        environment,
        models,
        arms,
        published: experiment.published(setting).into_iter().map(Into::into).collect(),
        conditions: experiment.conditions(setting, &Arms(&ours)),
    }
}

/// The arms to run.
fn chosen(experiment: &dyn Experiment, setting: &Setting) -> Result<Vec<Arm>> {
    let arms = experiment.arms(setting);
    if setting.arms.is_empty() {
        return Ok(arms);
    }
    if let Some(name) = setting.arms.iter().find(|name| arms.iter().all(|arm| arm.name != **name)) {
        let names: Vec<_> = arms.iter().map(|arm| arm.name).collect();
        return Err(Error::Options(format!(
            "{} has no arm '{name}'; it has {}",
            experiment.name(),
            names.join(", ")
        )));
    }
    Ok(arms.into_iter().filter(|arm| setting.arms.iter().any(|name| name == arm.name)).collect())
}
