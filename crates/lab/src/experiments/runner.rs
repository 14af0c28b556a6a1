//! Runs the arms of an experiment in turn.

use super::{
    Arm, ArmReport, Arms, ClusterKind, Experiment, Report, Sample, Setting, Turn,
    load::warm_brokers,
};
use crate::perf::{Error, Result};

/// What happens in a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The cluster is being started.
    Starting,
    /// A turn begins.
    Turn {
        /// The arm.
        arm: &'a str,
        /// How many turns have been, of all arms.
        done: usize,
        /// How many there are.
        of: usize,
    },
}

/// Runs an experiment: every arm once a round, the first arm of a round being another one each time, so that what
/// changes on the machine meanwhile concerns all arms alike.
///
/// # Errors
/// An arm that does not exist, a cluster that does not start or of which the experiment has no use, a run that
/// could not be brought to its end. Conditions that do not hold are part of the report.
pub fn run(
    experiment: &dyn Experiment,
    setting: &Setting,
    progress: &mut dyn FnMut(Event<'_>),
) -> Result<Report> {
    setting.check()?;
    let arms = chosen(experiment, setting)?;
    progress(Event::Starting);
    let testbed = experiment.start(setting)?;
    if setting.cluster == ClusterKind::Apache && !testbed.bootstrap().is_empty() {
        warm_brokers(&testbed, setting.seed)?;
    }
    let rounds = experiment.rounds(setting);
    let mut samples: Vec<Option<Sample>> = vec![None; arms.len()];
    let of = rounds as usize * arms.len();
    for done in 0..of {
        let (round, place) = (done / arms.len(), done % arms.len());
        let at = (round + place) % arms.len();
        let arm = &arms[at];
        progress(Event::Turn { arm: arm.name, done, of });
        let turn = Turn { testbed: &testbed, arm, round: round as u32, setting };
        let mut sample = experiment.turn(&turn)?;
        sample.exemplars.set_round(turn.round);
        match &mut samples[at] {
            Some(all) => all.join(sample),
            none => *none = Some(sample),
        }
    }
    drop(testbed);
    let measured: Vec<(Arm, Sample)> =
        arms.into_iter().zip(samples).filter_map(|(arm, sample)| Some((arm, sample?))).collect();
    Ok(Report {
        experiment: experiment.name(),
        source: experiment.source(),
        cluster: setting.cluster.to_string(),
        scale: setting.scale,
        seed: setting.seed,
        arms: measured.iter().map(|(arm, sample)| ArmReport::new(arm, sample)).collect(),
        published: experiment.published(setting),
        conditions: experiment.conditions(setting, &Arms(&measured)),
    })
}

/// The arms to run.
fn chosen(experiment: &dyn Experiment, setting: &Setting) -> Result<Vec<Arm>> {
    let arms = experiment.arms(setting);
    let Some(name) = &setting.arm else { return Ok(arms) };
    if let Some(arm) = arms.iter().find(|arm| arm.name == name) {
        return Ok(vec![*arm]);
    }
    let names: Vec<_> = arms.iter().map(|arm| arm.name).collect();
    Err(Error::Options(format!(
        "{} has no arm '{name}'; it has {}",
        experiment.name(),
        names.join(", ")
    )))
}
