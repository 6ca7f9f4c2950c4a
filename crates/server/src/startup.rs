//! Who is there, and which protocol does it speak? The first packet of a connection.

use homenode_types::{Error, Result, SqlState};

use crate::backend::Parameters;
use crate::wire::{Fields, utf8};

// Request codes that stand where the protocol version would (the manual, "Message Formats").
const CANCEL_REQUEST: u32 = 1234 << 16 | 5678;
const SSL_REQUEST: u32 = 1234 << 16 | 5679;
const GSSENC_REQUEST: u32 = 1234 << 16 | 5680;
/// The one database there is.
pub(crate) const DATABASE: &str = "postgres";

/// What the first packet asks for.
pub(crate) enum Hello {
    /// TLS.
    Encrypt,
    /// Encryption by GSSAPI, which isn't offered: the answer is `N`, and the client goes on without or leaves.
    Refuse,
    /// To cancel what another session runs.
    Cancel { process_id: u32, secret: u32 },
    /// A session.
    Start(Start),
}

pub(crate) struct Start {
    pub(crate) parameters: Parameters,
    /// The client asked for a newer minor version or for protocol options, and has to hear that there are none.
    pub(crate) negotiate: bool,
    pub(crate) unknown_options: Vec<String>,
}

/// Reads a start-up packet without its length.
pub(crate) fn read(body: &[u8]) -> Result<Hello> {
    let mut fields = Fields::new(body);
    let code = fields.i32()? as u32;
    match code {
        SSL_REQUEST => Ok(Hello::Encrypt),
        GSSENC_REQUEST => Ok(Hello::Refuse),
        CANCEL_REQUEST => Ok(Hello::Cancel { process_id: fields.i32()? as u32, secret: fields.i32()? as u32 }),
        _ if code >> 16 == 3 => start(fields, code & 0xffff).map(Hello::Start),
        _ => {
            let (major, minor) = (code >> 16, code & 0xffff);
            let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0");
            Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message))
        }
    }
}

fn start(mut fields: Fields<'_>, minor: u32) -> Result<Start> {
    let mut parameters = Parameters::default();
    let mut unknown_options = Vec::new();
    loop {
        let name = fields.text()?;
        if name.is_empty() {
            break;
        }
        let value = fields.text()?;
        match name {
            "user" => parameters.user = value.to_owned(),
            "database" => parameters.database = value.to_owned(),
            "replication" if !matches!(value, "off" | "false" | "no" | "0") => {
                return Err(Error::unsupported("replication"));
            }
            "replication" => {}
            _ if name.starts_with("_pq_.") => unknown_options.push(name.to_owned()),
            _ => parameters.settings.push((name.to_owned(), value.to_owned())),
        }
    }
    fields.end()?;
    if parameters.user.is_empty() {
        let message = "no PostgreSQL user name specified in startup packet";
        return Err(Error::new(SqlState::INVALID_AUTHORIZATION, message));
    }
    if parameters.database.is_empty() {
        parameters.database.clone_from(&parameters.user);
    }
    if parameters.database != DATABASE {
        let message = format!("database \"{}\" does not exist", parameters.database);
        let hint = format!("There is one database, \"{DATABASE}\".");
        return Err(Error::new(SqlState::INVALID_CATALOG_NAME, message).with_hint(hint));
    }
    expand_options(&mut parameters)?;
    let negotiate = minor > 0 || !unknown_options.is_empty();
    Ok(Start { parameters, negotiate, unknown_options })
}

/// Turns `options` (`-c name=value` and `--name=value`, as for PostgreSQL's own command line) into settings.
fn expand_options(parameters: &mut Parameters) -> Result<()> {
    let Some(position) = parameters.settings.iter().position(|(name, _)| name == "options") else {
        return Ok(());
    };
    let (_, options) = parameters.settings.remove(position);
    let mut words = split_options(&options)?.into_iter();
    while let Some(word) = words.next() {
        let assignment = match word.strip_prefix("--") {
            Some(rest) => Some(rest.to_owned()),
            None if word == "-c" => words.next(),
            None => word.strip_prefix("-c").map(str::to_owned),
        };
        let Some((name, value)) = assignment.as_deref().and_then(|text| text.split_once('=')) else {
            let message = format!("invalid command-line argument for server process: {word}");
            return Err(Error::new(SqlState::SYNTAX_ERROR, message));
        };
        parameters.settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(())
}

/// Words are separated by blanks; a backslash takes the next character as it is (`pg_split_opts`, postinit.c).
fn split_options(options: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word = Vec::new();
    let mut bytes = options.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => word.extend(bytes.next()),
            byte if byte.is_ascii_whitespace() => {
                if !word.is_empty() {
                    words.push(utf8(&std::mem::take(&mut word))?.to_owned());
                }
            }
            byte => word.push(byte),
        }
    }
    if !word.is_empty() {
        words.push(utf8(&word)?.to_owned());
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut body = code.to_be_bytes().to_vec();
        for (name, value) in pairs {
            for text in [name, value] {
                body.extend_from_slice(text.as_bytes());
                body.push(0);
            }
        }
        body.push(0);
        body
    }

    fn started(code: u32, pairs: &[(&str, &str)]) -> Start {
        match read(&packet(code, pairs)) {
            Ok(Hello::Start(start)) => start,
            _ => panic!("no session"),
        }
    }

    #[test]
    fn a_newer_minor_version_is_negotiated_down() {
        let pairs = [("user", "a"), ("database", "postgres"), ("_pq_.fast", "1")];
        let start = started(3 << 16 | 2, &pairs);
        assert!(start.negotiate);
        assert_eq!(start.unknown_options, ["_pq_.fast"]);
        assert!(!started(3 << 16, &pairs[..2]).negotiate);
    }

    #[test]
    fn other_databases_do_not_exist() {
        let error = read(&packet(3 << 16, &[("user", "shop")])).err().unwrap();
        assert_eq!(
            (error.code, error.message.as_str()),
            (SqlState::INVALID_CATALOG_NAME, "database \"shop\" does not exist")
        );
        assert!(read(&packet(2 << 16, &[])).is_err());
        assert_eq!(read(&packet(3 << 16, &[])).err().unwrap().code, SqlState::INVALID_AUTHORIZATION);
    }

    #[test]
    fn options_become_settings() {
        let options = r"-c a=1 -cb=x\ y --work-mem=3";
        let start = started(3 << 16, &[("user", "a"), ("database", "postgres"), ("options", options)]);
        let expected = [("a", "1"), ("b", "x y"), ("work_mem", "3")];
        assert_eq!(start.parameters.settings, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn requests_without_a_session() {
        assert!(matches!(read(&SSL_REQUEST.to_be_bytes()), Ok(Hello::Encrypt)));
        assert!(matches!(read(&GSSENC_REQUEST.to_be_bytes()), Ok(Hello::Refuse)));
        assert!(read(&CANCEL_REQUEST.to_be_bytes()).is_err());
    }
}
