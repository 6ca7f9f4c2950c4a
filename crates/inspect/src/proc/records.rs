//! How is a file of one record a line read? One line at a time, and an error names file, line and what is wrong with it.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use crate::InspectError;

/// What a line is, or what of it is not known.
type Parse<T> = fn(&str) -> Result<T, &'static str>;

/// Reads records one at a time; holds one line.
#[derive(Debug)]
pub struct Records<R, T> {
    input: R,
    path: PathBuf,
    line: usize,
    buffer: Vec<u8>,
    parse: Parse<T>,
}

impl<R: BufRead, T> Records<R, T> {
    /// `path` is for errors; `parse` gets a line without its line feed.
    pub fn new(input: R, path: &Path, parse: Parse<T>) -> Records<R, T> {
        Records { input, path: path.to_owned(), line: 0, buffer: Vec::new(), parse }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// [`InspectError::Format`] for a line in another form, [`InspectError::Io`] if reading fails.
    pub fn next_record(&mut self) -> Result<Option<T>, InspectError> {
        self.buffer.clear();
        let read = self.input.read_until(b'\n', &mut self.buffer).map_err(|e| InspectError::io(&self.path, e))?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;
        let text = String::from_utf8_lossy(&self.buffer);
        let text = text.trim_end_matches('\n');
        (self.parse)(text).map(Some).map_err(|why| InspectError::format(&self.path, self.line, why, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_line() {
        let parse = |text: &str| text.parse::<u32>().map_err(|_| "no number");
        let mut records = Records::new("1\n2\nx\n".as_bytes(), Path::new("file"), parse);
        assert_eq!((records.next_record().unwrap(), records.next_record().unwrap()), (Some(1), Some(2)));
        assert_eq!(records.next_record().unwrap_err().to_string(), "file, line 3: no number: \"x\"");
        assert_eq!(records.next_record().unwrap(), None);
    }
}
