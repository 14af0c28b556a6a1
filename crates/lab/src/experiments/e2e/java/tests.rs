use super::*;

#[test]
fn figures_are_parsed_from_the_tools_output() {
    let printed = "0\t61.97\nAvg latency: 1.5602 ms\n\
                   Percentiles: 50th = 1, 99th = 6, 99.9th = 19\n";
    let figures = FIGURES.map(|(label, _)| figure_after(printed, label));
    assert_eq!(figures, [Some(1.5602), Some(1.0), Some(6.0), Some(19.0)]);
    assert_eq!(figure_after("Avg latency: NaN ms", "Avg latency: "), None);
}

#[test]
fn a_percentile_is_compared_as_far_as_the_tool_counts() {
    let java = [1.5, 1.0, 6.0, 19.0];
    assert!(is_below([1.4, 1.9, 6.9, 2.0], java));
    assert!(!is_below([1.5, 0.1, 0.2, 0.3], java), "the average is exact");
    assert!(!is_below([1.4, 2.0, 6.9, 2.0], java));
    assert!(!is_below([1.4, 1.0, 6.0, 20.0], java));
}
