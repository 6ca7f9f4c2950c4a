//! Where is a server? A connection string of words `name=value`, as libpq takes them.

use super::ClientError;
use super::stream::Stream;

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// PostgreSQL's, version 3: PostgreSQL and Homenode.
    Postgres,
    /// MariaDB's and MySQL's.
    MariaDb,
}

/// Where a server is and who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// What it speaks.
    pub protocol: Protocol,
    /// Name or address, or the path of a Unix socket (of its folder for PostgreSQL) if it begins with `/`.
    pub host: String,
    /// TCP port; also part of the name of PostgreSQL's Unix socket.
    pub port: u16,
    /// User.
    pub user: String,
    /// Password, if one is wanted.
    pub password: String,
    /// Database.
    pub database: String,
}

impl Address {
    /// Reads `host=... port=... user=... password=... dbname=...`; for MariaDB also `socket=...`. A value with blanks is put in
    /// single quotes. What is left out is the usual: the Unix socket for MariaDB, 127.0.0.1 for PostgreSQL.
    ///
    /// # Errors
    /// What of it is not understood.
    pub fn parse(protocol: Protocol, text: &str) -> Result<Address, String> {
        let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
        let (host, port, database) = match protocol {
            Protocol::Postgres => ("127.0.0.1", 5432, "postgres"),
            Protocol::MariaDb => ("/run/mysqld/mysqld.sock", 3306, ""),
        };
        let mut address = Address {
            protocol,
            host: host.to_owned(),
            port,
            user,
            password: String::new(),
            database: database.to_owned(),
        };
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (name, after) = rest.split_once('=').ok_or_else(|| format!("{rest:?} is not name=value"))?;
            let (value, after) = match after.strip_prefix('\'') {
                Some(quoted) => quoted.split_once('\'').ok_or_else(|| format!("the quote of {name} has no end"))?,
                None => after.split_once(char::is_whitespace).unwrap_or((after, "")),
            };
            match name.trim() {
                "host" | "hostaddr" | "socket" => address.host = value.to_owned(),
                "port" => address.port = value.parse().map_err(|_| format!("{value:?} is no port"))?,
                "user" => address.user = value.to_owned(),
                "password" => address.password = value.to_owned(),
                "dbname" | "database" => address.database = value.to_owned(),
                other => {
                    return Err(format!("{other:?} is not known; host, socket, port, user, password, dbname are"));
                }
            }
            rest = after.trim_start();
        }
        Ok(address)
    }

    /// The form that PostgreSQL's client library takes.
    pub fn libpq(&self) -> String {
        let quoted = |value: &str| format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"));
        let (host, port, user, database) = (quoted(&self.host), self.port, quoted(&self.user), quoted(&self.database));
        let mut text = format!("host={host} port={port} user={user} dbname={database}");
        if !self.password.is_empty() {
            text.push_str(&format!(" password={}", quoted(&self.password)));
        }
        text
    }

    pub(super) fn open(&self) -> Result<Stream, ClientError> {
        Ok(match (self.host.starts_with('/'), self.protocol) {
            (true, Protocol::Postgres) => Stream::unix(&format!("{}/.s.PGSQL.{}", self.host, self.port))?,
            (true, Protocol::MariaDb) => Stream::unix(&self.host)?,
            (false, _) => Stream::tcp(&self.host, self.port)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_read_and_the_rest_is_usual() {
        let text = "host=10.0.0.5 port=6000  user='a b' password=x dbname=app";
        let address = Address::parse(Protocol::Postgres, text).unwrap();
        assert_eq!((address.host.as_str(), address.port, address.user.as_str()), ("10.0.0.5", 6000, "a b"));
        assert_eq!(address.libpq(), "host='10.0.0.5' port=6000 user='a b' dbname='app' password='x'");
        let address = Address::parse(Protocol::MariaDb, "user=root").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("/run/mysqld/mysqld.sock", 3306));
        for wrong in ["host", "port=x", "port=70000", "colour=red", "user='a"] {
            assert!(Address::parse(Protocol::Postgres, wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text in "[a-z= '0-9]{0,40}") {
            let _ = Address::parse(Protocol::MariaDb, &text);
        }
    }
}
