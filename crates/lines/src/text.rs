//! How do tables and shares look in a terminal?

/// Which side of its column a cell keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Columns side by side, each as wide as its widest cell, two blanks between them; the first row is the heading.
#[derive(Clone, Debug)]
pub struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a heading; a name that begins with `<` heads a column of words.
    pub fn new<S: AsRef<str>>(heading: &[S]) -> Table {
        let sides = heading.iter().map(|name| if name.as_ref().starts_with('<') { Side::Left } else { Side::Right });
        let names = heading.iter().map(|name| name.as_ref().trim_start_matches('<').to_owned());
        Table { sides: sides.collect(), rows: vec![names.collect()] }
    }

    /// Adds a row; missing cells are empty, surplus ones are dropped.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut row: Vec<String> = cells.into_iter().take(self.sides.len()).map(Into::into).collect();
        row.resize(self.sides.len(), String::new());
        self.rows.push(row);
    }

    /// Rows without the heading.
    pub fn len(&self) -> usize {
        self.rows.len() - 1
    }

    /// Whether there is no row but the heading.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text, one line a row, without blanks at line ends.
    pub fn render(&self) -> String {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.sides.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&self.sides).zip(&widths).map(|((cell, side), width)| match side {
                Side::Left => format!("{cell:<width$}"),
                Side::Right => format!("{cell:>width$}"),
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// A share in percent: `48.5%`, and `-` of nothing.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}%", part as f64 * 100.0 / whole as f64) }
}

/// The text, cut to `width` characters with an ellipsis where something was cut.
pub fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}\u{2026}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["<name", "size"]);
        table.row(["a", "12 GiB"]);
        table.row(["longer", "1 B"]);
        assert_eq!(table.render(), "name      size\na       12 GiB\nlonger     1 B\n");
    }

    #[test]
    fn shares_and_cut_texts_are_short() {
        assert_eq!(share(1, 3), "33.3%");
        assert_eq!(share(1, 0), "-");
        assert_eq!(shorten("abcdef", 4), "abc\u{2026}");
        assert_eq!(shorten("abcd", 4), "abcd");
    }
}
