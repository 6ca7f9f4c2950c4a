//! Does somebody know a password? SCRAM-SHA-256 (RFC 5802, RFC 7677) as PostgreSQL keeps and asks it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use homenode_types::{Error, Result, SqlState};
use sha2::{Digest, Sha256};
use std::fmt;

const KEY_BYTES: usize = 32;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 18;
/// PostgreSQL's number, so that a verifier costs here what it costs there.
const ITERATIONS: u32 = 4096;

/// What is kept of a password: enough to check that somebody knows it, not enough to log in as them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: [u8; KEY_BYTES],
    server_key: [u8; KEY_BYTES],
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| STANDARD.encode(bytes);
        let (stored, server) = (text(&self.stored_key), text(&self.server_key));
        write!(f, "SCRAM-SHA-256${}:{}${stored}:{server}", self.iterations, text(&self.salt))
    }
}

impl Verifier {
    /// Reads what [`Verifier`] prints, which is PostgreSQL's form too.
    pub fn parse(text: &str) -> Option<Verifier> {
        let rest = text.strip_prefix("SCRAM-SHA-256$")?;
        let (parameters, keys) = rest.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        Some(Verifier {
            iterations: iterations.parse().ok().filter(|count| *count > 0)?,
            salt: STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty())?,
            stored_key: STANDARD.decode(stored).ok()?.try_into().ok()?,
            server_key: STANDARD.decode(server).ok()?.try_into().ok()?,
        })
    }

    /// A new one of a password, with a salt of its own.
    ///
    /// # Errors
    /// XX000 when the system gives no random numbers.
    pub fn of(password: &str) -> Result<Verifier> {
        let mut salt = [0; SALT_BYTES];
        random(&mut salt)?;
        Ok(Verifier::with_salt(password, &salt, ITERATIONS))
    }

    /// One that no password fits, for a role that is not there or has none: the exchange looks the same from outside. Its salt
    /// has to be the same each time the name is asked for, hence `secret`.
    pub fn of_nobody(name: &str, secret: &[u8]) -> Verifier {
        let digest = hmac(secret, &[name.as_bytes()]);
        Verifier {
            iterations: ITERATIONS,
            salt: digest[..SALT_BYTES].to_vec(),
            stored_key: [0; KEY_BYTES],
            server_key: digest,
        }
    }

    fn with_salt(password: &str, salt: &[u8], iterations: u32) -> Verifier {
        // What is no valid text for SASLprep is taken as it is, as PostgreSQL does.
        let prepared = stringprep::saslprep(password);
        let password = prepared.as_deref().unwrap_or(password).as_bytes();
        let mut block = hmac(password, &[salt, &[0, 0, 0, 1]]);
        let mut salted = block;
        for _ in 1..iterations {
            block = hmac(password, &[&block]);
            salted.iter_mut().zip(block).for_each(|(all, one)| *all ^= one);
        }
        let client_key = hmac(&salted, &[b"Client Key"]);
        Verifier {
            iterations,
            salt: salt.to_vec(),
            stored_key: Sha256::digest(client_key).into(),
            server_key: hmac(&salted, &[b"Server Key"]),
        }
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; KEY_BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

fn random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|error| Error::internal(format!("no random numbers: {error}")))
}

/// Random bytes that a server keeps to itself while it runs, for [`Verifier::of_nobody`].
///
/// # Errors
/// XX000 when the system gives none.
pub fn new_secret() -> Result<[u8; KEY_BYTES]> {
    let mut secret = [0; KEY_BYTES];
    random(&mut secret)?;
    Ok(secret)
}

/// How the client wants the exchange tied to the TLS connection below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binding<'a> {
    /// The connection is not encrypted, or no binding was offered.
    None,
    /// `tls-server-end-point` (RFC 5929): the hash of the server's certificate. It was offered.
    Offered(&'a [u8]),
}

/// One exchange, from the server's side.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    /// The client's GS2 header, and what the binding has to be.
    expected_binding: Vec<u8>,
    client_first: String,
    server_first: String,
    nonce: String,
}

