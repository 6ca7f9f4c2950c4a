//! Which of the server's settings outlive it? Those that ALTER SYSTEM has set, in a file of the data folder.
//!
//! As PostgreSQL's `postgresql.auto.conf`: a line for each setting, `name = 'value'`; what is set a second time replaces the first,
//! and the command line counts more. A line that nobody understands stays as it is and stops nothing.

use crate::database::Database;
use crate::error::{Error, Result, SqlState, Storage};
use crate::size;
use homenode_memory::Policy;
use homenode_platform::fs;
use std::path::Path;

/// The file's name.
const FILE: &str = "homenode.auto.conf";
const HEAD: &str = "# Written by ALTER SYSTEM; changes by hand are lost with the next one.\n";

/// Settings for the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedSettings {
    /// Bytes of the pool.
    pub pool_bytes: Option<usize>,
    /// Where its pages lie.
    pub pool_policy: Option<Policy>,
    /// Lines that are not understood, and why.
    pub ignored: Vec<String>,
}

impl SavedSettings {
    /// Those of a data folder; none when there is no file.
    pub fn read(folder: &Path) -> SavedSettings {
        match fs::read(&folder.join(FILE)) {
            Ok(bytes) => SavedSettings::of(&String::from_utf8_lossy(&bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => SavedSettings::default(),
            Err(error) => SavedSettings { ignored: vec![format!("{FILE}: {error}")], ..SavedSettings::default() },
        }
    }

    fn of(text: &str) -> SavedSettings {
        let mut saved = SavedSettings::default();
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let understood = match entry(line) {
                Some(("homenode.pool_size", value)) => size::parse(value).map(|bytes| saved.pool_bytes = Some(bytes)),
                Some(("homenode.pool_policy", value)) => match value.parse() {
                    Ok(policy) => {
                        saved.pool_policy = Some(policy);
                        Ok(())
                    }
                    Err(error) => Err(format!("{error}")),
                },
                Some((name, _)) => Err(format!("there is no setting {name}")),
                None => Err("name = 'value' is wanted".into()),
            };
            if let Err(why) = understood {
                saved.ignored.push(format!("{FILE}: {line}: {why}"));
            }
        }
        saved
    }

    /// Whether there is nothing that a start would have to heed.
    pub fn is_empty(&self) -> bool {
        self.pool_bytes.is_none() && self.pool_policy.is_none()
    }
}

impl std::fmt::Display for SavedSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = self.pool_bytes.map(|bytes| format!("homenode.pool_size = {}", size::show(bytes)));
        let policy = self.pool_policy.as_ref().map(|policy| format!("homenode.pool_policy = {policy}"));
        f.write_str(&size.into_iter().chain(policy).collect::<Vec<_>>().join(", "))
    }
}

/// Name and value of a line.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    Some((name.trim(), value.trim().strip_prefix('\'')?.strip_suffix('\'')?))
}

/// The file's text with a setting changed, or taken out.
fn changed(text: &str, name: &str, value: Option<&str>) -> String {
    let others =
        text.lines().filter(|line| !line.starts_with('#') && entry(line).is_none_or(|(known, _)| known != name));
    let mut lines: Vec<String> = others.map(str::to_owned).collect();
    lines.extend(value.map(|value| format!("{name} = '{value}'")));
    lines.into_iter().fold(HEAD.to_owned(), |text, line| text + &line + "\n")
}

impl Database {
    /// Keeps a setting for the next start, in place of what was kept for it before, which is returned; `None`: nothing.
    ///
    /// # Errors
    /// 58030, 53100; 22023 for a value that is no single line, or has quotes.
    pub fn save_setting(&self, name: &str, value: Option<&str>) -> Result<Option<String>> {
        if let Some(value) = value.filter(|value| value.contains(|c: char| c.is_control() || c == '\'')) {
            let message = format!("invalid value for {name}: {value:?}");
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        let _alone = self.inner.saving.lock();
        let path = self.inner.dir.join(FILE);
        let old = if fs::exists(&path) { fs::read(&path).sql()? } else { Vec::new() };
        let old = String::from_utf8_lossy(&old);
        fs::write_atomic(&path, changed(&old, name, value).as_bytes()).sql()?;
        let before = old.lines().filter_map(entry).rfind(|(known, _)| *known == name);
        Ok(before.map(|(_, value)| value.to_owned()))
    }

    /// What was saved and could not be had at the start, in words.
    pub fn refused_settings(&self) -> &[String] {
        &self.inner.refused_settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read_again_and_the_last_counts() {
        let text = changed("", "homenode.pool_size", Some("64MiB"));
        let text = changed(&text, "homenode.pool_policy", Some("bind=1,3"));
        let text = changed(&text, "homenode.pool_size", Some("1GiB"));
        let saved = SavedSettings::of(&text);
        assert_eq!((saved.pool_bytes, saved.pool_policy.clone()), (Some(1 << 30), Some(Policy::Bind(vec![1, 3]))));
        assert!(saved.ignored.is_empty() && text.lines().count() == 3, "{text}");
        let text = changed(&text, "homenode.pool_policy", None);
        assert_eq!(SavedSettings::of(&text).pool_policy, None);
        assert!(SavedSettings::of(&changed(&text, "homenode.pool_size", None)).is_empty());
    }

    #[test]
    fn damage_stops_nothing() {
        let text =
            "homenode.pool_size = '1 league'\nnonsense\nother.name = '1'\nhomenode.pool_policy = 'local'\n\0\u{fffd}";
        let saved = SavedSettings::of(text);
        assert_eq!((saved.pool_bytes, saved.pool_policy.clone(), saved.ignored.len()), (None, Some(Policy::Local), 4));
        // What is not understood is kept.
        assert!(changed(text, "homenode.pool_policy", None).contains("other.name = '1'"));
    }
}
