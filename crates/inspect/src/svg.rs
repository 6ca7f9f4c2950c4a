//! How are boxes put into a picture? Blocks of known size that flow into rows, and the frame of an SVG file.

use std::fmt::Write;

/// A drawn rectangle: its size, and the SVG elements in it, from (0, 0).
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// In pixels.
    pub width: f64,
    /// In pixels.
    pub height: f64,
    /// SVG elements.
    pub body: String,
}

/// What text and frames look like, in every picture.
const STYLE: &str = "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#1d2733}\
.h{font-size:15px;font-weight:600}.s{font-size:10px;fill:#51606f}.c{text-anchor:middle}.e{text-anchor:end}\
.i{fill:#fff}";

impl Block {
    /// A rectangle with a fill, an outline and text in its middle.
    pub fn cell(width: f64, height: f64, fill: &str, stroke: &str, text: &str, class: &str) -> Block {
        let (x, y) = (width / 2.0, height / 2.0 + 3.5);
        let body = format!(
            "<rect width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" fill=\"{fill}\" stroke=\"{stroke}\"/>\
             <text class=\"c {class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n",
            escape(text)
        );
        Block { width, height, body }
    }

    /// One line of text. The width is estimated: SVG has no way to ask.
    pub fn line(text: &str, class: &str) -> Block {
        let (per_char, height) = match class {
            "h" => (8.4, 20.0),
            "s" => (5.6, 14.0),
            _ => (6.7, 16.0),
        };
        let body = format!("<text class=\"{class}\" x=\"0\" y=\"{:.1}\">{}</text>\n", height - 4.0, escape(text));
        Block { width: text.chars().count() as f64 * per_char, height, body }
    }

    /// This block with a frame around it and a margin inside.
    pub fn framed(self, margin: f64, fill: &str, stroke: &str) -> Block {
        let (width, height) = (self.width + 2.0 * margin, self.height + 2.0 * margin);
        let body = format!(
            "<rect width=\"{width:.1}\" height=\"{height:.1}\" rx=\"5\" fill=\"{fill}\" stroke=\"{stroke}\"/>\n\
             <g transform=\"translate({margin:.1},{margin:.1})\">\n{}</g>\n",
            self.body
        );
        Block { width, height, body }
    }
}

/// Blocks from left to right in rows no wider than `max_width` (a wider block has its own row).
pub fn flow(blocks: &[Block], max_width: f64, gap: f64) -> Block {
    let mut out = Block::default();
    let (mut x, mut y, mut row) = (0.0f64, 0.0f64, 0.0f64);
    for block in blocks {
        if x > 0.0 && x + block.width > max_width {
            (x, y, row) = (0.0, y + row + gap, 0.0);
        }
        let _ = writeln!(out.body, "<g transform=\"translate({x:.1},{y:.1})\">\n{}</g>", block.body);
        row = row.max(block.height);
        out.width = out.width.max(x + block.width);
        out.height = out.height.max(y + row);
        x += block.width + gap;
    }
    out
}

/// Blocks one under the other.
pub fn stack(blocks: &[Block], gap: f64) -> Block {
    flow(blocks, 0.0, gap)
}

/// The whole SVG file around a block, on white.
pub fn document(title: &str, block: &Block) -> String {
    let margin = 14.0;
    let (width, height) = (block.width + 2.0 * margin, block.height + 2.0 * margin);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<g transform=\"translate({margin},{margin})\">\n{}</g>\n</svg>\n",
        escape(title),
        block.body
    )
}

/// Text in a form that XML takes: names of devices and symbols come from outside.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            // XML 1.0 has no other control characters, escaped or not.
            character if character < ' ' && character != '\n' && character != '\t' => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
    out
}

/// White for 0 over yellow and orange to dark red for 1: the scale of the heat maps.
pub fn heat(value: f64) -> String {
    const STOPS: [(f64, [f64; 3]); 4] = [
        (0.0, [255.0, 252.0, 240.0]),
        (0.4, [253.0, 204.0, 110.0]),
        (0.75, [240.0, 110.0, 60.0]),
        (1.0, [150.0, 15.0, 40.0]),
    ];
    let value = value.clamp(0.0, 1.0);
    let upper = STOPS.iter().position(|(at, _)| value <= *at).unwrap_or(STOPS.len() - 1).max(1);
    let ((from, low), (to, high)) = (STOPS[upper - 1], STOPS[upper]);
    let between = (value - from) / (to - from);
    let [r, g, b] = std::array::from_fn(|i| (low[i] + (high[i] - low[i]) * between).round() as u8);
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_break_into_rows() {
        let block = Block { width: 40.0, height: 10.0, body: String::new() };
        let flowed = flow(&[block.clone(), block.clone(), block.clone()], 100.0, 5.0);
        assert_eq!((flowed.width, flowed.height), (85.0, 25.0));
        let stacked = stack(&[block.clone(), block], 5.0);
        assert_eq!((stacked.width, stacked.height), (40.0, 25.0));
    }

    #[test]
    fn names_from_outside_cannot_break_the_picture() {
        assert_eq!(escape("<a & \"b\"\u{1}>"), "&lt;a &amp; &quot;b&quot;\u{fffd}&gt;");
    }

    #[test]
    fn heat_goes_from_pale_to_dark() {
        assert_eq!(heat(0.0), "#fffcf0");
        assert_eq!(heat(1.0), "#960f28");
        assert_eq!(heat(f64::NAN).len(), 7);
    }
}
