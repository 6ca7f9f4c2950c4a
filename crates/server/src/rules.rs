//! Who has to prove what? The rules of host-based authentication, in the format of PostgreSQL's `pg_hba.conf`.
//!
//! The first rule that fits a connection decides; if none does, it is refused. See the manual, "The pg_hba.conf File".

use std::net::IpAddr;

use crate::error::ServerError;
use crate::startup::DATABASE;

/// What a rule asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Nothing.
    Trust,
    /// Nobody is let in.
    Reject,
    /// The password, by SCRAM-SHA-256: it is never sent.
    Scram,
}

/// Which connections a rule is about, by encryption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transport {
    Any,
    Encrypted,
    Plain,
}

/// A user, as a rule names it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Who {
    All,
    Name(String),
    /// Members of a role.
    Group(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    transport: Transport,
    users: Vec<Who>,
    /// Address and length of its prefix in bits; `None` is any.
    network: Option<(IpAddr, u8)>,
    method: Method,
}

/// Rules in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Whether trust lets in names that are no roles.
    pub(crate) unknown_names: bool,
}

impl Rules {
    /// What holds without a file: from this machine everybody is let in, under any name; others have to know a password, unless
    /// `trust_remote`.
    pub fn usual(trust_remote: bool) -> Rules {
        let rule = |network, method| Rule { transport: Transport::Any, users: vec![Who::All], network, method };
        let loopback = [(IpAddr::from([127, 0, 0, 0]), 8), (IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), 128)];
        let mut rules: Vec<Rule> = loopback.map(|network| rule(Some(network), Method::Trust)).into();
        rules.push(rule(None, if trust_remote { Method::Trust } else { Method::Scram }));
        Rules { rules, unknown_names: true }
    }

    /// Reads a file's text. Rules about Unix sockets (`local`) and replication are left out: there are none here.
    ///
    /// # Errors
    /// [`ServerError::Rules`] naming the line that is not understood. Nothing is guessed.
    pub fn parse(text: &str) -> Result<Rules, ServerError> {
        let mut rules = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let rule = parse_rule(line).map_err(|what| ServerError::Rules { line: number + 1, what })?;
            rules.extend(rule);
        }
        Ok(Rules { rules, unknown_names: false })
    }

    /// What is asked of `user` at `client`. `is_member` answers whether the user is a member of a role.
    pub(crate) fn method(
        &self,
        client: IpAddr,
        encrypted: bool,
        user: &str,
        is_member: &dyn Fn(&str) -> bool,
    ) -> Option<Method> {
        let client = client.to_canonical();
        let fits = |rule: &&Rule| {
            let transport = match rule.transport {
                Transport::Any => true,
                Transport::Encrypted => encrypted,
                Transport::Plain => !encrypted,
            };
            let known = rule.users.iter().any(|who| match who {
                Who::All => true,
                Who::Name(name) => name == user,
                Who::Group(group) => is_member(group),
            });
            transport && known && rule.network.is_none_or(|network| is_in(client, network))
        };
        self.rules.iter().find(fits).map(|rule| rule.method)
    }

    /// Whether somebody is let in from beyond this machine without a password.
    pub fn trust_remote(&self) -> bool {
        let beyond = |rule: &Rule| rule.network.is_none_or(|(address, _)| !address.is_loopback());
        self.rules.iter().any(|rule| rule.method == Method::Trust && beyond(rule))
    }
}