fn violation(message: &str) -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, format!("malformed SCRAM message: {message}"))
}

/// The value of attribute `name` at the start of a message, and the rest.
fn attribute(text: &str, name: char) -> Result<(&str, &str)> {
    let rest = text.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
    let rest = rest.ok_or_else(|| violation(&format!("attribute \"{name}\" expected")))?;
    Ok(rest.split_once(',').unwrap_or((rest, "")))
}

impl Exchange {
    /// Takes the client's first message and gives the server's. `plus`: the client chose SCRAM-SHA-256-PLUS.
    ///
    /// # Errors
    /// 08P01 for a message that is none; 28000 when the client takes a binding for impossible that was offered, which means that
    /// somebody is between the two (RFC 5802, section 6).
    pub fn begin(verifier: Verifier, message: &[u8], plus: bool, binding: Binding<'_>) -> Result<(Exchange, Vec<u8>)> {
        let text = std::str::from_utf8(message).map_err(|_| violation("not UTF-8"))?;
        let (flag, rest) = text.split_once(',').ok_or_else(|| violation("no GS2 header"))?;
        let (authorization, bare) = rest.split_once(',').ok_or_else(|| violation("no GS2 header"))?;
        if !authorization.is_empty() {
            return Err(Error::unsupported("SCRAM with an authorization identity"));
        }
        let header = format!("{flag},,");
        let mut expected_binding = header.into_bytes();
        match (flag, plus, binding) {
            ("n", false, _) | ("y", false, Binding::None) => {}
            ("y", false, Binding::Offered(_)) => {
                let message = "SCRAM channel binding negotiation error";
                return Err(Error::new(SqlState::INVALID_AUTHORIZATION, message).with_detail(
                    "The client supports SCRAM channel binding but thinks the server does not.  \
                                  However, this server does support channel binding.",
                ));
            }
            ("p=tls-server-end-point", true, Binding::Offered(hash)) => expected_binding.extend_from_slice(hash),
            (flag, _, _) if flag.starts_with("p=") => return Err(violation("unsupported channel-binding type")),
            _ => return Err(violation("unexpected channel-binding flag")),
        }
        if bare.starts_with("m=") {
            return Err(Error::unsupported("SCRAM extensions"));
        }
        // The name is the one of the start-up packet, whatever stands here (as in PostgreSQL).
        let (_, rest) = attribute(bare, 'n')?;
        let (client_nonce, _) = attribute(rest, 'r')?;
        if client_nonce.is_empty() || !client_nonce.bytes().all(|byte| matches!(byte, 0x21..=0x7e)) {
            return Err(violation("unprintable nonce"));
        }
        let mut own = [0; NONCE_BYTES];
        random(&mut own)?;
        let nonce = format!("{client_nonce}{}", STANDARD.encode(own));
        let server_first = format!("r={nonce},s={},i={}", STANDARD.encode(&verifier.salt), verifier.iterations);
        let answer = server_first.clone().into_bytes();
        let client_first = bare.to_owned();
        Ok((Exchange { verifier, expected_binding, client_first, server_first, nonce }, answer))
    }

