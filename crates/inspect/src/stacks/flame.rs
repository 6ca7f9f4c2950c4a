//! How is time by stack drawn? A flame graph: one box a function, as wide as its share, callees above callers.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::svg::{Block, document, escape, stack};
use crate::text::shorten;

const WIDTH: f64 = 1400.0;
const ROW: f64 = 17.0;
/// Narrower boxes are left out: nobody could see them.
const NARROWEST: f64 = 0.7;

/// Functions by their callers, with samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flame {
    /// Samples in this function or what it called.
    pub samples: u64,
    /// What it called.
    pub callees: BTreeMap<String, Flame>,
}

impl Flame {
    /// Adds samples of a stack, outermost function first.
    pub fn add<'a>(&mut self, stack: impl IntoIterator<Item = &'a str>, samples: u64) {
        self.samples += samples;
        let mut node = self;
        for name in stack {
            node = node.callees.entry(name.to_owned()).or_default();
            node.samples += samples;
        }
    }

    fn depth(&self) -> usize {
        self.callees.values().map(Flame::depth).max().map_or(0, |deepest| deepest + 1)
    }
}

/// Flame graphs, each with a title, under each other in one SVG file.
pub fn svg(title: &str, flames: &[(&str, &Flame)]) -> String {
    let mut blocks = vec![Block::line(title, "h")];
    for (name, flame) in flames.iter().filter(|(_, flame)| flame.samples > 0) {
        blocks.push(Block::line(&format!("{name}: {} samples", flame.samples), ""));
        blocks.push(draw(flame));
    }
    document(title, &stack(&blocks, 10.0))
}

fn draw(flame: &Flame) -> Block {
    let height = flame.depth() as f64 * ROW;
    let mut body = String::new();
    rows(flame, flame.samples, 0.0, height - ROW, &mut body);
    Block { width: WIDTH, height, body }
}

fn rows(flame: &Flame, all: u64, left: f64, top: f64, body: &mut String) {
    let mut x = left;
    for (name, callee) in &flame.callees {
        let width = callee.samples as f64 / all as f64 * WIDTH;
        if width >= NARROWEST {
            let fits = ((width - 6.0) / 6.2).max(0.0) as usize;
            let label = if fits > 3 { shorten(name, fits) } else { String::new() };
            let share = callee.samples as f64 * 100.0 / all as f64;
            // Writing to a String cannot fail.
            let _ = writeln!(
                body,
                "<g><title>{} ({} samples, {share:.1}%)</title><rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\" rx=\"1\" fill=\"{}\"/><text class=\"s\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                escape(name),
                callee.samples,
                width - 0.5,
                ROW - 1.0,
                colour(name),
                x + 3.0,
                top + 12.0,
                escape(&label)
            );
            rows(callee, all, x, top - ROW, body);
        }
        x += width;
    }
}

/// A warm colour that stays the same for a name, so that a function is found again in another picture.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(2_166_136_261u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619));
    format!("hsl({},{}%,{}%)", 15 + hash % 40, 75 + hash / 64 % 20, 68 + hash / 4096 % 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_add_up_by_caller() {
        let mut flame = Flame::default();
        flame.add(["main", "a", "b"], 3);
        flame.add(["main", "a"], 1);
        flame.add(["main", "<c & d>"], 4);
        assert_eq!((flame.samples, flame.depth()), (8, 3));
        assert_eq!(flame.callees["main"].callees["a"].samples, 4);
        let svg = svg("test", &[("on CPU", &flame), ("waiting", &Flame::default())]);
        assert!(svg.contains("&lt;c &amp; d&gt;") && !svg.contains("<c &"), "{svg}");
        assert_eq!(svg.matches("<rect x=").count(), 4);
        assert!(!svg.contains("waiting"));
    }
}
