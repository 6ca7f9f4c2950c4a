//! How is a result drawn? Bars with the spread over seeds, as SVG.

use super::{Point, Role, Series};
use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;

/// Colours by role, in two shades each for series of one role (Okabe and Ito's palette, to be told apart by everybody).
fn colour(role: Role, nth: usize) -> &'static str {
    let shades = match role {
        Role::Document => ["#9a9a9a", "#cfcfcf", "#b5b5b5"],
        Role::Old => ["#d55e00", "#e69f00", "#f0c060"],
        Role::Fix => ["#cc79a7", "#e0a8c8", "#b05c8c"],
        Role::Homenode => ["#0072b2", "#56b4e9", "#009e73"],
    };
    shades[nth % shades.len()]
}

/// The chart of one experiment. Values of a series that the document gives relative to something are drawn as they are.
pub fn svg(series: &[(Series, Vec<Point>)], value: &str) -> String {
    let mut labels: Vec<&str> = Vec::new();
    for point in series.iter().flat_map(|(_, points)| points) {
        if !labels.contains(&point.label.as_str()) {
            labels.push(&point.label);
        }
    }
    let largest = series.iter().flat_map(|(_, points)| points).map(|point| point.range().1).fold(0.0, f64::max);
    let step = nice(largest / 4.0);
    let top_value = (largest / step).ceil().max(1.0) * step;
    let plot = HEIGHT - TOP - BOTTOM;
    let y = |value: f64| TOP + plot * (1.0 - value / top_value);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\">",
        HEIGHT + 20.0 * series.len().div_ceil(3) as f64,
    );
    let _ = write!(out, "<title>{}</title>", escape(value));
    for tick in 0..=(top_value / step).round() as usize {
        let at = tick as f64 * step;
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{0:.1}\" y2=\"{0:.1}\" stroke=\"#ddd\"/><text x=\"{1}\" y=\"{2:.1}\" \
             text-anchor=\"end\" fill=\"#444\">{3}</text>",
            y(at),
            LEFT - 6.0,
            y(at) + 4.0,
            short(at),
        );
    }
    let group = (WIDTH - LEFT) / labels.len().max(1) as f64;
    let bar = (group * 0.8 / series.len().max(1) as f64).min(60.0);
    for (at, label) in labels.iter().enumerate() {
        let middle = LEFT + group * (at as f64 + 0.5);
        let _ = write!(
            out,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#222\">{}</text>",
            HEIGHT - BOTTOM + 18.0,
            escape(label),
        );
        for (number, (one, points)) in series.iter().enumerate() {
            let Some(point) = points.iter().find(|point| point.label == *label) else { continue };
            let x = middle + (number as f64 - series.len() as f64 / 2.0) * bar;
            draw(&mut out, point, one, shade(series, number), (x, bar, &y));
        }
    }
    for (number, (one, _)) in series.iter().enumerate() {
        let (column, line) = (number % 3, number / 3);
        let (x, at) = (LEFT + column as f64 * 265.0, HEIGHT + 10.0 + 20.0 * line as f64);
        let _ = write!(
            out,
            "<rect x=\"{x}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{:.1}\" fill=\"#222\">{}</text>",
            at - 10.0,
            shade(series, number),
            x + 18.0,
            at,
            escape(&one.name),
        );
    }
    out.push_str("</svg>");
    out
}

fn shade(series: &[(Series, Vec<Point>)], number: usize) -> &'static str {
    let role = series[number].0.role;
    let nth = series[..number].iter().filter(|(other, _)| other.role == role).count();
    colour(role, nth)
}

fn draw(out: &mut String, point: &Point, series: &Series, fill: &str, (x, width, y): (f64, f64, &dyn Fn(f64) -> f64)) {
    let (low, high) = point.range();
    let top = y(point.middle());
    let _ = write!(
        out,
        "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\"><title>{}, {}: {}</title></rect>",
        width * 0.92,
        (y(0.0) - top).max(0.5),
        escape(&series.name),
        escape(&point.label),
        short(point.middle()),
    );
    if point.values.len() > 1 {
        let middle = x + width * 0.46;
        let _ = write!(
            out,
            "<path d=\"M{middle:.1} {:.1}V{:.1}M{:.1} {:.1}h6M{:.1} {:.1}h6\" stroke=\"#222\" fill=\"none\"/>",
            y(low),
            y(high),
            middle - 3.0,
            y(low),
            middle - 3.0,
            y(high),
        );
    }
}

/// A round number near a value.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let scale = 10f64.powf(value.log10().floor());
    let lead = value / scale;
    scale
        * if lead < 1.5 {
            1.0
        } else if lead < 3.5 {
            2.0
        } else if lead < 7.5 {
            5.0
        } else {
            10.0
        }
}

/// A number in few characters.
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{:.2} M", value / 1e6),
        v if v >= 1e4 => format!("{:.0} k", value / 1e3),
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    }
}

/// Text for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::Points;
    use super::*;

    #[test]
    fn bars_stand_on_the_axis_and_show_their_spread() {
        let point =
            |label: &str, values: &[f64]| Point { label: label.to_owned(), values: values.to_vec(), figures: vec![] };
        let series = |name: &str, role| Series { name: name.to_owned(), role, points: Points::Given(vec![]) };
        let text = svg(
            &[
                (series("a<b", Role::Old), vec![point("1", &[50.0]), point("2", &[100.0])]),
                (series("c", Role::Homenode), vec![point("1", &[90.0, 100.0, 110.0])]),
            ],
            "per second",
        );
        assert_eq!(text.matches("<rect").count(), 3 + 2, "three bars and two keys");
        assert_eq!(text.matches("<path").count(), 1, "one has a spread");
        assert!(text.contains("a&lt;b") && !text.contains("a<b"));
        assert_eq!((nice(3.0), nice(45.0), nice(0.08)), (2.0, 50.0, 0.1));
        assert_eq!(short(1_234_567.0), "1.23 M");
    }
}
