use super::*;
use crate::experiments::{PublishedFigure, all};

#[test]
fn a_condition_on_limits_states_each_figure_with_its_name() {
    let seen = [0.772, 0.642, 3.617, 6.865];
    let published = Limits::Published([1.0193, 1.0, 2.0, 4.0], "").condition("classic-1", seen);
    let text =
        "classic-1: not above the published figures (avg 0.77, p50 0.64, p99 3.62, p99.9 6.87 ms)";
    assert_eq!((&*published.text, published.held), (text, false));
    let aims = Limits::Aims([None, Some(0.65), Some(3.7), None]).condition("open-1", seen);
    let text = "open-1: not above the aims, p50 0.65, p99 3.70 ms (avg 0.77, p50 0.64, p99 3.62, p99.9 6.87 ms)";
    assert_eq!((&*aims.text, aims.held), (text, true));
}

#[test]
fn published_figures_name_a_document() {
    for experiment in all() {
        for cluster in [ClusterKind::Embedded, ClusterKind::Sim, ClusterKind::Apache] {
            for figure in experiment.published(&Setting::new(cluster)) {
                let PublishedFigure { source, .. } = figure.into();
                assert!(!source.contains("measured on"), "{}: {source}", experiment.name());
            }
        }
        assert!(!experiment.source().contains("measured on"), "{}", experiment.name());
    }
}