fn is_in(address: IpAddr, (network, bits): (IpAddr, u8)) -> bool {
    let same = |a: u128, b: u128, width: u32| {
        let shift = width - u32::from(bits).min(width);
        shift >= width || a >> shift == b >> shift
    };
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

/// Words of a line; in quotes, blanks and commas are part of a word and its meaning is only itself.
fn words(line: &str) -> Result<Vec<Word>, String> {
    let mut words: Vec<Word> = Vec::new();
    let mut rest = line.chars().peekable();
    while let Some(&next) = rest.peek() {
        if next == '#' {
            break;
        }
        if next.is_whitespace() {
            rest.next();
            continue;
        }
        let (mut word, mut quoted, mut inside) = (String::new(), false, false);
        while let Some(&next) = rest.peek() {
            if !inside && (next.is_whitespace() || next == '#') {
                break;
            }
            rest.next();
            match next {
                '"' => {
                    inside = !inside;
                    quoted = true;
                }
                next => word.push(next),
            }
        }
        if inside {
            return Err("a quotation mark is not closed".to_owned());
        }
        words.push((word, quoted));
    }
    Ok(words)
}

/// The rule of a line; `None` for an empty one and for what there is nothing here for.
fn parse_rule(line: &str) -> Result<Option<Rule>, String> {
    let words = words(line)?;
    let Some((kind, _)) = words.first() else { return Ok(None) };
    let transport = match kind.as_str() {
        "host" => Transport::Any,
        "hostssl" => Transport::Encrypted,
        "hostnossl" => Transport::Plain,
        "local" | "hostgssenc" => return Ok(None),
        "hostnogssenc" => Transport::Any,
        kind if kind.starts_with('@') || kind.starts_with("include") => {
            return Err("other files cannot be included".to_owned());
        }
        kind => return Err(format!("\"{kind}\" is no type of connection")),
    };
    let [_, database, user, address, rest @ ..] = words.as_slice() else {
        return Err("a rule has a type, a database, a user, an address and a method".to_owned());
    };
    let (network, rest) = parse_network(&address.0, rest)?;
    let [(method, _), options @ ..] = rest else { return Err("the method is missing".to_owned()) };
    if let Some((option, _)) = options.first() {
        return Err(format!("the option \"{option}\" is not known"));
    }
    let method = match method.as_str() {
        "trust" => Method::Trust,
        "reject" => Method::Reject,
        // As in PostgreSQL, md5 asks by SCRAM where that is what is kept of the password: here it always is.
        "scram-sha-256" | "md5" => Method::Scram,
        method => return Err(format!("there is no method \"{method}\" (there are trust, reject and scram-sha-256)")),
    };
    let ours = database.0.split(',').any(|name| match (name, database.1) {
        ("all" | "sameuser" | "samerole" | "samegroup", false) => name == "all",
        (name, _) => name == DATABASE,
    });
    if !ours {
        return Ok(None);
    }
    let who = |name: &str| match (name, user.1) {
        ("all", false) => Ok(Who::All),
        (name, false) if name.starts_with('/') => Err("regular expressions are not supported".to_owned()),
        (name, false) if name.starts_with('@') => Err("other files cannot be included".to_owned()),
        (name, false) if name.starts_with('+') => Ok(Who::Group(name[1..].to_owned())),
        (name, _) => Ok(Who::Name(name.to_owned())),
    };
    let users = match user.1 {
        true => vec![Who::Name(user.0.clone())],
        false => user.0.split(',').map(who).collect::<Result<_, _>>()?,
    };
    Ok(Some(Rule { transport, users, network, method }))
}

type Network = Option<(IpAddr, u8)>;
/// A word, and whether it stood in quotes.
type Word = (String, bool);

/// The addresses that a rule is about, and the words behind them: the address may be followed by a mask.
fn parse_network<'a>(word: &str, rest: &'a [Word]) -> Result<(Network, &'a [Word]), String> {
    match word {
        "all" => return Ok((None, rest)),
        "samehost" | "samenet" => return Err(format!("\"{word}\" is not supported; write the addresses")),
        _ => {}
    }
    let wrong = || format!("\"{word}\" is no address (names of hosts are not looked up)");
    if let Some((address, bits)) = word.split_once('/') {
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let widest = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse().ok().filter(|bits| *bits <= widest).ok_or_else(wrong)?;
        return Ok((Some((address, bits)), rest));
    }
    let address: IpAddr = word.parse().map_err(|_| wrong())?;
    let [(mask, _), rest @ ..] = rest else { return Err("the mask is missing".to_owned()) };
    let mask: IpAddr = mask.parse().map_err(|_| format!("\"{mask}\" is no mask"))?;
    let (ones, zeros, same) = match mask {
        IpAddr::V4(mask) => (mask.to_bits().leading_ones(), mask.to_bits().trailing_zeros(), address.is_ipv4()),
        IpAddr::V6(mask) => (mask.to_bits().leading_ones(), mask.to_bits().trailing_zeros(), address.is_ipv6()),
    };
    let width = if address.is_ipv4() { 32 } else { 128 };
    if !same || ones + zeros.min(width) != width {
        return Err(format!("\"{mask}\" is no mask of {address}"));
    }
    Ok((Some((address, ones as u8)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str, client: &str, encrypted: bool, user: &str) -> Option<Method> {
        let is_member = |group: &str| group == "staff" && user == "ann";
        Rules::parse(text).unwrap().method(client.parse().unwrap(), encrypted, user, &is_member)
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let text = "
            # TYPE  DATABASE  USER  ADDRESS  METHOD
            local   all       all                    peer
            host    other     all   all              trust
            hostssl all       eve   all              reject
            host    all       \"all\" all            trust   # only the user of that name
            host    postgres,x +staff,bob 10.1.0.0/16 trust
            host    all       all   192.168.7.0 255.255.255.0 md5
            hostnossl all     all   all              reject
            host    all       all   ::1/128          scram-sha-256";
        assert_eq!(asked(text, "10.1.2.3", false, "ann"), Some(Method::Trust));
        assert_eq!(asked(text, "::ffff:10.1.2.3", false, "bob"), Some(Method::Trust));
        assert_eq!(asked(text, "10.2.2.3", false, "bob"), Some(Method::Reject));
        assert_eq!(asked(text, "10.2.2.3", true, "bob"), None);
        assert_eq!(asked(text, "192.168.7.255", true, "bob"), Some(Method::Scram));
        assert_eq!(asked(text, "192.168.7.255", true, "eve"), Some(Method::Reject));
        assert_eq!(asked(text, "1.1.1.1", false, "all"), Some(Method::Trust));
        assert_eq!(asked(text, "::1", true, "bob"), Some(Method::Scram));
    }

    #[test]
    fn without_a_file_only_this_machine_is_trusted() {
        let usual = |client: &str| Rules::usual(false).method(client.parse().unwrap(), false, "ann", &|_| false);
        assert_eq!(usual("127.0.0.1"), Some(Method::Trust));
        assert_eq!(usual("::1"), Some(Method::Trust));
        assert_eq!(usual("10.0.0.1"), Some(Method::Scram));
        assert_eq!(usual("2001:db8::1"), Some(Method::Scram));
        assert!(!Rules::usual(false).trust_remote() && Rules::usual(true).trust_remote());
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        for wrong in [
            "host all all",
            "host all all all",
            "host all all all ldap",
            "host all all all trust map=x",
            "host all all example.org trust",
            "host all all 10.0.0.0/33 trust",
            "host all all 10.0.0.0 255.0.255.0 trust",
            "host all all ::1 255.255.255.255 trust",
            "host all \"all all trust",
            "host all /^a all trust",
            "hots all all all trust",
            "@more",
        ] {
            let error = Rules::parse(&format!("\n{wrong}")).expect_err(wrong);
            assert!(matches!(error, ServerError::Rules { line: 2, .. }), "{wrong}: {error}");
        }
    }

    #[test]
    fn networks_of_any_width() {
        let any: IpAddr = "203.0.113.9".parse().unwrap();
        assert!(is_in(any, ("0.0.0.0".parse().unwrap(), 0)));
        assert!(!is_in(any, ("::".parse().unwrap(), 0)));
        assert!(is_in("2001:db8::7".parse().unwrap(), ("2001:db8::".parse().unwrap(), 32)));
    }
}