    /// Takes the client's last message. Gives the server's if the client has proven that it knows the password.
    ///
    /// # Errors
    /// 08P01 for a message that is none.
    pub fn finish(self, message: &[u8]) -> Result<Option<Vec<u8>>> {
        let text = std::str::from_utf8(message).map_err(|_| violation("not UTF-8"))?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or_else(|| violation("no proof"))?;
        let (binding, rest) = attribute(without_proof, 'c')?;
        let (nonce, _) = attribute(rest, 'r')?;
        let proof: [u8; KEY_BYTES] = STANDARD
            .decode(proof)
            .ok()
            .and_then(|proof| proof.try_into().ok())
            .ok_or_else(|| violation("malformed proof"))?;
        if STANDARD.decode(binding).ok().as_ref() != Some(&self.expected_binding) {
            let message = "SCRAM channel binding check failed";
            return Err(Error::new(SqlState::INVALID_AUTHORIZATION, message));
        }
        if nonce != self.nonce {
            return Err(violation("nonce does not match"));
        }
        let signed = [self.client_first.as_bytes(), b",", self.server_first.as_bytes(), b",", without_proof.as_bytes()];
        let mut client_key = hmac(&self.verifier.stored_key, &signed);
        client_key.iter_mut().zip(proof).for_each(|(key, proof)| *key ^= proof);
        let digest: [u8; KEY_BYTES] = Sha256::digest(client_key).into();
        // All bytes are looked at, so that the time does not say how many were right.
        let difference = digest.iter().zip(&self.verifier.stored_key).fold(0, |all, (a, b)| all | (a ^ b));
        if difference != 0 {
            return Ok(None);
        }
        let signature = STANDARD.encode(hmac(&self.verifier.server_key, &signed));
        Ok(Some(format!("v={signature}").into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3, whose server's part of the nonce is put in place of our random one.
    #[test]
    fn the_rfcs_own_exchange() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::with_salt("pencil", &salt, 4096);
        let (mut exchange, _) =
            Exchange::begin(verifier, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", false, Binding::None).unwrap();
        exchange.nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned();
        exchange.server_first = format!("r={},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", exchange.nonce);
        let last = format!("c=biws,r={},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", exchange.nonce);
        let answer = exchange.finish(last.as_bytes()).unwrap().unwrap();
        assert_eq!(answer, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn verifiers_are_read_as_written() {
        let verifier = Verifier::of("secret").unwrap();
        assert_eq!(Verifier::parse(&verifier.to_string()), Some(verifier.clone()));
        assert_ne!(Verifier::of("secret").unwrap(), verifier, "every salt is new");
        for wrong in ["", "SCRAM-SHA-256$", "SCRAM-SHA-256$0:YQ==$a:b", "SCRAM-SHA-256$4096:YQ==$YQ==:YQ=="] {
            assert_eq!(Verifier::parse(wrong), None, "{wrong}");
        }
    }

    fn begin(message: &[u8], plus: bool, binding: Binding<'_>) -> Result<(Exchange, Vec<u8>)> {
        Exchange::begin(Verifier::with_salt("x", b"salt", 2), message, plus, binding)
    }

    #[test]
    fn a_binding_that_was_hidden_from_the_client_is_noticed() {
        let offered = Binding::Offered(b"hash");
        assert_eq!(begin(b"y,,n=,r=abc", false, offered).unwrap_err().code, SqlState::INVALID_AUTHORIZATION);
        assert!(begin(b"y,,n=,r=abc", false, Binding::None).is_ok());
        assert!(begin(b"n,,n=,r=abc", false, offered).is_ok());
        let (exchange, _) = begin(b"p=tls-server-end-point,,n=,r=abc", true, offered).unwrap();
        let wrong = format!(
            "c={},r={},p={}",
            STANDARD.encode("p=tls-server-end-point,,other"),
            exchange.nonce,
            STANDARD.encode([0; 32])
        );
        assert_eq!(exchange.finish(wrong.as_bytes()).unwrap_err().code, SqlState::INVALID_AUTHORIZATION);
    }

    #[test]
    fn nobody_is_never_let_in() {
        let nobody = Verifier::of_nobody("ann", b"secret");
        assert_eq!(nobody, Verifier::of_nobody("ann", b"secret"));
        assert_ne!(nobody.salt, Verifier::of_nobody("bob", b"secret").salt);
        let (exchange, _) = Exchange::begin(nobody, b"n,,n=,r=abc", false, Binding::None).unwrap();
        let last = format!("c=biws,r={},p={}", exchange.nonce, STANDARD.encode([0; 32]));
        assert_eq!(exchange.finish(last.as_bytes()).unwrap(), None);
    }

    proptest::proptest! {
        #[test]
        fn any_message_is_safe(first in proptest::collection::vec(proptest::num::u8::ANY, 0..80), last in "[a-z=,]{0,60}") {
            let _ = begin(&first, false, Binding::None);
            if let Ok((exchange, _)) = begin(b"n,,n=,r=abc", false, Binding::None) {
                let _ = exchange.finish(last.as_bytes());
            }
        }
    }
}
