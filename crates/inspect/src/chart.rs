//! How does a chart of lines look? Values over categories (threads, nodes, rates), a line for each server, ranges as bars.

use std::fmt::Write;

use crate::svg::{Block, escape};

/// A line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Which colour.
    pub colour: usize,
    /// Whether it is drawn dashed.
    pub dashed: bool,
    /// Category, value, least, most.
    pub points: Vec<(usize, f64, f64, f64)>,
}

/// What a chart shows.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below its horizontal axis.
    pub x: String,
    /// Names of the categories from left to right.
    pub categories: Vec<String>,
    /// Unit of the values.
    pub unit: String,
    /// The lines.
    pub series: Vec<Series>,
    /// Whether the values are drawn on a logarithmic axis: for latencies, whose tail is a hundred times their middle.
    pub logarithmic: bool,
}

/// Colours that are told apart also by those who see red and green alike (Okabe and Ito, 2008), the light ones left out.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00"];

/// The colour of a number.
pub fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 62.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 40.0;
const RIGHT: f64 = 14.0;

impl Chart {
    /// Draws it. Without any point above zero there is nothing to draw: `None`.
    pub fn draw(&self) -> Option<Block> {
        let values = self
            .series
            .iter()
            .flat_map(|series| &series.points)
            .flat_map(|(_, value, low, high)| [*value, *low, *high]);
        let values: Vec<f64> = values.filter(|value| value.is_finite() && *value > 0.0).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        if most == 0.0 || self.categories.is_empty() {
            return None;
        }
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        let axis = if self.logarithmic { Axis::decades(least, most) } else { Axis::from_zero(most) };
        let (inner_width, inner_height) = (WIDTH - LEFT - RIGHT, HEIGHT);
        let legend = self.legend();
        let height = TOP + HEIGHT + BOTTOM + legend.height;
        let mut body = format!("<text class=\"h\" x=\"0\" y=\"15\">{}</text>\n", escape(&self.title));
        let y_at = |value: f64| TOP + inner_height * (1.0 - axis.position(value));
        let step = inner_width / self.categories.len() as f64;
        let x_at = |category: usize| LEFT + step * (category as f64 + 0.5);
        for tick in &axis.ticks {
            let y = y_at(*tick);
            let _ = writeln!(
                body,
                "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e3e7ec\"/>\
                 <text class=\"s e\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 3.5,
                short(*tick)
            );
        }
        let _ = writeln!(body, "<text class=\"s\" x=\"0\" y=\"31\">{}</text>", escape(&self.unit));
        for (index, name) in self.categories.iter().enumerate() {
            let y = TOP + inner_height + 15.0;
            let _ = writeln!(body, "<text class=\"s c\" x=\"{:.1}\" y=\"{y:.1}\">{}</text>", x_at(index), escape(name));
        }
        let middle = LEFT + inner_width / 2.0;
        let _ = writeln!(
            body,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#8795a5\"/>\
             <text class=\"s c\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT,
            TOP + inner_height + 31.0,
            escape(&self.x),
            y = TOP + inner_height
        );
        for (number, series) in self.series.iter().enumerate() {
            body.push_str(&line(series, number, self.series.len(), x_at, y_at));
        }
        let _ = writeln!(body, "<g transform=\"translate({LEFT},{:.1})\">{}</g>", TOP + HEIGHT + BOTTOM, legend.body);
        Some(Block { width: WIDTH.max(LEFT + legend.width), height, body })
    }

    fn legend(&self) -> Block {
        let entries: Vec<Block> = self
            .series
            .iter()
            .map(|series| {
                let dash = if series.dashed { " stroke-dasharray=\"5 3\"" } else { "" };
                let name = Block::line(&series.name, "s");
                let body = format!(
                    "<line x1=\"0\" x2=\"18\" y1=\"7\" y2=\"7\" stroke=\"{}\" stroke-width=\"2.5\"{dash}/>\
                     <g transform=\"translate(23,0)\">{}</g>",
                    colour(series.colour),
                    name.body
                );
                Block { width: name.width + 23.0, height: 14.0, body }
            })
            .collect();
        crate::svg::flow(&entries, WIDTH - LEFT, 12.0)
    }
}

