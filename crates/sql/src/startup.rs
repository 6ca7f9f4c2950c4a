//! What does a client ask for when it connects? Settings within its `options`, and a time zone.

use crate::context::Context;
use homenode_types::{Error, Result, SqlState};

/// The settings in a client's `options` (`PGOPTIONS`): `-c name=value`, `-cname=value` and `--name=value`, parted by blanks that no
/// backslash stands before (pg_split_opts in postinit.c).
///
/// # Errors
/// 42601 for anything else.
pub(crate) fn settings_of(options: &str) -> Result<Vec<(String, String)>> {
    let wrong = |word: &str| {
        Error::new(SqlState::SYNTAX_ERROR, format!("invalid command-line argument for server process: {word}"))
    };
    let mut words = split(options).into_iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = match (word.strip_prefix("--"), word.strip_prefix("-c")) {
            (Some(setting), _) => setting.to_owned(),
            (None, Some("")) => words.next().ok_or_else(|| wrong(&word))?,
            (None, Some(setting)) => setting.to_owned(),
            (None, None) => return Err(wrong(&word)),
        };
        let (name, value) = setting.split_once('=').ok_or_else(|| wrong(&setting))?;
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

fn split(options: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut chars = options.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_ascii_whitespace() => words.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(chars.next()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Drivers ask for the time zone of their machine by themselves (JDBC does always). There is only UTC: such a session says so, by a
/// warning and as its TimeZone, rather than not to begin; times with their zone mean the same in both.
pub(crate) fn set_time_zone(context: &mut Context, zone: &str) -> Result<()> {
    match context.settings.set_initial("timezone", zone) {
        Err(error) if error.code == SqlState::FEATURE_NOT_SUPPORTED => {
            let message = format!("time zone \"{zone}\" is not supported; this session's is UTC");
            context.notice("WARNING", SqlState::WARNING, message);
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        let of = |options| {
            settings_of(options).map(|settings| {
                settings.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("|")
            })
        };
        assert_eq!(of("").unwrap(), "");
        assert_eq!(of("-c a=1 -cb=2  --c-d=x\\ y\\\\").unwrap(), "a=1|b=2|c_d=x y\\");
        for wrong in ["-c", "-c a", "a=1", "-x", "--"] {
            assert_eq!(of(wrong).unwrap_err().code, SqlState::SYNTAX_ERROR, "{wrong}");
        }
    }
}