/// One line with its ranges; lines at the same place are set a little beside each other.
fn line(
    series: &Series,
    number: usize,
    count: usize,
    x_at: impl Fn(usize) -> f64,
    y_at: impl Fn(f64) -> f64,
) -> String {
    let colour = colour(series.colour);
    let aside = (number as f64 - (count as f64 - 1.0) / 2.0) * 3.0;
    let points: Vec<(f64, f64, f64, f64)> = series
        .points
        .iter()
        .filter(|(_, value, ..)| *value > 0.0)
        .map(|(category, value, low, high)| (x_at(*category) + aside, y_at(*value), y_at(*low), y_at(*high)))
        .collect();
    let dash = if series.dashed { " stroke-dasharray=\"5 3\"" } else { "" };
    let path: Vec<String> = points.iter().map(|(x, y, ..)| format!("{x:.1},{y:.1}")).collect();
    let mut out = format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\n",
        path.join(" ")
    );
    for (x, y, low, high) in points {
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.55\"/>\
             <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
        );
    }
    out
}

/// The vertical axis: where its ticks are, and how high a value stands, from 0 to 1.
struct Axis {
    ticks: Vec<f64>,
    logarithmic: bool,
}

impl Axis {
    /// Four to eight ticks at round numbers, the last one at or above the largest value.
    fn from_zero(most: f64) -> Axis {
        let rough = most / 5.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|factor| factor * decade).find(|step| *step >= rough);
        let step = step.unwrap_or(decade * 10.0);
        let count = (most / step).ceil() as usize;
        Axis { ticks: (0..=count).map(|tick| tick as f64 * step).collect(), logarithmic: false }
    }

    /// A tick a decade.
    fn decades(least: f64, most: f64) -> Axis {
        let (low, high) = (least.log10().floor(), most.log10().ceil());
        let high = if high > low { high } else { low + 1.0 };
        let count = (high - low) as usize;
        Axis { ticks: (0..=count).map(|tick| 10f64.powf(low + tick as f64)).collect(), logarithmic: true }
    }

    fn position(&self, value: f64) -> f64 {
        let (low, high) = (self.ticks[0], self.ticks[self.ticks.len() - 1]);
        let share = if self.logarithmic {
            (value.max(low) / low).log10() / (high / low).log10()
        } else {
            (value - low) / (high - low)
        };
        share.clamp(0.0, 1.0)
    }
}

/// A number in four characters or so: `950`, `12k`, `1.5M`.
pub fn short(number: f64) -> String {
    let (value, unit) = match number {
        n if n >= 1e9 => (n / 1e9, "G"),
        n if n >= 1e6 => (n / 1e6, "M"),
        n if n >= 1e4 => (n / 1e3, "k"),
        n => (n, ""),
    };
    let decimals = if value == 0.0 || value >= 100.0 || (value - value.round()).abs() < 1e-9 {
        0
    } else if value >= 1.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_ticks_up_to_the_largest_value() {
        assert_eq!(Axis::from_zero(87.0).ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(Axis::from_zero(12_000.0).ticks.last(), Some(&12_500.0));
        let decades = Axis::decades(35.0, 4100.0);
        assert_eq!(decades.ticks, [10.0, 100.0, 1000.0, 10_000.0]);
        assert!((decades.position(100.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(Axis::from_zero(5.0).position(9.0), 1.0);
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in
            [(0.0, "0"), (0.25, "0.25"), (950.0, "950"), (12_500.0, "12.5k"), (1.5e6, "1.5M"), (2e9, "2G")]
        {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn a_chart_has_every_line_and_none_without_values() {
        let series = |name: &str, value| Series {
            name: name.to_owned(),
            colour: 0,
            dashed: false,
            points: vec![(0, value, value, value)],
        };
        let chart = |value| Chart {
            title: "a < b".to_owned(),
            x: "threads".to_owned(),
            categories: vec!["1".to_owned()],
            unit: "transactions/s".to_owned(),
            series: vec![series("one", value), series("other", value)],
            logarithmic: false,
        };
        let drawn = chart(5.0).draw().unwrap();
        assert_eq!(drawn.body.matches("<polyline").count(), 2);
        assert!(drawn.body.contains("a &lt; b") && drawn.height > HEIGHT);
        assert!(chart(0.0).draw().is_none());
    }
}
